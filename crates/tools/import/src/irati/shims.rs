//! Translates the shim IPCPs of an IRATI configuration.

use std::net::{IpAddr, SocketAddr};

use carina_api::control::{ArpDialect, Framing, IpcpCreate, IpcpType, PeerAddress};
use carina_api::{AppName, DifName, LocalName};

use crate::error::Reason;
use crate::json::Node;

/// A shim IPCP as the file has it, with its template.
pub(super) struct Shim<'a> {
    /// IRATI type of the IPCP, such as `shim-eth`.
    pub kind: &'a str,
    /// Name of the shim IPCP, as the file has it.
    pub name: LocalName,
    /// Name of the shim DIF, as the file has it.
    pub dif: &'a str,
    /// The IPCP's entry in `ipcProcessesToCreate`.
    pub from: &'a Node,
    /// Template of the shim: file name and content. `None` if the file gives no template.
    pub template: Option<&'a (String, Node)>,
}

/// Settings without an equivalent: whether it is in the template (else in the configuration), line,
/// setting, reason.
pub(super) type Unlike = Vec<(bool, usize, String, String)>;

impl Shim<'_> {
    /// The shim in the format of Carina's configuration, and its settings without an equivalent.
    ///
    /// # Errors
    /// Why the shim cannot be translated.
    pub(super) fn made(&self) -> Result<(IpcpCreate, Unlike), Reason> {
        let mut notes = Vec::new();
        let made = match self.kind {
            "shim-eth" | "shim-eth-vlan" => self.eth(&mut notes)?,
            "shim-tcp-udp" => self.udp(&mut notes)?,
            "shim-wifi-ap" | "shim-wifi-sta" => {
                return Err(
                    "there is no shim for wireless networks; an interface that is associated \
                     already serves a shim-eth"
                        .into(),
                );
            }
            "shim-hv" => return Err("VMs are attached by `[[vm]]`, without addresses".into()),
            other => {
                return Err(format!(
                    "{other:?} is not a type of IPCP; the types are normal-ipc, shim-eth, \
                     shim-eth-vlan, shim-tcp-udp"
                )
                .into());
            }
        };
        Ok((made, notes))
    }

    /// The sections with parameters, each with whether it is in the template. The IPCP's own
    /// section comes first, so it overrides the template.
    fn sections(&self) -> impl Iterator<Item = (bool, &Node)> {
        let own = self.from.get("parameters").map(|own| (false, own));
        let template = self.template.and_then(|(_, all)| all.get(PARAMETERS));
        own.into_iter().chain(template.map(|all| (true, all)))
    }

    fn parameter(&self, key: &str) -> Option<&str> {
        self.sections().find_map(|(_, all)| value_of(all, key))
    }

    fn unknown_parameters(&self, notes: &mut Unlike, known: &[&str]) {
        for (is_template, section) in self.sections() {
            for (key, line) in names_of(section) {
                if !known.contains(&key) {
                    let what = format!("DIF {}: {key}", self.dif);
                    let why = crate::no_such_key("this shim", "parameter", key, known);
                    notes.push((is_template, line, what, why));
                }
            }
        }
    }

    fn check_type(&self, notes: &mut Unlike) {
        let Some((_, template)) = self.template else {
            return;
        };
        let given = template.text_of("difType").unwrap_or(self.kind);
        if given != self.kind {
            let what = format!("difType {given}");
            let why = format!("the IPCP of DIF {} is a {}", self.dif, self.kind);
            notes.push((true, template.line, what, why));
        }
    }

    fn eth(&self, notes: &mut Unlike) -> Result<IpcpCreate, Reason> {
        let dif = self.dif;
        self.check_type(notes);
        self.unknown_parameters(notes, &["interface-name", "spoof-mac", "arp-timeout"]);
        let interface = self.parameter("interface-name");
        let interface = interface.ok_or("`interface-name` is missing in its configParameters")?;
        if self.parameter("spoof-mac").is_some() {
            let why = "the interface keeps its address";
            let what = format!("DIF {dif}: spoof-mac");
            notes.push((false, self.from.line, what, why.to_owned()));
        }
        let number: Option<u16> = dif.parse().ok();
        if self.kind == "shim-eth-vlan" && number.is_none_or(|id| id > VLAN_MAX) {
            return Err(format!(
                "the name of its DIF is {dif}, but must be the VLAN id: 1 to {VLAN_MAX}, or 0 for \
                 frames without a tag"
            )
            .into());
        }
        if self.kind == "shim-eth" && number.is_some() {
            let why = "a DIF with a number for a name is that VLAN; `vlan = 0` is no VLAN";
            let what = format!("shim-eth of DIF {dif}");
            notes.push((false, self.from.line, what, why.to_owned()));
        }
        let mut made = self.create(IpcpType::Eth)?;
        // IRATI opens the kernel's interface of the VLAN; Carina's shim opens the interface below,
        // and adds the VLAN tag itself.
        made.interface = Some(crate::interface(interface)?);
        made.arp = Some(ArpDialect::Irati);
        if let Some(ms) = self.parameter("arp-timeout") {
            let wrong = |_| format!("arp-timeout {ms:?} is not a number of milliseconds");
            made.timeout_ms = Some(ms.parse().map_err(wrong)?);
        }
        Ok(made)
    }

    fn udp(&self, notes: &mut Unlike) -> Result<IpcpCreate, Reason> {
        self.check_type(notes);
        self.unknown_parameters(notes, &["hostname", "dirEntry", "expReg"]);
        let mut made = self.create(IpcpType::Udp)?;
        made.framing = Some(Framing::Rlite);
        if let Some(entries) = self.parameter("dirEntry") {
            made.peers = dir_entries(entries)?;
        }
        let port = match self.parameter("expReg") {
            Some(expected) => registered_port(expected)?,
            None => PORT,
        };
        let host = match self.parameter("hostname") {
            None => None,
            Some(text) => match text.parse::<IpAddr>() {
                Ok(address) => Some(address),
                Err(_) => {
                    let what = format!("DIF {}: hostname {text}", self.dif);
                    let why = "a shim listens at an address: at all of them now; `listen` says one";
                    notes.push((false, self.from.line, what, why.to_owned()));
                    None
                }
            },
        };
        if host.is_some() || port != PORT {
            let host = host.unwrap_or(IpAddr::from([0, 0, 0, 0]));
            made.listen = Some(SocketAddr::new(host, port).to_string());
        }
        let why = "a udp shim serves flows without order; one of type tcp serves reliable ones";
        let what = format!("IPCP shim-tcp-udp of DIF {}: TCP", self.dif);
        notes.push((false, self.from.line, what, why.to_owned()));
        Ok(made)
    }

    fn create(&self, kind: IpcpType) -> Result<IpcpCreate, Reason> {
        let dif = DifName::new(self.dif)?;
        Ok(IpcpCreate::new(self.name.clone(), kind, dif))
    }
}

