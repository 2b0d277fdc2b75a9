//! The parts of hosts: what each host has to make, and the state of a part from its hosts' reports.

use std::collections::{BTreeMap, BTreeSet};

use crate::host_part::{
    Cause, EndPart, Far, FarHost, HostPart, HostStatus, LinkPart, LinkState, NodeState, NodeStatus,
    VnetId,
};
use crate::message::{Obstacle, PartEnd, PartLink, PartRequest, PartStatus, TunnelEnd};

use super::books::Made;
use super::placing::{Placement, Tunnel};

/// The part that one host has to make under a placement.
pub(super) fn host_part(vnet: VnetId, made: &Made, placement: &Placement, host: &str) -> HostPart {
    let is_here = |node: &str| {
        placement
            .hosts
            .get(node)
            .is_some_and(|candidate| candidate == host)
    };
    let nodes = made.laid.part.nodes.iter().map(|wanted| &wanted.node);
    let mut links = Vec::new();
    for (link, tunnel) in made.laid.part.links.iter().zip(&placement.tunnels) {
        for side in 0..2 {
            let PartEnd::Node(near) = &link.ends[side] else {
                continue;
            };
            if !is_here(&near.node) {
                continue;
            }
            let far = far((made, placement), host, (link, tunnel), side);
            let is_whole = matches!(far, Some(Far::Here(_)));
            links.extend(far.map(|far| LinkPart {
                number: link.number,
                tag: tag(made, near, tunnel),
                carrier: link.carrier,
                rate: link.rate,
                near: near.clone(),
                path: link.path,
                timetable: link.timetable.clone(),
                impairment: match far {
                    Far::Here(_) => link.impairment,
                    _ => link.impairment.at_end(side),
                },
                far,
            }));
            if is_whole {
                break; // The first end's part has both ends.
            }
        }
    }
    let points = made.laid.part.access.iter();
    // Other kinds of links in a VNP's request are ignored: the provider chooses tunnels itself.
    let is_outer = |link: &&LinkPart| match &link.far {
        Far::Users(_) => true,
        // The VNP must not choose the card; the host does.
        Far::Nic(nic) => nic.interface.is_none(),
        Far::Here(_) | Far::Host(_) => false,
    };
    let points = points
        .filter(is_outer)
        .filter(|point| is_here(&point.near.node));
    links.extend(points.cloned());
    HostPart {
        vnet,
        name: made.laid.part.name.clone(),
        generation: made.generation_at(host),
        nodes: nodes.filter(|node| is_here(&node.name)).cloned().collect(),
        links,
    }
}

/// The far end of a link from one of its sides. `None` if the VNP has not named the other
/// provider's end, or the host has no address for it.
fn far(
    (made, placement): (&Made, &Placement),
    host: &str,
    (link, tunnel): (&PartLink, &Tunnel),
    side: usize,
) -> Option<Far> {
    let hosts = &placement.hosts;
    let local = tunnel.outer[side]?;
    match (&link.ends[side], &link.ends[1 - side]) {
        (_, PartEnd::Node(other)) => match hosts.get(&other.node)? {
            far_host if far_host == host => Some(Far::Here(other.clone())),
            far_host => Some(Far::Host(FarHost {
                host: far_host.clone(),
                local,
                remote: tunnel.outer[1 - side]?,
            })),
        },
        (PartEnd::Node(near), PartEnd::Border(_)) => {
            let end = beyond(made, near)?;
            Some(Far::Host(FarHost {
                host: end.host.clone(),
                local,
                remote: end.address,
            }))
        }
        (PartEnd::Border(_), PartEnd::Border(_)) => None,
    }
}

fn beyond<'a>(made: &'a Made, near: &EndPart) -> Option<&'a TunnelEnd> {
    let mut far = made.far.iter();
    far.find(|(end, _)| end == near).map(|(_, far_end)| far_end)
}

/// The tag of a tunnel. For a link to another provider it is the one that the VNP has chosen among
/// those of both.
fn tag(made: &Made, near: &EndPart, tunnel: &Tunnel) -> u32 {
    beyond(made, near).map_or(tunnel.tag, |far_end| far_end.tag)
}

/// The tunnel ends of links that leave the provider, for the other provider.
pub(super) fn offered(part: &PartRequest, placement: &Placement) -> Vec<(EndPart, TunnelEnd)> {
    let mut ends = Vec::new();
    for (link, tunnel) in part.links.iter().zip(&placement.tunnels) {
        for side in 0..2 {
            let (PartEnd::Node(near), PartEnd::Border(_)) =
                (&link.ends[side], &link.ends[1 - side])
            else {
                continue;
            };
            let host = placement.hosts.get(&near.node);
            if let (Some(host), Some(address)) = (host, tunnel.outer[side]) {
                let (host, tag) = (host.clone(), tunnel.tag);
                ends.push((near.clone(), TunnelEnd { host, address, tag }));
            }
        }
    }
    ends
}

