//! What is there of a network, and its removal, with or without the agent that made it.

use std::time::Duration;

use carina_lab::{NamespaceAccess, remove_namespaces};
use carina_vnet::host_part::VnetId;

use crate::confinement::remove_groups;
use crate::directory::{Record, VnetDir, Vnets};
use crate::error::{Attempt, Result};
use crate::image_store::ImageStore;
use crate::names::is_of;
use crate::node::end_pool;

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

/// The namespaces of a network.
///
/// # Errors
/// `ip` is missing.
pub fn namespaces(vnet: VnetId) -> Result<Vec<String>> {
    let mut all = NamespaceAccess::of_root().list()?;
    all.retain(|namespace| is_of(vnet, namespace));
    Ok(all)
}
