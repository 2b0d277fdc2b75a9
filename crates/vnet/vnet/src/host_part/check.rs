//! Whether a part can be made at all.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ACCESS_MTU_MAX, EndPart, Far, HostPart, InterfacePart, LinkPart, MTU_MIN, NodePart, Users,
};
use crate::document::limits::{
    CPUS_MAX, INTERFACE_MAX, LINKS_MAX, LIST_MAX, MEMORY_MIB, NAME_MAX, NICS_MAX, NODES_MAX,
    OTHERS_MAX, TEXT_VALUE_MAX,
};
use crate::document::{is_interface, is_name, is_of_kernel};

/// Why a text is no part of a network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// It is not JSON, or has other fields.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A name is not fit for files and hosts.
    #[error("{what} {name:?}: a name has 1 to {NAME_MAX} letters, digits and '-' inside")]
    Name {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name is not fit for an interface.
    #[error("{node}: interface {name:?}: a name has 1 to {INTERFACE_MAX} of a-z A-Z 0-9 . _ -")]
    Interface {
        /// The node.
        node: String,
        /// The name.
        name: String,
    },
    /// The image of a node has no name, or one that is too long.
    #[error("node {node}: an image has a name of 1 to {TEXT_VALUE_MAX} letters")]
    Image {
        /// The node.
        node: String,
    },
    /// There is more of something than a network can have.
    #[error("{count} {what}: a network has at most {most}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there can be.
        most: usize,
    },
    /// A text is longer than any that is needed.
    #[error("{what} {text:?}…: must have at most {TEXT_VALUE_MAX} letters")]
    Long {
        /// What it is.
        what: &'static str,
        /// Its first letters.
        text: String,
    },
    /// Something stands in the part twice.
    #[error("{0} stands there twice")]
    Twice(String),
    /// A link ends at something that is not there, or that is the end of another link.
    #[error("link {link}: {end} is no interface of this part that ends it")]
    End {
        /// The link.
        link: u32,
        /// The end.
        end: String,
    },
    /// An interface belongs to a link that does not end there.
    #[error("{end}: link {link} does not end there")]
    Loose {
        /// The interface.
        end: String,
        /// The link that it names.
        link: u32,
    },
    /// A node cannot be as large, or as small.
    #[error("node {node}: {what} {value}: must be {least} to {most}")]
    Size {
        /// The node.
        node: String,
        /// What is out of range.
        what: &'static str,
        /// How much it is.
        value: u64,
        /// The least that is possible.
        least: u64,
        /// The most that is possible.
        most: u64,
    },
    /// The addresses of an interface cannot be those of a link.
    #[error(
        "{end}: address {address} and that of the other end, {peer}: must be two of one prefix"
    )]
    Addresses {
        /// The interface.
        end: String,
        /// Its address.
        address: String,
        /// That of the other end.
        peer: std::net::Ipv4Addr,
    },
    /// A user has an address that cannot be theirs.
    #[error("access point {access}: user {user} with {address}: {problem}")]
    UserAddress {
        /// The access point.
        access: String,
        /// The user.
        user: String,
        /// The address.
        address: std::net::Ipv4Addr,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An interface has the address of a group.
    #[error("{end}: {mac} is the address of a group of stations")]
    Group {
        /// The interface.
        end: String,
        /// Its MAC address.
        mac: carina_wire::ether::Mac,
    },
}

/// Links, access points and cards.
const PART_LINKS_MAX: usize = LINKS_MAX + OTHERS_MAX + NODES_MAX * NICS_MAX as usize;
const MTU_MAX: u64 = 9000;

impl HostPart {
    /// Checks that the part can be made: names, sizes, and that links and interfaces agree.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), PartError> {
        name("network", &self.name)?;
        for (what, count, most) in [
            ("nodes", self.nodes.len(), NODES_MAX),
            ("links", self.links.len(), PART_LINKS_MAX),
        ] {
            if count > most {
                return Err(PartError::TooMany { what, count, most });
            }
        }
        let mut interfaces = BTreeMap::new();
        let mut names = BTreeSet::new();
        for node in &self.nodes {
            name("node", &node.name)?;
            if !names.insert(&node.name) {
                return Err(PartError::Twice(format!("node {}", node.name)));
            }
            check_node(node, &mut interfaces)?;
        }
        let mut numbers = BTreeSet::new();
        for link in &self.links {
            if !numbers.insert(link.number) {
                return Err(PartError::Twice(format!("link {}", link.number)));
            }
            check_link(link, &mut interfaces)?;
            if let Far::Users(users) = &link.far {
                self.check_users(link, users)?;
            }
        }
        match interfaces.into_iter().next() {
            None => Ok(()),
            Some((end, link)) => Err(PartError::Loose {
                end: end.to_string(),
                link,
            }),
        }
    }
}

