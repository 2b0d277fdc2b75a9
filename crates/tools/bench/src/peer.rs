//! The server of measurements on a node, and clients of a node.

use std::time::Duration;

use carina_api::{AppName, DifName};
use carina_client::Node;
use carina_lab::TestNode;

use crate::error::{Attempt, Result};

/// Starts the server on a node and waits until its name is registered.
pub(crate) fn start_peer(node: &mut TestNode, name: &AppName) -> Result<()> {
    node.start_child(&["bench-peer", name.as_str(), "--stay"], "peer.log")?;
    Ok(node.wait_for_name(name, START)?)
}

/// Connects to the node as an application does.
pub(crate) fn client_of(node: &TestNode) -> Result<Node> {
    Node::connect_to(node.ipc_socket()).attempt(format!("reaching the node {}", node.name()))
}

pub(crate) fn dif_name(text: &str) -> Result<DifName> {
    DifName::new(text).attempt("naming a DIF")
}

pub(crate) fn app_name(text: &str) -> Result<AppName> {
    AppName::new(text).attempt("naming an application")
}

/// How long the server may take until its name is registered.
const START: Duration = Duration::from_secs(20);
