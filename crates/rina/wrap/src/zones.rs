//! Which names of hosts stand for applications that are registered, and which addresses they have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use carina_api::control::{Client, ClientError, IpcpType, RibObject};
use carina_api::{AppName, DifName, ErrorCode, NameError};

use crate::dns::{Query, Records};
use crate::hosts_file::HostsFile;
use crate::name_table::{NameTable, NameTableError, is_host, number_of};
use crate::node::datagram_name;
use crate::rule::{Address, DOMAIN, Decision, Rule};

/// A DNS domain whose names below it are names of applications.
#[derive(Debug, Clone)]
pub struct Zone {
    /// The name of the domain in lower case, without dots at its ends.
    domain: String,
    rule: Rule,
}

/// The applications that are registered in the DIFs of this system.
#[derive(Debug, Clone, Default)]
pub struct Registered {
    /// The names of the applications, with the DIFs in which each is registered.
    pub names: BTreeMap<AppName, BTreeSet<DifName>>,
    /// All ports at the ends of registered names, such as 80 of `web:80`.
    ports: BTreeSet<u16>,
    /// Whether the list has all names of all DIFs: true if every member of each DIF knows all
    /// registrations.
    pub is_complete: bool,
}

/// Which names of hosts are served, and where their addresses come from.
#[derive(Debug)]
pub struct Names {
    /// The domains whose names are names of applications.
    pub zones: Vec<Zone>,
    /// Further names, each with fixed addresses.
    pub hosts: HostsFile,
    /// The table that gives each name of `zones` an address.
    pub table: NameTable,
}

impl Zone {
    /// Makes the zone of a domain. A connection to port 80 of `web.dif.internal` leads to the
    /// application `web:80`. In other domains the domain is a part of the application's name: port
    /// 80 of `web.vm` is `web.vm:80`.
    ///
    /// # Errors
    /// `domain` is not a domain name.
    pub fn new(domain: &str) -> Result<Zone, NameTableError> {
        let domain = domain.trim_matches('.').to_ascii_lowercase();
        let wrong = || NameTableError::Name(domain.clone());
        if !is_host(&domain) {
            return Err(wrong());
        }
        let name = if DOMAIN.strip_prefix('.') == Some(domain.as_str()) {
            "{name}"
        } else {
            "{host}"
        };
        let rule = format!("*.{domain} -> dif as {name}:{{port}}");
        let rule = rule.parse().map_err(|_| wrong())?;
        Ok(Zone { domain, rule })
    }

    /// The host name in this domain that leads to an application; `None` if no such name leads to
    /// it.
    pub fn host_of(&self, app: &AppName) -> Option<String> {
        let name = without_port(app.as_str()).to_ascii_lowercase();
        let host = if DOMAIN.strip_prefix('.') == Some(self.domain.as_str()) {
            format!("{name}{DOMAIN}")
        } else {
            name.ends_with(&format!(".{}", self.domain))
                .then_some(name)?
        };
        is_host(&host).then_some(host)
    }

