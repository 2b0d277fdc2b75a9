//! The interface over which links leave this host.

use std::path::PathBuf;

use carina_apps::mac_text::MacText;
use carina_apps::tunnel_mux::Gateway;
use carina_netdev::Interface;
use carina_sys::NetworkNamespace;
use carina_wire::ether::Mac;

use crate::error::{Attempt, Error, Result};

/// A host as its provider knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// Its name in the inventory of its provider.
    pub name: String,
    /// Where links to other hosts leave; a host without it has no such links.
    pub underlay: Option<Underlay>,
}

/// The interface over which links to other hosts leave, beside what the kernel has on it.
///
/// The outer addresses of links are the agent's: it answers ARP for them, and the kernel should
/// have none of them, for it would answer the packets of tunnels with errors of ICMP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underlay {
    /// Its name.
    pub interface: String,
    /// The file of its network namespace.
    pub netns: PathBuf,
    /// The way to hosts that are not on its segment.
    pub gateway: Option<Gateway>,
}

/// An [`Underlay`] as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderlayPort {
    /// What is wanted.
    pub wanted: Underlay,
    /// MAC address of the interface.
    pub mac: MacText,
    /// Bytes of its largest packet of IP.
    pub mtu: usize,
}

/// The name that this system has for itself.
#[must_use]
pub fn own_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Why a host without an underlay has no links to others.
pub(crate) const NEEDED: &str = "this agent was given no interface for it (--underlay INTERFACE)";

impl Underlay {
    /// An interface in the namespace of this process, with all hosts on its segment.
    #[must_use]
    pub fn of(interface: &str) -> Underlay {
        Underlay {
            interface: interface.to_owned(),
            // That of the first thread; others go to other namespaces.
            netns: PathBuf::from("/proc/self/ns/net"),
            gateway: None,
        }
    }

    /// Looks the interface up.
    ///
    /// # Errors
    /// It is not there, or not of Ethernet.
    pub fn look(&self) -> Result<UnderlayPort> {
        let what = || format!("entering {}", self.netns.display());
        let namespace = NetworkNamespace::open(&self.netns).attempt(what())?;
        let found = namespace.within(|| Interface::named(&self.interface));
        let found = found.attempt(what())?.map_err(Error::Underlay)?;
        Ok(UnderlayPort {
            wanted: self.clone(),
            mac: MacText(Mac(found.mac)),
            mtu: found.mtu,
        })
    }
}
