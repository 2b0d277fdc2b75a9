//! Writes the TOML configuration of a system's node, with the DIFs that exist so far.

use std::fmt::Write;

use carina_api::control::{Dialect, FaultSpec};
use carina_ipcp::DifConfig;
use carina_ipcp::policy::component::ADDRESS_ASSIGNMENT;
use carina_text::toml::{inline, quoted};
use serde_json::{Map, Value};

use super::Address;
use super::lower::UDP_HEADS;
use super::{Dif, Link, LinkEnd, Topology, hv_dif};

/// The table of a guest's configuration that makes the IPCP of `dif` over VMPI, which is the DIF
/// between the guest and its host. `number` tells the IPCPs of one guest apart.
pub fn hv_ipcp(number: usize, dif: &str) -> String {
    let dif = quoted(dif);
    format!("[[ipcp]]\nname = \"hv{number}\"\ntype = \"hv\"\nside = \"guest\"\ndif = {dif}\n")
}

/// The configuration of a system's node, with its members of `difs`. `auth` maps the credentials of
/// a DIF to the paths of their files in that system.
pub fn node_config(
    topology: &Topology,
    system: &str,
    difs: &[&Dif],
    auth: impl Fn(&str) -> String,
) -> String {
    let mut text = format!("[node]\nname = {}\n", quoted(system));
    let this = topology.system(system);
    if this.is_some_and(|this| this.vm.is_some()) {
        let _ = write!(text, "\n{}", hv_ipcp(0, &hv_dif(system)));
    }
    for link in &topology.links {
        let Some(end) = link.ends.iter().find(|end| end.system == system) else {
            continue;
        };
        match end.address {
            None => text.push_str(&eth(topology, link, end)),
            Some(address) => text.push_str(&udp(topology, link, address)),
        }
        if let Some(fault) = &end.fault {
            let _ = writeln!(text, "fault = {}", fault_table(fault));
        }
    }
    for (vm, needs) in topology.machines() {
        if needs.host == system {
            let (name, dif) = (quoted(&vm.name), quoted(&hv_dif(&vm.name)));
            let _ = write!(text, "\n[[vm]]\nname = {name}\ndif = {dif}\n");
        }
    }
    for dif in difs {
        if let Some((place, member)) = dif.member(system) {
            let role = if place == 0 { "create" } else { "join" };
            let over: Vec<String> = member.over.iter().map(|lower| quoted(lower)).collect();
            let _ = write!(
                text,
                "\n[[dif]]\nname = {}\nrole = \"{role}\"\nover = [{}]\nipcp = {}\n",
                quoted(&dif.name),
                over.join(", "),
                quoted(&dif.ipcp(system))
            );
            if let Some(via) = &member.via {
                let _ = writeln!(text, "via = {}", quoted(&dif.ipcp(via)));
            }
            if let Some(credentials) = &dif.auth {
                let _ = writeln!(text, "auth = {}", quoted(&auth(credentials)));
            }
            if dif.dialect != Dialect::Native {
                let _ = writeln!(text, "dialect = \"{}\"", dif.dialect.name());
            }
            let config = member_config(dif, place);
            let is_empty = |config: &Value| config.as_object().is_none_or(Map::is_empty);
            if let Some(config) = config.filter(|config| !is_empty(config)) {
                let _ = writeln!(text, "config = {}", inline(&config));
            }
        }
    }
    text
}

/// The configuration that the member at index `place` contains: values that differ from the
/// defaults. `None` for a member that receives its whole configuration when it enrolls.
pub(crate) fn member_config(dif: &Dif, place: usize) -> Option<Value> {
    // In other dialects a joining member receives only a part of the configuration: widths and
    // checksums of PDUs are built into each member.
    let has_own = place == 0 || dif.dialect != Dialect::Native;
    let mut config = dif.config.clone();
    let address = dif.members.get(place).and_then(|member| member.address);
    if let Some(address) = address {
        let policies = &mut config.policies;
        let spec = policies.entry(ADDRESS_ASSIGNMENT.to_owned()).or_default();
        spec.params
            .insert("address".to_owned(), address.to_string());
    }
    let settings = has_own.then(|| settings(&config))?;
    let is_empty = settings.as_object().is_some_and(Map::is_empty);
    // A member of rlite without its own configuration uses what its enroller sends.
    (place == 0 || !is_empty || dif.dialect == Dialect::Irati).then_some(settings)
}

