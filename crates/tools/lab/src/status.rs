//! The state of a running lab: systems, IPCPs, applications.

use carina_api::control::{Client, IpcpInfo};
use carina_namespaces::Process;
use serde::Serialize;

use crate::error::{Attempt, Result};
use crate::guests::{ipcps, reach_guest};
use crate::record::{LabDir, Record};
use carina_topology::Topology;

/// The state of a lab, with the states of its systems and applications.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Name of the lab.
    pub name: String,
    /// `up`, `starting` or `broken`.
    pub state: &'static str,
    /// The lab's systems.
    pub systems: Vec<SystemStatus>,
    /// The lab's applications.
    pub apps: Vec<AppStatus>,
}

/// A system of a lab, with the IPCPs of its node.
#[derive(Debug, Serialize)]
pub struct SystemStatus {
    /// Name of the system, as in the lab file.
    pub name: String,
    /// Where the system runs: the name of its network namespace, or `VM on SYSTEM`.
    pub place: String,
    /// Process ID of the system's node; `None` for a VM.
    pub pid: Option<i32>,
    /// Why the system's node does not answer; `None` if it does.
    pub trouble: Option<String>,
    /// The IPCPs of the system's node; empty if the node does not answer.
    pub ipcps: Vec<IpcpInfo>,
}

/// An application of a lab, and whether it runs.
#[derive(Debug, Serialize)]
pub struct AppStatus {
    /// Name of the system in which the application runs.
    pub system: String,
    /// Shell command of the application.
    pub command: String,
    /// Whether the application runs; `None` in a VM, where that is not known.
    pub is_running: Option<bool>,
}

/// The state of a lab: the IPCPs of each system, as its node answers, and the applications. For a
/// node that does not answer, `trouble` has the reason.
///
/// # Errors
/// The lab's topology cannot be read.
pub fn status(dir: &LabDir, record: &Record) -> Result<Status> {
    let topology = dir.topology()?;
    let mut systems = Vec::new();
    for system in &topology.systems {
        let (place, answer) = ask(dir, record, &topology, &system.name);
        let (ipcps, trouble) = match answer {
            Ok(ipcps) => (ipcps, None),
            Err(failure) => (Vec::new(), Some(failure.to_string())),
        };
        systems.push(SystemStatus {
            name: system.name.clone(),
            place,
            pid: record.nodes.get(&system.name).map(|node| node.pid),
            trouble,
            ipcps,
        });
    }
    let apps = record.apps.iter().map(|app| AppStatus {
        system: app.system.clone(),
        command: app.command.clone(),
        is_running: app.process.as_ref().map(Process::is_alive),
    });
    Ok(Status {
        name: record.name.clone(),
        state: record.state(),
        systems,
        apps: apps.collect(),
    })
}

type Answer = Result<Vec<IpcpInfo>>;

fn ask(dir: &LabDir, record: &Record, topology: &Topology, system: &str) -> (String, Answer) {
    let vm = topology
        .system(system)
        .and_then(|system| system.vm.as_ref());
    match vm {
        Some(vm) => {
            let guest = reach_guest(dir, system, vm);
            let answer = guest.and_then(|guest| ipcps(&guest, system));
            (format!("VM on {}", vm.host), answer)
        }
        None => {
            let node = Client::new(dir.run_dir(system).control_sock());
            let answer = node.ipcps().attempt(format!("asking the node of {system}"));
            (crate::links::of_system(&record.name, system), answer)
        }
    }
}
