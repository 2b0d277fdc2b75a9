//! The underlay: the interface through which links leave this host.

use std::path::PathBuf;

use carina_apps::mac_text::MacText;
use carina_apps::tunnel_mux::Gateway;
use carina_netdev::Interface;
use carina_sys::NetworkNamespace;
use carina_wire::ether::Mac;

use crate::error::{Attempt, Error, Result};

/// Settings of a host that belongs to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// Name of the host in the provider's inventory.
    pub name: String,
    /// The interface for links to other hosts; `None`: the host supports no such links.
    pub underlay: Option<Underlay>,
}

/// The interface through which links to other hosts leave, in addition to the kernel's own use of
/// it.
///
/// The agent owns the tunnel addresses and answers ARP requests for them. The kernel should have
/// none of these addresses, because it would answer packets of tunnels with ICMP errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Underlay {
    /// Name of the interface that carries links to other hosts.
    pub interface: String,
    /// Path of the interface's network namespace.
    pub netns: PathBuf,
    /// The gateway to hosts on other segments; `None` if all hosts are on the segment of this
    /// interface.
    pub gateway: Option<Gateway>,
}

/// An [`Underlay`] with the current properties of its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderlayPort {
    /// The configured underlay.
    pub wanted: Underlay,
    /// MAC address of the underlay's interface.
    pub mac: MacText,
    /// MTU: bytes of the largest IP packet.
    pub mtu: usize,
}

/// The host name of this system.
#[must_use]
pub fn own_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// The explanation for a host without an underlay.
pub(crate) const NEEDED: &str =
    "the agent was started without an underlay interface (--underlay INTERFACE)";

impl Underlay {
    /// An interface in the namespace of this process, whose segment reaches all hosts.
    #[must_use]
    pub fn of(interface: &str) -> Underlay {
        Underlay {
            interface: interface.to_owned(),
            // The namespace of the process's first thread; other threads enter other namespaces.
            netns: PathBuf::from("/proc/self/ns/net"),
            gateway: None,
        }
    }

    /// Reads the current properties of the interface: its MAC address and MTU.
    ///
    /// # Errors
    /// The interface does not exist, or is not Ethernet.
    pub fn read_port(&self) -> Result<UnderlayPort> {
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
