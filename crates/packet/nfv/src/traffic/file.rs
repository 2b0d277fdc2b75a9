//! The fields of a file in either format, with their lines, and the checks of their values.

use std::collections::BTreeMap;

use carina_apps::pcap_filter::StateConfig;
use carina_apps::rate_limiter::{BUCKET_MIN, RateLimiterConfig};
use carina_filter::Filter;
use carina_frame_engine::Sole;
use carina_graph::graph_file::{Kind, read_app};
use carina_wire::ether::{Mac, VLAN_MAX};

use super::fault::{At, Fault, FileError, value};
use super::tunnel::TunnelDraft;
use super::{NAME_BYTES_MAX, PORTS_MAX, PortApp, Traffic, TrafficPort, stem};

/// The contents of a file that has not been checked yet.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub uplink: Option<At<PortApp>>,
    pub ports: Vec<PortDraft>,
    pub warnings: Vec<String>,
}

/// A port that has not been checked yet.
#[derive(Debug)]
pub(super) struct PortDraft {
    pub name: At<String>,
    pub app: At<PortApp>,
    pub mac: Option<At<Mac>>,
    pub vlan: Option<At<u16>>,
    pub ingress_filter: Option<At<String>>,
    pub egress_filter: Option<At<String>>,
    pub state: Option<At<StateConfig>>,
    pub ingress_rate: Option<At<RateDraft>>,
    pub egress_rate: Option<At<RateDraft>>,
    pub tunnel: Option<At<TunnelDraft>>,
    pub esp: Option<At<toml::Table>>,
}

/// A rate that has not been checked yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateDraft {
    pub field: &'static str,
    /// The rate, in the unit of the field.
    pub rate: f64,
    /// Bits per second in one unit of `rate`: 1e6 if the file has the rate in Mbit/s.
    pub unit: f64,
    pub burst_bytes: Option<At<u64>>,
}

impl Draft {
    /// Checks the file, and returns its configuration.
    pub(super) fn check(self, kinds: &[Kind]) -> Result<Traffic, FileError> {
        if let Some(port) = self.ports.get(PORTS_MAX) {
            return Err(port.name.is_wrong(Fault::Ports(self.ports.len())));
        }
        let uplink = self.uplink.map(|uplink| is_port("uplink", uplink, kinds));
        let uplink = uplink.transpose()?;
        for (at, port) in self.ports.iter().enumerate() {
            port.is_not_like(&self.ports[..at])?;
        }
        let (mut ports, mut owners) = (Vec::new(), BTreeMap::new());
        for port in self.ports {
            let line = port.name.line;
            let port = port.check(kinds)?;
            is_alone(&port, line, &mut owners, kinds)?;
            ports.push(port);
        }
        Ok(Traffic {
            uplink,
            ports,
            warnings: self.warnings,
        })
    }
}

/// Checks that no earlier port has claimed a resource that only one port can have.
fn is_alone(
    port: &TrafficPort,
    line: usize,
    owners: &mut BTreeMap<Sole, String>,
    kinds: &[Kind],
) -> Result<(), FileError> {
    for app in [Some(&port.app), port.esp.as_ref()].into_iter().flatten() {
        let app = read_app(&port.name, app.clone(), kinds).map_err(|error| FileError {
            line,
            fault: error.into(),
        })?;
        for sole in app.sole_any() {
            let what = sole.to_string();
            if let Some(other) = owners.insert(sole, port.name.clone()) {
                let name = port.name.clone();
                let fault = Fault::NotSole { name, other, what };
                return Err(FileError { line, fault });
            }
        }
    }
    Ok(())
}

impl PortDraft {
    fn is_not_like(&self, others: &[PortDraft]) -> Result<(), FileError> {
        let name = &self.name.value;
        for other in others {
            let fault = if stem(&other.name.value) == stem(name) {
                Fault::TwoNames {
                    name: name.clone(),
                    other: other.name.line,
                }
            } else if let Some(socket) = socket_of(&self.app.value)
                && socket_of(&other.app.value) == Some(socket)
            {
                Fault::TwoSockets {
                    name: name.clone(),
                    socket: socket.to_owned(),
                    other: other.name.value.clone(),
                }
            } else {
                continue;
            };
            return Err(self.name.is_wrong(fault));
        }
        let vlan = |port: &PortDraft| port.vlan.as_ref().map(|vlan| vlan.value);
        let Some(mac) = &self.mac else { return Ok(()) };
        let is_same = |other: &&PortDraft| {
            let address = other.mac.as_ref().map(|mac| mac.value);
            address == Some(mac.value) && vlan(other) == vlan(self)
        };
        match others.iter().find(is_same) {
            None => Ok(()),
            Some(other) => Err(mac.is_wrong(Fault::TwoAddresses {
                name: name.clone(),
                mac: mac.value,
                other: other.name.value.clone(),
            })),
        }
    }

