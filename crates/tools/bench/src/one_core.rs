//! Runs a graph of apps on the calling thread.

use std::cell::RefCell;
use std::rc::Rc;

use carina_engine::counters::{Kind, Table};
use carina_engine::{Engine, NetworkApp};
use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, LinkCounts, LinkName, Network};
use carina_sys::{CpuClock, cpu_time_ns, monotonic_ns, pin_to_cpu};
use carina_time::Instant;

use crate::error::{Attempt, Error, Result};

/// An engine whose only app is a network of apps.
pub(crate) struct OneCore {
    engine: Engine,
    network: Rc<RefCell<Network>>,
}

/// Counts of the links in an interval.
pub(crate) struct Passed {
    links: Vec<(LinkName, LinkCounts)>,
    /// Length of the interval in ns.
    pub(crate) wall_ns: f64,
    /// CPU time of the thread in the interval, in ns.
    pub(crate) cpu_ns: f64,
}

impl OneCore {
    /// An engine with the graph, and with a pool of frames.
    pub(crate) fn new(graph: &Graph, pool: PoolConfig) -> Result<OneCore> {
        let counters = CounterFile::private().attempt("counters")?;
        let mut network = Network::new(Pool::new(pool)?, counters).attempt("a network")?;
        let configured = network.configure(graph);
        configured.map_err(|error| Error::Graph(error.to_string()))?;
        let network = Rc::new(RefCell::new(network));
        let table = Table::private().attempt("counters")?;
        let row = table.row(Kind::Engine, 0, "bench");
        let mut engine = Engine::new(row, carina_engine::Pool::new(0)).attempt("an engine")?;
        let id = engine.reserve();
        let app = NetworkApp::new(Rc::clone(&network)).attempt("the network's app")?;
        engine.add(id, Box::new(app)).attempt("the network's app")?;
        Ok(OneCore { engine, network })
    }

    /// Runs on `cpu`: for a third of `time_ns` to warm up, and then for `time_ns`. Returns the
    /// counts of the latter.
    pub(crate) fn measure(&mut self, cpu: usize, time_ns: u64) -> Result<Passed> {
        pin_to_cpu(cpu).attempt("pinning the data plane")?;
        self.run(time_ns / 3)?;
        self.run(time_ns)
    }

    /// Runs for `time_ns`, and returns the counts.
    pub(crate) fn run(&mut self, time_ns: u64) -> Result<Passed> {
        let before = self.links();
        let (start, cpu_start) = (monotonic_ns(), cpu_time_ns(CpuClock::Thread));
        let mut now = start;
        while now < start + time_ns {
            let moved = self.engine.breathe(Instant::from_nanos(now));
            self.engine.rest(moved).attempt("the engine's rest")?;
            now = monotonic_ns();
        }
        let cpu_ns = (cpu_time_ns(CpuClock::Thread) - cpu_start) as f64;
        let wall_ns = (now - start) as f64;
        let mut links = self.links();
        for ((_, after), (_, before)) in links.iter_mut().zip(&before) {
            after.packets -= before.packets;
            after.bytes -= before.bytes;
            after.drops -= before.drops;
        }
        Ok(Passed {
            links,
            wall_ns,
            cpu_ns,
        })
    }

    fn links(&self) -> Vec<(LinkName, LinkCounts)> {
        let network = self.network.borrow();
        let links = network.link_counts();
        links.map(|(name, counts)| (name.clone(), counts)).collect()
    }
}

impl Passed {
    /// Number of frames on those links for which `is_wanted` is true.
    pub(crate) fn frames(&self, is_wanted: impl Fn(&LinkName) -> bool) -> u64 {
        let wanted = self.links.iter().filter(|(name, _)| is_wanted(name));
        wanted.map(|(_, counts)| counts.packets).sum()
    }

    /// Number of bytes on those links for which `is_wanted` is true.
    pub(crate) fn bytes(&self, is_wanted: impl Fn(&LinkName) -> bool) -> u64 {
        let wanted = self.links.iter().filter(|(name, _)| is_wanted(name));
        wanted.map(|(_, counts)| counts.bytes).sum()
    }

    /// Number of frames that found a link full.
    pub(crate) fn drops(&self) -> u64 {
        self.links.iter().map(|(_, counts)| counts.drops).sum()
    }
}
