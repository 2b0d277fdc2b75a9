//! Computes the path that the routes of a network lead.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use super::{Act, Direction, Spot};
use crate::document::Kind;
use crate::host_part::{EndPart, Far, HostPart, InterfacePart, NodePart};

/// A link and the side at which the path enters the link.
type Hop = (u32, usize);

/// The path of echo requests and replies between two nodes, as the routes of the network lead them.
#[derive(Debug)]
pub struct Route {
    /// The address of the node at the end of the path.
    pub address: Ipv4Addr,
    /// The link ends that an echo request passes, in the order of its path, followed by those that
    /// its reply passes. [`Direction`] tells the request from the reply.
    pub spots: Vec<(Direction, Spot)>,
}

/// The network has no route from a node to another node or address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tracing from {from} to {to}: no route of the network leads there")]
pub struct NoRoute {
    /// The node that sends.
    pub from: String,
    /// The destination: a node or an address.
    pub to: String,
}

/// The shortest path from a node to any address of another node, and back.
///
/// # Errors
/// No route leads there.
pub fn expected(part: &HostPart, from: &str, to: &str) -> Result<Route, NoRoute> {
    let wanted = part.node(to);
    let interfaces = wanted.into_iter().flat_map(|node| &node.interfaces);
    let ways = interfaces.filter_map(|interface| {
        let address = interface.address.address();
        Some((address, hops(part, from, address)?))
    });
    let shortest = ways.min_by_key(|(_, hops)| hops.len());
    let (address, request_hops) = shortest.ok_or_else(|| NoRoute {
        from: from.to_owned(),
        to: to.to_owned(),
    })?;
    let mut spots = Vec::new();
    passes(&mut spots, Direction::There, &request_hops);
    // Replies go to the address of the interface through which the request leaves.
    let source = request_hops
        .first()
        .and_then(|(link, side)| address_at(part, *link, *side));
    let reply_hops = source.and_then(|source| hops(part, to, source));
    passes(&mut spots, Direction::Back, &reply_hops.unwrap_or_default());
    Ok(Route { address, spots })
}

/// The path to an address, which may be beyond a link to another host: the ports of this host along
/// it. Replies are assumed to take the same path back.
///
/// # Errors
/// No route leads there.
pub fn expected_at(part: &HostPart, from: &str, address: Ipv4Addr) -> Result<Route, NoRoute> {
    let request_hops = hops(part, from, address).filter(|hops| !hops.is_empty());
    let request_hops = request_hops.ok_or_else(|| NoRoute {
        from: from.to_owned(),
        to: address.to_string(),
    })?;
    let mut spots = Vec::new();
    passes(&mut spots, Direction::There, &request_hops);
    let reply_hops: Vec<Hop> = request_hops
        .iter()
        .rev()
        .map(|(link, side)| (*link, 1 - side))
        .collect();
    passes(&mut spots, Direction::Back, &reply_hops);
    Ok(Route { address, spots })
}

/// Adds the two ports of each hop.
fn passes(spots: &mut Vec<(Direction, Spot)>, direction: Direction, hops: &[Hop]) {
    for (link, side) in hops {
        let spot = |side, act| Spot {
            link: *link,
            side,
            act,
        };
        spots.push((direction, spot(*side, Act::Sends)));
        spots.push((direction, spot(1 - side, Act::Receives)));
    }
}

/// The path to an address; `None` if the routes do not lead there.
fn hops(part: &HostPart, from: &str, to: Ipv4Addr) -> Option<Vec<Hop>> {
    let mut hops = Vec::new();
    let mut here = part.node(from)?;
    while here
        .interfaces
        .iter()
        .all(|interface| interface.address.address() != to)
    {
        if hops.len() > part.links.len() {
            // The routes form a loop.
            return None;
        }
        let (more, next) = hops_to_neighbour(part, here, here.next_hop(to))?;
        hops.extend(more);
        let Some(next) = next else {
            return Some(hops);
        };
        here = next;
    }
    Some(hops)
}

/// The fewest hops from a node to the neighbour with address `next`, over bridges if there are any
/// between, and that neighbour. No neighbour is returned if the path leaves this host: to another
/// host, to users or to a card.
fn hops_to_neighbour<'a>(
    part: &'a HostPart,
    from: &'a NodePart,
    next: Ipv4Addr,
) -> Option<(Vec<Hop>, Option<&'a NodePart>)> {
    let mut leaving = None;
    let mut reached: BTreeSet<&str> = BTreeSet::from([from.name.as_str()]);
    let mut queue = VecDeque::from([(Vec::new(), from)]);
    while let Some((hops, here)) = queue.pop_front() {
        let interfaces = here.interfaces.iter();
        for interface in
            interfaces.filter(|interface| interface.peer == next || interface.address.has(next))
        {
            let Some((hop, far)) = hop_at(part, here, interface) else {
                continue;
            };
            let mut hops = hops.clone();
            hops.push(hop);
            let Some(far) = far else {
                leaving.get_or_insert(hops);
                continue;
            };
            if far
                .interfaces
                .iter()
                .any(|interface| interface.address.address() == next)
            {
                return Some((hops, Some(far)));
            }
            if far.kind == Kind::Bridge && reached.insert(&far.name) {
                queue.push_back((hops, far));
            }
        }
    }
    leaving.map(|hops| (hops, None))
}

