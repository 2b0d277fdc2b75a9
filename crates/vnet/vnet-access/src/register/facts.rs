//! The properties of an access point.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_vnet::host_part::{InterfaceAddress, VnetId};

/// The properties of an access point that its network determines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Issuer of its tokens, as text for their holders.
    pub issuer: String,
    /// Uid of the network.
    pub vnet: VnetId,
    /// Name of the network.
    pub network: String,
    /// Name of the access point.
    pub access: String,
    /// Address of the access point's node, with the prefix.
    pub node: InterfaceAddress,
    /// The users who may join, and the address of each.
    pub users: BTreeMap<String, Ipv4Addr>,
    /// Rate that each user may send and receive, bits a second in each direction.
    pub rate_bps: u64,
    /// Bytes of the largest IP packet.
    pub mtu: u16,
    /// The prefixes of the network.
    pub prefixes: Vec<InterfaceAddress>,
    /// The network's DIF, if the node is a member of it.
    pub dif: Option<DifFacts>,
}

/// The network's DIF, of which users' systems may become members, and the member in the access
/// point's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifFacts {
    /// Name of the DIF.
    pub name: String,
    /// Name of the member in the access point's node.
    pub member: String,
}