impl HostPart {
    /// Checks that each user has an address of the access point's prefix, and no one else's.
    fn check_users(&self, link: &LinkPart, users: &Users) -> Result<(), PartError> {
        name("access point", &users.access)?;
        let (what, count, most) = ("users", users.addresses.len(), LIST_MAX);
        if count > most {
            return Err(PartError::TooMany { what, count, most });
        }
        let node = self.node(&link.near.node);
        let node = node.expect("the ends of the link were checked");
        let interface = node.interface(&link.near.interface);
        let interface = interface.expect("the ends of the link were checked");
        let mtu = u64::from(interface.mtu);
        within(
            node,
            "mtu of an access point",
            mtu,
            (MTU_MIN.into(), ACCESS_MTU_MAX.into()),
        )?;
        let (own, bits) = (interface.address, interface.address.bits());
        let mut taken = BTreeSet::from([own.address(), interface.peer]);
        for (user, address) in &users.addresses {
            let theirs = super::InterfaceAddress::new(*address, bits);
            let is_near = theirs.is_some_and(|theirs| theirs.prefix() == own.prefix());
            let problem = match (is_near, taken.insert(*address)) {
                (false, _) => "it is not of the prefix of the access point",
                (true, false) => "another has it",
                (true, true) => continue,
            };
            return Err(PartError::UserAddress {
                access: users.access.clone(),
                user: user.chars().take(2 * NAME_MAX).collect(),
                address: *address,
                problem,
            });
        }
        Ok(())
    }
}

/// Checks a node and adds its interfaces, with their links, to those of the part.
fn check_node(node: &NodePart, all: &mut BTreeMap<EndPart, u32>) -> Result<(), PartError> {
    let (least, most) = (*MEMORY_MIB.start(), *MEMORY_MIB.end());
    within(node, "cpus", u64::from(node.cpus), (1, u64::from(CPUS_MAX)))?;
    within(node, "memory_mib", node.memory_mib, (least, most))?;
    if !(1..=TEXT_VALUE_MAX).contains(&node.image.chars().count()) {
        let node = node.name.clone();
        return Err(PartError::Image { node });
    }
    if let Some(founder) = &node.founder {
        name("node", founder)?;
    }
    let (what, count, most) = ("routes of a node", node.routes.len(), PART_LINKS_MAX);
    if count > most {
        return Err(PartError::TooMany { what, count, most });
    }
    for interface in &node.interfaces {
        if !is_interface(&interface.name) || is_of_kernel(&interface.name) {
            return Err(PartError::Interface {
                node: node.name.clone(),
                name: interface.name.clone(),
            });
        }
        within(
            node,
            "mtu",
            u64::from(interface.mtu),
            (MTU_MIN.into(), MTU_MAX),
        )?;
        let end = EndPart {
            node: node.name.clone(),
            interface: interface.name.clone(),
        };
        check_addresses(&end, interface)?;
        if all.insert(end.clone(), interface.link).is_some() {
            return Err(PartError::Twice(format!("interface {end}")));
        }
    }
    Ok(())
}

fn check_addresses(end: &EndPart, interface: &InterfacePart) -> Result<(), PartError> {
    if interface.mac.is_group() {
        return Err(PartError::Group {
            end: end.to_string(),
            mac: interface.mac,
        });
    }
    let (address, peer) = (interface.address, interface.peer);
    let theirs = super::InterfaceAddress::new(peer, address.bits());
    let is_same = theirs.is_some_and(|theirs| theirs.prefix() == address.prefix());
    if !is_same || peer == address.address() {
        return Err(PartError::Addresses {
            end: end.to_string(),
            address: address.to_string(),
            peer,
        });
    }
    Ok(())
}

/// Takes the ends of a link out of the interfaces that are left.
fn check_link(link: &LinkPart, left: &mut BTreeMap<EndPart, u32>) -> Result<(), PartError> {
    match &link.far {
        Far::Host(far) => name("host", &far.host)?,
        Far::Nic(nic) => {
            let interface = nic.interface.iter().find(|name| !is_interface(name));
            if let Some(interface) = interface {
                return Err(PartError::Interface {
                    node: link.near.node.clone(),
                    name: interface.chars().take(2 * NAME_MAX).collect(),
                });
            }
        }
        Far::Here(_) | Far::Users(_) => {}
    }
    for end in link.ends() {
        if left.get(end) != Some(&link.number) {
            return Err(PartError::End {
                link: link.number,
                end: end.to_string(),
            });
        }
        left.remove(end);
    }
    Ok(())
}

fn name(what: &'static str, name: &str) -> Result<(), PartError> {
    if is_name(name) {
        return Ok(());
    }
    let name = name.chars().take(2 * NAME_MAX).collect();
    Err(PartError::Name { what, name })
}

fn within(
    node: &NodePart,
    what: &'static str,
    value: u64,
    (least, most): (u64, u64),
) -> Result<(), PartError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(PartError::Size {
        node: node.name.clone(),
        what,
        value,
        least,
        most,
    })
}
