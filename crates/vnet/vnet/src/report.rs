//! JSON reports and requests that agents and operators exchange, on `vnet.sock` and between roles.

use carina_api::ErrorBody;
use carina_api::output::{Collector, Stream};
use serde::{Deserialize, Serialize};

use crate::base64_text;
use crate::document::{Carrier, Kind, Position, Rate};
use crate::host_part::{InterfacePart, LinkState, NodeState, VnetId};
use crate::impairment::LinkImpairment;
use crate::progress::PhaseTime;

/// State of a network, as its operator sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VnetReport {
    /// Name of the reported network.
    pub name: String,
    /// Identifier (uid) of the reported network.
    pub vnet: VnetId,
    /// Generation of the requested network.
    pub generation: u64,
    /// State of the reported network.
    pub state: VnetState,
    /// Why the network is not ready, one text per obstacle; empty if it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<String>,
    /// State of each node of the network.
    pub nodes: Vec<NodeReport>,
    /// State of each link of the network.
    pub links: Vec<LinkReport>,
    /// Duration of each phase of the last change.
    pub phases: Vec<PhaseTime>,
    /// Time from the request until the network was ready, ms; `None` until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_after_ms: Option<f64>,
}

/// State of a network at its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VnetState {
    /// The network is being made or changed.
    Changing,
    /// Every console has answered, and probes have passed every link both ways.
    Ready,
    /// The network was ready, but some node or link has ended or does not answer.
    Degraded,
    /// The network cannot be made.
    Failed,
}

/// A node as its operator sees it: state and interfaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// Name of the node that the report is about.
    pub name: String,
    /// Whether the node is a virtual machine, a namespace or a bridge.
    pub kind: Kind,
    /// State of the reported node.
    pub state: NodeState,
    /// Whether the node's console has answered.
    pub is_console_ready: bool,
    /// The node's interfaces.
    pub interfaces: Vec<InterfaceReport>,
    /// Where the document places the node in pictures; `None` if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
}

/// An interface of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceReport {
    /// Name of the interface in its node, such as `eth0`.
    pub name: String,
    /// IPv4 address with prefix length.
    pub address: String,
    /// IPv6 address with prefix length, as text; `None` if the interface has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address6: Option<String>,
    /// MAC address.
    pub mac: String,
    /// MTU: bytes of the largest IP packet.
    pub mtu: u16,
    /// Number of the interface's link.
    pub link: u32,
}

impl From<&InterfacePart> for InterfaceReport {
    fn from(interface: &InterfacePart) -> InterfaceReport {
        InterfaceReport {
            name: interface.name.clone(),
            address: interface.address.to_string(),
            address6: interface.address6.map(|address6| address6.to_string()),
            mac: interface.mac.to_string(),
            mtu: interface.mtu,
            link: interface.link,
        }
    }
}

/// A link as its operator sees it: ends, state, counters and impairments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkReport {
    /// Number of the link in the network's layout.
    pub number: u32,
    /// The ends, each `NODE:INTERFACE`.
    pub ends: [String; 2],
    /// Encapsulation that carries the link between hosts.
    pub carrier: Carrier,
    /// Rate that the link carries in each direction.
    pub rate: Rate,
    /// What moves the link's frames on its host; `None` if the host does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<LinkPath>,
    /// State of the reported link.
    pub state: LinkState,
    /// Round trip of the last probe, ns; `None` if no probe was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// Counters of the direction from the first end to the second, and of the opposite direction.
    pub passed: [Passed; 2],
    /// The impairments of the two directions.
    #[serde(default, skip_serializing_if = "LinkImpairment::is_none")]
    pub impairment: LinkImpairment,
}

/// What moves the frames of a link on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkPath {
    /// The network's engine, in the agent's process, moves the frames.
    Engine,
    /// The kernel moves the frames: filters redirect them from one port of the link to the other.
    Kernel,
}

/// Counters of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passed {
    /// Frames that the node has sent into the link.
    pub frames: u64,
    /// Total bytes of the frames that `frames` counts.
    pub bytes: u64,
    /// Frames dropped because they exceeded the link's rate or a queue was full.
    pub dropped: u64,
    /// Frames that an impairment of the link dropped on purpose.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The pool of paused machines, ready to become nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolReport {
    /// Number of machines in the pool.
    pub ready: usize,
}

