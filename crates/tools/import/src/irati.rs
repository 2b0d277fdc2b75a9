//! Reads configurations of IRATI's IPC Manager and the DIF templates that they name: version 1.4 of
//! `ipcmanager.conf`, as described in the documentation of the IRATI stack.

mod cubes;
mod shims;
mod template;

use carina_api::control::{Dialect, DifRole};
use carina_api::{DifName, LocalName};

use self::shims::{Shim, names_of};
use crate::error::{ImportError, Reason};
use crate::json::{self, Node};
use crate::{Draft, Member};

/// Returns the text of a file that the configuration names, or an error text.
pub type Open<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// Reads a configuration. `file` is its name in notes. `open` returns the text of templates and of
/// application maps. `joins` lists the DIFs whose member joins, each with the member to enroll
/// with, or `None` for any; the member of any other DIF is its first.
///
/// # Errors
/// The text is not JSON; the error names the line.
pub fn read(
    file: &str,
    text: &str,
    open: &Open<'_>,
    joins: &[(String, Option<String>)],
) -> Result<Draft, ImportError> {
    let root = json::parse(text).map_err(|source| ImportError::Json {
        file: file.to_owned(),
        source,
    })?;
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
    config.assign_roles();
    Ok(config.draft)
}

/// Keys of the file that are known.
const SECTIONS: [&str; 6] = [
    "configFileVersion",
    "localConfiguration",
    "ipcProcessesToCreate",
    "difConfigurations",
    "difallocator",
    "addons",
];
/// Keys of `localConfiguration` that are known.
const LOCAL: [&str; 6] = [
    "system-name",
    "installationPath",
    "libraryPath",
    "logPath",
    "consoleSocket",
    "pluginsPaths",
];
/// Keys of an IPCP that are translated.
const IPCP: [&str; 5] = [
    "type",
    "difName",
    "difsToRegisterAt",
    "n1difPeerDiscovery",
    "parameters",
];
/// Keys of `difallocator` that are known.
const ALLOCATOR: [&str; 6] = [
    "type",
    "dafName",
    "dapName",
    "enrollments",
    "joinableDIFs",
    "parameters",
];

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
            // Templates are read with the IPCPs that name them.
            "difConfigurations" => self.unused_templates(value),
            "difallocator" => self.allocator(line, value),
            "addons" => self.addons(value),
            _ => {
                let why = crate::no_such_key("an ipcmanager.conf", "section", key, &SECTIONS);
                self.note(line, key, why);
            }
        }
    }

    fn addons(&mut self, addons: &Node) {
        for (addon, line, _) in addons.fields() {
            let why = match addon.as_str() {
                "mad" => {
                    "a node is managed through control.sock and RIBs, not by a manager of its own \
                     protocol"
                        .to_owned()
                }
                "mobman" => {
                    "Carina has no shims for wireless networks, so no flows are handed over"
                        .to_owned()
                }
                _ => crate::no_such_key("`addons`", "entry", addon, &["mad", "mobman"]),
            };
            self.note(*line, format!("addons: {addon}"), why);
        }
    }

    fn local(&mut self, local: &Node) {
        for (key, line, value) in local.fields() {
            match (key.as_str(), value.text()) {
                ("system-name", Some(name)) => self.draft.node = Some(name.to_owned()),
                // Paths of programs, logs and sockets concern the IRATI installation only.
                (known, _) if LOCAL.contains(&known) => {}
                _ => {
                    let why = crate::no_such_key("`localConfiguration`", "key", key, &LOCAL);
                    self.note(*line, format!("localConfiguration {key}"), why);
                }
            }
        }
    }

    fn ipcp(&mut self, from: &Node) {
        let dif = from.text_of("difName").unwrap_or_default().to_owned();
        let kind = from.text_of("type").unwrap_or_default().to_owned();
        for (key, line, _) in from.fields() {
            let why = match key.as_str() {
                "apName" | "apInstance" => {
                    "IPCPs are called SYSTEM.DIF, of `system-name` and `difName`".to_owned()
                }
                "hostName" => "IPCPs are called after `system-name`; `hostname` of a shim's \
                     configParameters is where it listens"
                    .to_owned(),
                known if IPCP.contains(&known) => continue,
                _ => crate::no_such_key("an IPCP", "key", key, &IPCP),
            };
            self.note(*line, format!("IPCP of DIF {dif}: {key}"), why);
        }
        let made = match kind.as_str() {
            "normal-ipc" => self.member(from, &dif),
            _ => self.shim(from, &kind, &dif),
        };
        if let Err(why) = made {
            self.note(from.line, format!("IPCP {kind} of DIF {dif}"), why);
        }
    }

    fn shim(&mut self, from: &Node, kind: &str, dif: &str) -> Result<(), Reason> {
        let template = self.template(dif)?;
        let shim = Shim {
            kind,
            name: self.name_of(dif)?,
            dif,
            from,
            template: template.as_ref(),
        };
        let (made, notes) = shim.made()?;
        for (is_template, line, what, why) in notes {
            let file = match &template {
                Some((file, _)) if is_template => file.as_str(),
                _ => self.file,
            };
            self.draft.note(file, line, what, why);
        }
        self.draft.shims.push(made);
        Ok(())
    }

    /// The name of an IPCP, made from the names of system and DIF.
    fn name_of(&self, dif: &str) -> Result<LocalName, Reason> {
        let local = self.root.get("localConfiguration");
        let system = local.and_then(|local| local.text_of("system-name"));
        let name = format!("{}.{dif}", system.unwrap_or("node"));
        Ok(LocalName::new(name)?)
    }

    fn member(&mut self, from: &Node, dif: &str) -> Result<(), Reason> {
        DifName::new(dif)?;
        let name = self.name_of(dif)?;
        let mut member = Member::new(name.to_string(), dif.to_owned(), Dialect::Irati, from.line);
        let lowers = from.get("difsToRegisterAt");
        let discovery = from.get("n1difPeerDiscovery");
        for list in lowers.into_iter().chain(discovery) {
            for lower in list.items().iter().filter_map(Node::text) {
                DifName::new(lower)?;
                member.try_stand_on(lower)?;
            }
        }
        if member.over.is_empty() {
            return Err("it has no N-1 DIF; `difsToRegisterAt` names them".into());
        }
        let asked = self.joins.iter().find(|(joined, _)| joined == dif);
        if asked.is_some() || discovery.is_some_and(|list| !list.items().is_empty()) {
            member.role = Some(DifRole::Join);
            member.via = asked.and_then(|(_, via)| via.clone());
        }
        match self.template(dif)? {
            Some((file, template)) => {
                template::take(&mut self.draft, &file, &template, &mut member);
            }
            None => {
                let why =
                    "difConfigurations names no template for it: it has what default.dif says";
                self.note(from.line, format!("IPCP normal-ipc of DIF {dif}"), why);
            }
        }
        for (name, line) in from.get("parameters").map(names_of).unwrap_or_default() {
            let why = "members of normal DIFs take no such parameter";
            self.note(line, format!("IPCP of DIF {dif}: parameters {name}"), why);
        }
        self.draft.members.push(member);
        Ok(())
    }

    /// The file name and content of the template of a DIF; `None` if the DIF has none.
    fn template(&self, dif: &str) -> Result<Option<(String, Node)>, Reason> {
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

    fn allocator(&mut self, line: usize, from: &Node) {
        let kind = from.text_of("type").unwrap_or_default().to_owned();
        let why = match kind.as_str() {
            "static-dif-allocator" => {
                "names are looked for in all DIFs; `dif_order` of [node] says in which first"
            }
            "dynamic-dif-allocator" => {
                "names are looked for in the DIFs of this system; it joins no further ones"
            }
            _ => "its `type` is static-dif-allocator or dynamic-dif-allocator",
        };
        self.note(line, format!("difallocator {kind}"), why);
        for (key, line, _) in from.fields() {
            let why = match key.as_str() {
                "enrollments" => "--join DIF=MEMBER names the member that is asked".to_owned(),
                known if ALLOCATOR.contains(&known) => continue,
                _ => crate::no_such_key("`difallocator`", "key", key, &ALLOCATOR),
            };
            self.note(*line, format!("difallocator {key}"), why);
        }
        let Ok(map) = (self.open)("da.map") else {
            return;
        };
        match json::parse(&map) {
            Ok(map) => self.places(&map),
            Err(why) => self
                .draft
                .note("da.map", 0, "the whole file", why.to_string()),
        }
    }

    /// Reads a map of applications to DIFs: a list, or tables that contain it.
    fn places(&mut self, map: &Node) {
        for (.., inner) in map.fields() {
            self.places(inner);
        }
        for entry in map.items() {
            let [name, dif] = ["encodedAppName", "difName"].map(|key| entry.text_of(key));
            let (what, why) = match (name, dif) {
                (Some(name), Some(dif)) => (
                    format!("{name} in {dif}"),
                    "ask with `--dif` or `dif_order`",
                ),
                _ => (
                    "an entry".to_owned(),
                    "an entry has `encodedAppName` and `difName`",
                ),
            };
            self.draft.note("da.map", entry.line, what, why);
        }
    }

    /// Makes every member without a role the first of its DIF, with a note, because the file does
    /// not say which members join.
    fn assign_roles(&mut self) {
        let local = self.root.get("localConfiguration");
        if self.draft.node.is_none()
            && !(self.draft.members.is_empty() && self.draft.shims.is_empty())
        {
            let line = local.map_or(self.root.line, |local| local.line);
            let why = "without it IPCPs are called node.DIF, and no other member knows them so";
            self.note(line, "localConfiguration: system-name is missing", why);
        }
        for (dif, _) in self.joins {
            if !self.draft.members.iter().any(|member| member.dif == *dif) {
                let why = "no IPCP of this file is a member of that DIF";
                self.note(0, format!("--join {dif}"), why);
            }
        }
        for member in &mut self.draft.members {
            if member.role.is_none() {
                self.draft.notes.push(crate::Note {
                    file: self.file.to_owned(),
                    line: member.line,
                    what: format!("{} of DIF {}", member.ipcp, member.dif),
                    why: format!(
                        "IRATI's console says with which member it enrolls, this file does not: \
                         it is made the \
                         first member; --join {}=MEMBER makes it join",
                        member.dif
                    ),
                });
                member.role = Some(DifRole::Create);
            }
        }
    }
}