/// The link of an interface and the side at which the node is; and the node at the other end,
/// `None` if the other end is at another host, at users or at a card.
fn hop_at<'a>(
    part: &'a HostPart,
    here: &NodePart,
    interface: &InterfacePart,
) -> Option<(Hop, Option<&'a NodePart>)> {
    let link = part.link(interface.link)?;
    let is_near = link.near.node == here.name && link.near.interface == interface.name;
    let hop = (link.number, usize::from(!is_near));
    let far: &EndPart = match &link.far {
        Far::Here(far) if is_near => far,
        Far::Here(_) => &link.near,
        Far::Host(_) | Far::Users(_) | Far::Nic(_) => return Some((hop, None)),
    };
    Some((hop, Some(part.node(&far.node)?)))
}

fn address_at(part: &HostPart, link: u32, side: usize) -> Option<Ipv4Addr> {
    let link = part.link(link)?;
    let interface = part.interface(link.ends().nth(side)?)?;
    Some(interface.address.address())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_part::FarHost;
    use crate::trace::test_part::part;
    use crate::trace::{addresses_of, end_of};

    #[test]
    fn path_leads_over_the_nodes_between_and_back() {
        let part = part(&["a b", "c b"]);
        let route = expected(&part, "a", "c").unwrap();
        assert_eq!(route.address, Ipv4Addr::new(10, 0, 0, 5));
        let by_address = expected_at(&part, "a", route.address).unwrap();
        assert_eq!(by_address.spots, route.spots);
        assert!(expected_at(&part, "a", Ipv4Addr::new(192, 0, 2, 1)).is_err());
        assert_eq!(
            words(&route),
            [
                "There Sends 0.0",
                "There Receives 0.1",
                "There Sends 1.1",
                "There Receives 1.0",
                "Back Sends 1.0",
                "Back Receives 1.1",
                "Back Sends 0.1",
                "Back Receives 0.0",
            ]
        );
    }

    fn words(route: &Route) -> Vec<String> {
        let spots = route.spots.iter();
        let word = |(direction, spot): &(Direction, Spot)| {
            format!("{direction:?} {:?} {}.{}", spot.act, spot.link, spot.side)
        };
        spots.map(word).collect()
    }

    #[test]
    fn path_crosses_the_bridges_of_a_segment() {
        let part = part(&["a s1 gre", "s1 s2 gre", "s2 b gre", "b c gre"]);
        let ends = |from: &str, to: &str| {
            let route = expected(&part, from, to).unwrap();
            let spots = route.spots.iter();
            let sent = spots.filter(|(_, spot)| spot.act == Act::Sends);
            let ends = sent.map(|(_, spot)| end_of(&part, *spot).unwrap());
            ends.collect::<Vec<String>>().join(" ")
        };
        let there_and_back = "a:eth0 s1:eth1 s2:eth1 b:eth0 s2:eth0 s1:eth0";
        assert_eq!(ends("a", "b"), there_and_back);
        // Over a router that is a neighbour on the segment, and from and to bridges.
        assert_eq!(
            ends("a", "c"),
            "a:eth0 s1:eth1 s2:eth1 b:eth1 c:eth0 b:eth0 s2:eth0 s1:eth0"
        );
        assert_eq!(ends("a", "s2"), "a:eth0 s1:eth1 s2:eth0 s1:eth0");
        assert_eq!(ends("s1", "b"), "s1:eth1 s2:eth1 b:eth0 s2:eth0");
        // An address of the segment that no node has.
        let absent = Ipv4Addr::new(10, 64, 0, 9);
        assert!(expected_at(&part, "a", absent).is_err());
    }

    #[test]
    fn path_over_a_bridge_may_leave_the_host() {
        let mut part = part(&["a s1 gre", "s1 b gre"]);
        let address = addresses_of(&part, "b")[0];
        part.nodes.retain(|node| node.name != "b");
        part.links[1].far = Far::Host(FarHost {
            host: "h2".to_owned(),
            local: Ipv4Addr::new(192, 0, 2, 1),
            remote: Ipv4Addr::new(192, 0, 2, 2),
        });
        let route = expected_at(&part, "a", address).unwrap();
        let there = ["There Sends 0.0", "There Receives 0.1", "There Sends 1.0"];
        assert_eq!(words(&route)[..3], there);
    }

    #[test]
    fn node_without_a_way_is_named() {
        let error = expected(&part(&["a b"]), "a", "c").unwrap_err();
        assert!(error.to_string().contains("from a to c"), "{error}");
    }
}
