//! The namespaces and links of a topology: their names, and the commands of `ip` that make them.

use carina_namespaces::{new_namespace, veth_pair};

use carina_topology::{Link, Topology};

/// The name of a system's namespace.
pub(crate) fn of_system(lab: &str, system: &str) -> String {
    format!("carina-{lab}-{system}")
}

/// The name of the namespace that contains the lab's bridges.
pub(crate) fn of_bridges(lab: &str) -> String {
    format!("carina-{lab}.links")
}

/// The names of all namespaces of a lab.
pub(crate) fn names(lab: &str, topology: &Topology) -> Vec<String> {
    let systems = topology
        .namespaces()
        .map(|system| of_system(lab, &system.name));
    let bridges = topology
        .links
        .iter()
        .any(is_bridged)
        .then(|| of_bridges(lab));
    systems.chain(bridges).collect()
}

/// Whether a link needs a bridge, because it joins more than two systems.
pub(crate) fn is_bridged(link: &Link) -> bool {
    link.ends.len() > 2
}

/// The arguments of the `ip` commands that make all namespaces and links, in order.
pub(crate) fn commands(lab: &str, topology: &Topology) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut add = |text: String| all.push(text.split(' ').map(str::to_owned).collect());
    for name in names(lab, topology) {
        new_namespace(&name).into_iter().for_each(&mut add);
    }
    let bridges = of_bridges(lab);
    for (index, link) in topology.links.iter().enumerate() {
        let mtu = link
            .mtu
            .map_or_else(String::new, |mtu| format!(" mtu {mtu}"));
        let places: Vec<(String, &str)> = link
            .ends
            .iter()
            .map(|end| (of_system(lab, &end.system), end.interface.as_str()))
            .collect();
        let addresses: Vec<String> = link
            .ends
            .iter()
            .zip(&places)
            .filter_map(|(end, (namespace, interface))| {
                let address = end.address?;
                Some(format!(
                    "-n {namespace} address add {address} dev {interface}"
                ))
            })
            .collect();
        if let [(a, at_a), (b, at_b)] = &places[..] {
            veth_pair([a, at_a], [b, at_b], &mtu)
                .into_iter()
                .for_each(&mut add);
            addresses.into_iter().for_each(&mut add);
            continue;
        }
        let bridge = format!("br{index}");
        add(format!(
            "-n {bridges} link add name {bridge}{mtu} type bridge"
        ));
        add(format!("-n {bridges} link set dev {bridge} up"));
        for (number, (namespace, interface)) in places.iter().enumerate() {
            let port = format!("p{index}.{number}");
            add(format!(
                "link add name {interface}{mtu} netns {namespace} type veth peer name \
                 {port}{mtu} netns {bridges}"
            ));
            add(format!("-n {bridges} link set dev {port} master {bridge}"));
            add(format!("-n {bridges} link set dev {port} up"));
            add(format!("-n {namespace} link set dev {interface} up"));
        }
        addresses.into_iter().for_each(&mut add);
    }
    all
}
