//! The commands that would make a lab, for `carina lab check`.

use serde::Serialize;

use crate::links;
use carina_topology::Topology;

/// A topology and the commands that would make it.
#[derive(Debug, Serialize)]
pub struct DryRun<'a> {
    /// The topology of the lab.
    #[serde(flatten)]
    pub topology: &'a Topology,
    /// Commands that would make the lab, in order.
    pub commands: Vec<String>,
}

impl<'a> DryRun<'a> {
    /// The commands of a lab named `lab`.
    pub fn new(lab: &str, topology: &'a Topology) -> Self {
        let commands = links::commands(lab, topology);
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
                commands.push(any_system(lab, topology, &member.system, &join));
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
}

fn in_system(lab: &str, system: &str, command: &str) -> String {
    format!("ip netns exec {} {command}", links::of_system(lab, system))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_addresses_and_members() {
        let text = "udp4 u a:10.0.0.1/24 b:10.0.0.2/24 mtu=1400 loss=1%\n\
                    eth e 0Mbps b c\nnetem u a delay 5ms\n\
                    dif n a u\ndif n b u e\ndif n c e\ndif m b u\ndif m a u\n";
        let topology = Topology::parse(text, &crate::CarinaNode).unwrap();
        let dry_run = DryRun::new("l", &topology);
        for command in [
            "ip -n carina-l-a address add 10.0.0.1/24 dev u",
            "ip netns exec carina-l-b carina dif join n --over u,e --ipcp n.b --via n.a",
        ] {
            assert!(
                dry_run.commands.iter().any(|c| c == command),
                "{:?}",
                dry_run.commands
            );
        }
    }
}
