//! Takes a lab down, whatever state it is in.

use std::panic::resume_unwind;
use std::time::Duration;

use carina_namespaces::{GRACE, NamespaceAccess, Process, end_all, remove_namespaces};

use crate::error::{Attempt, Result};
use crate::record::{LabDir, Labs, Record};

/// Ends and removes everything that a record names, and skips what no longer exists.
///
/// # Errors
/// Something cannot be removed.
pub fn take_down(dir: &LabDir, record: &Record) -> Result<()> {
    stop_machines(dir, record)?;
    let recorded = record.apps.iter().filter_map(|app| app.process.clone());
    end_all(&recorded.collect::<Vec<_>>(), GRACE);
    let nodes: Vec<Process> = record.nodes.values().cloned().collect();
    end_all(&nodes, GRACE);
    let is_reachable = record.keeper.as_ref().is_none_or(Process::is_alive);
    if is_reachable && !record.namespaces.is_empty() {
        remove_namespaces(&record.access(), &record.namespaces)?;
    }
    if let Some(keeper) = &record.keeper {
        end_all(std::slice::from_ref(keeper), Duration::ZERO);
    }
    dir.remove()
}

/// Tells all guests to power off at the same time, so that their nodes leave their DIFs.
fn stop_machines(dir: &LabDir, record: &Record) -> Result<()> {
    let mut machines = Vec::new();
    for system in record.nodes.keys() {
        let run_dir = dir.run_dir(system).vm_dir();
        let running = carina_vm::list(&run_dir).attempt("listing machines")?;
        machines.extend(
            running
                .into_iter()
                .map(|machine| (run_dir.clone(), machine.name)),
        );
    }
    std::thread::scope(|scope| {
        let stopping: Vec<_> = machines
            .iter()
            .map(|(run_dir, name)| scope.spawn(|| carina_vm::stop(run_dir, name, GUEST_GRACE)))
            .collect();
        for (stopped, (_, name)) in stopping.into_iter().zip(&machines) {
            let stopped = stopped.join().unwrap_or_else(|panic| resume_unwind(panic));
            stopped.attempt(format!("stopping VM {name}"))?;
        }
        Ok(())
    })
}

/// Removes the namespaces of a lab with this name that has no record. Returns the namespaces'
/// names.
///
/// # Errors
/// Something cannot be removed.
pub fn remove_strays(labs: &Labs, name: &str) -> Result<Vec<String>> {
    if !rustix::process::geteuid().is_root() {
        // Namespaces of other users vanish with the process that holds their user namespace open.
        return Ok(Vec::new());
    }
    let access = NamespaceAccess::of_root();
    let known: Vec<String> = labs
        .list()?
        .into_iter()
        .flat_map(|record| record.namespaces)
        .collect();
    let starts = [format!("carina-{name}-"), format!("carina-{name}.")];
    let mut strays = access.list()?;
    strays.retain(|namespace| {
        !known.contains(namespace) && starts.iter().any(|start| namespace.starts_with(start))
    });
    remove_namespaces(&access, &strays)?;
    Ok(strays)
}

/// How long a guest may take to power itself off, before its QEMU is ended.
const GUEST_GRACE: Duration = Duration::from_secs(4);
