//! Finds what exists of a network on this host, and removes it with or without the agent that made
//! it.

use std::time::Duration;

use carina_namespaces::{NamespaceAccess, is_namespace, remove_namespaces};
use carina_vnet::document::Kind;
use carina_vnet::host_part::{HostPart, NodePart, VnetId};
use carina_vnet_images::ImageStore;

use crate::confinement::remove_groups;
use crate::directory::{Record, VnetDir, Vnets};
use crate::error::{Attempt, Result};
use crate::names::{is_of, node_namespace};
use crate::node::end_pool;
use crate::switched_off;

/// Ends and removes everything that this host has of a network: machines, processes in its
/// namespaces, the namespaces with the ports in them, and its directory. What does not exist is
/// skipped.
///
/// # Errors
/// Something cannot be removed.
pub fn remove(dir: &VnetDir, record: &Record) -> Result<()> {
    end(dir, record)?;
    dir.remove()
}

/// Like [`remove`], with the record in the directory. A directory without a record was left by an
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

/// Ends the pool of paused machines of an agent that was killed.
///
/// # Errors
/// A machine cannot be ended.
pub fn remove_pool(vnets: &Vnets) -> Result<()> {
    end_pool(&vnets.pool())
}

/// Like [`remove`], but keeps the directory.
pub(crate) fn end(dir: &VnetDir, record: &Record) -> Result<()> {
    end_but_disks(dir, record)?;
    ImageStore::of_this_host().remove_network(record.vnet)?;
    Ok(())
}

/// Like [`end`], but keeps the disks of nodes.
pub(crate) fn end_but_disks(dir: &VnetDir, record: &Record) -> Result<()> {
    for machines in [dir.machines(), dir.destination()] {
        let running = carina_vm::list(&machines).attempt("listing machines")?;
        for machine in running {
            carina_vm::stop(&machines, &machine.name, Duration::ZERO)
                .attempt(format!("stopping VM {}", machine.name))?;
        }
    }
    remove_groups(&dir.groups())?;
    let namespaces = namespaces(record.vnet)?;
    remove_namespaces(&NamespaceAccess::of_root(), &namespaces)?;
    dir.remove_places_of_nodes()
}

/// A node of a network that does not run any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedNode {
    /// Name of the node that has ended.
    pub name: String,
    /// Why the node must be made again.
    pub reason: &'static str,
}

/// The nodes of a network that do not run although the operator has not stopped them.
///
/// # Errors
/// Machines or namespaces of this host cannot be listed.
pub fn ended_nodes(dir: &VnetDir, record: &Record) -> Result<Vec<EndedNode>> {
    let mut living = namespaces(record.vnet)?;
    living.retain(|name| is_namespace(name));
    let off = switched_off::read(dir)?;
    let existing = existing_nodes(dir, &record.part, &living)?;
    let reason = if record.is_settled {
        "it has ended"
    } else {
        "it is not there yet"
    };
    let names = record.part.nodes.iter().map(|node| &node.name);
    let ended = names.filter(|name| !existing.contains(name) && !off.nodes.contains(*name));
    let ended = ended.map(|name| EndedNode {
        name: name.clone(),
        reason,
    });
    Ok(ended.collect())
}

/// The nodes of a part that exist: running machines, and namespaces in `living`.
pub(crate) fn existing_nodes(
    dir: &VnetDir,
    part: &HostPart,
    living: &[String],
) -> Result<Vec<String>> {
    let machines = carina_vm::list(&dir.machines()).attempt("listing machines")?;
    let exists = |node: &&NodePart| match node.kind {
        Kind::Namespace | Kind::Bridge => living.contains(&node_namespace(part.vnet, &node.name)),
        Kind::Vm => machines.iter().any(|machine| machine.name == node.name),
    };
    let existing = part.nodes.iter().filter(exists);
    Ok(existing.map(|node| node.name.clone()).collect())
}

/// The network's namespaces that can be entered. Files of other ones are removed: a namespace that
/// is gone, or that was mounted where this process does not see it.
///
/// # Errors
/// `ip` is missing, or refuses.
pub(crate) fn living_namespaces(vnet: VnetId) -> Result<Vec<String>> {
    let (living, dead): (Vec<_>, Vec<_>) = namespaces(vnet)?
        .into_iter()
        .partition(|namespace| is_namespace(namespace));
    remove_namespaces(&NamespaceAccess::of_root(), &dead)?;
    Ok(living)
}

/// Names of all namespaces of a network.
///
/// # Errors
/// `ip` is missing.
pub fn namespaces(vnet: VnetId) -> Result<Vec<String>> {
    let mut all = NamespaceAccess::of_root().list()?;
    all.retain(|namespace| is_of(vnet, namespace));
    Ok(all)
}
