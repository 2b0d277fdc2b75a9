//! The configuration of a system's node, as text, at any stage of the making of a lab.

use std::fmt::Write;

use carina_api::control::FaultSpec;
use serde_json::Value;

use super::topology::{Dif, Topology, hv_dif};

/// The configuration of the node of a system with the members that it has in `difs`; how files of
/// credentials are called there is for `auth` to say.
pub fn node_config(
    topology: &Topology,
    system: &str,
    difs: &[&Dif],
    auth: impl Fn(&str) -> String,
) -> String {
    let mut text = format!("[node]\nname = {}\n", quoted(system));
    let this = topology.system(system);
    if this.is_some_and(|this| this.vm.is_some()) {
        let dif = quoted(&hv_dif(system));
        let _ = write!(
            text,
            "\n[[ipcp]]\nname = \"hv0\"\ntype = \"hv\"\nside = \"guest\"\ndif = {dif}\n"
        );
    }
    for link in &topology.links {
        let Some(end) = link.ends.iter().find(|end| end.system == system) else {
            continue;
        };
        let _ = write!(
            text,
            "\n[[ipcp]]\nname = {}\ntype = \"eth\"\ndif = {}\ninterface = {}\n",
            quoted(&format!("eth-{}", link.name)),
            quoted(&link.name),
            quoted(&end.interface)
        );
        if let Some(vlan) = link.vlan {
            let _ = writeln!(text, "vlan = {vlan}");
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
            if let Some(credentials) = &dif.auth {
                let _ = writeln!(text, "auth = {}", quoted(&auth(credentials)));
            }
            if place == 0 && dif.config != carina_ipcp::DifConfig::default() {
                let config = serde_json::to_value(&dif.config).unwrap_or(Value::Null);
                let _ = writeln!(text, "config = {}", inline(&config));
            }
        }
    }
    text
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

/// A JSON value in TOML, on one line. TOML has no null: such keys are left out.
fn inline(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(key, value)| format!("{} = {}", quoted(key), inline(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// A string of TOML, whose escapes are those of JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
