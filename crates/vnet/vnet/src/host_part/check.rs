//! Checks whether a host part can be made at all.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ACCESS_MTU_MAX, EndPart, Far, HostPart, InterfacePart, LinkPart, MTU_MIN, NodePart, Users,
};
use crate::document::limits::{
    CPUS_MAX, INTERFACE_MAX, LINKS_MAX, LIST_MAX, MEMORY_MIB, MTU, NAME_MAX, NICS_MAX, NODES_MAX,
    OTHERS_MAX, TEXT_VALUE_MAX,
};
use crate::document::{
    BRIDGE, ImpairmentError, Kind, StartError, TimetableError, is_interface, is_name, is_of_kernel,
};

/// Why a part of a network is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// The text is not JSON, or its fields are not the fields of a part.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A name is not valid as the name of a file or host.
    #[error(
        "{what} {name:?}: a name must have 1 to {NAME_MAX} letters, digits and '-' (not at the \
         ends)"
    )]
    Name {
        /// The kind of thing that has the name.
        what: &'static str,
        /// The invalid name.
        name: String,
    },
    /// A name is not valid for an interface.
    #[error("{node}: interface {name:?}: a name has 1 to {INTERFACE_MAX} of a-z A-Z 0-9 . _ -")]
    Interface {
        /// Name of the node that has the interface.
        node: String,
        /// The invalid name.
        name: String,
    },
    /// The name of a node's image is empty or too long.
    #[error("node {node}: an image has a name of 1 to {TEXT_VALUE_MAX} letters")]
    Image {
        /// Name of the node that boots the image.
        node: String,
    },
    /// The part has more nodes, links or other things than a network can have.
    #[error("{count} {what}: a network has at most {max}")]
    TooMany {
        /// The kind of things, in the plural.
        what: &'static str,
        /// Number of nodes, links or other elements that the part has.
        count: usize,
        /// Largest number that a part may have.
        max: usize,
    },
    /// A text is longer than allowed.
    #[error("{what} {text:?}…: must have at most {TEXT_VALUE_MAX} letters")]
    Long {
        /// The field that holds the text.
        what: &'static str,
        /// The beginning of the text.
        text: String,
    },
    /// The part contains this thing twice.
    #[error("{0} occurs twice")]
    Twice(String),
    /// A link ends at an interface that the part does not have, or where another link ends.
    #[error("link {link}: {end} is not an interface of this part at which the link ends")]
    End {
        /// Number of the link whose end is wrong.
        link: u32,
        /// The end of the link, `NODE:INTERFACE`.
        end: String,
    },
    /// An interface names a link that does not end there.
    #[error("{end}: link {link} does not end there")]
    Loose {
        /// The interface that names the link, `NODE:INTERFACE`.
        end: String,
        /// Number of the link that the interface names.
        link: u32,
    },
    /// A link has an impossible impairment.
    #[error("link {link}: {error}")]
    Impairment {
        /// Number of the link with the impossible impairment.
        link: u32,
        /// Which impairment is impossible, and why.
        error: ImpairmentError,
    },
    /// A link has an impossible timetable.
    #[error("link {link}: {error}")]
    Timetable {
        /// Number of the link with the impossible timetable.
        link: u32,
        /// Which time is impossible, and why.
        error: TimetableError,
    },
    /// A node cannot be given this at its start.
    #[error("node {node}: {error}")]
    Start {
        /// Name of the node that cannot be given the value.
        node: String,
        /// Which value the node cannot be given, and why.
        error: StartError,
    },
    /// A file of a node has no content. No host reads files for a part: the command that reads a
    /// document has done so.
    #[error("node {node}: file {path} has no content; its source was not read")]
    Unread {
        /// Name of the node whose file has no content.
        node: String,
        /// Path of the file in the node.
        path: String,
    },
    /// A number of a node is out of range.
    #[error("node {node}: {what} {value}: must be {min} to {max}")]
    Size {
        /// Name of the node with the number out of range.
        node: String,
        /// The field that is out of range.
        what: &'static str,
        /// The value that the part has, out of range.
        value: u64,
        /// The least allowed value.
        min: u64,
        /// The largest allowed value.
        max: u64,
    },
    /// The addresses of an interface and of its peer are not two addresses of one prefix.
    #[error(
        "{end}: address {address} and that of the other end, {peer}: must be two of one prefix"
    )]
    Addresses {
        /// The interface that has the address, `NODE:INTERFACE`.
        end: String,
        /// The interface's address.
        address: String,
        /// The address of the link's other end.
        peer: std::net::Ipv4Addr,
    },
    /// The address of a user is invalid.
    #[error("access point {access}: user {user} with {address}: {problem}")]
    UserAddress {
        /// Name of the access point at which the user's address is invalid.
        access: String,
        /// Name of the end user whose address is invalid.
        user: String,
        /// The address that the part gives the user.
        address: std::net::Ipv4Addr,
        /// Why the user cannot have the address.
        problem: &'static str,
    },
    /// The MAC address of an interface is a group address.
    #[error("{end}: {mac} is the address of a group of stations")]
    Group {
        /// The interface that has the MAC address, `NODE:INTERFACE`.
        end: String,
        /// The MAC address, which is a group address.
        mac: carina_wire::ether::Mac,
    },
}

