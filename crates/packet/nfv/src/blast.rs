//! A load generator: sends packets at one port, and measures which of them come back at another
//! port, and when.
//!
//! ```text
//!   generator --> TX port ... what is measured ... RX port --> receiver
//! ```
//!
//! A packet's latency is the time from the breath that made it to the breath that found it, on one
//! clock. Its error is at most the length of a breath.

mod generator;
mod histogram;
mod packets;
mod receiver;
mod search;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use carina_frame::PoolConfig;
use carina_frame_engine::counter_file;
use carina_frame_engine::{ConfigureError, Graph, GraphError};
use carina_graph::graph_file::{GraphFileError, read_graph_of};
use carina_graph::runner::{GraphRunner, RunnerError};
use carina_time::{Duration, Instant};
use serde::Serialize;

use self::generator::GeneratorConfig;
use self::receiver::ReceiverConfig;
use crate::port::{PortError, PortSpec, check_names, frame_bytes_for, port_error};

pub use self::generator::{Sent, Trial};
pub use self::histogram::{Histogram, Spread};
pub use self::packets::{
    FLOWS_MAX, FileNotes, Mix, Packets, PacketsError, STAMPED_MIN, STAMPED_MIN6, Synthesis,
};
pub use self::receiver::Received;
pub use self::search::Search;

/// The ports and the packets of a load generator.
#[derive(Clone, Debug)]
pub struct Blaster {
    /// Port at which packets leave. `None` passes them straight to the receiver, to measure how
    /// fast generator and receiver are.
    pub tx: Option<PortSpec>,
    /// Port at which packets come back. `None` means the port at which they leave.
    pub rx: Option<PortSpec>,
    /// The packets to send.
    pub packets: Packets,
}

