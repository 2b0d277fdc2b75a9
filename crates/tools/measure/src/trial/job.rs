//! What a measurement is to do, and what each side reports of it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::sequence::Tally;
use crate::summary::Summary;
use crate::traffic::{Arrivals, Rate, Sizes};
use crate::transport::bare::BarePlace;

/// The direction in which SDUs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The client sends, the server receives.
    Forward,
    /// The server sends, the client receives.
    Reverse,
    /// The client sends, the server sends each SDU back, one at a time.
    Echo,
}

/// What carries the SDUs, as the client asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// Another flow to the server's name; the ticket distinguishes flows of several clients.
    Flow {
        /// Any number that the client has not used before.
        ticket: u64,
    },
    /// UDP between the given address of the server and one of the client's.
    Udp {
        /// An address of the server's system.
        server: IpAddr,
        /// An address of the client's system.
        client: IpAddr,
        /// The address under which the server reaches the client, when a translator between the
        /// two hides the server: it must send first.
        through: Option<IpAddr>,
    },
    /// TCP to the given address of the server.
    Tcp {
        /// An address of the server's system.
        server: IpAddr,
    },
    /// A Unix socket of type `SOCK_SEQPACKET`.
    Unix {
        /// Where the server listens.
        path: PathBuf,
    },
    /// Bare rings in memory that the client has prepared.
    Bare {
        /// Where they are in the client's system.
        client: BarePlace,
        /// Where they are in the server's.
        server: BarePlace,
    },
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The direction in which SDUs go.
    pub direction: Direction,
    /// What carries the SDUs.
    pub via: Via,
    /// How large the SDUs are.
    pub sizes: Sizes,
    /// How fast they leave; `None` for as fast as they can.
    pub rate: Option<Rate>,
    /// How they are spread in time when there is a rate.
    pub arrivals: Arrivals,
    /// The sender stops after this time, in nanoseconds; 0 for no limit.
    pub duration_ns: u64,
    /// The sender stops after this many SDUs; 0 for no limit.
    pub count: u64,
    /// Seed of sizes and gaps.
    pub seed: u64,
    /// Whether the receiver compares every byte with what was sent.
    pub verify: bool,
    /// Interval reports of the receiver, in nanoseconds; 0 for none.
    pub interval_ns: u64,
    /// CPUs to which the client and the server are pinned.
    pub pin: Option<[usize; 2]>,
}

/// How one side's half of a measurement ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The sender finished, and the receiver saw the end.
    #[default]
    Finished,
    /// A sender: the flow had taken nothing for some time when the end time came. On a slow path
    /// that is only a long queue; the receiver's ending decides.
    HeldBack,
    /// A receiver: after the end time neither an SDU nor the end came any more.
    Stalled,
    /// A receiver: SDUs still came one by one long after the end time.
    Late,
}

/// What one side saw. Both the sender's and the receiver's fields are present; those that do not
/// apply are zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// SDUs sent.
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// SDUs received.
    pub received: u64,
    /// Bytes in them.
    pub received_bytes: u64,
    /// Bytes received after the first SDU: what was received in `elapsed_ns`.
    pub timed_bytes: u64,
    /// From the first SDU to the last, in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of the process over the measurement, in nanoseconds.
    pub cpu_ns: u64,
    /// SDUs whose content was not what was sent.
    pub damaged: u64,
    /// Sequence accounting; `None` when SDUs are too short to carry a number.
    pub tally: Option<Tally>,
    /// Round-trip times in microseconds, of an echo client.
    pub rtt_us: Option<Summary>,
    /// How it ended.
    #[serde(default)]
    pub ending: Ending,
}

impl SideReport {
    /// Bits of SDU content received per second, in 10⁶; 0 when nothing was timed.
    pub fn goodput_mbps(&self) -> f64 {
        if self.elapsed_ns == 0 {
            return 0.0;
        }
        self.timed_bytes as f64 * 8e3 / self.elapsed_ns as f64
    }

    /// SDUs received per second after the first; 0 when nothing was timed.
    pub fn sdus_per_s(&self) -> f64 {
        if self.elapsed_ns == 0 {
            return 0.0;
        }
        self.received.saturating_sub(1) as f64 * 1e9 / self.elapsed_ns as f64
    }
}

/// Messages of the control channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// The first SDU of a flow that is a control channel.
    Control {
        /// Version of these messages.
        version: u16,
    },
    /// The first SDU of a flow that carries the SDUs of a job.
    Data {
        /// The ticket of the job.
        ticket: u64,
    },
    /// The client asks for a measurement.
    Job(Job),
    /// The server waits for the transport; the address where there is one.
    Opened(Option<SocketAddr>),
    /// The client has its end of the transport; its address where there is one.
    Connected(Option<SocketAddr>),
    /// The server has its end as well.
    Go,
    /// What the server saw.
    Report(SideReport),
    /// The server could not do what was asked.
    Refused(String),
}

/// Version of the control messages.
pub const VERSION: u16 = 1;
