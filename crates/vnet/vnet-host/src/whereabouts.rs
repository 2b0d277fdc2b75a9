//! Locations of nodes: host, namespace or process, and ports. The agent need not run for finding
//! them.
//!
//! The locations name the substrate. They are for those who run the host, not for operators of
//! networks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use carina_vnet::document::Kind;
use carina_vnet::host_part::{HostPart, NodePart};
use serde::Serialize;

use crate::carrier::far_words;
use crate::directory::{VnetDir, Vnets};
use crate::error::{Attempt, Result};
use crate::names::{end_of, node_namespace, ports_namespace};
use crate::port_selection::PortSelection;
use crate::underlay::own_name;
use crate::{leftovers, namespace};

/// Where a node is: its host, its namespace or process, its console, and its ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Whereabouts {
    /// Name of the network to which the node belongs.
    pub vnet: String,
    /// Name of the node in the network.
    pub node: String,
    /// The kind of the node: virtual machine, namespace or bridge.
    pub kind: Kind,
    /// Name of the host on which the node is.
    pub host: String,
    /// Whether the namespace, or the QEMU process, exists.
    pub is_there: bool,
    /// Name of the network namespace that is the node or has its bridge, or for a virtual machine
    /// the one that contains its taps.
    pub namespace: String,
    /// Process ID of the machine's QEMU; `None` for a namespace or bridge, or if QEMU does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Path of the console's socket.
    pub console: PathBuf,
    /// The port of each interface, in the namespace of the network's ports.
    pub ports: BTreeMap<String, String>,
    /// For each interface whose link leads to another host, a text with that host's name and what
    /// carries the link.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ways: BTreeMap<String, String>,
}

/// The nodes of all networks that have records in these directories, sorted by network and name.
///
/// # Errors
/// The directories, or the namespaces of this host, cannot be listed.
pub fn nodes(vnets: &Vnets) -> Result<Vec<Whereabouts>> {
    let host = own_name();
    let mut found = Vec::new();
    for (name, record) in vnets.list()? {
        let part = &record.part;
        let dir = vnets.vnet(&name);
        let namespaces = leftovers::namespaces(part.vnet)?;
        let machines = carina_vm::list(&dir.machines()).attempt("listing machines")?;
        let ports = ports_namespace(part.vnet);
        let second = if namespaces.contains(&ports) {
            PortSelection::among(&namespace::interfaces(&ports)?)
        } else {
            PortSelection::default()
        };
        for node in &part.nodes {
            let pid = machines
                .iter()
                .find(|machine| machine.name == node.name)
                .map(|machine| machine.pid);
            let mut whereabouts = place(&host, &dir, (part, &second), node);
            whereabouts.is_there = match node.kind {
                Kind::Vm => pid.is_some(),
                Kind::Namespace | Kind::Bridge => namespaces.contains(&whereabouts.namespace),
            };
            found.push(Whereabouts { pid, ..whereabouts });
        }
    }
    Ok(found)
}

fn place(
    host: &str,
    dir: &VnetDir,
    (part, second): (&HostPart, &PortSelection),
    node: &NodePart,
) -> Whereabouts {
    let ports = node.interfaces.iter();
    Whereabouts {
        vnet: dir.name(),
        node: node.name.clone(),
        kind: node.kind,
        host: host.to_owned(),
        is_there: false,
        namespace: match node.kind {
            Kind::Vm => ports_namespace(part.vnet),
            Kind::Namespace | Kind::Bridge => node_namespace(part.vnet, &node.name),
        },
        pid: None,
        console: dir.console(&node.name),
        ports: ports
            .map(|port| {
                (
                    port.name.clone(),
                    second.port(end_of(part, &node.name, port)),
                )
            })
            .collect(),
        ways: node
            .interfaces
            .iter()
            .filter_map(|interface| {
                let link = part.link(interface.link)?;
                Some((interface.name.clone(), far_words(link)?))
            })
            .collect(),
    }
}