/// Why a load generator cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlastError {
    /// The text of a port on the command line is not valid.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The options of a port on the command line are not valid for its kind.
    #[error(transparent)]
    File(#[from] GraphFileError),
    /// The graph of apps for the generator cannot be linked.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An app cannot be made.
    #[error(transparent)]
    Configure(#[from] ConfigureError),
    /// The engine cannot be started.
    #[error(transparent)]
    Runner(#[from] RunnerError),
}

impl Blaster {
    fn ports(&self) -> Vec<PortSpec> {
        let mut ports: Vec<PortSpec> = self.tx.iter().chain(&self.rx).cloned().collect();
        ports.dedup();
        ports
    }

    /// Opens the ports, but sends nothing yet. `frames` is the number of frames in the pool.
    /// Counters are written to the file `counters`.
    ///
    /// # Errors
    /// The configuration is invalid, or the system refuses to open a port.
    pub fn start(&self, frames: usize, counters: &Path) -> Result<Blasting, BlastError> {
        let ports = self.ports();
        check_names(&ports)?;
        let text: String = ports.iter().map(PortSpec::table).collect();
        let graph = read_graph_of(&text, &crate::kinds());
        let mut graph = graph.map_err(|error| match port_error(error, &ports) {
            Ok(error) => BlastError::Port(error),
            Err(error) => BlastError::File(error),
        })?;
        let tx = self.tx.as_ref().map(PortSpec::app);
        let rx = self.rx.as_ref().map(PortSpec::app).or(tx);
        match (tx, rx) {
            (Some(tx), Some(rx)) => {
                graph.link(&format!("{GENERATOR}.output -> {tx}.input"))?;
                graph.link(&format!("{rx}.output -> {RECEIVER}.input"))?;
            }
            _ => {
                graph.link(&format!("{GENERATOR}.output -> {RECEIVER}.input"))?;
            }
        }
        let pool = PoolConfig {
            frames,
            frame_bytes: frame_bytes_for(&ports).max(self.packets.longest()),
        };
        let mut blasting = Blasting {
            runner: GraphRunner::new(pool, Some(counters))?,
            graph,
            tx: tx.map(str::to_owned),
            rx: rx.map(str::to_owned),
            packets: Arc::new(self.packets.clone()),
            trial: Trial::NOTHING,
            sent: Arc::default(),
            received: Arc::default(),
            counters: counters.to_owned(),
            refused_before: 0,
            missed_before: 0,
        };
        blasting.configure()?;
        Ok(blasting)
    }
}

/// A running load generator. Dropping it stops it.
pub struct Blasting {
    runner: GraphRunner,
    graph: Graph,
    tx: Option<String>,
    rx: Option<String>,
    packets: Arc<Packets>,
    trial: Trial,
    sent: Arc<Mutex<Sent>>,
    received: Arc<Mutex<Received>>,
    counters: PathBuf,
    /// Number of frames that the TX port had refused when the trial began.
    refused_before: u64,
    /// Number of frames that the RX port had missed when the trial began.
    missed_before: u64,
}

/// What a load generator has sent and received in a trial so far: packets, loss, rates, latencies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Packets that left the TX port.
    pub sent: u64,
    /// Packets that the TX port refused, because the sender was too fast for it.
    pub refused: u64,
    /// Packets of the trial that came back, duplicates included.
    pub received: u64,
    /// Packets that left and did not come back. A numbered packet that comes back twice counts
    /// once.
    pub lost: u64,
    /// `lost` as a share of `sent`, 0 to 1.
    pub loss: f64,
    /// Frames that arrived at the RX port and that the port dropped, because the receiver was too
    /// slow. `lost` includes them, although the measured system has not lost them.
    pub missed: u64,
    /// Packets that came back more than once; `None` if packets carry no number.
    pub duplicates: Option<u64>,
    /// Packets that came back after a packet that was sent later; `None` if packets carry no
    /// number.
    pub reordered: Option<u64>,
    /// Frames received that are not packets of the trial.
    pub others: u64,
    /// Time from the first packet sent to the last one, in seconds.
    pub seconds: f64,
    /// Packets sent per second.
    pub sent_pps: f64,
    /// Bits sent per second, without FCS.
    pub sent_bps: f64,
    /// Packets that came back per second.
    pub received_pps: f64,
    /// Latencies in nanoseconds; `None` if no packet with a time came back.
    pub latency_ns: Option<Spread>,
}

impl Blasting {
    /// Begins a new trial with `count` packets (`None`: without end) at `rate` packets per second
    /// (`None`: as fast as the port takes them), and sets the result to zero. Returns at once; the
    /// packets are sent during [`Blasting::run_for`].
    ///
    /// # Errors
    /// The graph cannot be changed. It was valid when the generator was started.
    pub fn begin(&mut self, rate: Option<f64>, count: Option<u64>) -> Result<(), BlastError> {
        self.trial = Trial {
            // Trial number 0 means "no trial".
            number: self.trial.number.checked_add(1).unwrap_or(1),
            rate,
            count,
            is_on: true,
        };
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = Sent::default();
        *self.received.lock().unwrap_or_else(PoisonError::into_inner) = Received::default();
        (self.refused_before, self.missed_before) = (self.refused(), self.missed());
        self.configure()
    }

    /// Stops sending. Packets that are still on their way are counted when they arrive.
    ///
    /// # Errors
    /// As for [`Blasting::begin`].
    pub fn stop(&mut self) -> Result<(), BlastError> {
        self.trial.is_on = false;
        self.configure()
    }

    fn configure(&mut self) -> Result<(), BlastError> {
        let generator = GeneratorConfig {
            packets: Arc::clone(&self.packets),
            trial: self.trial,
            sent: Arc::clone(&self.sent),
        };
        let receiver = ReceiverConfig {
            trial: self.trial.number,
            is_stamped: self.packets.is_stamped(),
            received: Arc::clone(&self.received),
        };
        self.graph.app(GENERATOR, generator);
        self.graph.app(RECEIVER, receiver);
        self.runner.configure(&self.graph)?;
        Ok(())
    }

    /// Blocks for the duration `time`, while packets are sent and received.
    ///
    /// # Errors
    /// The thread that sends and receives has ended.
    pub fn run_for(&mut self, time: Duration) -> io::Result<()> {
        self.runner.run_for(time).map_err(io::Error::other)
    }

    /// Whether all packets of the trial have been sent.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        self.trial.count.is_some_and(|count| sent.packets >= count)
    }

    /// Number of frames that the TX port has refused so far: the drops of frames leaving there.
    fn refused(&self) -> u64 {
        let reasons = [
            "drop_down",
            "drop_length",
            "drop_too_long",
            "drop_no_room",
            "drop_no_guest",
            "drop_refused",
            "drop_not_ip",
        ];
        self.sum_of(self.tx.as_deref(), &reasons)
    }

    /// Number of frames that arrived at the RX port so far and found no room there.
    fn missed(&self) -> u64 {
        let reasons = ["drop_missed", "missed", "drop_no_frame"];
        self.sum_of(self.rx.as_deref(), &reasons)
    }

    /// The sum of these counters of a port.
    fn sum_of(&self, port: Option<&str>, counters: &[&str]) -> u64 {
        let Some(port) = port else { return 0 };
        let all = counter_file::read(&self.counters).unwrap_or_default();
        let is_one = |name: &str| {
            let what = name.strip_prefix(port);
            let what = what.and_then(|what| what.strip_prefix('/'));
            what.is_some_and(|what| counters.contains(&what))
        };
        let wanted = all.iter().filter(|reading| is_one(&reading.name));
        wanted.map(|reading| reading.value).sum()
    }

    /// The result of the trial so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let sent = *self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = self.refused().saturating_sub(self.refused_before);
        let refused = refused.min(sent.packets);
        let left = sent.packets - refused;
        let tally = self.packets.is_stamped().then(|| received.numbers.tally());
        let arrived = tally.map_or(received.packets, |tally| tally.distinct);
        let lost = left.saturating_sub(arrived);
        let seconds = seconds(sent.times);
        let rate = |count: u64, seconds: f64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        Outcome {
            sent: left,
            refused,
            received: received.packets,
            lost,
            loss: lost as f64 / left.max(1) as f64,
            missed: self.missed().saturating_sub(self.missed_before),
            duplicates: tally.map(|tally| tally.duplicates),
            reordered: tally.map(|tally| tally.reordered),
            others: received.others,
            seconds,
            sent_pps: rate(left, seconds),
            sent_bps: rate(8 * sent.bytes, seconds) * left as f64 / sent.packets.max(1) as f64,
            received_pps: rate(received.packets, self::seconds(received.times)),
            latency_ns: received.latency.spread(),
        }
    }

    /// The histogram of latencies: the longest latency of each bucket in ns, and its number of
    /// packets.
    #[must_use]
    pub fn latencies(&self) -> Vec<(u64, u64)> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.latency.buckets().collect()
    }

    /// Mean length of the packets in bytes, without FCS.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        self.packets.mean_bytes()
    }
}

