//! Reads snabbnfv's own configuration files unchanged: a table of ports in Lua's syntax.
//!
//! | field | becomes |
//! |---|---|
//! | `port_id` | name |
//! | `mac_address`, `vlan` | `mac`, `vlan`; `vlan = 0` means no VLAN |
//! | `ingress_filter`, `egress_filter` | the filters |
//! | `stateful_filter` | whether the filters track connections |
//! | `rx_police`, `tx_police` | the rate limit to the port, and from it, in Gb/s |
//! | `rx_police_gbps`, `tx_police_gbps` | the same, with a warning: the old names |
//! | `disable_mrg_rxbuf`, `disable_indirect_desc` | features that the guest's card does not offer |
//! | `tunnel` of type `L2TPv3` | the tunnel; `next_hop` may be a MAC address |
//! | `crypto` of type `esp-aes-128-gcm` | `esp`; `auditing` causes a warning: counters show it |
//!
//! snabbnfv ignores unknown fields, and tunnels of other types. Carina refuses them, so that a
//! misspelt name cannot disable a filter.

use std::net::Ipv6Addr;

use carina_apps::hex_text::HexText;
use carina_apps::l2tpv3::L2tpv3Config;
use carina_apps::mac_text::MacText;
use carina_apps::pcap_filter::StateConfig;
use carina_wire::ether::Mac;

use super::Defaults;
use super::fault::{At, Fault, FileError, value};
use super::file::{Draft, PortDraft, RateDraft};
use super::lua::{self, Key, Node, Value};
use super::tunnel::{TunnelDraft, TunnelProtocol};

pub(super) fn draft(text: &str, defaults: &Defaults) -> Result<Draft, FileError> {
    let root = lua::parse(text).map_err(|error| FileError {
        line: error.line,
        fault: Fault::Lua(error.reason),
    })?;
    let mut draft = Draft {
        uplink: (defaults.uplink.clone()).map(|value| At { line: 1, value }),
        ..Draft::default()
    };
    let Value::Table(fields) = root.value else {
        let wanted = "a table of ports, such as return { { port_id = \"a\" } },";
        return Err(wrong_type("the file", root.line, &root.value, wanted));
    };
    for field in fields {
        // A port may have an explicit number, which has no effect.
        if matches!(field.key, Key::Name(_)) {
            return Err(FileError {
                line: field.node.line,
                fault: Fault::Unknown {
                    field: field.key.to_string(),
                    known: "a list of ports without names: { { port_id = \"a\" } }".to_owned(),
                },
            });
        }
        if field.node.value != Value::Nil {
            let port = port(field.node, defaults, &mut draft.warnings)?;
            draft.ports.push(port);
        }
    }
    Ok(draft)
}

fn port(
    node: Node,
    defaults: &Defaults,
    warnings: &mut Vec<String>,
) -> Result<PortDraft, FileError> {
    let mut fields = Fields::of("a port", node)?;
    let name = fields.text("port_id")?;
    let wanted = "a string that names the port";
    let field = "port_id";
    let name = name.ok_or_else(|| fields.wrong(Fault::Missing { field, wanted }))?;
    let mut app = toml::Table::new();
    app.insert("kind".to_owned(), "vhost_user".into());
    app.insert("socket".to_owned(), defaults.socket(&name.value).into());
    // In snabbnfv, QEMU creates the socket and the port connects to it.
    app.insert("client".to_owned(), true.into());
    for (field, key) in [
        ("disable_mrg_rxbuf", "mergeable"),
        ("disable_indirect_desc", "indirect"),
    ] {
        if fields.boolean(field)?.is_some_and(|field| field.value) {
            app.insert(key.to_owned(), false.into());
        }
    }
    let state = fields.boolean("stateful_filter")?;
    let state = state.filter(|state| state.value);
    let port = PortDraft {
        app: At {
            line: name.line,
            value: app,
        },
        mac: fields.parsed("mac_address", "write a MAC address as 52:54:00:00:00:01")?,
        vlan: vlan(&mut fields)?,
        ingress_filter: fields.text("ingress_filter")?,
        egress_filter: fields.text("egress_filter")?,
        state: state.map(|state| state.map(|_| StateConfig::default())),
        ingress_rate: rate(&mut fields, "rx_police", "rx_police_gbps", warnings)?,
        egress_rate: rate(&mut fields, "tx_police", "tx_police_gbps", warnings)?,
        tunnel: (fields.take("tunnel"))
            .map(|node| tunnel(node, warnings))
            .transpose()?,
        esp: (fields.take("crypto"))
            .map(|node| crypto(node, warnings))
            .transpose()?,
        name,
    };
    fields.end(
        "port_id, mac_address, vlan, ingress_filter, egress_filter, stateful_filter, rx_police, \
         tx_police, disable_mrg_rxbuf, disable_indirect_desc, tunnel, crypto",
    )?;
    Ok(port)
}

