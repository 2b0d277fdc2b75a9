//! Tables of a lab's topology, of the commands that would make it, and of its state.

use std::fmt::Write;

use carina_api::control::{IpcpInfo, LinkState, MemberState};
use carina_lab::{DryRun, Status};
use carina_topology::{Link, LinkEnd, Member, Topology};

use crate::commands::ipcp::kind_word;
use carina_text::table::Table;

/// The tables of a topology, and the commands that would make the lab.
pub(super) fn dry_run_text(dry_run: &DryRun<'_>) -> String {
    let mut text = topology_text(dry_run.topology);
    let _ = write!(text, "\n\nCommands:\n  {}", dry_run.commands.join("\n  "));
    text
}

/// A table of systems and members, and a table of applications.
pub(super) fn status_text(status: &Status) -> String {
    let mut table = Table::new([
        "SYSTEM",
        "PLACE",
        "IPCP",
        "TYPE",
        "DIF",
        "STATE",
        "NEIGHBOURS",
    ]);
    let mut troubles = String::new();
    for system in &status.systems {
        let mut name = system.name.clone();
        let mut place = system.place.clone();
        if let Some(trouble) = &system.trouble {
            // The reason is too long for a column.
            let _ = write!(troubles, "\n{name}: {trouble}");
            table.row([name.as_str(), place.as_str(), "-", "-", "-", "no answer"]);
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
    if !troubles.is_empty() {
        text = format!("{}\n{troubles}", text.trim_end());
    }
    if !status.apps.is_empty() {
        let mut apps = Table::new(["SYSTEM", "APPLICATION", "STATE"]);
        for app in &status.apps {
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

/// Tables of systems, links, DIFs and applications.
#[expect(clippy::too_many_lines, reason = "one table after the other")]
pub(super) fn topology_text(topology: &Topology) -> String {
    let mut systems = Table::new(["SYSTEM", "KIND", "DIFS"]);
    for system in &topology.systems {
        let is = match &system.vm {
            None => "namespace".to_owned(),
            Some(vm) => format!("VM on {}, {} MiB", vm.host, vm.memory_mib),
        };
        let shims = topology.shims();
        let below = shims
            .iter()
            .filter(|(_, inside)| inside.contains(&system.name));
        let below = below.map(|(name, _)| name.as_str());
        let above = topology
            .difs
            .iter()
            .filter(|dif| dif.member(&system.name).is_some());
        let difs: Vec<&str> = below.chain(above.map(|dif| dif.name.as_str())).collect();
        systems.row([system.name.clone(), is, difs.join(", ")]);
    }
    let mut parts = vec![systems.to_string()];
    if !topology.links.is_empty() {
        let mut links = Table::new(["LINK", "SYSTEMS", "FRAMES", "IMPAIRMENT"]);
        for link in &topology.links {
            let ends: Vec<&str> = link.ends.iter().map(|end| end.system.as_str()).collect();
            let tag = link.vlan.or_else(|| link.name.parse().ok());
            let tag = match (link.is_udp(), tag) {
                (true, _) => udp_text(link),
                (false, Some(id)) => format!("VLAN {id}"),
                (false, None) => "untagged".to_owned(),
            };
            let frames = match link.mtu {
                Some(mtu) => format!("{tag}, MTU {mtu}"),
                None => tag,
            };
            let plain = link.ends.iter().all(|end| end.fault.is_none());
            let mut faults: Vec<String> = link.ends.iter().map(fault_text).collect();
            faults.dedup_by(|a, b| {
                a.split_once(": ").map(|p| p.1) == b.split_once(": ").map(|p| p.1)
            });
            let faults = match faults.len() {
                _ if plain => "-".to_owned(),
                1 => faults[0]
                    .split_once(": ")
                    .map(|p| p.1.to_owned())
                    .unwrap_or_default(),
                _ => faults.join("; "),
            };
            links.row([link.name.clone(), ends.join(", "), frames, faults]);
        }
        parts.push(links.to_string());
    }
    if !topology.difs.is_empty() {
        let mut difs = Table::new([
            "DIF",
            "LEVEL",
            "LONGEST PDU",
            "MEMBERS IN ORDER OF ENROLLMENT",
        ]);
        for dif in &topology.difs {
            let member = |m: &Member| format!("{} ({})", m.system, m.over.join(", "));
            let members: Vec<String> = dif.members.iter().map(member).collect();
            let longest = match dif.config.max_pdu {
                0 => "as below".to_owned(),
                bytes => bytes.to_string(),
            };
            difs.row([
                dif.name.clone(),
                dif.level.to_string(),
                longest,
                members.join(", "),
            ]);
        }
        parts.push(difs.to_string());
    }
    if !topology.apps.is_empty() {
        let mut apps = Table::new(["SYSTEM", "APPLICATION"]);
        for app in &topology.apps {
            apps.row([&app.system, &app.command]);
        }
        parts.push(apps.to_string());
    }
    if !topology.notes.is_empty() {
        parts.push(topology.notes.join("\n"));
    }
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).collect();
    parts.join("\n\n")
}

/// The UDP addresses of a link's ends.
fn udp_text(link: &Link) -> String {
    let addresses = link.ends.iter().filter_map(|end| end.address);
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    format!("UDP {}", addresses.join(", "))
}

fn fault_text(end: &LinkEnd) -> String {
    let Some(fault) = &end.fault else {
        return format!("{}: none", end.system);
    };
    let mut words = Vec::new();
    if fault.rate_bps > 0 {
        words.push(format!("{} Mbit/s", fault.rate_bps as f64 / 1e6));
    }
    if fault.delay_ms > 0.0 {
        let jitter = if fault.jitter_ms > 0.0 {
            format!(" ± {}", fault.jitter_ms)
        } else {
            String::new()
        };
        words.push(format!("delay {}{jitter} ms", fault.delay_ms));
    }
    for (share, name) in [
        (fault.loss, "loss"),
        (fault.duplicate, "duplicates"),
        (fault.reorder, "reordered"),
    ] {
        if share > 0.0 {
            words.push(format!("{name} {} %", share * 100.0));
        }
    }
    format!("{}: {}", end.system, words.join(", "))
}

/// The state of an IPCP and its neighbours, as two cells.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topology_of_the_corpus_has_tables() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/lab");
        let mut shown = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            if let Ok(topology) = Topology::parse(&text, &carina_lab::CarinaNode) {
                assert!(!dry_run_text(&DryRun::new("x", &topology)).is_empty());
                shown += 1;
            }
        }
        assert!(shown > 0);
    }
}
