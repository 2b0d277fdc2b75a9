//! Configurations of IRATI's IPC Manager, and the DIF templates that they name.

use carina_api::control::{
    ArpDialect, Dialect, DifRole, Framing, IpcpCreate, IpcpType, PeerAddress,
};
use carina_api::{AppName, DifName, LocalName};

use super::json::{self, Node};
use super::{Draft, Member, irati_template};

/// Gives the text of a file that the configuration names.
pub type Open<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// Reads a configuration; `file` only serves the notes, `open` gives templates and maps. A member
/// of a DIF in `joins` asks the member named there, or whoever answers, for admission.
///
/// # Errors
/// The text is no JSON; the line is named.
pub fn read(
    file: &str,
    text: &str,
    open: &Open<'_>,
    joins: &[(String, Option<String>)],
) -> Result<Draft, String> {
    let root = json::parse(text).map_err(|what| format!("{file}: {what}"))?;
    let mut config = Config {
        file,
        open,
        joins,
        root: &root,
        draft: Draft::default(),
    };
    for (key, line, value) in root.fields() {
        config.section(key, *line, value);
    }
    config.tell_roles();
    Ok(config.draft)
}

struct Config<'a> {
    file: &'a str,
    open: &'a Open<'a>,
    joins: &'a [(String, Option<String>)],
    root: &'a Node,
    draft: Draft,
}

