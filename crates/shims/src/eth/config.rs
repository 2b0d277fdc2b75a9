//! The configuration of an Ethernet shim.

use carina_netdev::FaultPlan;
use carina_wire::arp::Dialect;

/// What an Ethernet shim is made from.
#[derive(Clone, Debug)]
pub struct EthConfig {
    /// Name of the interface.
    pub interface: String,
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

impl EthConfig {
    /// A shim over an interface, with the usual settings.
    #[must_use]
    pub fn new(interface: impl Into<String>, vlan: u16) -> EthConfig {
        EthConfig {
            interface: interface.into(),
            vlan,
            mtu: None,
            dialect: Dialect::NATIVE,
            timeout_ns: TIMEOUT_NS_DEFAULT,
            fault: None,
        }
    }
}

/// How long a name is asked for unless configured, in ns.
const TIMEOUT_NS_DEFAULT: u64 = 5_000_000_000;
