//! What agents and operators say of networks, and are asked for: JSON on `vnet.sock` and between
//! roles.

use serde::{Deserialize, Serialize};

use crate::base64_text;
use crate::document::{Carrier, Kind, Rate};
use crate::host_part::{InterfacePart, LinkState, NodeState, VnetId};
use crate::impairment::LinkImpairment;
use crate::progress::PhaseTime;

/// A network, as its operator sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VnetReport {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub vnet: VnetId,
    /// The generation of what is wanted.
    pub generation: u64,
    /// How far it is.
    pub state: VnetState,
    /// Why it is not ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<String>,
    /// Its nodes.
    pub nodes: Vec<NodeReport>,
    /// Its links.
    pub links: Vec<LinkReport>,
    /// How long the phases of the last change took.
    pub phases: Vec<PhaseTime>,
    /// From the request until it was ready, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_after_ms: Option<f64>,
}

/// How far a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VnetState {
    /// It is being made or changed.
    Changing,
    /// Every console has answered, and probes have passed every link both ways.
    Ready,
    /// It was ready, and something of it has ended or does not answer.
    Degraded,
    /// It cannot be made.
    Failed,
}

/// A node of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// What makes it.
    pub kind: Kind,
    /// How far it is.
    pub state: NodeState,
    /// Whether its console has answered.
    pub is_console_ready: bool,
    /// Its interfaces.
    pub interfaces: Vec<InterfaceReport>,
}

/// An interface of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// Its address with the prefix.
    pub address: String,
    /// Its address on the link.
    pub mac: String,
    /// Bytes of the largest packet of IP.
    pub mtu: u16,
    /// The number of its link.
    pub link: u32,
}

impl From<&InterfacePart> for InterfaceReport {
    fn from(it: &InterfacePart) -> InterfaceReport {
        InterfaceReport {
            name: it.name.clone(),
            address: it.address.to_string(),
            mac: it.mac.to_string(),
            mtu: it.mtu,
            link: it.link,
        }
    }
}

/// A link of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkReport {
    /// Its number.
    pub number: u32,
    /// Its ends, `NODE:INTERFACE`.
    pub ends: [String; 2],
    /// What carries it between hosts.
    pub carrier: Carrier,
    /// The rate that it carries.
    pub rate: Rate,
    /// How far it is.
    pub state: LinkState,
    /// Round trip of the last probe, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// What passed from the first end to the second, and back.
    pub passed: [Passed; 2],
    /// What impairs it.
    #[serde(default, skip_serializing_if = "LinkImpairment::is_none")]
    pub impairment: LinkImpairment,
}

/// What passed over one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passed {
    /// Frames that came from the node.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames above the rate of the link, or for which there was no room.
    pub dropped: u64,
    /// Frames that an impairment has lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The machines that stand ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolReport {
    /// How many there are.
    pub ready: usize,
}

/// A command to be run in a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// The node.
    pub node: String,
    /// The command, for a shell.
    pub command: String,
    /// How long it may take, ms.
    pub limit_ms: u64,
}

/// What a command has said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecReply {
    /// Its exit status.
    pub status: i32,
    /// Its standard output, in base64.
    #[serde(with = "base64_text")]
    pub stdout: Vec<u8>,
    /// Its standard error, in base64.
    #[serde(with = "base64_text")]
    pub stderr: Vec<u8>,
    /// Bytes of its outputs that are not there, as they were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

impl ExecReply {
    /// What fits into an answer of the exit status and the outputs of a command.
    #[must_use]
    pub fn of(status: i32, stdout: Vec<u8>, stderr: Vec<u8>) -> ExecReply {
        let mut reply = ExecReply {
            status,
            stdout,
            stderr,
            dropped: 0,
        };
        let bounds = [
            (&mut reply.stdout, ExecReply::STDOUT_MAX),
            (&mut reply.stderr, ExecReply::STDERR_MAX),
        ];
        for (bytes, most) in bounds {
            reply.dropped += bytes.len().saturating_sub(most) as u64;
            bytes.truncate(most);
        }
        reply
    }

    /// Bytes of standard output that come at most.
    pub const STDOUT_MAX: usize = 7 << 20;
    /// Bytes of standard error that come at most.
    pub const STDERR_MAX: usize = 1 << 20;
}

/// What a console has said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleSaid {
    /// How many bytes it has said in all: where to go on.
    pub next: u64,
    /// The last of them, after those that were known; at most 4 KiB.
    pub bytes: Vec<u8>,
}

/// What is typed at a console.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleTyped {
    /// The text, with the ends of its lines.
    pub text: String,
}

/// The outcome of one of the tests of a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestReport {
    /// What was tried, as in `ping r1 r3`.
    pub test: String,
    /// Whether it holds.
    pub holds: bool,
    /// What was seen.
    pub seen: String,
}

/// What to do with a node.
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

/// What moving a node took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationReport {
    /// The node.
    pub node: String,
    /// The host to which it has moved, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How long it stood still, ms; none if an agent has begun anew meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<f64>,
    /// From the request until nothing of the QEMU that it had was left, ms.
    pub total_ms: f64,
    /// The neighbour from which it was asked for echos, 1000 a second, meanwhile; none where no
    /// neighbour on its host is a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched_from: Option<String>,
    /// How many echos were sent.
    pub sent: u64,
    /// How many of them were not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// The longest time without an answer, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<f64>,
    /// Whether its destination has lost it after it had arrived, and has made it anew.
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
            write!(f, "; it stood still for {down:.1} ms")?;
        }
        if self.is_made_anew {
            f.write_str("; its QEMU there has ended, and it was made anew")?;
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

/// A file or directory of the agent's host that a request names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtPath {
    /// The path, from the root.
    pub path: std::path::PathBuf,
}

/// A network that was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaveReport {
    /// Its name.
    pub name: String,
    /// The directory.
    pub path: std::path::PathBuf,
    /// Machines whose state is in it, with the bytes of that.
    pub machines: std::collections::BTreeMap<String, u64>,
    /// Namespaces: of them there is what the document says, and nothing of what ran in them.
    pub namespaces: Vec<String>,
    /// How long the machines stood still, ms.
    pub stood_still_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_outputs_come_as_far_as_there_is_room() {
        let reply =
            |stdout: usize, stderr: usize| ExecReply::of(3, vec![b'o'; stdout], vec![b'e'; stderr]);
        let whole = reply(5, 7);
        assert_eq!(
            (whole.stdout.len(), whole.stderr.len(), whole.dropped),
            (5, 7, 0)
        );
        let cut = reply(50_000_000, ExecReply::STDERR_MAX + 1);
        assert_eq!(cut.stdout.len(), ExecReply::STDOUT_MAX);
        assert_eq!(cut.dropped, 50_000_000 - ExecReply::STDOUT_MAX as u64 + 1);
        // Clients take 16 MiB, providers 12 MiB.
        let text = serde_json::to_vec(&cut).unwrap();
        assert!(text.len() < 12 << 20, "{}", text.len());
        assert_eq!(serde_json::from_slice::<ExecReply>(&text).unwrap(), cut);
    }
}
