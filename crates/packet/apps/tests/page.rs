//! Checks `docs/how-to/writing-an-app.md`: its app is compiled here, and does what the page says.
//! Checks `docs/reference/apps.md`: its graphs are valid, and it lists every kind of app.

use carina_apps::sink::SinkConfig;
use carina_apps::source::SourceConfig;
use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, Network};
use carina_time::Instant;

use crate::only::OnlyConfig;

const PAGE: &str = include_str!("../../../../docs/how-to/writing-an-app.md");
const APPS: &str = include_str!("../../../../docs/reference/apps.md");

#[test]
fn page_shows_the_app_that_is_compiled_here() {
    let block = PAGE.split("```rust\n").nth(1).unwrap();
    let (block, _) = block.split_once("```").unwrap();
    assert!(
        block == include_str!("only.rs"),
        "the page and tests/only.rs differ"
    );
}

#[test]
fn graphs_of_the_page_are_right() {
    for page in [PAGE, APPS] {
        let blocks: Vec<&str> = page.split("```toml\n").skip(1).collect();
        assert!(!blocks.is_empty());
        for block in blocks {
            let (block, _) = block.split_once("```").unwrap();
            let graph = carina_graph::graph_file::read_graph(block).unwrap();
            let pool = Pool::new(PoolConfig::default()).unwrap();
            let mut network = Network::new(pool, CounterFile::private().unwrap()).unwrap();
            network.configure(&graph).unwrap();
        }
    }
}

#[test]
fn page_of_apps_has_every_kind() {
    for kind in carina_graph::graph_file::KINDS {
        assert!(APPS.contains(&format!("`{}`", kind.name)), "{}", kind.name);
    }
}

#[test]
fn app_of_the_page_lets_its_type_pass() {
    for (ethertype, passed) in [(0x0800, 10), (0x86dd, 0)] {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let mut network = Network::new(pool, CounterFile::private().unwrap()).unwrap();
        let source = SourceConfig {
            count: Some(10),
            ..SourceConfig::default()
        };
        let mut graph = Graph::new();
        graph.app("source", source).app("sink", SinkConfig {});
        graph.app("only", OnlyConfig { ethertype });
        graph.link("source.output -> only.input").unwrap();
        graph.link("only.output -> sink.input").unwrap();
        network.configure(&graph).unwrap();
        network.breathe(Instant::ZERO);
        let to_sink = network
            .link_counts()
            .find(|(name, _)| name.to.app == "sink");
        assert_eq!(to_sink.unwrap().1.packets, passed);
    }
}