/// A request to run a command in a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// Name of the node in which to run the command.
    pub node: String,
    /// The command line, which a shell interprets.
    pub command: String,
    /// Time in milliseconds after which the command is killed.
    pub limit_ms: u64,
}

/// Exit status and output of a command that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecReply {
    /// Exit status of the command; 128 plus the number of the signal if a signal ended the command.
    /// A command that exceeds its time limit gets an error in place of this reply.
    pub status: i32,
    /// The beginning of the standard output, at most [`ExecReply::STDOUT_MAX`] bytes; in JSON as
    /// base64.
    #[serde(with = "base64_text")]
    pub stdout: Vec<u8>,
    /// The beginning of the standard error, at most [`ExecReply::STDERR_MAX`] bytes; in JSON as
    /// base64.
    #[serde(with = "base64_text")]
    pub stderr: Vec<u8>,
    /// Number of bytes of both outputs that were cut off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

impl ExecReply {
    /// A collector that keeps as much of a command's output as fits into an answer.
    #[must_use]
    pub fn collector() -> Collector {
        Collector::new([ExecReply::STDOUT_MAX, ExecReply::STDERR_MAX])
    }

    /// The answer for a command that has ended with this status, and of whose output `kept` has the
    /// beginning.
    #[must_use]
    pub fn of(kept: Collector, status: i32) -> ExecReply {
        let ([stdout, stderr], dropped) = kept.into_outputs();
        ExecReply {
            status,
            stdout,
            stderr,
            dropped,
        }
    }

    /// Largest number of bytes of standard output in a reply.
    pub const STDOUT_MAX: usize = 7 << 20;
    /// Largest number of bytes of standard error in a reply.
    pub const STDERR_MAX: usize = 1 << 20;
}

/// A line of a streamed answer: a piece of a command's output or, as the last line, how the command
/// ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecLine {
    /// A piece of the command's standard output, in base64.
    Stdout(#[serde(with = "base64_text")] Vec<u8>),
    /// A piece of the command's standard error, in base64.
    Stderr(#[serde(with = "base64_text")] Vec<u8>),
    /// The command has ended with this exit status; 128 plus the number of the signal if a signal
    /// ended it.
    Status(i32),
    /// The command was killed, or the connection to it was lost.
    Error(ErrorBody),
}

impl ExecLine {
    /// The line for a piece of output on the given stream.
    #[must_use]
    pub fn piece(stream: Stream, bytes: &[u8]) -> ExecLine {
        let bytes = bytes.to_vec();
        match stream {
            Stream::Stdout => ExecLine::Stdout(bytes),
            Stream::Stderr => ExecLine::Stderr(bytes),
        }
    }
}

/// Recent output of a node's console.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleOutput {
    /// Number of bytes that the console has written in all: the position of the next request.
    pub next: u64,
    /// The output after the position of the request; at most the last 4 KiB.
    pub bytes: Vec<u8>,
}

/// Input for a node's console.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleTyped {
    /// The text to type, including line ends.
    pub text: String,
}

/// The result of one test of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestReport {
    /// The test, for instance `ping r1 r3`.
    pub test: String,
    /// Whether the test passed.
    pub holds: bool,
    /// What the test measured, or why it failed, as text.
    pub seen: String,
}

/// Whether an operator wants a node stopped, started or restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeSwitch {
    /// End the node; it stays off until it is started.
    Stop,
    /// Start the node if it is stopped or has ended.
    Start,
    /// End the node and start it again.
    Restart,
}

impl NodeSwitch {
    /// The word for the action: the last part of its HTTP path, and the name of its command.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            NodeSwitch::Stop => "stop",
            NodeSwitch::Start => "start",
            NodeSwitch::Restart => "restart",
        }
    }
}

