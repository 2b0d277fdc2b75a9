//! The parameters of a measurement, and the report of each side.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use carina_sys::XenDomain;
use serde::{Deserialize, Serialize};

use crate::sequence::Tally;
use crate::summary::Summary;
use crate::traffic::{Arrivals, Rate, Sizes};
use crate::transport::bare::BarePlace;

/// The direction in which SDUs are sent.
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

/// What carries the SDUs of a job, as the client requests it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// A further flow to the server's name. The ticket distinguishes the flows of several clients.
    Flow {
        /// A number that the client has not used before.
        ticket: u64,
    },
    /// UDP between an address of the server and an address of the client.
    Udp {
        /// An address of the server's system.
        server: IpAddr,
        /// An address of the client's system.
        client: IpAddr,
        /// The address at which the server reaches the client, if an address translator between
        /// them hides the server. The server then has to send first.
        through: Option<IpAddr>,
    },
    /// TCP to an address of the server.
    Tcp {
        /// An address of the server's system.
        server: IpAddr,
    },
    /// A Unix socket of type `SOCK_SEQPACKET`.
    Unix {
        /// Path at which the server listens.
        path: PathBuf,
    },
    /// A stream of AF_VSOCK to a port of the server's system, which is a guest.
    Vsock {
        /// Path of the Unix socket of the guest's vsock device, in the client's system.
        device: PathBuf,
        /// The port of the guest.
        port: u32,
        /// What takes connections at the port: `None` for the server itself. Otherwise another
        /// program of the guest does, and connects to the server at the Unix socket with this path.
        relayed_to: Option<PathBuf>,
    },
    /// Bare rings in memory that the client has prepared.
    Bare {
        /// Place of the rings in the client's system.
        client: BarePlace,
        /// Place of the rings in the server's system.
        server: BarePlace,
    },
    /// Bare rings in memory that the server's domain of Xen grants to the client's.
    Grants {
        /// Number of the client's domain.
        client: XenDomain,
        /// Number of the server's domain.
        server: XenDomain,
    },
}

/// A measurement that a client requests of a server: sizes, rate and number of SDUs, and the
/// transport.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Which side sends the SDUs.
    pub direction: Direction,
    /// Transport for the SDUs.
    pub via: Via,
    /// Sizes of the SDUs.
    pub sizes: Sizes,
    /// Rate at which to send; `None` sends as fast as possible.
    pub rate: Option<Rate>,
    /// Distribution of the gaps between SDUs, if there is a rate.
    pub arrivals: Arrivals,
    /// The sender stops after this time, in nanoseconds; 0 for no limit.
    pub duration_ns: u64,
    /// The sender stops after this many SDUs; 0 for no limit.
    pub count: u64,
    /// Seed of the random SDU sizes and gaps: the same seed gives the same traffic.
    pub seed: u64,
    /// Whether the receiver compares every byte with the byte that was sent.
    pub verify: bool,
    /// Interval between two reports of the receiver, in nanoseconds; 0 for no reports.
    pub interval_ns: u64,
    /// Numbers of the CPUs to which the client's and the server's thread are pinned; `None` does
    /// not pin.
    pub pin: Option<[usize; 2]>,
}

/// How one side's half of a measurement ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The sender finished, and the receiver saw the end.
    #[default]
    Finished,
    /// For a sender: the flow had accepted no SDU for some time when the end time came. On a slow
    /// path this may only mean a long queue; the receiver's ending decides.
    HeldBack,
    /// For a receiver: after the end time neither an SDU nor the end arrived.
    Stalled,
    /// For a receiver: SDUs still arrived one by one long after the end time.
    Late,
}

/// What one side of a measurement has sent and received. Senders and receivers use the same fields;
/// those that do not apply are zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// Number of SDUs that this side has sent.
    pub sent: u64,
    /// Bytes in the SDUs sent.
    pub sent_bytes: u64,
    /// Number of SDUs that this side has received, duplicates included.
    pub received: u64,
    /// Bytes in the SDUs received.
    pub received_bytes: u64,
    /// Bytes received after the first SDU, which are the bytes that arrived during `elapsed_ns`.
    pub timed_bytes: u64,
    /// Time from the first received SDU to the last, in nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time that the process of this side used during the measurement, in nanoseconds.
    pub cpu_ns: u64,
    /// SDUs whose content changed on the way.
    pub damaged: u64,
    /// Counts by sequence numbers; `None` when SDUs are too short to carry a number.
    pub tally: Option<Tally>,
    /// Round-trip times in microseconds, for the client of an echo that got answers; otherwise
    /// `None`.
    pub rtt_us: Option<Summary>,
    /// How the measurement ended at this side: as planned, or because the flow stalled.
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

/// Messages by which client and server coordinate a measurement, over the control channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// The first SDU of a flow that is a control channel.
    Control {
        /// Version of these messages: [`VERSION`].
        version: u16,
    },
    /// The first SDU of a flow that carries the SDUs of a job.
    Data {
        /// The ticket of the job ([`Via::Flow`]) whose SDUs the flow carries.
        ticket: u64,
    },
    /// The client asks the server for a measurement.
    Job(Job),
    /// The server tells the client that it awaits the client's transport (a socket or flow for the
    /// SDUs of the job). Holds the address on which the server listens, if the transport has one.
    Opened(Option<SocketAddr>),
    /// The server has granted memory with its rings, in place of `Opened`: the grant reference.
    Granted(u32),
    /// The client tells the server that its end of the transport is open. Holds the address of this
    /// end, if the transport has one.
    Connected(Option<SocketAddr>),
    /// The server tells the client that both ends are connected: SDUs may be sent.
    Go,
    /// The server sends its report of the measurement.
    Report(SideReport),
    /// The server cannot run the job; the text says why.
    Refused(String),
}

/// Version of the control messages.
pub const VERSION: u16 = 1;
