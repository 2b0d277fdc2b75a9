//! A worker continues to move frames of other apps while it loads a script.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carina_frame::PoolConfig;
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Graph, PortList, Ports, Workers,
};
use carina_lua::config::{LuaConfig, Script};

/// An app that counts its visits, and never sleeps.
#[derive(Clone, Debug)]
struct Beat(Arc<AtomicU64>);

struct BeatApp(Arc<AtomicU64>);

impl PartialEq for Beat {
    fn eq(&self, other: &Beat) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AppConfig for Beat {
    const KIND: &'static str = "beat";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::NO_PORT;
    type App = BeatApp;

    fn build(&self, _: &mut AppContext<'_>) -> Result<BeatApp, AppError> {
        Ok(BeatApp(Arc::clone(&self.0)))
    }
}

impl FrameApp for BeatApp {
    fn pull(&mut self, _: &mut Ports<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn arm(&mut self) -> bool {
        false
    }
}

/// A Lua app and an app that counts its visits, on one worker.
struct Both {
    workers: Workers,
    visits: Arc<AtomicU64>,
}

impl Both {
    fn new() -> Both {
        let pool = PoolConfig {
            frames: 4096,
            frame_bytes: 2048,
        };
        Both {
            workers: Workers::new(pool, CounterFile::private().unwrap()),
            visits: Arc::default(),
        }
    }

    /// Loads a script; also returns how often the other app was visited meanwhile.
    fn load(&mut self, script: &str, budget_ms: u64) -> (Result<(), String>, u64) {
        let config = LuaConfig::new(Script::of("app.lua", script), toml::Table::new());
        let mut graph = Graph::new();
        graph.app("beat", Beat(Arc::clone(&self.visits)));
        graph.app("app", config.with_budget_ms(budget_ms));
        let before = self.visits.load(Ordering::Relaxed);
        let done = self.workers.configure(&graph);
        let after = self.visits.load(Ordering::Relaxed);
        let done = done.map(drop).map_err(|error| error.to_string());
        (done, after - before)
    }

    /// The line that the script printed in a tick.
    fn printed(&self) -> String {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            if let Some(notice) = self.workers.notices().take().0.pop() {
                return notice.text;
            }
            assert!(std::time::Instant::now() < deadline, "nothing was printed");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

const RIGHT: &str = "return { n = 5, tick = function() end }";

#[test]
fn script_that_loops_when_it_is_loaded_stalls_no_other_app() {
    let mut both = Both::new();
    both.load(RIGHT, 5).0.unwrap();
    for wrong in [
        "while true do end",
        "return { new = function() while true do end end, tick = function() end }",
        "return { new = function() while true do end end, tick = function() end, \
         inherit = function() end }",
    ] {
        let (done, visits) = both.load(wrong, 5);
        let error = done.unwrap_err();
        assert!(
            error.contains("app.lua:1: the call does not return"),
            "{error}"
        );
        // The script had 200 ms of CPU time, during which the worker continued.
        assert!(visits > 100, "{visits} visits: {wrong}");
    }
    both.load(RIGHT, 5).0.unwrap();
}

/// A script that takes long to load, and a script that inherits tables.
#[test]
fn only_a_script_that_inherits_is_loaded_between_two_breaths() {
    let script = |loops: u64, inherit: &str| {
        format!(
            "local sum = 0\nfor i = 1, {loops} do sum = sum + i % 7 end\nlocal App = {{}}\n\
             function App:new() return setmetatable({{ n = 0 }}, {{ __index = App }}) end\n\
             {inherit}\nfunction App:tick() self.n = self.n + 1; print(self.n >= 1000) end\n\
             return App"
        )
    };
    let inherit = "function App:inherit(old) self.n = old.n + 1000 end";
    let mut both = Both::new();
    let long = 100_000_000;
    both.load(&script(long, ""), 1000).0.unwrap();
    assert_eq!(both.printed(), "false");
    both.load(&script(1, inherit), 1000).0.unwrap();
    while both.printed() != "true" {}
    // A script without `inherit` starts from nothing.
    both.load(&script(2, ""), 1000).0.unwrap();
    while both.printed() != "false" {}
    // A script with `inherit` may not take longer to load than a call may.
    let error = both.load(&script(long, inherit), 10).0.unwrap_err();
    let wanted = "is loaded beside the one that runs, which must take at most 10 ms";
    assert!(error.contains(wanted), "{error}");
}
