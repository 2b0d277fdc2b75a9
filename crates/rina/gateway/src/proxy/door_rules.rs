//! The outcome of the rules of an [`Internet`](crate::Internet) for the destination that a client
//! names.

use std::net::{IpAddr, SocketAddr};

use carina_wrap::rule::Destinations;

use crate::internet::rules::{allow_address, allow_literal, allow_name};
use crate::proxy::destination::{Destination, Host};
use crate::proxy::refusal::{Cause, Refusal};
use crate::proxy::routes::{ADDRESSES_MAX, Policy, Route};

/// A [`Policy`](super::routes::Policy) made of the rules of an [`Internet`](crate::Internet).
#[derive(Debug)]
pub(crate) struct DoorRules {
    rules: Vec<Destinations>,
}

impl DoorRules {
    pub(crate) fn new(rules: Vec<Destinations>) -> DoorRules {
        DoorRules { rules }
    }

    fn outside(&self, to: &Destination) -> Refusal {
        let rules: Vec<String> = self.rules.iter().map(ToString::to_string).collect();
        let rules = match rules.len() {
            0 => "there is none".to_owned(),
            _ => rules.join(", "),
        };
        let text = format!("{to} is outside the rules of --internet ({rules})");
        Refusal::new(Cause::OutsideRules, text)
    }
}

impl Policy for DoorRules {
    fn of(&self, to: &Destination) -> Result<Route, Refusal> {
        match &to.host {
            Host::Address(address) if allow_literal(&self.rules, *address, to.port) => {
                self.of_addresses(to, &[*address])
            }
            Host::Name(name) if allow_name(&self.rules, name, to.port) => Ok(Route::LookUp),
            _ => Err(self.outside(to)),
        }
    }

    fn of_addresses(&self, to: &Destination, addresses: &[IpAddr]) -> Result<Route, Refusal> {
        let some = addresses.iter().take(ADDRESSES_MAX);
        let sockets = some.map(|ip| SocketAddr::new(*ip, to.port));
        let allowed: Vec<SocketAddr> = sockets
            .clone()
            .filter(|socket| allow_address(&self.rules, *socket))
            .collect();
        match sockets.clone().next() {
            Some(first) if allowed.is_empty() => Err(near(&to.host, first)),
            _ => Ok(Route::Tcp(allowed)),
        }
    }
}

/// Returns the refusal for a host that has only addresses of this host itself or of its link.
fn near(host: &Host, first: SocketAddr) -> Refusal {
    let ip = first.ip();
    let what = match host {
        Host::Name(name) => format!("{name}, which is {ip},"),
        Host::Address(_) => ip.to_string(),
    };
    let text = format!(
        "{what} leads to the host of the VM or to its link; only a rule with such an address, as \
         {first}, allows it"
    );
    Refusal::new(Cause::OutsideRules, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(rules: &[&str], to: &str, addresses: &[&str]) -> Result<Route, String> {
        let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let rules = DoorRules::new(rules);
        let to = Destination::from_authority(to, Some(80)).unwrap();
        let addresses: Vec<IpAddr> = addresses.iter().map(|one| one.parse().unwrap()).collect();
        let route = match rules.of(&to) {
            Ok(Route::LookUp) => rules.of_addresses(&to, &addresses),
            route => route,
        };
        route.map_err(|refusal| {
            assert_eq!(refusal.cause, Cause::OutsideRules);
            refusal.text
        })
    }

    #[test]
    fn name_with_a_near_address_gets_its_other_addresses() {
        let far = Ok(Route::Tcp(vec!["192.0.2.1:80".parse().unwrap()]));
        let addresses = ["127.0.0.1", "192.0.2.1"];
        assert_eq!(outcome(&["*"], "a.example", &addresses), far);
        assert_eq!(outcome(&["*"], "192.0.2.1", &[]), far);
        let near = outcome(&["*"], "a.example", &addresses[..1]).unwrap_err();
        assert!(near.starts_with("a.example, which is 127.0.0.1, leads to the host"));
        assert_eq!(outcome(&["*"], "a.example", &[]), Ok(Route::Tcp(vec![])));
        let Ok(Route::Tcp(many)) = outcome(&["*"], "a.example", &["192.0.2.1"; 100]) else {
            panic!("not by TCP");
        };
        assert_eq!(many.len(), ADDRESSES_MAX);
    }

    #[test]
    fn refusal_has_the_rules() {
        let why = outcome(&["a.example", "10.0.0.0/8:80"], "b.example:81", &[]).unwrap_err();
        let rules = "is outside the rules of --internet (a.example, 10.0.0.0/8:80)";
        assert_eq!(why, format!("b.example:81 {rules}"));
        let none = outcome(&[], "10.0.0.1", &[]).unwrap_err();
        assert!(none.ends_with("(there is none)"), "{none}");
    }
}
