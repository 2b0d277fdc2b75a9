//! Physical cards of the host that nodes use through the engine, which passes all frames between
//! node and wire unchanged in both directions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use carina_netdev::Interface;
use carina_ports::af_packet::AfPacketConfig;
use carina_sys::NetworkNamespace;
use carina_vnet::host_part::{Far, HostPart, Nic};

use crate::error::{Attempt, Error, Result};
use crate::underlay::Underlay;

/// The configuration of the app for a card's port.
pub(crate) fn port_of(nic: &Nic) -> Result<AfPacketConfig> {
    Ok(AfPacketConfig {
        netns: Some(netns()),
        ..AfPacketConfig::of(name_of(nic)?)
    })
}

/// Assigns to the nodes of a part the cards that they had in `before`.
pub(crate) fn keep(part: &mut HostPart, before: Option<&HostPart>) {
    let had: BTreeMap<u32, String> = before.into_iter().flat_map(chosen).collect();
    for link in &mut part.links {
        if let Far::Nic(nic) = &mut link.far
            && nic.interface.is_none()
        {
            nic.interface = had.get(&link.number).cloned();
        }
    }
}

/// The cards of a part that are chosen: link number and interface.
pub(crate) fn chosen(part: &HostPart) -> impl Iterator<Item = (u32, String)> {
    part.links.iter().filter_map(|link| match &link.far {
        Far::Nic(nic) => Some((link.number, nic.interface.clone()?)),
        Far::Here(_) | Far::Host(_) | Far::Users(_) => None,
    })
}

/// Checks that a card is up. Returns a round trip of zero, since a card cannot be probed.
pub(crate) fn probe(nic: &Nic) -> Result<Duration> {
    let name = name_of(nic)?;
    let found = within(|| Interface::named(name))?.map_err(Error::Underlay)?;
    if found.is_up {
        Ok(Duration::ZERO)
    } else {
        Err(Error::Unsupported {
            what: format!("card {name} is down"),
            instead: "the card must be up and its cable plugged in",
        })
    }
}

/// Checks that an interface can be given to nodes.
pub(crate) fn check_interface(name: &str) -> Result<()> {
    within(|| Interface::named(name))?.map_err(Error::Underlay)?;
    let list = || {
        let mut ip = Command::new("ip");
        ip.args(["-o", "address", "show", "dev", name, "scope", "global"])
            .output()
    };
    let output = within(list)?.attempt("listing addresses")?;
    if output.stdout.is_empty() {
        Ok(())
    } else {
        Err(Error::Unsupported {
            what: format!("interface {name} as a card of nodes"),
            instead: "the interface has an address, so the host itself uses it; give one without \
                 an address",
        })
    }
}

fn name_of(nic: &Nic) -> Result<&str> {
    let name = nic.interface.as_deref();
    name.ok_or(Error::Ended("the choice of a card"))
}

/// The network namespace of this process, which contains the cards.
fn netns() -> PathBuf {
    Underlay::of("").netns
}

fn within<T>(act: impl FnOnce() -> T) -> Result<T> {
    let namespace = NetworkNamespace::open(&netns());
    namespace
        .and_then(|namespace| namespace.within(act))
        .attempt("entering the namespace of the agent")
}