/// Links of a part at most: the links, access points and cards of a whole network.
const PART_LINKS_MAX: usize = LINKS_MAX + OTHERS_MAX + NODES_MAX * NICS_MAX as usize;

impl HostPart {
    /// Checks that names and sizes are valid, and that links and interfaces match.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), PartError> {
        name("network", &self.name)?;
        for (what, count, max) in [
            ("nodes", self.nodes.len(), NODES_MAX),
            ("links", self.links.len(), PART_LINKS_MAX),
        ] {
            if count > max {
                return Err(PartError::TooMany { what, count, max });
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
    /// Checks that each user's address lies in the prefix of the access point and belongs to no
    /// other user.
    fn check_users(&self, link: &LinkPart, users: &Users) -> Result<(), PartError> {
        name("access point", &users.access)?;
        let (what, count, max) = ("users", users.addresses.len(), LIST_MAX);
        if count > max {
            return Err(PartError::TooMany { what, count, max });
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

/// Checks a node, and adds its interfaces, each with its link number, to `all`.
fn check_node(node: &NodePart, all: &mut BTreeMap<EndPart, u32>) -> Result<(), PartError> {
    let (min, max) = (*MEMORY_MIB.start(), *MEMORY_MIB.end());
    within(node, "cpus", u64::from(node.cpus), (1, u64::from(CPUS_MAX)))?;
    within(node, "memory_mib", node.memory_mib, (min, max))?;
    if !(1..=TEXT_VALUE_MAX).contains(&node.image.chars().count()) {
        let node = node.name.clone();
        return Err(PartError::Image { node });
    }
    if let Err(error) = node.start.check(node.kind, &node.image) {
        let node = node.name.clone();
        return Err(PartError::Start { node, error });
    }
    if let Some(file) = node.start.files.iter().find(|file| file.content.is_none()) {
        let (node, path) = (node.name.clone(), file.path.clone());
        return Err(PartError::Unread { node, path });
    }
    if let Some(founder) = &node.founder {
        name("node", founder)?;
    }
    for count in [node.routes.len(), node.routes6.len()] {
        let (what, max) = ("routes of a node", PART_LINKS_MAX);
        if count > max {
            return Err(PartError::TooMany { what, count, max });
        }
    }
    for interface in &node.interfaces {
        let is_bridge = node.kind == Kind::Bridge && interface.name == BRIDGE;
        if !is_interface(&interface.name) || is_of_kernel(&interface.name) || is_bridge {
            return Err(PartError::Interface {
                node: node.name.clone(),
                name: interface.name.clone(),
            });
        }
        within(
            node,
            "mtu",
            u64::from(interface.mtu),
            ((*MTU.start()).into(), (*MTU.end()).into()),
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

/// Checks a link, and removes its ends from `left`, the interfaces that no link has claimed yet.
fn check_link(link: &LinkPart, left: &mut BTreeMap<EndPart, u32>) -> Result<(), PartError> {
    if let Err(error) = link.impairment.check() {
        let link = link.number;
        return Err(PartError::Impairment { link, error });
    }
    if let Err(error) = link.timetable.check() {
        let link = link.number;
        return Err(PartError::Timetable { link, error });
    }
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
    (min, max): (u64, u64),
) -> Result<(), PartError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(PartError::Size {
        node: node.name.clone(),
        what,
        value,
        min,
        max,
    })
}
