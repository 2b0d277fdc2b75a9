//! Describes the differences between two configurations.

use std::fmt;

use super::{Traffic, TrafficPort};

/// The difference between two configurations, port by port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Whether the two configurations have different uplinks.
    pub uplink: bool,
    /// Names of ports that only the new configuration has.
    pub added: Vec<String>,
    /// Names of ports that only the old configuration has.
    pub removed: Vec<String>,
    /// Names of ports that both configurations have, but with different fields, and the names of
    /// these fields.
    pub changed: Vec<(String, Vec<&'static str>)>,
}

impl Changes {
    /// The changes from `old` to `new`.
    #[must_use]
    pub fn between(old: &Traffic, new: &Traffic) -> Changes {
        let find = |all: &Traffic, name: &str| {
            let mut ports = all.ports.iter();
            ports.find(|port| port.name == name).cloned()
        };
        let mut changes = Changes {
            uplink: old.uplink != new.uplink,
            ..Changes::default()
        };
        for port in &new.ports {
            match find(old, &port.name) {
                None => changes.added.push(port.name.clone()),
                Some(before) if before == *port => {}
                Some(before) => {
                    let fields = differing(&before, port);
                    changes.changed.push((port.name.clone(), fields));
                }
            }
        }
        let gone = old.ports.iter().map(|port| &port.name);
        let gone = gone.filter(|name| find(new, name).is_none());
        changes.removed = gone.cloned().collect();
        changes
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

fn differing(old: &TrafficPort, new: &TrafficPort) -> Vec<&'static str> {
    let fields = [
        ("app", old.app != new.app),
        ("mac", old.mac != new.mac),
        ("vlan", old.vlan != new.vlan),
        ("ingress_filter", old.ingress_filter != new.ingress_filter),
        ("egress_filter", old.egress_filter != new.egress_filter),
        ("stateful", old.state != new.state),
        ("ingress rate", old.ingress_rate != new.ingress_rate),
        ("egress rate", old.egress_rate != new.egress_rate),
        ("tunnel", old.tunnel != new.tunnel),
        ("esp", old.esp != new.esp),
    ];
    let fields = fields.into_iter().filter(|(_, differs)| *differs);
    fields.map(|(field, _)| field).collect()
}

impl fmt::Display for Changes {
    /// One line per port: `+` added, `-` removed, `~` changed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        if self.uplink {
            lines.push("~ uplink".to_owned());
        }
        lines.extend(self.removed.iter().map(|name| format!("- port {name}")));
        lines.extend(self.added.iter().map(|name| format!("+ port {name}")));
        let changed = self.changed.iter();
        lines.extend(changed.map(|(name, fields)| format!("~ port {name}: {}", fields.join(", "))));
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::graph::port_kinds;
    use crate::traffic::{Defaults, read};

    #[test]
    fn changes_name_ports_and_fields() {
        let read = |text: &str| read(text, &Defaults::default(), &port_kinds()).unwrap();
        let port = |name: &str, more: &str| {
            format!(
                "[[ports]]\nname = \"{name}\"\napp = {{ kind = \"tap\", name = \"{name}\" }}\n{more}\n"
            )
        };
        let old = read(&(port("a", "") + &port("b", "") + &port("c", "vlan = 5")));
        let uplink = "[uplink]\nkind = \"tap\"\nname = \"u\"\n";
        let new =
            port("b", "vlan = 6\negress_mbps = 2.5") + &port("c", "vlan = 5") + &port("d", "");
        let changes = Changes::between(&old, &read(&(new + uplink)));
        assert_eq!(
            changes.to_string(),
            "~ uplink\n- port a\n+ port d\n~ port b: vlan, egress rate"
        );
        assert!(Changes::between(&old, &old).is_empty());
    }
}