fn vlan(fields: &mut Fields) -> Result<Option<At<u16>>, FileError> {
    let vlan = fields.whole("vlan", 4095)?;
    Ok(vlan
        .filter(|vlan| vlan.value != 0)
        .map(|vlan| vlan.map(|number| number as u16)))
}

fn rate(
    fields: &mut Fields,
    name: &'static str,
    old_name: &'static str,
    warnings: &mut Vec<String>,
) -> Result<Option<At<RateDraft>>, FileError> {
    let old = fields.number(old_name)?;
    let new = fields.number(name)?;
    if let Some(old) = &old {
        let effect = match new {
            Some(_) => "is ignored, because the new name is given too",
            None => "is read like the new name",
        };
        warnings.push(format!(
            "line {}: {old_name} is the old name of {name}, and {effect}",
            old.line
        ));
    }
    let field = if new.is_some() { name } else { old_name };
    let draft = |rate| RateDraft {
        field,
        rate,
        unit: 1e9,
        burst_bytes: None,
    };
    Ok(new.or(old).map(|rate| rate.map(draft)))
}

fn tunnel(node: Node, warnings: &mut Vec<String>) -> Result<At<TunnelDraft>, FileError> {
    let mut fields = Fields::of("tunnel", node)?;
    let kind = fields.needed("type", "\"L2TPv3\"")?;
    if kind.value != "L2TPv3" {
        let wanted = "must be L2TPv3; snabbnfv ignores tunnels of other types";
        return Err(kind.is_wrong(value("tunnel.type", &kind.value, wanted)));
    }
    const ADDRESS: &str = "an IPv6 address";
    let local: At<Ipv6Addr> = fields.needed_parsed("local_ip", ADDRESS)?;
    let remote: At<Ipv6Addr> = fields.needed_parsed("remote_ip", ADDRESS)?;
    let hop = fields.needed("next_hop", ADDRESS)?;
    let next_mac: Option<Mac> = hop.value.parse().ok();
    let next_hop = match next_mac {
        Some(_) => None,
        None => Some(parse::<Ipv6Addr>(&hop, "next_hop", ADDRESS)?.into()),
    };
    let session = fields.whole("session", u32::MAX)?;
    let mut cookie = |field| cookie(&fields.needed(field, COOKIE)?, field, warnings);
    let (local_cookie, remote_cookie) = (cookie("local_cookie")?, cookie("remote_cookie")?);
    let l2tpv3 = L2tpv3Config {
        local: local.value,
        remote: remote.value,
        local_cookie,
        remote_cookie,
        session: session.map_or(u32::MAX, |session| session.value),
        peer_session: None,
        hop_limit: 64,
        mac: None,
        next_mac: next_mac.map(MacText),
    };
    fields.end("type, local_ip, remote_ip, next_hop, local_cookie, remote_cookie, session")?;
    Ok(At {
        line: kind.line,
        value: TunnelDraft {
            protocol: TunnelProtocol::L2tpv3(l2tpv3),
            next_hop,
            // In snabbnfv, neighbour discovery passes through the encryption.
            protects_resolver: true,
            gateway: None,
        },
    })
}

const COOKIE: &str = "8 bytes in hexadecimal";

