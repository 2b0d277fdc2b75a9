//! What a running lab is doing.

use carina_api::control::{IpcpInfo, LinkState, MemberState};
use carina_measure::table::Table;
use serde::Serialize;

use super::guest::Guest;
use super::process::Process;
use super::state::{LabDir, Record};
use super::topology::Topology;
use crate::commands::ipcp::kind_word;
use crate::failure::{Attempt, Failure};

/// The whole lab.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// `up`, `starting` or `broken`.
    pub state: &'static str,
    /// Its systems.
    pub systems: Vec<SystemStatus>,
    /// Its applications.
    pub apps: Vec<AppStatus>,
}

/// One system.
#[derive(Debug, Serialize)]
pub struct SystemStatus {
    /// Its name.
    pub name: String,
    /// The namespace, or `VM on SYSTEM`.
    pub place: String,
    /// Process of its node, where it is in this system.
    pub pid: Option<i32>,
    /// Why the node does not answer.
    pub trouble: Option<String>,
    /// Its IPCPs.
    pub ipcps: Vec<IpcpInfo>,
}

/// One application.
#[derive(Debug, Serialize)]
pub struct AppStatus {
    /// Its system.
    pub system: String,
    /// Its command.
    pub command: String,
    /// Whether it runs; not known in a VM.
    pub is_running: Option<bool>,
}

/// Asks every node.
///
/// # Errors
/// The lab's topology cannot be read.
pub fn status(dir: &LabDir, record: &Record) -> Result<Status, Failure> {
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

type Answer = Result<Vec<IpcpInfo>, Failure>;

fn ask(dir: &LabDir, record: &Record, topology: &Topology, system: &str) -> (String, Answer) {
    let vm = topology
        .system(system)
        .and_then(|system| system.vm.as_ref());
    match vm {
        Some(vm) => {
            let guest = Guest::reach(dir, system, vm);
            let answer = guest.and_then(|guest| guest.ipcps());
            (format!("VM on {}", vm.host), answer)
        }
        None => {
            let node = carina_api::control::Client::new(dir.run_dir(system).control_sock());
            let answer = node.ipcps().attempt(format!("asking the node of {system}"));
            (super::namespace::of_system(&record.name, system), answer)
        }
    }
}

impl Status {
    /// A table of systems and members, and one of applications.
    pub fn text(&self) -> String {
        let mut table = Table::new([
            "SYSTEM",
            "PLACE",
            "IPCP",
            "TYPE",
            "DIF",
            "STATE",
            "NEIGHBOURS",
        ]);
        for system in &self.systems {
            let mut name = system.name.clone();
            let mut place = system.place.clone();
            if let Some(trouble) = &system.trouble {
                let cells = [
                    name,
                    place,
                    "-".into(),
                    "-".into(),
                    "-".into(),
                    trouble.clone(),
                ];
                table.row(cells);
                continue;
            }
            for ipcp in system
                .ipcps
                .iter()
                .filter(|ipcp| ipcp.name.as_str() != "loopback")
            {
                let (state, neighbours) = member(ipcp);
                table.row([
                    std::mem::take(&mut name),
                    std::mem::take(&mut place),
                    ipcp.name.to_string(),
                    kind_word(ipcp.kind).to_owned(),
                    ipcp.dif.to_string(),
                    state,
                    neighbours,
                ]);
            }
            if !name.is_empty() {
                table.row([name, place]);
            }
        }
        let mut text = table.to_string();
        if !self.apps.is_empty() {
            let mut apps = Table::new(["SYSTEM", "APPLICATION", "STATE"]);
            for app in &self.apps {
                let state = match app.is_running {
                    Some(true) => "runs",
                    Some(false) => "has ended",
                    None => "in the VM",
                };
                apps.row([app.system.as_str(), app.command.as_str(), state]);
            }
            text = format!("{}\n\n{apps}", text.trim_end());
        }
        text.trim_end().to_owned()
    }
}

/// State and neighbours of an IPCP, in words.
fn member(ipcp: &IpcpInfo) -> (String, String) {
    let Some(member) = &ipcp.member else {
        let state = match ipcp.state {
            LinkState::Up => "up",
            LinkState::Down => "down",
        };
        return (state.to_owned(), ipcp.peer.clone().unwrap_or_default());
    };
    let state = match (member.state, member.address) {
        (MemberState::Enrolled, Some(address)) => format!("address {address}"),
        _ => member.step.clone(),
    };
    let neighbours = member.neighbours.iter().map(ToString::to_string);
    (state, neighbours.collect::<Vec<_>>().join(", "))
}