/// Where a node has moved, how long it was paused, and how many pings were lost meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationReport {
    /// Name of the node that has moved.
    pub node: String,
    /// The host to which the node has moved; `None` if it stayed on the same host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How long the node was paused, ms; `None` if an agent has restarted meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<f64>,
    /// Time from the request until nothing of the node's old QEMU was left, ms.
    pub total_ms: f64,
    /// The neighbour that pinged the node 1000 times a second during the move; `None` if no
    /// namespace is a neighbour on the same host (for a move to another host: at the same PIP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched_from: Option<String>,
    /// Number of pings that the neighbour has sent.
    pub sent: u64,
    /// Number of pings that were not answered; `None` if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// The longest time without an answer, ms; `None` if nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<f64>,
    /// Whether the destination lost the node's state after it had arrived, and has created the node
    /// again.
    #[serde(default)]
    pub is_made_anew: bool,
}

impl std::fmt::Display for MigrationReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} has moved", self.node)?;
        if let Some(to) = &self.to {
            write!(f, " to host {to}")?;
        }
        write!(f, " in {:.0} ms", self.total_ms)?;
        if let Some(down) = self.downtime_ms {
            write!(f, "; it was paused for {down:.1} ms")?;
        }
        if self.is_made_anew {
            f.write_str("; its QEMU there ended, and the node was recreated")?;
        }
        match (&self.watched_from, self.lost, self.gap_ms) {
            (Some(from), Some(lost), Some(gap)) => write!(
                f,
                "; {lost} of {} echos from {from} were lost, none was answered for {gap:.1} ms",
                self.sent
            ),
            _ => f.write_str("; no neighbour could watch"),
        }
    }
}

/// A request that names a file or directory on the agent's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtPath {
    /// The absolute path of the file or directory.
    pub path: std::path::PathBuf,
}

/// Where a network was saved, which nodes, and how long its machines were paused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaveReport {
    /// Name of the network that was saved.
    pub name: String,
    /// The directory in which the network is saved.
    pub path: std::path::PathBuf,
    /// Machines whose state was saved, each with the bytes of its state.
    pub machines: std::collections::BTreeMap<String, u64>,
    /// Namespaces: only their description in the document is saved, not what ran in them.
    pub namespaces: Vec<String>,
    /// Time for which the machines were paused while their state was saved, ms.
    pub stood_still_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use carina_api::output::Sink;

    #[test]
    fn too_long_outputs_come_as_far_as_there_is_room() {
        let reply = |stdout: usize, stderr: usize| {
            let mut kept = ExecReply::collector();
            for (stream, bytes) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
                let taken = kept.take(stream, &vec![b'x'; bytes], &|| false);
                assert!(taken.is_continue());
            }
            ExecReply::of(kept, 3)
        };
        let whole = reply(5, 7);
        assert_eq!(
            (whole.stdout.len(), whole.stderr.len(), whole.dropped),
            (5, 7, 0)
        );
        let cut = reply(50_000_000, ExecReply::STDERR_MAX + 1);
        assert_eq!(cut.stdout.len(), ExecReply::STDOUT_MAX);
        assert_eq!(cut.dropped, 50_000_000 - ExecReply::STDOUT_MAX as u64 + 1);
        // Clients read at most 16 MiB, providers 12 MiB.
        let text = serde_json::to_vec(&cut).unwrap();
        assert!(text.len() < 12 << 20, "{}", text.len());
        assert_eq!(serde_json::from_slice::<ExecReply>(&text).unwrap(), cut);
    }

    #[test]
    fn lines_of_a_stream_are_as_documented() {
        let error = ErrorBody::new(carina_api::ErrorCode::TimedOut, "late");
        let lines = [
            (
                ExecLine::piece(Stream::Stdout, b"foo"),
                r#"{"stdout":"Zm9v"}"#,
            ),
            (
                ExecLine::piece(Stream::Stderr, b"f"),
                r#"{"stderr":"Zg=="}"#,
            ),
            (ExecLine::Status(7), r#"{"status":7}"#),
            (
                ExecLine::Error(error),
                r#"{"error":{"code":"timed-out","message":"late"}}"#,
            ),
        ];
        for (line, text) in lines {
            assert_eq!(serde_json::to_string(&line).unwrap(), text);
            assert_eq!(serde_json::from_str::<ExecLine>(text).unwrap(), line);
        }
        // The longest piece is a line that clients take.
        let bytes = vec![0xff; carina_api::output::PIECE_BYTES];
        let line = serde_json::to_vec(&ExecLine::piece(Stream::Stdout, &bytes)).unwrap();
        assert!(line.len() < 100_000);
    }
}
