//! A graph that runs in a namespace while the test watches its counters.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_frame::PoolConfig;
use carina_frame_engine::counter_file;
use carina_graph::graph_file::read_graph_of;
use carina_graph::runner::GraphRunner;
use carina_ports::KINDS;

use crate::room::Room;
use crate::traffic::PATIENCE;

/// A running graph, on a thread of its own in a namespace.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    cpu_ns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    counters: PathBuf,
}

impl Running {
    pub(crate) fn new(room: &Room, graph: &str) -> Running {
        Running::with(room, graph, PoolConfig::default()).unwrap()
    }

    /// Starts a graph, or returns the error.
    pub(crate) fn with(room: &Room, graph: &str, pool: PoolConfig) -> Result<Running, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("carina-ports-{}-{number}", std::process::id());
        let counters = std::env::temp_dir().join(name);
        let (stop, cpu_ns) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (is_over, spent, path) = (Arc::clone(&stop), Arc::clone(&cpu_ns), counters.clone());
        let graph = graph.to_owned();
        let (started, is_started) = channel();
        let thread = room.run(move || {
            std::thread::spawn(move || {
                let graph = read_graph_of(&graph, &KINDS).map_err(|error| error.to_string());
                let mut runner = GraphRunner::new(pool, Some(&path)).unwrap();
                let done = graph.and_then(|graph| {
                    let configured = runner.configure(&graph).map(drop);
                    configured.map_err(|error| error.to_string())
                });
                let goes_on = done.is_ok();
                started.send(done).unwrap();
                while goes_on && !is_over.load(Ordering::Relaxed) {
                    runner
                        .run_for(carina_time::Duration::from_millis(20))
                        .unwrap();
                    let workers = runner.workers().unwrap();
                    let cpu_ns = workers.iter().map(|worker| worker.cpu_ns).sum();
                    spent.store(cpu_ns, Ordering::Relaxed);
                }
            })
        });
        let running = Running {
            stop,
            cpu_ns,
            thread: Some(thread),
            counters,
        };
        is_started.recv().unwrap().map(|()| running)
    }

    /// The value of a counter of an app or a link.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.find(name)
            .unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// The value of a counter; `None` if no counter has this name.
    pub(crate) fn find(&self, name: &str) -> Option<u64> {
        let all = counter_file::read(&self.counters).unwrap();
        let found = all.iter().find(|reading| reading.name == name);
        found.map(|reading| reading.value)
    }

    /// Asserts that an app has dropped nothing for these reasons.
    pub(crate) fn has_not_dropped(&self, app: &str, reasons: &[&str]) {
        for reason in reasons {
            let name = format!("{app}/drop_{reason}");
            assert_eq!(self.counter(&name), 0, "{name}");
        }
    }

    /// Waits until `is_so` holds for a counter.
    pub(crate) fn until(&self, name: &str, is_so: impl Fn(u64) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self.counter(name)) {
            assert!(Instant::now() < end, "{name} is {}", self.counter(name));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asserts that the idle thread uses almost no CPU time. Other load on the machine can only
    /// make its wake-ups more expensive, so the best of several seconds counts.
    pub(crate) fn rests(&self) {
        let enough = Duration::from_millis(50);
        let mut spent = Duration::MAX;
        for _ in 0..30 {
            let before = self.cpu_time();
            std::thread::sleep(Duration::from_secs(1));
            spent = spent.min(self.cpu_time() - before);
            if spent < enough {
                return;
            }
        }
        panic!("{spent:?} in an idle second");
    }

    /// CPU time that the thread has used so far.
    fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.counters);
    }
}