    fn check(self, kinds: &[Kind]) -> Result<TrafficPort, FileError> {
        is_name(&self.name)?;
        if let Some(mac) = &self.mac
            && mac.value.is_group()
        {
            let wanted =
                "must be the address of one station: the lowest bit of its first byte is 0";
            return Err(mac.is_wrong(value("mac", &mac.value, wanted)));
        }
        if let Some(vlan) = &self.vlan
            && !(1..=VLAN_MAX).contains(&vlan.value)
        {
            let wanted =
                format!("must be 1 to {VLAN_MAX}; leave vlan out for frames without a VLAN tag");
            return Err(vlan.is_wrong(value("vlan", &vlan.value, &wanted)));
        }
        if let Some(state) = &self.state {
            is_state(state)?;
        }
        let mac = self.mac.map(|mac| mac.value);
        let tunnel = self.tunnel.map(|tunnel| tunnel.check(mac, kinds));
        let esp = self.esp.map(|esp| is_esp(esp, kinds));
        Ok(TrafficPort {
            app: is_port(&self.name.value, self.app, kinds)?,
            name: self.name.value,
            mac,
            vlan: self.vlan.map(|vlan| vlan.value),
            ingress_filter: is_filter("ingress_filter", self.ingress_filter)?,
            egress_filter: is_filter("egress_filter", self.egress_filter)?,
            state: self.state.map(|state| state.value),
            ingress_rate: self.ingress_rate.map(is_rate).transpose()?,
            egress_rate: self.egress_rate.map(is_rate).transpose()?,
            tunnel: tunnel.transpose()?,
            esp: esp.transpose()?,
        })
    }
}

/// The path of a port's socket, if its app has one.
pub(super) fn socket_of(app: &PortApp) -> Option<&str> {
    app.get("socket").and_then(toml::Value::as_str)
}

fn is_name(name: &At<String>) -> Result<(), FileError> {
    let is_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_right = (1..=NAME_BYTES_MAX).contains(&name.value.len());
    if is_right && name.value.chars().all(is_char) {
        return Ok(());
    }
    let wanted = format!("must be 1 to {NAME_BYTES_MAX} letters, digits, '_' and '-'");
    Err(name.is_wrong(value("name", &name.value, &wanted)))
}

/// Checks that an app can be made, and is of a kind that a port can have.
fn is_port(name: &str, app: At<PortApp>, kinds: &[Kind]) -> Result<PortApp, FileError> {
    if !app.value.contains_key("kind") {
        let (field, wanted) = (
            "kind",
            "the kind of port, such as af_packet, tap or vhost_user",
        );
        return Err(app.is_wrong(Fault::Missing { field, wanted }));
    }
    let kind = app.value.get("kind").and_then(toml::Value::as_str);
    if let Some(kind) = kind
        && !kinds.iter().any(|known| known.name == kind)
    {
        let known: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
        let wanted = format!("must be one of {}", known.join(", "));
        return Err(app.is_wrong(value("kind", &kind, &wanted)));
    }
    match read_app(name, app.value.clone(), kinds) {
        Ok(_) => Ok(app.value),
        Err(error) => Err(app.is_wrong(error.into())),
    }
}

fn is_filter(field: &'static str, text: Option<At<String>>) -> Result<Option<String>, FileError> {
    let Some(text) = text else { return Ok(None) };
    match Filter::compile(&text.value) {
        Ok(_) => Ok(Some(text.value)),
        Err(error) => Err(text.is_wrong(Fault::Filter { field, error })),
    }
}

fn is_state(state: &At<StateConfig>) -> Result<(), FileError> {
    let StateConfig {
        connections,
        idle_s,
    } = state.value;
    if !(4..=1 << 20).contains(&connections) {
        let wanted = "must be 4 to 1048576";
        return Err(state.is_wrong(value("stateful.connections", &connections, wanted)));
    }
    if !(1..=1_000_000).contains(&idle_s) {
        let wanted = "must be 1 to 1000000";
        return Err(state.is_wrong(value("stateful.idle_s", &idle_s, wanted)));
    }
    Ok(())
}

fn is_rate(rate: At<RateDraft>) -> Result<RateLimiterConfig, FileError> {
    let draft = rate.value;
    let bits = (draft.rate * draft.unit).round();
    // This also refuses NaN.
    if !(1.0..=BITS_MAX).contains(&bits) {
        let rate_max = BITS_MAX / draft.unit;
        let wanted = format!("must be above 0, and at most {rate_max}");
        return Err(rate.is_wrong(value(draft.field, &draft.rate, &wanted)));
    }
    if let Some(burst) = draft.burst_bytes
        && !(BUCKET_MIN..=BITS_MAX as u64).contains(&burst.value)
    {
        let wanted = format!(
            "must be {BUCKET_MIN} to {BITS_MAX} bytes: a frame that is longer than the bucket \
             would \
             never pass"
        );
        let field = draft.field.replace("mbps", "burst_bytes");
        return Err(burst.is_wrong(value(&field, &burst.value, &wanted)));
    }
    Ok(RateLimiterConfig {
        bits_per_second: bits as u64,
        bucket_bytes: draft.burst_bytes.map(|burst| burst.value),
    })
}

fn is_esp(mut esp: At<toml::Table>, kinds: &[Kind]) -> Result<toml::Table, FileError> {
    esp.value.insert("kind".to_owned(), "esp".into());
    match read_app("esp", esp.value.clone(), kinds) {
        Ok(_) => Ok(esp.value),
        Err(error) => Err(esp.is_wrong(error.into())),
    }
}

/// 1 Tb/s, in bits per second.
const BITS_MAX: f64 = 1e12;
