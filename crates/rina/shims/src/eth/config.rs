//! The configuration of an Ethernet shim.

use std::path::PathBuf;
use std::sync::Arc;

use carina_frame_engine::AnyConfig;
use carina_netdev::FaultPlan;
use carina_wire::arp::Dialect;
use carina_wire::ether::Mac;

/// Configuration of a shim over Ethernet: interface or port, VLAN, and how it resolves names.
#[derive(Clone, Debug)]
pub struct EthConfig {
    /// Name of the network interface; empty for a port of a graph without interface.
    pub interface: String,
    /// A port of a graph that carries the frames; `None` for a packet socket of the kernel.
    pub port: Option<PortConfig>,
    /// VLAN id of the shim's frames, 1 to 4094; 0 for frames without tag.
    pub vlan: u16,
    /// Longest SDU that the shim carries, in bytes; `None` for the MTU of the interface.
    pub mtu: Option<usize>,
    /// Dialect of RINA ARP: how application names are written in ARP messages.
    pub dialect: Dialect,
    /// How long the shim repeats ARP requests for a name, in ns.
    pub timeout_ns: u64,
    /// Faults that the fault layer applies to everything that the shim sends; `None` for none.
    pub fault: Option<FaultPlan>,
}

/// A port of a graph that carries the frames of an Ethernet shim.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Configuration of the port's app, which must have the ports `input` and `output`.
    pub app: Arc<dyn AnyConfig>,
    /// Name of the port in logs and errors: the kind of its app and what it uses, such as
    /// `af_xdp eth1`.
    pub label: String,
    /// Own MAC address of the shim; `None` for the address of the interface.
    pub mac: Option<Mac>,
    /// Own MAC address of the shim if there is no interface.
    pub mac_default: Mac,
    /// Path of the file in which this process counts the frames of the port. Other processes, such
    /// as `carina top`, read the file.
    pub counters: PathBuf,
}

impl EthConfig {
    /// Makes the configuration of a shim over an interface and a VLAN, with defaults for the rest.
    #[must_use]
    pub fn new(interface: impl Into<String>, vlan: u16) -> EthConfig {
        EthConfig {
            interface: interface.into(),
            port: None,
            vlan,
            mtu: None,
            dialect: Dialect::NATIVE,
            timeout_ns: TIMEOUT_NS_DEFAULT,
            fault: None,
        }
    }

    /// Name of the medium in messages.
    pub(super) fn name(&self) -> &str {
        self.port
            .as_ref()
            .map_or(&self.interface, |port| &port.label)
    }

    /// Name of the medium in messages: the interface, and the VLAN id if the shim uses a VLAN.
    pub(super) fn label(&self) -> String {
        match self.vlan {
            0 => self.name().to_owned(),
            vlan => format!("{}.{vlan}", self.name()),
        }
    }
}

/// Default time for which ARP requests for a name are repeated, in ns.
const TIMEOUT_NS_DEFAULT: u64 = 5_000_000_000;