/// Parses a cookie as Snabb's `hexundump` does: takes pairs of hexadecimal digits from the front,
/// skips other characters, and fills missing bytes at the end with zeros.
fn cookie(
    text: &At<String>,
    field: &str,
    warnings: &mut Vec<String>,
) -> Result<HexText<8>, FileError> {
    let (mut bytes, mut count, mut left_out) = ([0; 8], 0, 0);
    let digits: Vec<Option<u32>> = text.value.chars().map(|c| c.to_digit(16)).collect();
    let mut at = 0;
    while at < digits.len() {
        if let (Some(high), Some(Some(low))) = (digits[at], digits.get(at + 1)) {
            if let Some(byte) = bytes.get_mut(count) {
                *byte = (high << 4 | low) as u8;
            }
            (count, at) = (count + 1, at + 2);
        } else {
            left_out += usize::from(digits[at].is_some());
            at += 1;
        }
    }
    if count > 8 || count == 0 && !text.value.is_empty() {
        // The error must not reveal the cookie, because errors are logged.
        let found = format!("{} characters", digits.len());
        let wanted = "must be up to 16 digits 0 to f; missing bytes at the end are zeros";
        return Err(text.is_wrong(value(field, &found, wanted)));
    }
    if count < 8 || left_out > 0 {
        let line = text.line;
        warnings.push(format!(
            "line {line}: {field} has {count} of 8 bytes; the missing ones are zeros, as in \
             snabbnfv"
        ));
    }
    Ok(HexText(bytes))
}

fn crypto(node: Node, warnings: &mut Vec<String>) -> Result<At<toml::Table>, FileError> {
    let mut fields = Fields::of("crypto", node)?;
    let kind = fields.needed("type", "\"esp-aes-128-gcm\"")?;
    if kind.value != "esp-aes-128-gcm" {
        let wanted = "must be esp-aes-128-gcm; snabbnfv ignores encryption of other types";
        return Err(kind.is_wrong(value("crypto.type", &kind.value, wanted)));
    }
    let mut esp = toml::Table::new();
    let (field, wanted) = ("spi", "a number, 256 or more");
    let spi = fields.whole(field, u32::MAX)?;
    let spi = spi.ok_or_else(|| fields.wrong(Fault::Missing { field, wanted }))?;
    if spi.value < 256 {
        let wanted = "must be 256 to 4294967295: 0 to 255 are reserved (RFC 4303 §2.1)";
        return Err(spi.is_wrong(value(field, &spi.value, wanted)));
    }
    esp.insert(field.to_owned(), i64::from(spi.value).into());
    for (field, bytes) in [
        ("transmit_key", 16),
        ("transmit_salt", 4),
        ("receive_key", 16),
        ("receive_salt", 4),
    ] {
        let text = fields.needed(field, "bytes in hexadecimal")?;
        let digits = digits(&text, field, bytes)?;
        esp.insert(field.to_owned(), digits.into());
    }
    if let Some(auditing) = fields.boolean("auditing")?
        && auditing.value
    {
        warnings.push(format!(
            "line {}: auditing: rejected packets are counted by reason, and not logged",
            auditing.line
        ));
    }
    fields.end("type, spi, transmit_key, transmit_salt, receive_key, receive_salt, auditing")?;
    Ok(At {
        line: kind.line,
        value: esp,
    })
}

/// The digits of `bytes` bytes. Like snabbnfv, allows spaces and colons, and also `-`, between
/// them.
fn digits(text: &At<String>, field: &str, bytes: usize) -> Result<String, FileError> {
    let is_between = |c: char| c.is_whitespace() || matches!(c, ':' | '-');
    let digits: String = text.value.chars().filter(|c| !is_between(*c)).collect();
    let is_right = digits.len() == 2 * bytes && digits.chars().all(|c| c.is_ascii_hexdigit());
    if is_right {
        return Ok(digits);
    }
    // The error must not reveal the key, because errors are logged.
    let found = format!("{} characters", digits.chars().count());
    let wanted = format!("must be {} digits 0 to f", 2 * bytes);
    Err(text.is_wrong(value(field, &found, &wanted)))
}

fn parse<T: std::str::FromStr>(
    text: &At<String>,
    field: &str,
    wanted: &str,
) -> Result<T, FileError> {
    let read = text.value.parse();
    read.map_err(|_| text.is_wrong(value(field, &text.value, wanted)))
}

fn wrong_type(field: &str, line: usize, found: &Value, wanted: &'static str) -> FileError {
    FileError {
        line,
        fault: Fault::Type {
            field: field.to_owned(),
            found: found.kind(),
            wanted,
        },
    }
}

