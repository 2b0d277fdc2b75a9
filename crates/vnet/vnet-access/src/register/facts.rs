//! What an access point is.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_vnet::host_part::{InterfaceAddress, VnetId};

/// What an access point is, by the network that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Who makes its tokens, in words for their holders.
    pub issuer: String,
    /// The network.
    pub vnet: VnetId,
    /// Its name.
    pub network: String,
    /// The name of the access point.
    pub access: String,
    /// The address of the node there, with the prefix.
    pub node: InterfaceAddress,
    /// Who may join, with their addresses.
    pub users: BTreeMap<String, Ipv4Addr>,
    /// What each may send and receive, bits a second.
    pub rate_bps: u64,
    /// Bytes of the largest packet.
    pub mtu: u16,
    /// The prefixes of the network.
    pub prefixes: Vec<InterfaceAddress>,
    /// The DIF of the network, where the node is a member of it.
    pub dif: Option<DifFacts>,
}

/// The DIF of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifFacts {
    /// Its name.
    pub name: String,
    /// The member in the access point's node.
    pub member: String,
}
