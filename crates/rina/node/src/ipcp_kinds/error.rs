//! Errors in the configuration of an IPCP.

use carina_api::LocalName;
use carina_wire::ether::VLAN_MAX;
use thiserror::Error;

/// Why the fields of an IPCP are invalid, with the valid alternative.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub(crate) enum SpecError {
    /// The error with the name of the IPCP.
    #[error("IPCP {name}: {error}")]
    Of {
        name: LocalName,
        error: Box<SpecError>,
    },
    #[error("`{key}` belongs to IPCPs of type {types}; this one is \"{kind}\"")]
    KeyOfOtherKind {
        key: &'static str,
        types: &'static str,
        kind: &'static str,
    },
    #[error("`side`, `pci` and `socket` belong to IPCPs of type \"hv\"")]
    KeyOfHv,
    #[error("`pci` and `socket` are both given; a VM has a device, another process a socket")]
    PciAndSocket,
    #[error("the host side of a VM is made by a [[vm]]; write that, or `side = \"guest\"` in a VM")]
    HostSide,
    #[error("a member of a normal DIF is made by a [[dif]]")]
    Normal,
    #[error("type \"eth\" needs `interface = \"NAME\"`, or a `port`")]
    NoInterface,
    #[error("`interface` and `port` are both given; an interface can be named in the port")]
    InterfaceAndPort,
    #[error("`mac` belongs to a `port`; an interface has one of its own")]
    MacOfInterface,
    #[error("`mac` is {0:?}; one of a single station is expected, such as \"02:00:00:00:00:01\"")]
    Mac(String),
    /// The configuration of the graph's port is invalid.
    #[error("port: {0}")]
    Port(String),
    #[error("`vlan` is {0}; 1 to {VLAN_MAX} are possible, or 0 for frames without tag")]
    Vlan(u16),
    #[error(
        "`vlan` is {vlan} and the DIF is {dif}; the VLAN id is the DIF's name, or 0 for frames \
         without tag, or the DIF's name is no number"
    )]
    VlanIsNotTheDif { vlan: u16, dif: u16 },
    #[error("DIF {0} stands for a VLAN id, which is 1 to {VLAN_MAX}, or 0 for frames without tag")]
    DifIsNoVlan(u16),
    #[error(
        "`listen` is {text:?}; ADDRESS:PORT is expected, such as \"{default}\" or \"[::]:3359\""
    )]
    Listen { text: String, default: &'static str },
    #[error("{key} is {ms}; 0 to {max} are possible")]
    Delay {
        key: &'static str,
        ms: f64,
        max: f64,
    },
    /// The fault layer rejects its configuration.
    #[error("fault: {0}")]
    Fault(String),
    /// The shim cannot open its medium.
    #[error("{0}")]
    Open(String),
}

impl SpecError {
    /// Adds the name of the IPCP to the error.
    pub(crate) fn of(self, name: &LocalName) -> SpecError {
        SpecError::Of {
            name: name.clone(),
            error: Box::new(self),
        }
    }
}
