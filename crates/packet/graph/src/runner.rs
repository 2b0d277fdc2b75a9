//! Runs a graph on worker threads.

use std::io;
use std::path::Path;

use carina_frame::{PoolConfig, PoolError};
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{
    ConfigureError, Difference, Graph, LinkCounts, LinkName, Notices, WorkerReport, Workers,
};
use carina_sys::{EventFd, raise_nofile_limit};
use carina_time::Duration;

use crate::trace::TraceServer;

/// Runs one graph on as many threads as it asks for. A thread sleeps while its apps have nothing to
/// do.
pub struct GraphRunner {
    // Must be dropped before `traces`, so that traces get all frames.
    workers: Workers,
    cpus: Option<Vec<usize>>,
    traces: Option<TraceServer>,
}

/// Why a runner cannot be made, or has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// The pool of frames is invalid, or has no memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The file of counters, or the socket for traces in the same directory, cannot be made.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The worker of this number has ended, because one of its apps panicked.
    #[error("worker {0} has ended")]
    Ended(usize),
}

impl GraphRunner {
    /// Makes a runner without apps, whose workers will each have a pool with the configuration
    /// `pool`. With `counters`, other processes can read the counters in this file, and trace the
    /// graph's links ([`crate::trace`]). Raises the process's limit of open files to its hard
    /// limit, because 64 guests' cards need more than the usual soft limit.
    ///
    /// # Errors
    /// The pool is invalid, or the file or the socket cannot be made.
    pub fn new(pool: PoolConfig, counters: Option<&Path>) -> Result<GraphRunner, RunnerError> {
        pool.check()?;
        // If this fails, the limit suffices for fewer ports; the error of the port beyond it names
        // the cause.
        let _ = raise_nofile_limit();
        let file = match counters {
            Some(path) => CounterFile::create(path)?,
            None => CounterFile::private()?,
        };
        Ok(GraphRunner {
            workers: Workers::new(pool, file),
            cpus: None,
            traces: counters.map(TraceServer::new).transpose()?,
        })
    }

    /// Sets the processors of the workers, one for each worker, for all later calls of
    /// [`GraphRunner::configure`]. Overrides the processors that graphs specify.
    pub fn run_on(&mut self, cpus: &[usize]) {
        self.cpus = Some(cpus.to_vec());
    }

    /// Changes the running graph to `graph`: makes new and changed apps, removes others, and lets
    /// unchanged apps run on with their state. Returns what was changed.
    ///
    /// # Errors
    /// The graph is invalid, or an app cannot be made. The old graph keeps running unchanged.
    pub fn configure(&mut self, graph: &Graph) -> Result<Difference, ConfigureError> {
        match &self.cpus {
            None => self.workers.configure(graph),
            Some(cpus) => {
                let mut graph = graph.clone();
                self.workers.configure(graph.cpus(cpus))
            }
        }
    }

    /// Blocks for the duration `time` while the workers run, and serves requests to trace links
    /// meanwhile.
    ///
    /// # Errors
    /// A worker has ended.
    pub fn run_for(&mut self, time: Duration) -> Result<(), RunnerError> {
        let time = std::time::Duration::from_nanos(time.as_nanos());
        match &self.traces {
            Some(traces) => traces.serve_for(&self.workers, time),
            None => std::thread::sleep(time),
        }
        self.check()
    }

    /// Like [`GraphRunner::run_for`], but returns early when `event` is signalled. Does not reset
    /// the event.
    ///
    /// # Errors
    /// A worker has ended, or the system refuses to wait for the event.
    pub fn run_until(&mut self, event: &EventFd, time: Duration) -> Result<(), RunnerError> {
        match &self.traces {
            Some(traces) => {
                let time = std::time::Duration::from_nanos(time.as_nanos());
                traces.serve_until(&self.workers, event, time)?;
            }
            None => {
                event.wait(Some(time.as_nanos()))?;
            }
        }
        self.check()
    }

    fn check(&self) -> Result<(), RunnerError> {
        match self.workers.ended() {
            Some(worker) => Err(RunnerError::Ended(worker)),
            None => Ok(()),
        }
    }

    /// The list in which apps put notices to the operator.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        self.workers.notices()
    }

    /// The name of every link, with the packets, bytes and drops that it has counted.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn link_counts(&self) -> Result<Vec<(LinkName, LinkCounts)>, ConfigureError> {
        self.workers.link_counts()
    }

    /// A report about each worker: its processor, its apps and its CPU time.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn workers(&self) -> Result<Vec<WorkerReport>, ConfigureError> {
        self.workers.reports()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph_file::read_graph;

    const PACED: &str = "links = [\"a.o -> b.i\"]\n[apps.a]\nkind = \"source\"\nrate = 1000\n\
                         count = 20\n[apps.b]\nkind = \"sink\"\n";

    #[test]
    fn paced_source_runs_at_its_rate_while_its_worker_sleeps() {
        for graph in [PACED.to_owned(), format!("{PACED}worker = 1\n")] {
            let mut runner = GraphRunner::new(PoolConfig::default(), None).unwrap();
            let begin = std::time::Instant::now();
            let steps = runner.configure(&read_graph(&graph).unwrap()).unwrap();
            assert_eq!(steps.added, ["a", "b"]);
            let packets = |runner: &GraphRunner| runner.link_counts().unwrap()[0].1.packets;
            let early = (packets(&runner), begin.elapsed().as_millis() as u64);
            assert!(early.0 <= early.1 + 1, "frames, ms: {early:?}");
            // The loop ends when all 20 frames have passed, also on a busy machine.
            for _ in 0..100 {
                runner.run_for(Duration::from_millis(50)).unwrap();
                if packets(&runner) == 20 {
                    break;
                }
            }
            let counts = runner.link_counts().unwrap()[0].1;
            assert_eq!(
                (counts.packets, counts.bytes, counts.drops),
                (20, 20 * 64, 0)
            );
            // Nothing is left to do, so half a second costs almost no CPU time.
            let cpu_ns = |runner: &GraphRunner| -> u64 {
                let reports = runner.workers().unwrap();
                reports.iter().map(|report| report.cpu_ns).sum()
            };
            let before = cpu_ns(&runner);
            runner.run_for(Duration::from_millis(500)).unwrap();
            let spent = cpu_ns(&runner) - before;
            assert!(spent < 5_000_000, "{spent} ns of CPU time");
        }
    }

    #[test]
    fn run_ends_when_the_event_is_signalled() {
        let directory = tempfile::tempdir().unwrap();
        for counters in [None, Some(directory.path().join("a.counters"))] {
            let pool = PoolConfig::default();
            let mut runner = GraphRunner::new(pool, counters.as_deref()).unwrap();
            let event = EventFd::new().unwrap();
            let begin = std::time::Instant::now();
            let run = runner.run_until(&event, Duration::from_millis(20));
            assert!(run.is_ok() && begin.elapsed().as_millis() >= 20);
            event.signal();
            let begin = std::time::Instant::now();
            runner.run_until(&event, Duration::from_secs(600)).unwrap();
            assert!(begin.elapsed().as_secs() < 120);
            assert_eq!(event.drain(), 1);
        }
    }

    #[test]
    fn impossible_pool_is_refused_at_once() {
        let pool = PoolConfig {
            frames: 0,
            ..PoolConfig::default()
        };
        let error = GraphRunner::new(pool, None).err().unwrap();
        assert!(error.to_string().starts_with("a pool of 0 frames"));
    }
}
