//! Checks `docs/reference/ports.md`: its graphs are valid, and it lists every kind.

use carina_graph::graph_file::read_graph_of;
use carina_ports::KINDS;

const PAGE: &str = include_str!("../../../../docs/reference/ports.md");

#[test]
fn graphs_of_the_page_are_right_and_kinds_are_on_it() {
    let blocks: Vec<&str> = PAGE.split("```toml\n").skip(1).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let (block, _) = block.split_once("```").unwrap();
        read_graph_of(block, &KINDS).unwrap();
    }
    for kind in KINDS {
        assert!(
            PAGE.contains(&format!("\n| `{}` |", kind.name)),
            "{}",
            kind.name
        );
    }
}
