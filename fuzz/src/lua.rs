//! Scripts of apps in Lua: whatever stands in one, it reaches nothing but its own packets.

use carina_apps::sink::SinkConfig;
use carina_apps::source::SourceConfig;
use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, Network};
use carina_lua::config::{LuaConfig, Script};
use carina_time::Instant;

/// Scripts.
pub fn lua_script(data: &[u8]) {
    runs_lua_script(data);
}

/// Runs the bytes as a script between a source and a sink. True when its app was made and was not
/// stopped. However it behaves, no frame is lost, and none leaves with a length that the pool
/// cannot have.
pub fn runs_lua_script(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let pool = POOL.with(Pool::clone);
    let counters = COUNTERS.with(CounterFile::clone);
    let mut network = Network::new(pool.clone(), counters).expect("a network");
    let source = SourceConfig {
        count: Some(100),
        ..SourceConfig::default()
    };
    let config = LuaConfig::new(Script::of("fuzz.lua", text), Default::default());
    let mut graph = Graph::new();
    graph.app("source", source).app("sink", SinkConfig {});
    graph.app("script", config.with_budget_ms(20));
    for link in [
        "source.output -> script.input",
        "script.output -> sink.input",
    ] {
        graph.link(link).expect("a link");
    }
    let made = network.configure(&graph);
    for second in 0..4 {
        network.breathe(Instant::from_secs(second));
    }
    let (notices, _) = network.notices().take();
    let links = network.link_counts();
    for (_, counts) in links.filter(|(name, _)| name.to.app == "sink") {
        assert!(counts.bytes <= counts.packets * (FRAME_BYTES as u64 + ROOM));
    }
    drop(network);
    assert_eq!(pool.spare(), FRAMES, "frames were lost");
    made.is_ok() && notices.iter().all(|notice| !notice.has_stopped)
}

const FRAMES: usize = 2048;
const FRAME_BYTES: usize = 256;
/// Of a frame in front of its bytes.
const ROOM: u64 = 192;

thread_local! {
    static POOL: Pool = Pool::new(PoolConfig {
        frames: FRAMES,
        frame_bytes: FRAME_BYTES,
    })
    .expect("a pool");
    static COUNTERS: CounterFile = CounterFile::private().expect("counters");
}
