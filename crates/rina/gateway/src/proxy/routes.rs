//! The outcome of the rules of `carina wrap` for the destination that a client names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use carina_api::{AppName, DifName};
use carina_wrap::name_table::NameTable;
use carina_wrap::rule::{Address, Decision, Direction, Rule};

use crate::proxy::destination::{Destination, Host};
use crate::proxy::refusal::{Cause, Refusal};

/// Decides how the proxy reaches the destinations that clients name.
pub(crate) trait Policy {
    /// Decides how to reach a destination.
    ///
    /// # Errors
    /// No rule allows the destination.
    fn of(&self, to: &Destination) -> Result<Route, Refusal>;

    /// Decides how to reach a destination whose host has these addresses.
    ///
    /// # Errors
    /// No rule allows any of the addresses.
    fn of_addresses(&self, to: &Destination, addresses: &[IpAddr]) -> Result<Route, Refusal>;
}

/// A [`Policy`] made of the rules of a proxy: the first rule that fits a destination decides.
#[derive(Debug)]
pub(crate) struct Routes {
    rules: Vec<Rule>,
    names: NameTable,
    /// Whether the proxy reaches destinations that no rule fits by TCP. If false, it refuses them.
    pass: bool,
}

/// How the proxy reaches a destination: by a flow, by TCP, or by a decision after a look-up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Flow {
        dif: Option<DifName>,
        name: AppName,
    },
    /// A TCP connection to the first of these addresses that accepts one.
    Tcp(Vec<SocketAddr>),
    /// The rules need the host's addresses: look them up, then call [`Policy::of_addresses`].
    LookUp,
}

impl Routes {
    pub(crate) fn new(rules: Vec<Rule>, names: NameTable, pass: bool) -> Routes {
        Routes { rules, names, pass }
    }

    /// Decides how to reach a host name. Rules with names come first; if none makes a flow, the
    /// host's addresses decide.
    fn of_name(&self, to: &Destination, host: &str) -> Result<Route, Refusal> {
        let address = Address {
            host: Some(host.to_owned()),
            socket: SocketAddr::new(IN_TABLE, to.port),
        };
        for rule in self.rules.iter() {
            if rule.is_of_addresses() {
                return Ok(Route::LookUp);
            }
            if rule.matches(Direction::Connect, &address) {
                return match decided(rule, &address, to)? {
                    Some(flow) => Ok(flow),
                    None => Ok(Route::LookUp),
                };
            }
        }
        if self.pass {
            return Ok(Route::LookUp);
        }
        Err(unmatched(to))
    }

    fn of_one(
        &self,
        to: &Destination,
        host: Option<String>,
        address: IpAddr,
    ) -> Result<Route, Refusal> {
        let socket = SocketAddr::new(reached(address), to.port);
        let address = Address { host, socket };
        let mut rules = self.rules.iter();
        match rules.find(|rule| rule.matches(Direction::Connect, &address)) {
            Some(rule) => match decided(rule, &address, to)? {
                Some(flow) => Ok(flow),
                None => Ok(Route::Tcp(vec![socket])),
            },
            None if self.pass => Ok(Route::Tcp(vec![socket])),
            None => Err(unmatched(to)),
        }
    }
}

impl Policy for Routes {
    fn of(&self, to: &Destination) -> Result<Route, Refusal> {
        match &to.host {
            Host::Address(address) => self.of_addresses(to, &[*address]),
            Host::Name(host) if self.rules.iter().any(|rule| rule.names(host)) => {
                // A program would be given an address of the table. Here none is needed, so that
                // clients cannot fill the table.
                match self.of_one(to, Some(host.clone()), IN_TABLE)? {
                    // A rule before that one, or --pass, leaves this port to the kernel.
                    Route::Tcp(_) => Ok(Route::LookUp),
                    route => Ok(route),
                }
            }
            Host::Name(host) => self.of_name(to, host),
        }
    }

    fn of_addresses(&self, to: &Destination, addresses: &[IpAddr]) -> Result<Route, Refusal> {
        let mut allowed = Vec::new();
        let mut refusal = None;
        for address in addresses.iter().take(ADDRESSES_MAX) {
            let host = match &to.host {
                Host::Name(host) => Some(host.clone()),
                // A table that cannot be read has no names: rules of addresses hold still.
                Host::Address(address) => self.names.name(*address).ok().flatten(),
            };
            match self.of_one(to, host, *address) {
                Ok(Route::Tcp(one)) => allowed.extend(one),
                Ok(route) if allowed.is_empty() => return Ok(route),
                Ok(_) => {}
                Err(error) => refusal = Some(error),
            }
        }
        match refusal {
            Some(refusal) if allowed.is_empty() => Err(refusal),
            _ => Ok(Route::Tcp(allowed)),
        }
    }
}

