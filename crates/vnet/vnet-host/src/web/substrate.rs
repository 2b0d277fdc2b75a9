//! What carries the networks of a host: namespaces and processes, and the DIFs of its node.

use std::time::Duration;

use carina_api::control::{Client, ClientError, DifInfo, FlowInfo, IpcpInfo};
use serde::Serialize;

use crate::agent::Agent;
use crate::error::Result;
use crate::whereabouts::Whereabouts;

/// What carries the networks of a host. It is for who runs the host, not for operators.
#[derive(Debug, Serialize)]
pub struct Substrate {
    /// The host's name at its provider.
    pub host: String,
    /// The interface over which links to other hosts leave.
    pub underlay: Option<String>,
    /// Where nodes are.
    pub places: Vec<Whereabouts>,
    /// The node of the host, with its DIFs; none if it does not answer.
    pub node: Option<NodeSeen>,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_refusal: Option<String>,
}

/// The node of a host.
#[derive(Debug, Serialize)]
pub struct NodeSeen {
    /// Its name.
    pub name: String,
    /// The DIFs that it has members in.
    pub difs: Vec<DifInfo>,
    /// These members.
    pub ipcps: Vec<IpcpInfo>,
    /// Its flows, at most [`FLOWS_MAX`].
    pub flows: Vec<FlowInfo>,
}

impl Substrate {
    /// What carries the networks of an agent.
    ///
    /// # Errors
    /// Namespaces or machines of this host cannot be listed.
    pub fn of(agent: &Agent) -> Result<Substrate> {
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

/// How long a node has for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Flows that are shown.
const FLOWS_MAX: usize = 500;