/// The fields of a table that have not been taken yet.
struct Fields {
    line: usize,
    fields: Vec<lua::Field>,
}

impl Fields {
    fn of(what: &str, node: Node) -> Result<Fields, FileError> {
        match node.value {
            Value::Table(fields) => Ok(Fields {
                line: node.line,
                fields,
            }),
            other => Err(wrong_type(what, node.line, &other, "a table { … }")),
        }
    }

    fn wrong(&self, fault: Fault) -> FileError {
        FileError {
            line: self.line,
            fault,
        }
    }

    /// Takes a field. A field whose value is `nil` counts as absent.
    fn take(&mut self, name: &str) -> Option<Node> {
        let is_it = |field: &lua::Field| matches!(&field.key, Key::Name(key) if key == name);
        let at = self.fields.iter().position(is_it)?;
        let node = self.fields.remove(at).node;
        (node.value != Value::Nil).then_some(node)
    }

    fn text(&mut self, name: &'static str) -> Result<Option<At<String>>, FileError> {
        let Some(node) = self.take(name) else {
            return Ok(None);
        };
        let line = node.line;
        match node.value {
            Value::Text(value) => Ok(Some(At { line, value })),
            other => Err(wrong_type(name, line, &other, "a string")),
        }
    }

    fn boolean(&mut self, name: &'static str) -> Result<Option<At<bool>>, FileError> {
        let Some(node) = self.take(name) else {
            return Ok(None);
        };
        let line = node.line;
        match node.value {
            Value::Boolean(value) => Ok(Some(At { line, value })),
            other => Err(wrong_type(name, line, &other, "true or false")),
        }
    }

    fn number(&mut self, name: &'static str) -> Result<Option<At<f64>>, FileError> {
        let Some(node) = self.take(name) else {
            return Ok(None);
        };
        let line = node.line;
        match node.value {
            Value::Number(value) => Ok(Some(At { line, value })),
            // Lua's arithmetic also accepts a string that is a number.
            Value::Text(ref text) => match text.trim().parse() {
                Ok(value) => Ok(Some(At { line, value })),
                Err(_) => Err(wrong_type(name, line, &node.value, "a number")),
            },
            other => Err(wrong_type(name, line, &other, "a number")),
        }
    }

    fn whole(&mut self, name: &'static str, max: u32) -> Result<Option<At<u32>>, FileError> {
        let Some(number) = self.number(name)? else {
            return Ok(None);
        };
        let is_right = (0.0..=f64::from(max)).contains(&number.value);
        if !is_right || number.value.fract() != 0.0 {
            let wanted = format!("must be a whole number, 0 to {max}");
            return Err(number.is_wrong(value(name, &number.value, &wanted)));
        }
        Ok(Some(number.map(|number| number as u32)))
    }

    fn needed(
        &mut self,
        field: &'static str,
        wanted: &'static str,
    ) -> Result<At<String>, FileError> {
        let text = self.text(field)?;
        text.ok_or_else(|| self.wrong(Fault::Missing { field, wanted }))
    }

    fn parsed<T: std::str::FromStr>(
        &mut self,
        field: &'static str,
        wanted: &str,
    ) -> Result<Option<At<T>>, FileError> {
        let text = self.text(field)?;
        let read = |text: At<String>| parse(&text, field, wanted).map(|value| text.map(|_| value));
        text.map(read).transpose()
    }

    fn needed_parsed<T: std::str::FromStr>(
        &mut self,
        field: &'static str,
        wanted: &'static str,
    ) -> Result<At<T>, FileError> {
        let text = self.needed(field, wanted)?;
        let value = parse(&text, field, wanted)?;
        Ok(text.map(|_| value))
    }

    /// Refuses remaining fields, except those whose value is `nil`.
    fn end(self, known: &str) -> Result<(), FileError> {
        let mut left = self.fields.iter();
        match left.find(|field| field.node.value != Value::Nil) {
            None => Ok(()),
            Some(field) => Err(FileError {
                line: field.node.line,
                fault: Fault::Unknown {
                    field: field.key.to_string(),
                    known: known.to_owned(),
                },
            }),
        }
    }
}
