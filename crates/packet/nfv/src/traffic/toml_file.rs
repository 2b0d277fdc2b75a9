//! Reads Carina's own format of the file of ports.
//!
//! ```toml
//! [uplink]
//! kind = "af_packet"
//! interface = "eth1"
//!
//! [[ports]]
//! name = "web"
//! mac = "52:54:00:00:00:01"
//! vlan = 42
//! ingress_filter = "arp or icmp or tcp dst port 80"
//! stateful = true
//! egress_mbps = 100
//! ```

use std::fmt;

use carina_apps::pcap_filter::StateConfig;
use carina_text::line_counter::line_of;
use carina_text::toml_fault::TomlFault;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::fault::{At, Fault, FileError, value};
use super::file::{Draft, PortDraft, RateDraft};
use super::{Defaults, PortApp};

mod tunnel_table;

use self::tunnel_table::TunnelTable;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    uplink: Option<Spanned<toml::Table>>,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    name: Spanned<String>,
    app: Option<Spanned<toml::Table>>,
    socket: Option<Spanned<String>>,
    client: Option<Spanned<bool>>,
    queues: Option<Spanned<i64>>,
    packed: Option<Spanned<bool>>,
    mergeable: Option<Spanned<bool>>,
    indirect: Option<Spanned<bool>>,
    mac: Option<Spanned<String>>,
    vlan: Option<Spanned<u16>>,
    ingress_filter: Option<Spanned<String>>,
    egress_filter: Option<Spanned<String>>,
    stateful: Option<Spanned<Stateful>>,
    ingress_mbps: Option<Spanned<f64>>,
    ingress_burst_bytes: Option<Spanned<u64>>,
    egress_mbps: Option<Spanned<f64>>,
    egress_burst_bytes: Option<Spanned<u64>>,
    tunnel: Option<Spanned<TunnelTable>>,
    esp: Option<Spanned<toml::Table>>,
}

/// The field `stateful`: `true`, `false`, or a table.
struct Stateful(Option<StateConfig>);

impl<'de> Deserialize<'de> for Stateful {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Stateful, D::Error> {
        deserializer.deserialize_any(StatefulVisitor)
    }
}

struct StatefulVisitor;

impl<'de> Visitor<'de> for StatefulVisitor {
    type Value = Stateful;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or { connections = 1000, idle_s = 7200 }")
    }

    fn visit_bool<E>(self, is_on: bool) -> Result<Stateful, E> {
        Ok(Stateful(is_on.then(StateConfig::default)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Stateful, A::Error> {
        let config = StateConfig::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Stateful(Some(config)))
    }
}

/// Converts byte positions of a text into line numbers.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn of(&self, byte: usize) -> usize {
        line_of(self.0, byte)
    }

    fn at<T>(&self, spanned: Spanned<T>) -> At<T> {
        At {
            line: self.of(spanned.span().start),
            value: spanned.into_inner(),
        }
    }
}

pub(super) fn draft(text: &str, defaults: &Defaults) -> Result<Draft, FileError> {
    let lines = Lines(text);
    let file: File = toml::from_str(text).map_err(|error| {
        let TomlFault { line, text } = TomlFault::of(text, &error);
        let fault = Fault::Toml(text);
        FileError { line, fault }
    })?;
    let uplink = file.uplink.map(|uplink| lines.at(uplink));
    let ports = file.ports.into_iter();
    let ports = ports.map(|port| port_draft(port, &lines, defaults));
    Ok(Draft {
        uplink: uplink.or_else(|| {
            let value = defaults.uplink.clone()?;
            Some(At { line: 1, value })
        }),
        ports: ports.collect::<Result<_, _>>()?,
        warnings: Vec::new(),
    })
}

fn port_draft(
    mut port: Port,
    lines: &Lines<'_>,
    defaults: &Defaults,
) -> Result<PortDraft, FileError> {
    let app = app_of(&mut port, lines, defaults)?;
    let mac = port.mac.map(|mac| address(lines.at(mac))).transpose()?;
    let state = port.stateful.map(|state| lines.at(state));
    let state = state.and_then(|At { line, value }| {
        let value = value.0?;
        Some(At { line, value })
    });
    let tunnel = port.tunnel.map(|tunnel| lines.at(tunnel).draft());
    Ok(PortDraft {
        name: lines.at(port.name),
        app,
        mac,
        vlan: port.vlan.map(|vlan| lines.at(vlan)),
        ingress_filter: port.ingress_filter.map(|filter| lines.at(filter)),
        egress_filter: port.egress_filter.map(|filter| lines.at(filter)),
        state,
        ingress_rate: rate(
            "ingress_mbps",
            port.ingress_mbps,
            port.ingress_burst_bytes,
            lines,
        )?,
        egress_rate: rate(
            "egress_mbps",
            port.egress_mbps,
            port.egress_burst_bytes,
            lines,
        )?,
        tunnel: tunnel.transpose()?,
        esp: port.esp.map(|esp| lines.at(esp)),
    })
}

/// The app at the port's end: the app that the file names, or a guest's card.
fn app_of(
    port: &mut Port,
    lines: &Lines<'_>,
    defaults: &Defaults,
) -> Result<At<PortApp>, FileError> {
    let mut card = toml::Table::new();
    let mut line = lines.of(port.name.span().start);
    let mut put = |key: &str, field: Option<(usize, toml::Value)>| {
        if let Some((start, value)) = field {
            line = lines.of(start);
            card.insert(key.to_owned(), value);
        }
    };
    fn field<T: Into<toml::Value>>(field: Option<Spanned<T>>) -> Option<(usize, toml::Value)> {
        field.map(|field| (field.span().start, field.into_inner().into()))
    }
    put("client", field(port.client.take()));
    put("queues", field(port.queues.take()));
    put("packed", field(port.packed.take()));
    put("mergeable", field(port.mergeable.take()));
    put("indirect", field(port.indirect.take()));
    put("socket", field(port.socket.take()));
    match port.app.take() {
        None => {
            if !card.contains_key("socket") {
                let socket = defaults.socket(port.name.get_ref());
                card.insert("socket".to_owned(), socket.into());
            }
            card.insert("kind".to_owned(), "vhost_user".into());
            Ok(At { line, value: card })
        }
        Some(app) if card.is_empty() => Ok(lines.at(app)),
        Some(_) => {
            let keys: Vec<&str> = card.keys().map(String::as_str).collect();
            let fault = Fault::AppAndCard(keys.join(", "));
            Err(FileError { line, fault })
        }
    }
}

fn address(text: At<String>) -> Result<At<carina_wire::ether::Mac>, FileError> {
    match text.value.parse() {
        Ok(mac) => Ok(text.map(|_| mac)),
        Err(_) => {
            let wanted = "write a MAC address as 52:54:00:00:00:01";
            Err(text.is_wrong(value("mac", &text.value, wanted)))
        }
    }
}

fn rate(
    field: &'static str,
    rate: Option<Spanned<f64>>,
    burst: Option<Spanned<u64>>,
    lines: &Lines<'_>,
) -> Result<Option<At<RateDraft>>, FileError> {
    let burst = burst.map(|burst| lines.at(burst));
    let Some(rate) = rate else {
        return match burst {
            None => Ok(None),
            Some(burst) => {
                let needed = "the rate of the same direction, ingress_mbps or egress_mbps";
                let field = "burst_bytes";
                Err(burst.is_wrong(Fault::Needs { field, needed }))
            }
        };
    };
    let draft = |rate| RateDraft {
        field,
        rate,
        unit: 1e6,
        burst_bytes: burst,
    };
    Ok(Some(lines.at(rate).map(draft)))
}