/// The state of a part from the reports of its hosts; a report of `None` means that the host is
/// silent.
pub(super) fn status(made: &Made, reported: &BTreeMap<&str, Option<&HostStatus>>) -> PartStatus {
    let mut status = PartStatus {
        are_nodes_up: true,
        are_links_up: true,
        are_consoles_ready: true,
        obstacle: None,
    };
    let mut obstacles = Vec::new();
    let off = switched_off(reported.values().copied().flatten());
    for host in made.laid.hosts() {
        let reported = reported.get(host).copied().flatten();
        // Until a move is decided, hosts other than its destination keep the previous generation.
        let least = made.generation() - u64::from(made.undecided().is_some());
        let change = reported.and_then(|reported| reported.refused.as_ref());
        let change = change.filter(|change| change.generation >= least);
        let Some(reported) = reported.filter(|reported| reported.generation >= least) else {
            obstacles.extend(change.and_then(|change| obstacle_of(&change.node, &change.state)));
            let mut here = made.laid.placement.hosts.iter();
            let node = here
                .find(|(_, at)| *at == host)
                .map(|(node, _)| node.clone());
            status.are_nodes_up = false;
            status.are_links_up = false;
            status.are_consoles_ready = false;
            obstacles.extend(node.map(Obstacle::NodeAbsent));
            continue;
        };
        let is_up = |state: &NodeState| matches!(state, NodeState::Up | NodeState::Stopped);
        let mut nodes = reported.nodes.values();
        status.are_nodes_up &= nodes.all(|node| is_up(&node.state));
        let mut nodes = reported.nodes.values();
        status.are_consoles_ready &= nodes.all(NodeStatus::is_as_wanted);
        status.are_links_up &= are_links_up(reported, &off);
        obstacles.extend(obstacle(reported, &off));
    }
    status.obstacle = Obstacle::heaviest(obstacles.iter()).cloned();
    status
}

/// The links that the operator has switched off, according to any host. A host at the other end,
/// where no node is stopped, only notices that no probe passes.
fn switched_off<'a>(reported: impl Iterator<Item = &'a HostStatus>) -> BTreeSet<u32> {
    let links = reported.flat_map(|host| &host.links);
    let off = links.filter(|(_, link)| link.state.is_switched_off());
    off.map(|(number, _)| *number).collect()
}

/// Whether all links of a host's part are in the state that their operator wants; `off` are links
/// that another host reports as switched off.
fn are_links_up(host: &HostStatus, off: &BTreeSet<u32>) -> bool {
    let mut links = host.links.iter();
    links.all(|(number, link)| link.state.is_as_wanted() || off.contains(number))
}

/// The most important obstacle of a host's part, nodes first. Links in `off`, which the operator
/// has switched off, are ignored.
fn obstacle(host: &HostStatus, off: &BTreeSet<u32>) -> Option<Obstacle> {
    let nodes = host.nodes.iter().filter_map(|(name, node)| {
        let is_silent = node.state == NodeState::Up && !node.is_console_ready;
        let silent = is_silent.then(|| Obstacle::ConsoleSilent(name.clone()));
        silent.or_else(|| obstacle_of(name, &node.state))
    });
    let nodes: Vec<Obstacle> = nodes.collect();
    let mut links = host.links.iter();
    Obstacle::heaviest(nodes.iter()).cloned().or_else(|| {
        links.find_map(|(number, link)| match &link.state {
            state if state.is_as_wanted() || off.contains(number) => None,
            LinkState::Up => None,
            LinkState::Absent => Some(Obstacle::LinkDown(*number, Cause::default())),
            LinkState::Down { cause, .. } => Some(Obstacle::LinkDown(*number, *cause)),
        })
    })
}

/// The obstacle that a node's state is; `None` if the node runs or is stopped.
fn obstacle_of(node: &str, state: &NodeState) -> Option<Obstacle> {
    let node = node.to_owned();
    match state {
        NodeState::Absent => Some(Obstacle::NodeAbsent(node)),
        NodeState::Starting => Some(Obstacle::NodeStarts(node)),
        NodeState::Failed { cause, .. } => Some(Obstacle::NodeFailed(node, *cause)),
        NodeState::Refused { cause, .. } => Some(Obstacle::NodeRefused(node, *cause)),
        NodeState::Up | NodeState::Stopped => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_part::LinkStatus;

    fn saying(cause: Cause) -> HostStatus {
        let state = LinkState::Down {
            reason: "of the host".to_owned(),
            cause,
        };
        let link = LinkStatus {
            state,
            rtt_ns: None,
        };
        HostStatus {
            vnet: VnetId::new(1),
            generation: 1,
            nodes: BTreeMap::new(),
            links: BTreeMap::from([(4, link)]),
            refused: None,
        }
    }

    #[test]
    fn link_switched_off_at_one_host_is_no_obstacle_elsewhere() {
        let hosts = [saying(Cause::Operator), saying(Cause::Silent)];
        let off = switched_off(hosts.iter());
        assert!(hosts.iter().all(|host| are_links_up(host, &off)));
        assert!(hosts.iter().all(|host| obstacle(host, &off).is_none()));
        // A link that is silent for another reason is still an obstacle.
        let off = switched_off(hosts[1..].iter());
        assert!(!are_links_up(&hosts[1], &off));
        let found = obstacle(&hosts[1], &off);
        assert_eq!(found, Some(Obstacle::LinkDown(4, Cause::Silent)));
    }
}
