//! What a running member tells about itself: a JSON object for each connection to its socket.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use carina_api::DifName;
use carina_api::paths::RunDir;
use carina_netdev::TapOffload;
use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::counters::Counters;
use crate::prefix::{Address, IpPrefix};

/// The state of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the DIF whose flows carry the packets.
    pub dif: DifName,
    /// Name of the member's TUN interface, such as `carina0`.
    pub tun: String,
    /// Addresses of the interface.
    pub addresses: Vec<Address>,
    /// MTU of the interface, in bytes.
    pub mtu: usize,
    /// Number of queues of the interface.
    #[serde(default = "one")]
    pub queues: usize,
    /// Whether the kernel chooses the queue of a packet by its addresses and ports; `false` with
    /// one queue.
    #[serde(default)]
    pub is_steered: bool,
    /// The work that the kernel leaves to the member.
    #[serde(default)]
    pub offloads: Offloads,
    /// The prefixes that this member has registered.
    pub own: Vec<IpPrefix>,
    /// The prefixes of the other members, as far as the node knows them.
    pub members: Vec<IpPrefix>,
    /// Whether the DIF has no other prefixes than `members` and `own`.
    pub is_complete: bool,
    /// The flows of the member.
    pub flows: Vec<FlowStatus>,
    /// What the member has counted.
    pub counters: Counters,
}

/// The work of the kernel for a packet that a member's interface takes over: the packet travels
/// with the work undone where the DIF carries packets of 64 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offloads {
    /// Whether the kernel leaves checksums of TCP and UDP to the member.
    pub checksum: bool,
    /// Whether the kernel leaves the segmentation of TCP to the member (TSO).
    pub tso: bool,
    /// Whether the kernel leaves the segmentation of UDP to the member (USO), as Linux 6.2 and
    /// later can.
    pub uso: bool,
}

impl From<TapOffload> for Offloads {
    fn from(offload: TapOffload) -> Offloads {
        Offloads {
            checksum: offload.checksum,
            tso: offload.segmentation,
            uso: offload.datagrams,
        }
    }
}

/// A flow of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// The prefix of this member under whose name the flow was allocated.
    pub local: IpPrefix,
    /// The prefix of the other member, to or from whose name the flow leads.
    pub remote: IpPrefix,
    /// The class of the packets; `None` for a flow that the other member allocated.
    pub class: Option<Class>,
    /// Whether this member has allocated the flow and sends on it; otherwise it receives.
    pub is_outgoing: bool,
    /// Whether the flow is open; otherwise it is requested.
    pub is_open: bool,
    /// Packets that the member sent or received over the flow.
    pub packets: u64,
    /// Bytes in the packets counted by `packets`.
    pub bytes: u64,
    /// Packets that wait for the flow.
    pub waiting: usize,
}

/// Returns the directory of the members' sockets, below the run directory of their node.
#[must_use]
pub fn status_directory(run: &RunDir) -> PathBuf {
    run.path().join("ip")
}

/// Reads the state of all members that run below `run`.
///
/// # Errors
/// The directory cannot be read. Members that have ended are skipped.
pub fn read_all(run: &RunDir) -> io::Result<Vec<Status>> {
    let entries = match fs::read_dir(status_directory(run)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut all = Vec::new();
    for entry in entries {
        all.extend(read(&entry?.path()));
    }
    all.sort_by(|a: &Status, b| a.tun.cmp(&b.tun));
    Ok(all)
}

fn read(socket: &Path) -> Option<Status> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The socket of a running member, whose file is removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Listens on the socket of the member with this interface. Replaces the file of a member that
    /// was killed.
    pub(crate) fn listen(run: &RunDir, file: &str) -> io::Result<StatusSocket> {
        let directory = status_directory(run);
        fs::create_dir_all(&directory)?;
        let path = directory.join(file);
        if UnixStream::connect(&path).is_err() {
            let _ = fs::remove_file(&path);
        }
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        Ok(StatusSocket { listener, path })
    }

    /// Answers the connections that wait.
    pub(crate) fn answer(&self, status: impl Fn() -> Status) {
        for _ in 0..CONNECTIONS_MAX {
            let Ok((mut stream, _)) = self.listener.accept() else {
                return;
            };
            // A reader that does not read must not hold up packets.
            if stream.set_write_timeout(Some(WRITE_LIMIT)).is_ok()
                && let Ok(text) = serde_json::to_vec(&status())
            {
                let _ = stream.write_all(&text);
            }
        }
    }
}

impl AsFd for StatusSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn one() -> usize {
    1
}

const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const WRITE_LIMIT: Duration = Duration::from_millis(20);
/// Largest number of connections that are answered between two packets.
const CONNECTIONS_MAX: usize = 8;
