//! Writes a configuration, without its binding table, as text of the model `snabb-softwire`.

use std::fmt::{Display, Write};

use crate::config::{Address, Config, External, Instance, Internal, NextHopAddress, Side};
use crate::table::Softwire;
use crate::tree::quoted;

/// The configuration as text. [`read`](super::read) reads it back as an equal configuration.
#[must_use]
pub fn write(config: &Config) -> String {
    let mut text = Text::default();
    text.open("softwire-config");
    if let Some(name) = &config.name {
        text.string("name", name);
    }
    for instance in &config.instances {
        text.instance(instance);
    }
    text.external(&config.external);
    text.internal(&config.internal);
    text.close();
    text.made
}

/// The statements inside a `softwire` block, as text.
#[must_use]
pub fn write_softwire(softwire: &Softwire) -> String {
    let mut text = Text::default();
    text.leaf("ipv4", softwire.ipv4);
    text.leaf("psid", softwire.psid);
    text.leaf("b4-ipv6", softwire.b4);
    text.leaf("br-address", softwire.br);
    text.open("port-set");
    text.leaf("psid-length", softwire.ports.psid_bits);
    text.leaf("reserved-ports-bit-count", softwire.ports.offset_bits);
    text.close();
    text.made
}

#[derive(Default)]
struct Text {
    made: String,
    depth: usize,
}

impl Text {
    fn line(&mut self, line: &str) {
        let indent = 2 * self.depth;
        let _ = writeln!(self.made, "{:indent$}{line}", "");
    }

    fn open(&mut self, container: &str) {
        self.line(&format!("{container} {{"));
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    fn leaf(&mut self, name: &str, value: impl Display) {
        self.line(&format!("{name} {value};"));
    }

    fn string(&mut self, name: &str, value: &str) {
        self.leaf(name, quoted(value));
    }

    fn instance(&mut self, instance: &Instance) {
        self.open("instance");
        self.string("device", &instance.device);
        if let Some(device) = &instance.external_device {
            self.string("external-device", device);
        }
        for queue in &instance.queues {
            self.open("queue");
            self.leaf("id", queue.id);
            self.address("external-interface", &queue.external);
            self.address("internal-interface", &queue.internal);
            self.close();
        }
        self.close();
    }

    fn address<T: Display>(&mut self, container: &str, address: &Address<T>) {
        self.open(container);
        self.leaf("ip", &address.ip);
        self.leaf("mac", address.mac);
        if let Some(vlan) = address.vlan {
            self.leaf("vlan-tag", vlan);
        }
        self.open("next-hop");
        match &address.next_hop {
            NextHopAddress::Ip(ip) => self.leaf("ip", ip),
            NextHopAddress::Mac(mac) => self.leaf("mac", mac),
        }
        self.close();
        self.close();
    }

    fn external(&mut self, external: &External) {
        self.open("external-interface");
        self.leaf("mtu", external.mtu);
        self.side(&external.side);
        self.close();
    }

    fn internal(&mut self, internal: &Internal) {
        self.open("internal-interface");
        self.leaf("mtu", internal.mtu);
        self.leaf("flow-label", internal.flow_label);
        self.leaf("hairpinning", internal.has_hairpinning);
        self.side(&internal.side);
        self.close();
    }

    fn side(&mut self, side: &Side) {
        for (name, filter) in [
            ("ingress-filter", &side.ingress_filter),
            ("egress-filter", &side.egress_filter),
        ] {
            if let Some(filter) = filter {
                self.string(name, filter);
            }
        }
        self.leaf("allow-incoming-icmp", side.allows_icmp);
        self.leaf("generate-icmp-errors", side.sends_icmp_errors);
        self.open("error-rate-limiting");
        self.leaf("packets", side.error_rate.packets);
        self.leaf("period", side.error_rate.period_s);
        self.close();
        self.open("reassembly");
        self.leaf("max-fragments-per-packet", side.reassembly.fragments);
        self.leaf("max-packets", side.reassembly.packets);
        self.close();
    }
}