/// The value of a parameter. The section is a table, or a list of names and values.
fn value_of<'a>(section: &'a Node, key: &str) -> Option<&'a str> {
    let is_it = |item: &&Node| item.text_of("name") == Some(key);
    let listed = section.items().iter().find(is_it);
    section
        .text_of(key)
        .or_else(|| listed.and_then(|item| item.text_of("value")))
}

/// The names of the parameters in a section, with their lines.
pub(super) fn names_of(section: &Node) -> Vec<(&str, usize)> {
    let fields = section.fields().iter();
    let fields = fields.map(|(key, line, _)| (key.as_str(), *line));
    let items = section.items().iter();
    let items = items.map(|item| (item.text_of("name").unwrap_or("?"), item.line));
    fields.chain(items).collect()
}

/// Parses a text of the form `COUNT:LENGTH:TEXT:LENGTH:TEXT..`. Every `each` texts make one entry.
/// The texts may contain colons.
fn run_lengths(text: &str, each: usize) -> Result<Vec<Vec<&str>>, Reason> {
    let wrong = || format!("{text:?} is not COUNT:LENGTH:TEXT:LENGTH:TEXT..");
    let (count, mut rest) = text.split_once(':').ok_or_else(wrong)?;
    let count: usize = count.parse().map_err(|_| wrong())?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let mut entry = Vec::new();
        for _ in 0..each {
            let (length, behind) = rest.split_once(':').ok_or_else(wrong)?;
            let length: usize = length.parse().map_err(|_| wrong())?;
            let (field, behind) = behind.split_at_checked(length).ok_or_else(wrong)?;
            entry.push(field);
            rest = behind.strip_prefix(':').unwrap_or(behind);
        }
        entries.push(entry);
    }
    match rest {
        "" => Ok(entries),
        _ => Err(format!("{text:?} states {count} entries, but {rest:?} follows them").into()),
    }
}

/// Parses the addresses of applications: name, entity, address and port of each.
fn dir_entries(text: &str) -> Result<Vec<PeerAddress>, Reason> {
    let mut peers = Vec::new();
    for entry in run_lengths(text, 4)? {
        let [ap, ae, host, port] = entry[..] else {
            continue;
        };
        let name = match ae {
            "" => ap.to_owned(),
            ae => format!("{ap}||{ae}"),
        };
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        peers.push(PeerAddress {
            name: AppName::new(name)?,
            address: format!("{host}:{port}"),
        });
    }
    Ok(peers)
}

/// Parses the registered applications (name, entity and port of each), and returns the port of the
/// first. Carina's shim has one port for all.
fn registered_port(text: &str) -> Result<u16, Reason> {
    let entries = run_lengths(text, 3)?;
    let port = entries.first().and_then(|entry| entry[2].parse().ok());
    port.ok_or_else(|| format!("{text:?} names no port").into())
}

/// Section of a template that has the parameters of a shim.
pub(super) const PARAMETERS: &str = "configParameters";
/// Default port of a UDP shim.
const PORT: u16 = 3359;
/// Highest VLAN id.
const VLAN_MAX: u16 = 4094;
