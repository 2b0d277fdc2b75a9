//! The properties of an access point.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_vnet::host_part::{InterfaceAddress, VnetId};

/// The properties that an access point gets from its virtual network: its name and address, the
/// users who may join, their rate, the MTU and the prefixes. `Register::refresh` replaces them when
/// the network changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Issuer of the access point's tokens, as text for their holders: `ACCESS.NETWORK`.
    pub issuer: String,
    /// Identifier (uid) of the network to which the access point belongs.
    pub vnet: VnetId,
    /// Name of the network to which the access point belongs.
    pub network: String,
    /// Name of the access point, as in the network's document.
    pub access: String,
    /// IPv4 address and prefix length of the interface at which the access point is, on the node to
    /// which it belongs.
    pub node: InterfaceAddress,
    /// The names of the users who may join, each with the IPv4 address that the user gets.
    pub users: BTreeMap<String, Ipv4Addr>,
    /// Highest rate of each user's traffic, in bits a second. Each direction has this limit of its
    /// own.
    pub rate_bps: u64,
    /// Length of the largest IP packet that users may send or receive, in bytes.
    pub mtu: u16,
    /// The prefixes of the network that users reach through the access point.
    pub prefixes: Vec<InterfaceAddress>,
    /// The network's DIF; `None` if the node of the access point is not a member of a DIF.
    pub dif: Option<DifFacts>,
}

/// The network's DIF, of which users' systems may become members, and the member in the access
/// point's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifFacts {
    /// Name of the network's DIF, which is the name of the network.
    pub name: String,
    /// Name of the member in the access point's node.
    pub member: String,
}
