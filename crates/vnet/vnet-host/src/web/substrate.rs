//! The substrate of a host's networks: namespaces and processes, and the DIFs of the host's node.

use std::time::Duration;

use carina_api::control::{Client, ClientError, DifInfo, FlowInfo, IpcpInfo};
use serde::Serialize;

use crate::agent::Agent;
use crate::error::Result;
use crate::whereabouts::Whereabouts;

/// The substrate of a host's networks. It is for those who run the host, not for operators of
/// networks.
#[derive(Debug, Serialize)]
pub(super) struct Substrate {
    /// Name of the host at its provider.
    pub host: String,
    /// The interface through which links to other hosts leave; `None` if the host makes no such
    /// links.
    pub underlay: Option<String>,
    /// Where on this host each node of a network runs: its namespace, process and ports.
    pub places: Vec<Whereabouts>,
    /// The Carina node of the host with its DIFs; `None` if it does not answer.
    pub node: Option<NodeSeen>,
    /// Why the Carina node of this host does not answer; `None` if it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_refusal: Option<String>,
}

/// The Carina node of a host.
#[derive(Debug, Serialize)]
pub(super) struct NodeSeen {
    /// Name of the Carina node.
    pub name: String,
    /// The DIFs in which the Carina node has members.
    pub difs: Vec<DifInfo>,
    /// The IPCPs of the Carina node.
    pub ipcps: Vec<IpcpInfo>,
    /// The flows of the Carina node, at most [`FLOWS_MAX`].
    pub flows: Vec<FlowInfo>,
}

impl Substrate {
    /// The substrate of an agent's networks.
    ///
    /// # Errors
    /// Namespaces or machines of this host cannot be listed.
    pub(super) fn of(agent: &Agent) -> Result<Substrate> {
        let client = Client::new(agent.run_dir().control_sock()).with_answer_limit(ANSWER);
        let (node, node_refusal) = match NodeSeen::ask(&client) {
            Ok(node) => (Some(node), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Substrate {
            host: agent.name().to_owned(),
            underlay: agent.underlay().map(str::to_owned),
            places: agent.whereabouts()?,
            node,
            node_refusal,
        })
    }
}

impl NodeSeen {
    fn ask(client: &Client) -> Result<NodeSeen, ClientError> {
        let mut flows = client.flows()?;
        flows.truncate(FLOWS_MAX);
        Ok(NodeSeen {
            name: client.node()?.name,
            difs: client.difs()?,
            ipcps: client.ipcps()?,
            flows,
        })
    }
}

/// Longest time for the Carina node to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Largest number of flows that are shown.
const FLOWS_MAX: usize = 500;
