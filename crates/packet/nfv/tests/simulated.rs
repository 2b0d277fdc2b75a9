//! Runs a configuration in simulated time, with queues in place of its ports.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::{self, CounterFile};
use carina_frame_engine::{
    AppConfig, AppContext, AppError, Difference, FrameApp, Network, Port, PortList, Ports,
};
use carina_nfv::traffic::counts::TrafficCounts;
use carina_nfv::traffic::graph::{graph, port_kinds};
use carina_nfv::traffic::{Defaults, Traffic, read};
use carina_time::Instant;

type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A port that consists of queues: frames to send, and frames that it received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    send: Queue,
    seen: Queue,
}

impl PartialEq for Probe {
    fn eq(&self, other: &Probe) -> bool {
        Arc::ptr_eq(&self.send, &other.send)
    }
}

pub(crate) struct ProbeApp(Probe, Pool);

const INPUT: PortList = PortList::Named(&[Port::optional("input")]);
const OUTPUT: PortList = PortList::Named(&[Port::optional("output")]);

impl AppConfig for Probe {
    const KIND: &'static str = "probe";
    const INPUTS: PortList = INPUT;
    const OUTPUTS: PortList = OUTPUT;
    type App = ProbeApp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<ProbeApp, AppError> {
        Ok(ProbeApp(self.clone(), context.pool().clone()))
    }
}

impl FrameApp for ProbeApp {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let waiting = &mut *self.0.send.lock().unwrap();
        ports.fill(0, usize::MAX, || self.1.frame_of(&waiting.pop_front()?));
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let seen = &mut *self.0.seen.lock().unwrap();
        ports.drain(0, |frame| seen.push_back(frame.bytes().to_vec()));
    }
}

/// A running configuration.
pub(crate) struct Bench {
    network: Network,
    counters: PathBuf,
    traffic: Traffic,
    probes: BTreeMap<String, Probe>,
    now: u64,
}

/// The text of a port. Its kind does not matter, because a probe replaces its app.
pub(crate) fn port(name: &str, more: &str) -> String {
    format!("[[ports]]\nname = \"{name}\"\napp = {{ kind = \"tap\", name = \"{name}\" }}\n{more}\n")
}

pub(crate) const UPLINK: &str = "[uplink]\nkind = \"tap\"\nname = \"uplink\"\n";

impl Bench {
    pub(crate) fn new(text: &str) -> Bench {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("carina-nfv-{}-{number}", std::process::id());
        let counters = std::env::temp_dir().join(name);
        let pool = PoolConfig {
            frames: 4096,
            frame_bytes: 2048,
        };
        let pool = Pool::new(pool).unwrap();
        let network = Network::new(pool, CounterFile::create(&counters).unwrap()).unwrap();
        let mut bench = Bench {
            network,
            counters,
            traffic: Traffic::default(),
            probes: BTreeMap::new(),
            now: 0,
        };
        bench.configure(text);
        bench
    }

    /// Applies the text of a file.
    pub(crate) fn configure(&mut self, text: &str) -> Difference {
        let traffic = read(text, &Defaults::default(), &port_kinds()).unwrap();
        let mut graph = graph(&traffic, &port_kinds()).unwrap();
        let ends = traffic.ports.iter();
        let ends = ends.map(|port| (port.name.clone(), format!("{}_port", port.stem())));
        let uplink = ("uplink".to_owned(), "uplink".to_owned());
        for (name, app) in ends.chain(traffic.uplink.is_some().then_some(uplink)) {
            graph.app(&app, self.probes.entry(name).or_default().clone());
        }
        self.traffic = traffic;
        self.network.configure(&graph).unwrap()
    }

    /// Lets a port send a frame in the next breath.
    pub(crate) fn send(&self, port: &str, frame: &[u8]) {
        let mut waiting = self.probes[port].send.lock().unwrap();
        waiting.push_back(frame.to_vec());
    }

    /// The frames that a port has received since the last call.
    pub(crate) fn seen(&self, port: &str) -> Vec<Vec<u8>> {
        self.probes[port].seen.lock().unwrap().drain(..).collect()
    }

    /// Breathes until all frames have passed, and then lets a millisecond pass.
    pub(crate) fn breathe(&mut self) {
        for _ in 0..4 {
            self.network.breathe(Instant::from_millis(self.now));
        }
        self.now += 1;
    }

    pub(crate) fn counts(&mut self) -> TrafficCounts {
        // Counters of links are updated every 20 ms.
        self.now += 100;
        self.breathe();
        TrafficCounts::of(&self.traffic, &counter_file::read(&self.counters).unwrap())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.counters);
    }
}
