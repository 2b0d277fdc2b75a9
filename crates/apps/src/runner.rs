//! A graph on a thread of its own making: an engine, a network, and the time to look around.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

use carina_engine::counter_file::CounterFile;
use carina_engine::counters::{Kind, Table};
use carina_engine::frames::{
    ConfigureError, Difference, Graph, LinkCounts, LinkName, Network, NetworkApp,
};
use carina_engine::{App, AppId, Engine};
use carina_frame::{Pool, PoolConfig, PoolError};
use carina_sys::monotonic_ns;
use carina_time::Duration;

/// Runs one graph on the calling thread. Sleeps while no app has anything to do.
pub struct GraphRunner {
    engine: Engine,
    network: Rc<RefCell<Network>>,
    app: AppId,
    alarm: AppId,
    alarm_at: Rc<Cell<u64>>,
}

/// Why there is no runner.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// No frames.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// No descriptor, or no file of counters.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Ends the engine's sleep at a time.
struct Alarm(Rc<Cell<u64>>);

impl App for Alarm {
    fn name(&self) -> &str {
        "alarm"
    }

    fn next_deadline(&self) -> Option<u64> {
        Some(self.0.get())
    }
}

impl GraphRunner {
    /// A runner without apps. Counters go to a file at `counters`, for other processes, or to none.
    ///
    /// # Errors
    /// Memory or a descriptor is not to be had.
    pub fn new(pool: PoolConfig, counters: Option<&Path>) -> Result<GraphRunner, RunnerError> {
        let counters = match counters {
            Some(path) => CounterFile::create(path)?,
            None => CounterFile::private()?,
        };
        let network = Network::new(Pool::new(pool)?, counters)?;
        let network = Rc::new(RefCell::new(network));
        let row = Table::private()?.row(Kind::Engine, 0, "graph");
        // Frames have a pool of their own; this one is for packets of flows.
        let mut engine = Engine::new(row, carina_engine::Pool::new(0))?;
        let alarm_at = Rc::new(Cell::new(0));
        let (app, alarm) = (engine.reserve(), engine.reserve());
        engine.add(app, Box::new(NetworkApp::new(Rc::clone(&network))?))?;
        engine.add(alarm, Box::new(Alarm(Rc::clone(&alarm_at))))?;
        Ok(GraphRunner {
            engine,
            network,
            app,
            alarm,
            alarm_at,
        })
    }

    /// Becomes `graph`, by difference.
    ///
    /// # Errors
    /// The graph is wrong or an app cannot be made; what ran goes on.
    pub fn configure(&mut self, graph: &Graph) -> Result<Difference, ConfigureError> {
        let difference = self.network.borrow_mut().configure(graph)?;
        self.engine.wake(self.app);
        Ok(difference)
    }

    /// Breathes for so long.
    ///
    /// # Errors
    /// The kernel's refusal to wait.
    pub fn run_for(&mut self, time: Duration) -> io::Result<()> {
        let end = monotonic_ns().saturating_add(time.as_nanos());
        self.alarm_at.set(end);
        self.engine.wake(self.alarm);
        loop {
            let now = monotonic_ns();
            if now >= end {
                return Ok(());
            }
            let moved = self.engine.breathe(now);
            self.engine.rest(moved)?;
        }
    }

    /// Every link with what went over it.
    #[must_use]
    pub fn link_counts(&self) -> Vec<(LinkName, LinkCounts)> {
        let network = self.network.borrow();
        let counts = network.link_counts();
        counts
            .map(|(name, counts)| (name.clone(), counts))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph_file::read_graph;

    #[test]
    fn paced_source_runs_at_its_rate_while_the_engine_sleeps() {
        let graph = "links = [\"a.o -> b.i\"]\n[apps.a]\nkind = \"source\"\nrate = 1000\ncount = 20\n\
                     [apps.b]\nkind = \"sink\"\n";
        let mut runner = GraphRunner::new(PoolConfig::default(), None).unwrap();
        let steps = runner.configure(&read_graph(graph).unwrap()).unwrap();
        assert_eq!(steps.added, ["a", "b"]);
        let before = carina_sys::cpu_time_ns(carina_sys::CpuClock::Thread);
        runner.run_for(Duration::from_millis(10)).unwrap();
        let early = runner.link_counts()[0].1.packets;
        assert!(early <= 10, "{early} frames in 10 ms");
        // However busy the machine is: the count ends it.
        for _ in 0..100 {
            runner.run_for(Duration::from_millis(50)).unwrap();
            if runner.link_counts()[0].1.packets == 20 {
                break;
            }
        }
        let counts = runner.link_counts()[0].1;
        assert_eq!(
            (counts.packets, counts.bytes, counts.drops),
            (20, 20 * 64, 0)
        );
        // Nothing is left to do: a second of it costs next to no CPU time.
        runner.run_for(Duration::from_millis(500)).unwrap();
        let spent = carina_sys::cpu_time_ns(carina_sys::CpuClock::Thread) - before;
        assert!(spent < 400_000_000, "{spent} ns of CPU time");
    }
}
