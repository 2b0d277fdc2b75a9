//! What would be done for a topology, in words: `carina lab check` and `show`.

use std::fmt::Write;

use carina_measure::table::Table;
use serde::Serialize;

use super::namespace;
use super::topology::{Link, LinkEnd, Topology, hv_dif};

/// The steps that make a lab.
#[derive(Debug, Serialize)]
pub struct Plan<'a> {
    /// What is made.
    #[serde(flatten)]
    pub topology: &'a Topology,
    /// Commands that would do the same, in order.
    pub commands: Vec<String>,
}

impl<'a> Plan<'a> {
    /// The plan of a lab of that name.
    pub fn new(lab: &str, topology: &'a Topology) -> Self {
        let commands = namespace::commands(lab, topology);
        let mut commands: Vec<String> = commands
            .iter()
            .map(|words| format!("ip {}", words.join(" ")))
            .collect();
        for system in topology.namespaces() {
            let name = &system.name;
            commands.push(in_system(
                lab,
                name,
                &format!("carina node --config {name}.toml --run {name} &"),
            ));
        }
        for (vm, needs) in topology.machines() {
            let (memory, cpus) = (needs.memory_mib, needs.cpus);
            let run = format!("carina vm run {} --memory {memory} --cpus {cpus}", vm.name);
            commands.push(in_system(lab, &needs.host, &run));
        }
        for dif in &topology.difs {
            for (place, member) in dif.members.iter().enumerate() {
                let verb = if place == 0 { "create" } else { "join" };
                let (name, over) = (&dif.name, member.over.join(","));
                let ipcp = dif.ipcp(&member.system);
                let via = member.via.as_ref();
                let via = via.map_or_else(String::new, |via| format!(" --via {}", dif.ipcp(via)));
                let join = format!("carina dif {verb} {name} --over {over} --ipcp {ipcp}{via}");
                commands.push(self::any_system(lab, topology, &member.system, &join));
            }
        }
        for app in &topology.apps {
            commands.push(any_system(
                lab,
                topology,
                &app.system,
                &format!("{} &", app.command),
            ));
        }
        Self { topology, commands }
    }

    /// The plan for people.
    pub fn text(&self) -> String {
        let mut text = self.topology.text();
        let _ = write!(text, "\n\nCommands:\n  {}", self.commands.join("\n  "));
        text
    }
}

fn in_system(lab: &str, system: &str, command: &str) -> String {
    format!(
        "ip netns exec {} {command}",
        namespace::of_system(lab, system)
    )
}

fn any_system(lab: &str, topology: &Topology, system: &str, command: &str) -> String {
    match topology
        .system(system)
        .and_then(|system| system.vm.as_ref())
    {
        Some(_) => format!("(in VM {system}) {command}"),
        None => in_system(lab, system, command),
    }
}

impl Topology {
    /// Tables of systems, links, DIFs and applications.
    pub fn text(&self) -> String {
        let mut systems = Table::new(["SYSTEM", "IS", "DIFS"]);
        for system in &self.systems {
            let is = match &system.vm {
                None => "namespace".to_owned(),
                Some(vm) => format!("VM on {}, {} MiB", vm.host, vm.memory_mib),
            };
            let shims = self.shims();
            let below = shims
                .iter()
                .filter(|(_, inside)| inside.contains(&system.name));
            let below = below.map(|(name, _)| name.as_str());
            let above = self
                .difs
                .iter()
                .filter(|dif| dif.member(&system.name).is_some());
            let difs: Vec<&str> = below.chain(above.map(|dif| dif.name.as_str())).collect();
            systems.row([system.name.clone(), is, difs.join(", ")]);
        }
        let mut parts = vec![systems.to_string()];
        if !self.links.is_empty() {
            let mut links = Table::new(["LINK", "SYSTEMS", "FRAMES", "IMPAIRMENT"]);
            for link in &self.links {
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
        if !self.difs.is_empty() {
            let mut difs = Table::new([
                "DIF",
                "LEVEL",
                "LONGEST PDU",
                "MEMBERS IN ORDER OF ENROLLMENT",
            ]);
            for dif in &self.difs {
                let member =
                    |m: &super::topology::Member| format!("{} ({})", m.system, m.over.join(", "));
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
        if !self.apps.is_empty() {
            let mut apps = Table::new(["SYSTEM", "APPLICATION"]);
            for app in &self.apps {
                apps.row([&app.system, &app.command]);
            }
            parts.push(apps.to_string());
        }
        if !self.notes.is_empty() {
            parts.push(self.notes.join("\n"));
        }
        let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).collect();
        parts.join("\n\n")
    }

    /// The topology as a graph: lines between systems, each with its name.
    pub fn edges(&self) -> Vec<(String, String, String)> {
        let mut edges = Vec::new();
        for link in &self.links {
            let name = |end: &LinkEnd| end.system.clone();
            match &link.ends[..] {
                [a, b] => edges.push((name(a), name(b), link.name.clone())),
                // The bridge is a point of its own.
                ends => {
                    for end in ends {
                        edges.push((name(end), format!("[{}]", link.name), String::new()));
                    }
                }
            }
        }
        for (vm, needs) in self.machines() {
            edges.push((needs.host.clone(), vm.name.clone(), hv_dif(&vm.name)));
        }
        edges
    }
}

/// Addresses in place of frames.
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
        let jitter = match fault.jitter_ms > 0.0 {
            true => format!(" ± {}", fault.jitter_ms),
            false => String::new(),
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