    /// Whether a host name, in lower case, is the domain itself or is below it.
    pub fn contains(&self, host: &str) -> bool {
        let rest = host.strip_suffix(&self.domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// The name of the application that a connection to this host and port reaches; `None` if the
    /// host leads to no application.
    fn application(&self, host: &str, port: u16) -> Result<Option<AppName>, NameError> {
        let socket = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        let host = Some(host.to_owned());
        Ok(match self.rule.decide(&Address { host, socket })? {
            Decision::Flow { name, .. } => Some(name),
            Decision::Kernel | Decision::Refuse => None,
        })
    }
}

impl Registered {
    /// Asks the node for the registered names of all its DIFs.
    ///
    /// # Errors
    /// No node runs, or it does not answer.
    pub fn read(node: &Client) -> Result<Registered, ClientError> {
        let mut registered = Registered {
            is_complete: true,
            ..Registered::default()
        };
        for app in node.apps()? {
            for dif in app.difs {
                registered.add(app.name.clone(), dif);
            }
        }
        for dif in node.difs()? {
            for name in dif.names {
                registered.add(name, dif.name.clone());
            }
            if dif.kind == IpcpType::Normal {
                registered.add_directory(node, &dif.name)?;
            }
        }
        Ok(registered)
    }

    /// Adds the names that a member of this system knows to be registered in its DIF.
    fn add_directory(&mut self, node: &Client, dif: &DifName) -> Result<(), ClientError> {
        let read = |path: &str| match node.rib(Some(dif.as_str()), None, path, 1) {
            Err(ClientError::Refused { body, .. }) if body.code == ErrorCode::NotFound => {
                Ok(Vec::new())
            }
            read => read,
        };
        for object in read("/directory")? {
            let name = object.name_below("/directory/");
            if let Some(name) = name.and_then(|name| AppName::new(name).ok()) {
                self.add(name, dif.clone());
            }
        }
        let replicates = |object: &RibObject| {
            let policy = object.fields.get("name").and_then(|name| name.as_str());
            object.path == "/policies/directory" && policy == Some("replicated")
        };
        self.is_complete &= read("/policies")?.iter().any(replicates);
        Ok(())
    }

    /// Adds an application that is registered in a DIF.
    pub fn add(&mut self, name: AppName, dif: DifName) {
        let plain = without_udp(name.as_str());
        let port = plain.rsplit_once(':').map(|(_, port)| port.parse());
        if let Some(Ok(port)) = port {
            self.ports.insert(port);
        }
        self.names.entry(name).or_default().insert(dif);
    }

    /// Whether a host of the zone may lead to an application. If some DIF has names that its
    /// members do not list, this is true for every host below which no registered names are: then
    /// only a flow request shows whether the application exists.
    pub fn may_have(&self, zone: &Zone, host: &str) -> bool {
        let is_name = is_host(host) && host != zone.domain;
        if !is_name || self.has(zone, host) {
            return is_name;
        }
        !self.is_complete && !self.has_below(zone, host)
    }

    /// Whether a host leads to a registered application, on some port.
    pub fn has(&self, zone: &Zone, host: &str) -> bool {
        let has = |port: u16| {
            let name = zone.application(host, port);
            name.is_ok_and(|name| name.is_some_and(|name| self.has_app(&name)))
        };
        let is_plain = || {
            let name = zone.application(host, 0).ok().flatten();
            let plain = name.and_then(|name| AppName::new(without_port(name.as_str())).ok());
            plain.is_some_and(|name| self.names.contains_key(&name))
        };
        is_plain() || self.ports.iter().any(|port| has(*port))
    }

    /// Whether an application has this name, or a UDP server has it with `/udp` at its end.
    fn has_app(&self, name: &AppName) -> bool {
        self.names.contains_key(name)
            || datagram_name(name).is_ok_and(|name| self.names.contains_key(&name))
    }

    /// Whether names of registered applications are below this host name.
    fn has_below(&self, zone: &Zone, host: &str) -> bool {
        let below = format!(".{host}");
        let hosts = self.names.keys().filter_map(|name| zone.host_of(name));
        host == zone.domain || hosts.into_iter().any(|one| one.ends_with(&below))
    }
}

impl Names {
    /// Looks up the name or address of a question. `registered` are the names that the node
    /// reported; `None` if the node does not answer.
    ///
    /// # Errors
    /// The table of names is full or cannot be read or written.
    pub fn records(
        &self,
        query: &Query,
        registered: Option<&Registered>,
    ) -> Result<Records, NameTableError> {
        if let Some(address) = query.reverse() {
            return self.name_of(address);
        }
        let host = query.name();
        if let Some(addresses) = self.hosts.addresses(host) {
            return Ok(Records::Addresses(addresses.to_vec()));
        }
        let zone = self.zones.iter().find(|zone| zone.contains(host));
        let Some(zone) = zone else {
            return Ok(Records::OtherDomain);
        };
        let Some(registered) = registered else {
            return Ok(Records::Failed);
        };
        if registered.may_have(zone, host) {
            let is_registered = registered.has(zone, host);
            let addresses = self.table.addresses(host, is_registered)?;
            return Ok(Records::Addresses(addresses.to_vec()));
        }
        if registered.has_below(zone, host) {
            return Ok(Records::Addresses(Vec::new()));
        }
        Ok(Records::NoSuchName)
    }

    fn name_of(&self, address: IpAddr) -> Result<Records, NameTableError> {
        if let Some(name) = self.hosts.name(address) {
            return Ok(Records::Name(name.to_owned()));
        }
        if number_of(address).is_none() {
            return Ok(Records::OtherDomain);
        }
        Ok(match self.table.name(address)? {
            Some(name) => Records::Name(name),
            None => Records::NoSuchName,
        })
    }
}

/// Returns a name without the port at its end, and without the `/udp` of a UDP server behind it.
fn without_port(name: &str) -> &str {
    let name = without_udp(name);
    match name.rsplit_once(':') {
        Some((rest, port)) if port.parse::<u16>().is_ok() => rest,
        _ => name,
    }
}

/// Returns a name without the `/udp` that `carina wrap` appends to the name of a UDP server.
fn without_udp(name: &str) -> &str {
    name.strip_suffix("/udp").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(domains: &[&str], hosts: &str) -> (tempfile::TempDir, Names) {
        let directory = tempfile::tempdir().unwrap();
        let names = Names {
            zones: domains
                .iter()
                .map(|domain| Zone::new(domain).unwrap())
                .collect(),
            hosts: hosts.parse().unwrap(),
            table: NameTable::new(directory.path().join("names")),
        };
        (directory, names)
    }

    fn registered(names: &[&str]) -> Registered {
        let mut registered = Registered {
            is_complete: true,
            ..Registered::default()
        };
        for name in names {
            registered.add(AppName::new(*name).unwrap(), DifName::new("net").unwrap());
        }
        registered
    }

    fn question(name: &str) -> Query {
        let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(label.len() as u8);
            message.extend_from_slice(label.as_bytes());
        }
        message.extend([0, 0, 1, 0, 1]);
        Query::read(&message).unwrap()
    }

    fn answer_text(names: &Names, registered: &Registered, name: &str) -> String {
        match names.records(&question(name), Some(registered)).unwrap() {
            Records::Addresses(addresses) => match addresses.first() {
                Some(address) => address.to_string(),
                None => "no data".to_owned(),
            },
            Records::Name(name) => name,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn registered_applications_have_addresses_that_lead_back() {
        let (_directory, names) = names(&["dif.internal", "VM."], "");
        let apps = registered(&["web:80", "plain", "db.vm:5432", "a.b.vm:1", "odd name:1"]);
        let answer_text = |name: &str| answer_text(&names, &apps, name);
        assert_eq!(answer_text("web.dif.internal"), "198.18.0.1");
        assert_eq!(answer_text("Plain.dif.internal"), "198.18.0.2");
        assert_eq!(answer_text("db.vm"), "198.18.0.3");
        assert_eq!(answer_text("3.0.18.198.in-addr.arpa"), "db.vm");
        assert_eq!(answer_text("4.0.18.198.in-addr.arpa"), "NoSuchName");
        assert_eq!(answer_text("no.dif.internal"), "NoSuchName");
        assert_eq!(answer_text("no.vm"), "NoSuchName");
        for name in ["dif.internal", "vm", "b.vm"] {
            assert_eq!(answer_text(name), "no data", "{name}");
        }
        for name in ["example.org", "internal", "xvm", "1.0.0.10.in-addr.arpa"] {
            assert_eq!(answer_text(name), "OtherDomain", "{name}");
        }
        // What is only asked for takes no address.
        assert_eq!(names.table.number("next.vm").unwrap(), 3);
    }

    #[test]
    fn host_of_a_udp_server_has_an_address() {
        let (_directory, names) = names(&["dif.internal", "vm"], "");
        let apps = registered(&["time:37/udp", "log.vm:514/udp"]);
        let answer_text = |name: &str| answer_text(&names, &apps, name);
        assert_eq!(answer_text("time.dif.internal"), "198.18.0.1");
        assert_eq!(answer_text("log.vm"), "198.18.0.2");
        let name = AppName::new("time:37/udp").unwrap();
        let host = names.zones[0].host_of(&name);
        assert_eq!(host.as_deref(), Some("time.dif.internal"));
    }

    #[test]
    fn where_not_all_names_are_known_each_may_exist() {
        let (_directory, names) = names(&["vm"], "");
        let mut apps = registered(&[]);
        apps.is_complete = false;
        // It takes none of the numbers of names that are registered.
        assert_eq!(answer_text(&names, &apps, "perhaps.vm"), "198.18.191.105");
        assert_eq!(names.table.number("sure.vm").unwrap(), 0);
        assert_eq!(answer_text(&names, &apps, "a?b.vm"), "NoSuchName");
        let unknown = names.records(&question("web.vm"), None).unwrap();
        assert_eq!(unknown, Records::Failed);
    }

    #[test]
    fn static_names_come_first() {
        let (_directory, names) = names(&["vm"], "10.9.0.1 web.vm gate # fixed\n");
        let apps = registered(&["web.vm:80"]);
        assert_eq!(answer_text(&names, &apps, "web.vm"), "10.9.0.1");
        assert_eq!(answer_text(&names, &apps, "gate"), "10.9.0.1");
        assert_eq!(
            answer_text(&names, &apps, "1.0.9.10.in-addr.arpa"),
            "web.vm"
        );
    }

    #[test]
    fn wrong_domains_are_refused() {
        for domain in ["", ".", "a b", "*.vm", "a->b"] {
            assert!(Zone::new(domain).is_err(), "{domain:?}");
        }
    }
}
