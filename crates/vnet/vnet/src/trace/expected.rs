//! Computes the path that the routes of a network lead.

use std::net::Ipv4Addr;

use super::{Act, Direction, Spot};
use crate::host_part::{EndPart, Far, HostPart};

/// The path of echo requests and replies between two nodes, as the routes of the network lead them.
#[derive(Debug)]
pub struct Route {
    /// The address of the node at the end of the path.
    pub address: Ipv4Addr,
    /// The ports that an echo request passes, followed by those that its reply passes.
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
    let reply_hops: Vec<(u32, usize)> = request_hops
        .iter()
        .rev()
        .map(|(link, side)| (*link, 1 - side))
        .collect();
    passes(&mut spots, Direction::Back, &reply_hops);
    Ok(Route { address, spots })
}

/// Adds the two ports of each hop. A hop is a link and the side at which it is entered.
fn passes(spots: &mut Vec<(Direction, Spot)>, direction: Direction, hops: &[(u32, usize)]) {
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

fn hops(part: &HostPart, from: &str, to: Ipv4Addr) -> Option<Vec<(u32, usize)>> {
    let mut hops = Vec::new();
    let mut here = part.node(from)?;
    while here.interfaces.iter().all(|it| it.address.address() != to) {
        if hops.len() > part.links.len() {
            // The routes form a loop.
            return None;
        }
        let next = here.next_hop(to);
        let interface = here.interfaces.iter().find(|it| it.peer == next)?;
        let link = part.links.iter().find(|it| it.number == interface.link)?;
        let is_near = link.near.node == here.name && link.near.interface == interface.name;
        hops.push((link.number, usize::from(!is_near)));
        let far: &EndPart = match &link.far {
            Far::Here(far) if is_near => far,
            Far::Here(_) => &link.near,
            // The path continues at another host, a user or a card.
            Far::Host(_) | Far::Users(_) | Far::Nic(_) => return Some(hops),
        };
        here = part.node(&far.node)?;
    }
    Some(hops)
}

fn address_at(part: &HostPart, link: u32, side: usize) -> Option<Ipv4Addr> {
    let link = part.links.iter().find(|it| it.number == link)?;
    let interface = part.interface(link.ends().nth(side)?)?;
    Some(interface.address.address())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::test_part::part;

    #[test]
    fn path_leads_over_the_nodes_between_and_back() {
        let part = part(&["a b", "c b"]);
        let route = expected(&part, "a", "c").unwrap();
        assert_eq!(route.address, Ipv4Addr::new(10, 0, 0, 5));
        let by_address = expected_at(&part, "a", route.address).unwrap();
        assert_eq!(by_address.spots, route.spots);
        assert!(expected_at(&part, "a", Ipv4Addr::new(192, 0, 2, 1)).is_err());
        let words: Vec<String> = route
            .spots
            .iter()
            .map(|(direction, it)| format!("{direction:?} {:?} {}.{}", it.act, it.link, it.side))
            .collect();
        assert_eq!(
            words,
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

    #[test]
    fn node_without_a_way_is_named() {
        let error = expected(&part(&["a b"]), "a", "c").unwrap_err();
        assert!(error.to_string().contains("from a to c"), "{error}");
    }
}