/// The shim IPCP of an Ethernet link, as TOML.
fn eth(topology: &Topology, link: &Link, end: &LinkEnd) -> String {
    let mut text = format!(
        "\n[[ipcp]]\nname = {}\ntype = \"eth\"\ndif = {}\ninterface = {}\n",
        quoted(&format!("eth-{}", link.name)),
        quoted(&link.name),
        quoted(&end.interface)
    );
    if let Some(vlan) = link.vlan {
        let _ = writeln!(text, "vlan = {vlan}");
    }
    // The encoding of names in ARP is that of the DIF above.
    if let Some(dialect) = other_dialect(topology, link) {
        let _ = writeln!(text, "arp = \"{}\"", dialect.name());
    }
    text
}

/// The shim IPCP of a UDP link, as TOML, with the address of each member of the DIFs above.
fn udp(topology: &Topology, link: &Link, own: Address) -> String {
    let mut text = format!(
        "\n[[ipcp]]\nname = {}\ntype = \"udp\"\ndif = {}\nlisten = \"{}:{UDP_PORT}\"\n",
        quoted(&format!("udp-{}", link.name)),
        quoted(&link.name),
        own.ip
    );
    if let Some(mtu) = link.mtu {
        let _ = writeln!(text, "sdu_max = {}", mtu - UDP_HEADS);
    }
    if other_dialect(topology, link).is_some() {
        text.push_str("framing = \"rlite\"\n");
    }
    let mut peers = Vec::new();
    for dif in &topology.difs {
        for end in &link.ends {
            let Some((_, member)) = dif.member(&end.system) else {
                continue;
            };
            if let Some(address) = end.address.filter(|address| *address != own)
                && member.over.contains(&link.name)
            {
                let name = quoted(&dif.ipcp(&end.system));
                peers.push(format!("{{ name = {name}, address = \"{}\" }}", address.ip));
            }
        }
    }
    if !peers.is_empty() {
        let _ = writeln!(text, "peers = [{}]", peers.join(", "));
    }
    text
}

/// The dialect of the DIF above a link; `None` if it is native.
fn other_dialect(topology: &Topology, link: &Link) -> Option<Dialect> {
    let mut above = topology.difs.iter();
    let dialect = above.find(|dif| dif.stands_on(&link.name))?.dialect;
    (dialect != Dialect::Native).then_some(dialect)
}

/// The values of a configuration that differ from the defaults.
fn settings(config: &DifConfig) -> Value {
    let (Ok(mut given), Ok(usual)) = (
        serde_json::to_value(config),
        serde_json::to_value(DifConfig::default()),
    ) else {
        return Value::Null;
    };
    keep_different(&mut given, &usual);
    given
}

fn keep_different(given: &mut Value, usual: &Value) {
    let (Some(fields), Some(usual)) = (given.as_object_mut(), usual.as_object()) else {
        return;
    };
    fields.retain(|key, value| usual.get(key) != Some(value));
    for (key, value) in fields.iter_mut() {
        if key == "widths" {
            keep_different(value, &usual[key]);
        }
    }
}

fn fault_table(fault: &FaultSpec) -> String {
    format!(
        "{{ loss = {:?}, duplicate = {:?}, reorder = {:?}, delay_ms = {:?}, jitter_ms = {:?}, \
         rate_bps = {}, queue_bytes = {}, seed = {} }}",
        fault.loss,
        fault.duplicate,
        fault.reorder,
        fault.delay_ms,
        fault.jitter_ms,
        fault.rate_bps,
        fault.queue_bytes,
        fault.seed
    )
}

/// Port on which shims over UDP listen.
const UDP_PORT: u16 = 3359;
