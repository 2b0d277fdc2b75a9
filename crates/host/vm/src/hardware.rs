//! The hardware that a running guest sees. Another QEMU needs the same hardware to continue the
//! guest, after a migration or from a file.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::network::NicId;
use crate::qmp::Qmp;
use crate::state::Record;

/// The hardware that a guest sees, of a machine whose cards sit on ports
/// ([`Machine::ports`](crate::Machine::ports)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// QEMU's machine type with its version: `pc-q35-7.2`.
    pub machine: String,
    /// The accelerator: `kvm` or `tcg`.
    pub accel: String,
    /// Memory that the guest sees, in MiB.
    pub memory_mib: u32,
    /// Number of processors that the guest sees.
    pub cpus: u32,
    /// Key of the template that the machine was cloned from; `None` if it is not a clone. The
    /// running machine no longer needs the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Number of PCI ports into which a network card can be plugged.
    pub ports: u32,
    /// The network cards that the guest sees.
    pub cards: Vec<Card>,
}

/// A network card as the guest sees it: number, port and MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Number of the card, unique in the machine.
    pub id: u32,
    /// Number of the port that the card sits on.
    pub port: u32,
    /// The MAC address that QEMU assigned. The guest may use another one.
    pub mac: [u8; 6],
}

impl Card {
    /// The card's id for the methods of [`Running`](crate::Running).
    #[must_use]
    pub fn nic(&self) -> NicId {
        NicId(self.id)
    }
}

impl Hardware {
    /// Reads the hardware of a machine from its QEMU.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::connect`] and [`Qmp::execute`]; or an earlier version of Carina has started
    /// the machine with a disk, or the machine has a card that sits on no port.
    pub fn read(record: &Record) -> Result<Hardware> {
        if record.from_disk && !record.keeps_disk_open {
            return Err(Error::Invalid {
                what: format!("machine {}", record.name),
                reason:
                    "its disk cannot be moved, because an earlier version of Carina has started \
                         it; restart the machine"
                        .into(),
            });
        }
        let mut qmp = Qmp::connect(&record.qmp, LIMIT)?;
        let kind = property(&mut qmp, "/machine", "type")?;
        let machine = kind.strip_suffix("-machine").unwrap_or(&kind).to_owned();
        let listing = qmp.execute("qom-list", json!({ "path": PERIPHERAL }))?;
        let names = listing.as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(|item| item["name"].as_str()).collect();
        let ports = names.iter().filter_map(|name| number(name, "port"));
        let ports = ports.max().map_or(0, |last| last + 1);
        let mut cards = Vec::new();
        for id in names.iter().filter_map(|name| number(name, "nic")) {
            let path = format!("{PERIPHERAL}/nic{id}");
            let bus = property(&mut qmp, &path, "parent_bus")?;
            let port = bus.rsplit('/').next().and_then(|bus| number(bus, "port"));
            let port = port.ok_or_else(|| Error::Invalid {
                what: format!("card {id} of machine {}", record.name),
                reason: "is not on a hotplug port; give the machine ports when it starts".into(),
            })?;
            let mac = property(&mut qmp, &path, "mac")?;
            let mac = mac_of_text(&mac).ok_or_else(|| {
                Error::Qmp(format!("qom-get: the address of card {id} is {mac:?}"))
            })?;
            cards.push(Card { id, port, mac });
        }
        cards.sort_by_key(|card| card.id);
        Ok(Hardware {
            machine,
            accel: record.accel.clone(),
            memory_mib: record.memory_mib,
            cpus: record.cpus,
            template: record.template.clone(),
            ports,
            cards,
        })
    }

    /// Checks that the hardware is possible, because it may come from a file.
    ///
    /// # Errors
    ///
    /// A value is out of range, or two cards have the same number or port.
    pub fn check(&self) -> Result<()> {
        let bad = |reason: String| Error::Invalid {
            what: "hardware of a machine".into(),
            reason,
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if !self.machine.starts_with("pc-q35-") || !self.machine.chars().all(is_word) {
            return Err(bad(format!(
                "its type is {:?}, and only pc-q35-VERSION is started",
                self.machine
            )));
        }
        if self.ports > PORTS_MAX || self.cards.len() > self.ports as usize {
            return Err(bad(format!(
                "it has {} cards on {} ports; there are at most {PORTS_MAX} ports, with a card each",
                self.cards.len(),
                self.ports
            )));
        }
        for (place, card) in self.cards.iter().enumerate() {
            let before = &self.cards[..place];
            if card.port >= self.ports || before.iter().any(|candidate| candidate.port == card.port)
            {
                return Err(bad(format!("card {} has no port of its own", card.id)));
            }
            if before.iter().any(|candidate| candidate.id == card.id) {
                return Err(bad(format!("there are two cards {}", card.id)));
            }
        }
        Ok(())
    }
}

/// Reads a property of one of QEMU's objects as text.
fn property(qmp: &mut Qmp, path: &str, property: &str) -> Result<String> {
    let asked = json!({ "path": path, "property": property });
    let value = qmp.execute("qom-get", asked)?;
    match value {
        Value::String(text) => Ok(text),
        other => Err(Error::Qmp(format!(
            "qom-get: {property} of {path} is not understood: {other}"
        ))),
    }
}

/// The number in a name of the form `PREFIX` and number; `None` for other names.
fn number(name: &str, prefix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.parse().ok()
}

fn mac_of_text(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut words = text.split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(words.next()?, 16).ok()?;
    }
    words.next().is_none().then_some(mac)
}

/// Path of QEMU's objects for devices that were given a name.
const PERIPHERAL: &str = "/machine/peripheral";
const LIMIT: Duration = Duration::from_secs(5);
/// Largest number of ports ([`Machine::ports`](crate::Machine::ports)).
const PORTS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware() -> Hardware {
        let card = |id, port| Card {
            id,
            port,
            mac: [2, 0, 0, 0, 0, 1],
        };
        Hardware {
            machine: "pc-q35-7.2".into(),
            accel: "tcg".into(),
            memory_mib: 128,
            cpus: 1,
            template: None,
            ports: 4,
            cards: vec![card(0, 0), card(2, 3)],
        }
    }

    #[test]
    fn impossible_hardware_is_refused_with_the_reason() {
        hardware().check().unwrap();
        let refusal = |change: fn(&mut Hardware)| {
            let mut changed = hardware();
            change(&mut changed);
            changed.check().unwrap_err().to_string()
        };
        let error = refusal(|hardware| hardware.machine = "pc-q35-7.2,smm=off".into());
        assert!(error.contains("pc-q35-VERSION"), "{error}");
        assert!(refusal(|hardware| hardware.ports = 99).contains("at most 16"));
        assert!(refusal(|hardware| hardware.cards[1].port = 4).contains("card 2 has no port"));
        assert!(refusal(|hardware| hardware.cards[1].port = 0).contains("card 2 has no port"));
        assert!(refusal(|hardware| hardware.cards[1].id = 0).contains("two cards 0"));
    }

    #[test]
    fn addresses_are_read_whole() {
        assert_eq!(
            mac_of_text("52:54:00:12:34:ff"),
            Some([0x52, 0x54, 0, 0x12, 0x34, 0xff])
        );
        for text in [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:56:78",
            "52:54:00:12:34:gg",
        ] {
            assert_eq!(mac_of_text(text), None, "{text}");
        }
    }
}
