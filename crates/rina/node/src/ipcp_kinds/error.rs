//! Errors in the configuration of an IPCP.

use carina_api::LocalName;
use carina_wire::ether::VLAN_MAX;
use thiserror::Error;

/// Why the fields of an IPCP are invalid, with the valid alternative.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub(crate) enum SpecError {
    /// Another error of this type, with the name of the IPCP whose fields are invalid.
    #[error("IPCP {name}: {error}")]
    InIpcp {
        name: LocalName,
        error: Box<SpecError>,
    },
    #[error("`{key}` belongs to IPCPs of type {types}; this one is \"{kind}\"")]
    KeyOfOtherKind {
        key: &'static str,
        types: &'static str,
        kind: &'static str,
    },
    #[error("`side`, `pci`, `socket` and `vsock` belong to IPCPs of type \"hv\"")]
    KeyOfHv,
    #[error(
        "two of `pci`, `socket` and `vsock` are given; use `pci` or `vsock` inside a VM, and \
         `socket` in another process"
    )]
    TwoDevices,
    #[error(
        "the host side of a VM comes from a [[vm]] table; use one, or set `side = \
        \"guest\"` inside a VM"
    )]
    HostSide,
    #[error("use a [[dif]] table to make a member of a normal DIF")]
    Normal,
    #[error("type \"eth\" needs `interface = \"NAME\"`, or a `port`")]
    NoInterface,
    #[error("`interface` and `port` are both given; name the interface in the `port`")]
    InterfaceAndPort,
    #[error("`mac` belongs to a `port`; an `interface` has a MAC address of its own")]
    MacOfInterface,
    #[error(
        "`mac` is {0:?}; it must be the address of a single station, such as \
        \"02:00:00:00:00:01\""
    )]
    Mac(String),
    /// The configuration of the graph's port is invalid.
    #[error("port: {0}")]
    Port(String),
    #[error("`vlan` is {0}; it must be 1 to {VLAN_MAX}, or 0 for frames without tag")]
    Vlan(u16),
    #[error(
        "`vlan` is {vlan} and the DIF is {dif}; when the name of the DIF is a number, `vlan` \
         must be that number, or 0 for frames without tag"
    )]
    VlanIsNotTheDif { vlan: u16, dif: u16 },
    #[error(
        "the name of DIF {0} is used as VLAN id, which must be 1 to {VLAN_MAX}, or 0 for \
        frames without tag"
    )]
    DifIsNoVlan(u16),
    #[error(
        "`listen` is {text:?}; ADDRESS:PORT is expected, such as \"{default}\" or \"[::]:3359\""
    )]
    Listen { text: String, default: &'static str },
    #[error("{key} is {ms}; it must be 0 to {max}")]
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
        SpecError::InIpcp {
            name: name.clone(),
            error: Box::new(self),
        }
    }
}
