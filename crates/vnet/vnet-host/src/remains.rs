//! What is there of a network, and its removal, with or without the agent that made it.

use std::time::Duration;

use carina_namespaces::{NamespaceAccess, is_namespace, remove_namespaces};
use carina_vnet::document::Kind;
use carina_vnet::host_part::{HostPart, NodePart, VnetId};

use crate::confinement::remove_groups;
use crate::directory::{Record, VnetDir, Vnets};
use crate::error::{Attempt, Result};
use crate::image_store::ImageStore;
use crate::names::{is_of, node_namespace};
use crate::node::end_pool;
use crate::switched_off;

/// Ends and removes all that this host has of a network: machines, processes in its namespaces,
/// the namespaces with the ports in them, its directory. Parts that have gone are skipped.
///
/// # Errors
/// Something cannot be removed.
pub fn remove(dir: &VnetDir, record: &Record) -> Result<()> {
    end(dir, record)?;
    dir.remove()
}

/// As [`remove`], of what the record in the directory names. A directory without one is from an
/// agent that was killed before it made anything else.
///
/// # Errors
/// Something cannot be removed.
pub fn remove_recorded(dir: &VnetDir) -> Result<()> {
    match dir.read() {
        Ok(record) => remove(dir, &record),
        Err(_) => dir.remove(),
    }
}

/// Ends the machines that stood ready for an agent that was killed.
///
/// # Errors
/// One cannot be ended.
pub fn remove_pool(vnets: &Vnets) -> Result<()> {
    end_pool(&vnets.pool())
}

/// As [`remove`]; the directory stays.
pub(crate) fn end(dir: &VnetDir, record: &Record) -> Result<()> {
    for machines in [dir.machines(), dir.destination()] {
        let running = carina_vm::list(&machines).attempt("listing machines")?;
        for machine in running {
            carina_vm::stop(&machines, &machine.name, Duration::ZERO)
                .attempt(format!("stopping VM {}", machine.name))?;
        }
    }
    remove_groups(&dir.groups())?;
    ImageStore::of_this_host().remove_network(record.vnet)?;
    let namespaces = namespaces(record.vnet)?;
    remove_namespaces(&NamespaceAccess::of_root(), &namespaces)?;
    dir.remove_places_of_nodes()
}

/// A node that a network has and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedNode {
    /// The node.
    pub name: String,
    /// Why it is made again.
    pub reason: &'static str,
}

/// The nodes of a network that are not there, and that its operator has not stopped.
///
/// # Errors
/// Machines or namespaces of this host cannot be listed.
pub fn ended_nodes(dir: &VnetDir, record: &Record) -> Result<Vec<EndedNode>> {
    let mut living = namespaces(record.vnet)?;
    living.retain(|name| is_namespace(name));
    let off = switched_off::read(dir)?;
    let there = nodes_there(dir, &record.part, &living)?;
    let reason = if record.is_settled {
        "it has ended"
    } else {
        "it is not there yet"
    };
    let names = record.part.nodes.iter().map(|node| &node.name);
    let ended = names.filter(|name| !there.contains(name) && !off.nodes.contains(*name));
    let ended = ended.map(|name| EndedNode {
        name: name.clone(),
        reason,
    });
    Ok(ended.collect())
}

/// The nodes of a part that are there: machines that run, and `living` namespaces.
pub(crate) fn nodes_there(
    dir: &VnetDir,
    part: &HostPart,
    living: &[String],
) -> Result<Vec<String>> {
    let machines = carina_vm::list(&dir.machines()).attempt("listing machines")?;
    let is_there = |node: &&NodePart| match node.kind {
        Kind::Namespace => living.contains(&node_namespace(part.vnet, &node.name)),
        Kind::Vm => machines.iter().any(|machine| machine.name == node.name),
    };
    let there = part.nodes.iter().filter(is_there);
    Ok(there.map(|node| node.name.clone()).collect())
}

/// The namespaces of a network that are alive. What is left of others, which were made where their
/// mounts are not seen, or are gone since, is removed: files that no one can enter.
///
/// # Errors
/// `ip` is missing, or refuses.
pub(crate) fn living_namespaces(vnet: VnetId) -> Result<Vec<String>> {
    let (living, dead): (Vec<_>, Vec<_>) = namespaces(vnet)?
        .into_iter()
        .partition(|it| is_namespace(it));
    remove_namespaces(&NamespaceAccess::of_root(), &dead)?;
    Ok(living)
}

/// The namespaces of a network.
///
/// # Errors
/// `ip` is missing.
pub fn namespaces(vnet: VnetId) -> Result<Vec<String>> {
    let mut all = NamespaceAccess::of_root().list()?;
    all.retain(|namespace| is_of(vnet, namespace));
    Ok(all)
}