impl Config<'_> {
    fn note(&mut self, line: usize, what: impl Into<String>, why: impl Into<String>) {
        self.draft.note(self.file, line, what, why);
    }

    fn section(&mut self, key: &str, line: usize, value: &Node) {
        match key {
            "configFileVersion" => {
                let version = value.text().unwrap_or_default();
                if !version.starts_with("1.4") {
                    let what = format!("configFileVersion {version}");
                    self.note(line, what, "keys are read as those of version 1.4");
                }
            }
            "localConfiguration" => self.local(value),
            "ipcProcessesToCreate" => {
                for ipcp in value.items() {
                    self.ipcp(ipcp);
                }
            }
            // Read with the IPCPs that name them.
            "difConfigurations" => self.unused_templates(value),
            "difallocator" => self.allocator(line, value),
            "addons" => {
                for (addon, line, _) in value.fields() {
                    let why = match addon.as_str() {
                        "mad" => {
                            "a node is managed through control.sock and RIBs, not by a manager \
                                  of its own protocol"
                        }
                        "mobman" => "there are no wireless shims whose flows would be handed over",
                        _ => "there is no such part here",
                    };
                    self.note(*line, format!("addons: {addon}"), why);
                }
            }
            _ => self.note(line, key, "this is no section of an ipcmanager.conf"),
        }
    }

    fn local(&mut self, local: &Node) {
        for (key, line, value) in local.fields() {
            match (key.as_str(), value.text()) {
                ("system-name", Some(name)) => self.draft.node = Some(name.to_owned()),
                // Where its programs, logs and sockets lie is this installation's matter.
                (
                    "installationPath" | "libraryPath" | "logPath" | "consoleSocket"
                    | "pluginsPaths",
                    _,
                ) => {}
                _ => {
                    let what = format!("localConfiguration {key}");
                    self.note(*line, what, "there is no such key");
                }
            }
        }
    }

    fn ipcp(&mut self, from: &Node) {
        let dif = from.text_of("difName").unwrap_or_default().to_owned();
        let kind = from.text_of("type").unwrap_or_default().to_owned();
        let known = [
            "type",
            "difName",
            "hostName",
            "difsToRegisterAt",
            "difsToRegister",
            "n1difPeerDiscovery",
            "parameters",
            "apName",
            "apInstance",
        ];
        for (key, line, _) in from.fields() {
            if !known.contains(&key.as_str()) {
                let what = format!("IPCP of DIF {dif}: {key}");
                self.note(*line, what, "an IPCP has no such key");
            }
        }
        let made = match kind.as_str() {
            "normal-ipc" => self.member(from, &dif),
            "shim-eth" | "shim-eth-vlan" => self.eth(from, &kind, &dif),
            "shim-tcp-udp" => self.udp(from, &dif),
            "shim-wifi-ap" | "shim-wifi-sta" => Err(
                "there is no shim for wireless networks; an interface that is associated already \
                 serves a shim-eth"
                    .to_owned(),
            ),
            "shim-hv" => Err("VMs are attached by `[[vm]]`, without addresses".to_owned()),
            other => Err(format!(
                "{other:?} is no type of IPCP; there are normal-ipc, shim-eth, shim-eth-vlan, \
                 shim-tcp-udp"
            )),
        };
        if let Err(why) = made {
            self.note(from.line, format!("IPCP {kind} of DIF {dif}"), why);
        }
    }

    /// The name of an IPCP: as given, or of system and DIF.
    fn name_of(&self, from: &Node, dif: &str) -> Result<LocalName, String> {
        let given = from.text_of("apName").map(str::to_owned);
        let local = self.root.get("localConfiguration");
        let system = local.and_then(|local| local.text_of("system-name"));
        let name = given.unwrap_or_else(|| match system {
            Some(system) => format!("{system}.{dif}"),
            None => format!("{}.{dif}", from.text_of("hostName").unwrap_or("node")),
        });
        LocalName::new(name).map_err(|error| error.to_string())
    }

    fn member(&mut self, from: &Node, dif: &str) -> Result<(), String> {
        DifName::new(dif).map_err(|error| error.to_string())?;
        let name = self.name_of(from, dif)?;
        let mut member = Member::new(name.to_string(), dif.to_owned(), Dialect::Irati, from.line);
        let mut lists = ["difsToRegisterAt", "difsToRegister"].into_iter();
        let lowers = lists.find_map(|key| from.get(key));
        let discovery = from.get("n1difPeerDiscovery");
        for list in lowers.into_iter().chain(discovery) {
            for lower in list.items().iter().filter_map(Node::text) {
                member.stand_on(lower);
            }
        }
        if member.over.is_empty() {
            return Err("it stands on no DIF; `difsToRegisterAt` names those".to_owned());
        }
        let asked = self.joins.iter().find(|(joined, _)| joined == dif);
        if asked.is_some() || discovery.is_some_and(|list| !list.items().is_empty()) {
            member.role = Some(DifRole::Join);
            member.via = asked.and_then(|(_, via)| via.clone());
        }
        if let Some((file, template)) = self.template(dif)? {
            irati_template::take(&mut self.draft, &file, &template, &mut member);
        }
        self.draft.members.push(member);
        Ok(())
    }

    /// The template of a DIF.
    fn template(&self, dif: &str) -> Result<Option<(String, Node)>, String> {
        let all = self.root.get("difConfigurations").map(Node::items);
        let is_it = |item: &&Node| item.text_of("name") == Some(dif);
        let Some(item) = all.unwrap_or_default().iter().find(is_it) else {
            return Ok(None);
        };
        let file = item
            .text_of("template")
            .ok_or_else(|| format!("difConfigurations of {dif} names no `template`"))?;
        let text = (self.open)(file)?;
        let parsed = json::parse(&text).map_err(|what| format!("{file}: {what}"))?;
        Ok(Some((file.to_owned(), parsed)))
    }

    fn unused_templates(&mut self, all: &Node) {
        let ipcps = self.root.get("ipcProcessesToCreate").map(Node::items);
        let ipcps = ipcps.unwrap_or_default();
        for item in all.items() {
            let name = item.text_of("name").unwrap_or_default();
            let is_used = ipcps
                .iter()
                .any(|ipcp| ipcp.text_of("difName") == Some(name));
            if !is_used {
                let what = format!("difConfigurations: {name}");
                self.note(
                    item.line,
                    what,
                    "no IPCP of this system is a member of that DIF",
                );
            }
        }
    }

    /// The parameter of a shim: from its template, or its own.
    fn parameter(&self, from: &Node, dif: &str, key: &str) -> Result<Option<String>, String> {
        let own = from.get("parameters").and_then(|own| own.text_of(key));
        if let Some(own) = own {
            return Ok(Some(own.to_owned()));
        }
        let template = self.template(dif)?;
        let found = template.and_then(|(_, template)| {
            let parameters = template.get("configParameters")?;
            parameters.text_of(key).map(str::to_owned)
        });
        Ok(found)
    }

    fn eth(&mut self, from: &Node, kind: &str, dif: &str) -> Result<(), String> {
        let interface = self.parameter(from, dif, "interface-name")?;
        let interface = interface.ok_or("`interface-name` is missing in its configParameters")?;
        if self.parameter(from, dif, "spoof-mac")?.is_some() {
            let why = "the interface keeps its address";
            self.note(from.line, format!("DIF {dif}: spoof-mac"), why);
        }
        let mut made = self.shim(IpcpType::Eth, from, dif)?;
        let number: Option<u16> = dif.parse().ok();
        made.vlan = match (kind, number) {
            ("shim-eth-vlan", None) => {
                return Err(format!(
                    "the name of its DIF is the VLAN id, and {dif} is no number"
                ));
            }
            ("shim-eth-vlan", _) => None,
            // A name that is a number is no VLAN of a shim-eth.
            (_, number) => number.map(|_| 0),
        };
        // IRATI opens the interface of the VLAN; here the tag is put on by the shim.
        made.interface = Some(interface);
        made.arp = Some(ArpDialect::Irati);
        if let Some(ms) = self.parameter(from, dif, "arp-timeout")? {
            made.timeout_ms = ms.parse().ok();
        }
        self.draft.shims.push(made);
        Ok(())
    }

    fn udp(&mut self, from: &Node, dif: &str) -> Result<(), String> {
        let mut made = self.shim(IpcpType::Udp, from, dif)?;
        made.framing = Some(Framing::Rlite);
        if let Some(entries) = self.parameter(from, dif, "dirEntry")? {
            made.peers = dir_entries(&entries)?;
        }
        let port = match self.parameter(from, dif, "expReg")? {
            Some(expected) => registered_port(&expected)?,
            None => PORT,
        };
        let host = self.parameter(from, dif, "hostname")?;
        if host.is_some() || port != PORT {
            made.listen = Some(format!("{}:{port}", host.as_deref().unwrap_or("0.0.0.0")));
        }
        let why = "a udp shim serves flows without order; one of type tcp serves reliable ones";
        self.note(
            from.line,
            format!("IPCP shim-tcp-udp of DIF {dif}: TCP"),
            why,
        );
        self.draft.shims.push(made);
        Ok(())
    }

    fn shim(&self, kind: IpcpType, from: &Node, dif: &str) -> Result<IpcpCreate, String> {
        let name = self.name_of(from, dif)?;
        let dif = DifName::new(dif).map_err(|error| error.to_string())?;
        Ok(IpcpCreate::new(name, kind, dif))
    }

    fn allocator(&mut self, line: usize, from: &Node) {
        let kind = from.text_of("type").unwrap_or_default().to_owned();
        let why = match kind.as_str() {
            "static-dif-allocator" => {
                "names are looked for in all DIFs; `dif_order` of [node] says in which first"
            }
            _ => "names are looked for in the DIFs of this system; it joins no further ones",
        };
        self.note(line, format!("difallocator {kind}"), why);
        if let Ok(map) = (self.open)("da.map")
            && let Ok(map) = json::parse(&map)
        {
            let entries = map.get("applicationToDIFMappings");
            for entry in entries.map_or(map.items(), Node::items) {
                let name = entry.text_of("encodedAppName").unwrap_or_default();
                let dif = entry.text_of("difName").unwrap_or_default();
                let what = format!("{name} in {dif}");
                self.draft.note(
                    "da.map",
                    entry.line,
                    what,
                    "ask with `--dif` or `dif_order`",
                );
            }
        }
    }

    /// Says what the file leaves open: who is first in a DIF.
    fn tell_roles(&mut self) {
        for member in &mut self.draft.members {
            if member.role.is_none() {
                self.draft.notes.push(super::Note {
                    file: self.file.to_owned(),
                    line: member.line,
                    what: format!("{} of DIF {}", member.ipcp, member.dif),
                    why: format!(
                        "whom it enrolls with is said on a console, not here: it is made the \
                         first member; --join {}=MEMBER makes it one that asks",
                        member.dif
                    ),
                });
                member.role = Some(DifRole::Create);
            }
        }
    }
}

/// Fields of `n:len:text:len:text..`, `each` of them an entry. Texts may hold colons.
fn run_lengths(text: &str, each: usize) -> Result<Vec<Vec<&str>>, String> {
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
    Ok(entries)
}

/// Where applications are: name, entity, host and port of each.
fn dir_entries(text: &str) -> Result<Vec<PeerAddress>, String> {
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
            name: AppName::new(name).map_err(|error| error.to_string())?,
            address: format!("{host}:{port}"),
        });
    }
    Ok(peers)
}

/// The port of the application that is to be registered; all use one here.
fn registered_port(text: &str) -> Result<u16, String> {
    let entries = run_lengths(text, 3)?;
    let port = entries.first().and_then(|entry| entry[2].parse().ok());
    port.ok_or_else(|| format!("{text:?} names no port"))
}

/// Where a udp shim listens unless told.
const PORT: u16 = 3359;