/// The address that a connection to `address` reaches: for an unspecified address, the kernel
/// connects to the loopback. So a rule for the loopback also holds for 0.0.0.0 and [::].
fn reached(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

/// Returns the flow to which a rule leads; `None` if the rule leaves the connection to the kernel.
fn decided(rule: &Rule, address: &Address, to: &Destination) -> Result<Option<Route>, Refusal> {
    match rule.decide(address) {
        Ok(Decision::Flow { dif, name }) => Ok(Some(Route::Flow { dif, name })),
        Ok(Decision::Kernel) => Ok(None),
        Ok(Decision::Refuse) => {
            let text = format!("{to}: refused by the rule \"{rule}\"");
            Err(Refusal::new(Cause::OutsideRules, text))
        }
        Err(error) => Err(Refusal::new(Cause::Unreachable, format!("{to}: {error}"))),
    }
}

fn unmatched(to: &Destination) -> Refusal {
    let text = format!(
        "{to}: no rule of the proxy fits this destination, and the proxy runs without --pass"
    );
    Refusal::new(Cause::OutsideRules, text)
}

/// Largest number of addresses of a host that are tried. An answer of DNS may have thousands.
pub(crate) const ADDRESSES_MAX: usize = 8;

/// An address in the range of the name table that belongs to no name, used in place of the address
/// of a name.
const IN_TABLE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 0));

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(rules: &[&str], pass: bool) -> (tempfile::TempDir, Routes) {
        let directory = tempfile::tempdir().unwrap();
        let names = NameTable::new(directory.path().join("names"));
        let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        (directory, Routes::new(rules, names, pass))
    }

    fn shown(route: Result<Route, Refusal>) -> String {
        match route {
            Ok(Route::Flow { dif, name }) => {
                format!(
                    "{name}{}",
                    dif.map_or(String::new(), |dif| format!("@{dif}"))
                )
            }
            Ok(Route::Tcp(to)) => format!("{to:?}"),
            Ok(Route::LookUp) => "look up".to_owned(),
            Err(refusal) => format!("{:?}", refusal.cause),
        }
    }

    fn of(routes: &Routes, to: &str) -> String {
        shown(routes.of(&Destination::from_authority(to, Some(80)).unwrap()))
    }

    #[test]
    fn names_become_flows_by_the_rules_of_wrap() {
        let rules = [
            "*.vm:22 -> refuse",
            "*.vm -> dif n",
            "10.9.0.0/16 -> dif as web:{port}",
        ];
        let (_directory, routes) = routes(&rules, false);
        assert_eq!(of(&routes, "Web.vm:80"), "web.vm:80@n");
        assert_eq!(of(&routes, "web.vm:22"), "OutsideRules");
        assert_eq!(of(&routes, "10.9.1.1:81"), "web:81");
        assert_eq!(of(&routes, "10.8.1.1:81"), "OutsideRules");
        // Its address may be one of 10.9.0.0/16.
        assert_eq!(of(&routes, "example.org"), "look up");
    }

    #[test]
    fn port_that_a_rule_leaves_to_the_kernel_is_looked_up() {
        let rules = ["deb.example:80 -> kernel", "* -> dif"];
        let (_directory, first) = routes(&rules, false);
        assert_eq!(of(&first, "deb.example:80"), "look up");
        assert_eq!(of(&first, "deb.example:81"), "deb.example:81");
        let (_directory, passing) = routes(&["*.vm:80 -> dif"], true);
        assert_eq!(of(&passing, "web.vm:443"), "look up");
    }

    #[test]
    fn address_of_the_table_stands_for_its_name() {
        let (_directory, routes) = routes(&["*.vm -> dif"], false);
        let number = routes.names.number("db.vm").unwrap();
        let address = carina_wrap::name_table::address_v4(number);
        assert_eq!(of(&routes, &format!("{address}:5432")), "db.vm:5432");
        assert_eq!(of(&routes, "198.18.200.1:5432"), "OutsideRules");
        // What clients name is not kept.
        of(&routes, "other.vm");
        assert_eq!(routes.names.number("third.vm").unwrap(), number + 1);
    }

    #[test]
    fn without_pass_unmatched_destinations_are_refused() {
        let (_directory, strict) = routes(&["*.vm -> dif", "*.org:443 -> kernel"], false);
        assert_eq!(of(&strict, "example.com"), "OutsideRules");
        assert_eq!(of(&strict, "1.1.1.1"), "OutsideRules");
        assert_eq!(of(&strict, "example.org:443"), "look up");
        assert_eq!(of(&strict, "example.org:80"), "OutsideRules");
        let (_directory, open) = routes(&["*.vm -> dif"], true);
        assert_eq!(of(&open, "example.com"), "look up");
        assert_eq!(of(&open, "1.1.1.1"), "[1.1.1.1:80]");
        assert_eq!(of(&open, "web.vm"), "web.vm:80");
    }

    #[test]
    fn name_with_a_refused_address_gets_its_other_addresses() {
        let (_directory, routes) = routes(&["127.0.0.0/8 -> refuse"], true);
        let to = Destination::new("evil.example", 80).unwrap();
        assert_eq!(routes.of(&to), Ok(Route::LookUp));
        let found = |texts: &[&str]| {
            let addresses: Vec<IpAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
            shown(routes.of_addresses(&to, &addresses))
        };
        assert_eq!(found(&["127.0.0.1"]), "OutsideRules");
        assert_eq!(found(&["127.0.0.1", "192.0.2.1"]), "[192.0.2.1:80]");
        assert_eq!(found(&["::ffff:127.0.0.1"]), "OutsideRules");
        // The kernel connects to the loopback for these.
        assert_eq!(found(&["0.0.0.0"]), "OutsideRules");
        assert_eq!(found(&["::ffff:0.0.0.0"]), "OutsideRules");
        assert_eq!(found(&["::"]), "[[::1]:80]");
        let many = vec!["192.0.2.1"; 100];
        assert_eq!(found(&many).matches("192.0.2.1").count(), ADDRESSES_MAX);
    }
}
