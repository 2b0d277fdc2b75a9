//! The configuration of an Ethernet shim.

use std::path::PathBuf;
use std::sync::Arc;

use carina_engine::frames::AnyConfig;
use carina_netdev::FaultPlan;
use carina_wire::arp::Dialect;
use carina_wire::ether::Mac;

/// What an Ethernet shim is made from.
#[derive(Clone, Debug)]
pub struct EthConfig {
    /// Name of the interface; empty for a port without one.
    pub interface: String,
    /// The port of a graph by which frames come and go; none for a packet socket of the kernel.
    pub port: Option<PortConfig>,
    /// VLAN id, 1 to 4094; 0 for frames without tag.
    pub vlan: u16,
    /// Longest SDU in bytes, where that is less than the MTU of the interface.
    pub mtu: Option<usize>,
    /// How names are written in ARP.
    pub dialect: Dialect,
    /// How long a name is asked for, in ns.
    pub timeout_ns: u64,
    /// Impairment of everything sent.
    pub fault: Option<FaultPlan>,
}

/// A port of a graph under an Ethernet shim.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The app: it has an `input` and an `output`.
    pub app: Arc<dyn AnyConfig>,
    /// What people call it.
    pub label: String,
    /// The station's address; none for that of the interface.
    pub mac: Option<Mac>,
    /// The station's address where there is no interface.
    pub mac_default: Mac,
    /// Where the counters of the port are, for other processes.
    pub counters: PathBuf,
}

impl EthConfig {
    /// A shim over an interface, with the usual settings.
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

    /// What people call the medium.
    pub(super) fn name(&self) -> &str {
        self.port
            .as_ref()
            .map_or(&self.interface, |port| &port.label)
    }

    /// What people call the medium, with the VLAN if there is one.
    pub(super) fn label(&self) -> String {
        match self.vlan {
            0 => self.name().to_owned(),
            vlan => format!("{}.{vlan}", self.name()),
        }
    }
}

/// How long a name is asked for unless configured, in ns.
const TIMEOUT_NS_DEFAULT: u64 = 5_000_000_000;