impl Drop for Blasting {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.counters);
    }
}

fn seconds(times: Option<(Instant, Instant)>) -> f64 {
    times.map_or(0.0, |(first, last)| {
        last.since(first).as_nanos() as f64 / 1e9
    })
}

const GENERATOR: &str = "generator";
const RECEIVER: &str = "receiver";

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use carina_wire::ether::Mac;

    use super::*;

    fn blaster() -> Blaster {
        let synthesis = Synthesis {
            sizes: Mix::default(),
            source_mac: Mac([2, 0, 0, 0, 0, 1]),
            destination_mac: Mac([2, 0, 0, 0, 0, 2]),
            source: Ipv4Addr::new(198, 18, 0, 1).into(),
            destinations: "198.18.0.2/32".parse().unwrap(),
            port: 9,
            flows: 1,
        };
        Blaster {
            tx: None,
            rx: None,
            packets: Packets::made(synthesis).unwrap(),
        }
    }

    fn counters(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("carina-blast-{}-{name}", std::process::id()))
    }

    #[test]
    fn every_packet_of_each_trial_is_found_once() {
        let mut blasting = blaster().start(4096, &counters("loop")).unwrap();
        for (rate, count) in [(None, 100_000), (Some(100_000.0), 50_000)] {
            blasting.begin(rate, Some(count)).unwrap();
            for _ in 0..200 {
                blasting.run_for(Duration::from_millis(50)).unwrap();
                if blasting.is_done() {
                    break;
                }
            }
            blasting.stop().unwrap();
            blasting.run_for(Duration::from_millis(20)).unwrap();
            let outcome = blasting.outcome();
            assert_eq!((outcome.sent, outcome.received), (count, count));
            assert_eq!(
                (outcome.lost, outcome.duplicates, outcome.reordered),
                (0, Some(0), Some(0))
            );
            if let Some(rate) = rate {
                assert!(outcome.sent_pps < rate * 1.1, "{}", outcome.sent_pps);
            }
            let found: u64 = blasting.latencies().iter().map(|(_, count)| count).sum();
            assert_eq!(found, count);
        }
        let path = counters("loop");
        assert!(path.exists());
        drop(blasting);
        assert!(!path.exists());
    }
}
