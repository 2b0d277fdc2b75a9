//! Taking a lab down: whatever of it there is, however it came to be left.

use std::time::Duration;

use super::process::{Process, end_all};
use super::state::{LabDir, Labs, Record};
use crate::failure::{Attempt, Failure, Outcome};

/// Ends all that a record names and removes it. What is gone already is no failure.
///
/// # Errors
/// Something cannot be removed.
pub fn take_down(dir: &LabDir, record: &Record) -> Outcome {
    for system in record.nodes.keys() {
        let run_dir = dir.run_dir(system).vm_dir();
        for machine in carina_vm::list(&run_dir).attempt("listing machines")? {
            carina_vm::stop(&run_dir, &machine.name, Duration::ZERO)
                .attempt(format!("stopping VM {}", machine.name))?;
        }
    }
    let recorded = record.apps.iter().filter_map(|app| app.process.clone());
    end_all(&recorded.collect::<Vec<_>>(), GRACE);
    let nodes: Vec<Process> = record.nodes.values().cloned().collect();
    end_all(&nodes, GRACE);
    let is_reachable = record.keeper.as_ref().is_none_or(Process::is_alive);
    if is_reachable && !record.namespaces.is_empty() {
        remove_namespaces(&record.ground(), &record.namespaces)?;
    }
    if let Some(keeper) = &record.keeper {
        end_all(std::slice::from_ref(keeper), Duration::ZERO);
    }
    dir.remove()
}

/// Removes namespaces that a lab of this name has left without a record; their names.
///
/// # Errors
/// Something cannot be removed.
pub fn remove_strays(labs: &Labs, name: &str) -> Result<Vec<String>, Failure> {
    if !rustix::process::geteuid().is_root() {
        // Those of others vanish with the process that keeps them.
        return Ok(Vec::new());
    }
    let ground = super::namespace::Ground::bare();
    let known: Vec<String> = labs
        .list()?
        .into_iter()
        .flat_map(|record| record.namespaces)
        .collect();
    let starts = [format!("carina-{name}-"), format!("carina-{name}.")];
    let mut strays = ground.namespaces()?;
    strays.retain(|namespace| {
        !known.contains(namespace) && starts.iter().any(|start| namespace.starts_with(start))
    });
    remove_namespaces(&ground, &strays)?;
    Ok(strays)
}

/// Ends what runs in namespaces, and removes those that are there.
fn remove_namespaces(ground: &super::namespace::Ground, namespaces: &[String]) -> Outcome {
    let there = ground.namespaces()?;
    let own = std::process::id().cast_signed();
    let mut inside = Vec::new();
    let there: Vec<&String> = namespaces
        .iter()
        .filter(|name| there.contains(name))
        .collect();
    for name in &there {
        let processes = ground
            .processes_in(name)
            .into_iter()
            .filter(|pid| *pid != own);
        inside.extend(processes.filter_map(Process::numbered));
    }
    end_all(&inside, GRACE);
    for name in there {
        ground.ip(&["netns".to_owned(), "del".to_owned(), name.clone()])?;
    }
    Ok(())
}

/// How long a process may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);
