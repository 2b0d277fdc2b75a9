//! The DIF of a network, whose members run inside its nodes.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_api::control::{DifRole, MemberInfo, MemberState};
use carina_vnet::document::Carrier;
use carina_vnet::host_part::{HostPart, LinkPart, NodePart};

use super::{Vnet, lock};
use crate::error::{Attempt, Error, Result};
use crate::far_flow::pair_of;
use crate::member;
use crate::node::{Arrived, Node};
use crate::threads::each;

impl Vnet {
    /// Makes members leave their DIF if the change gives their node another founder: a new link
    /// joins two DIFs, or the lowest-numbered link of a DIF was removed.
    pub(super) fn leave_difs(&self, current: &HostPart, part: &HostPart) -> Result<()> {
        for node in &part.nodes {
            let before = current
                .node(&node.name)
                .and_then(|node| node.founder.as_ref());
            let leaves =
                before.is_some() && node.founder.is_some() && before != node.founder.as_ref();
            if !leaves {
                continue;
            }
            if let Ok(running) = self.node(&node.name) {
                member::configure(&running, &member::configuration(part, node, None))?;
            }
        }
        Ok(())
    }

    /// Creates or changes the member of a node.
    pub(super) fn make_member(&self, part: &HostPart, wanted: &NodePart) -> Result<()> {
        let node = self.node(&wanted.name)?;
        let Some(founder) = &wanted.founder else {
            return Ok(());
        };
        let running = member::member_info(&node, &part.name)?;
        let role = match running {
            Some(member) if member.state == MemberState::Enrolled => member.role,
            // A founder that was made again joins the DIF that it had created.
            _ if *founder != wanted.name || self.has_members(part, wanted) => DifRole::Join,
            _ if has_far(part) && self.has_founded(&wanted.name) => {
                lock(&self.returning).insert(wanted.name.clone(), Instant::now());
                DifRole::Join
            }
            _ => DifRole::Create,
        };
        member::configure(&node, &member::configuration(part, wanted, Some(role)))?;
        if role == DifRole::Create {
            self.note_founder(part, wanted)?;
        }
        Ok(())
    }

    /// Writes down that a node on this host has created the DIF, if it has, and if members may
    /// exist on other hosts.
    pub(super) fn note_founder(&self, part: &HostPart, wanted: &NodePart) -> Result<()> {
        if wanted.founder.as_ref() != Some(&wanted.name) || !has_far(part) {
            return Ok(());
        }
        let known = self.dir.founded(&wanted.name);
        let what = format!("writing {}", known.display());
        std::fs::write(known, "").attempt(what)
    }

    /// Whether a node has created the DIF, so that members may exist on other hosts.
    fn has_founded(&self, node: &str) -> bool {
        self.dir.founded(node).exists()
    }

    /// Makes founders that were made again create the DIF again, if they have found none of its
    /// members.
    pub(super) fn found_again(&self, part: &HostPart) {
        let returning = lock(&self.returning).clone();
        for (name, since) in returning {
            let known = self
                .node(&name)
                .and_then(|node| member::member_info(&node, &part.name));
            let known = known.ok().flatten();
            let is_enrolled = known.is_some_and(|known| known.state == MemberState::Enrolled);
            if !is_enrolled && since.elapsed() < RETURN {
                continue;
            }
            lock(&self.returning).remove(&name);
            if let (false, Some(wanted)) = (is_enrolled, part.node(&name)) {
                let anew = member::configuration(part, wanted, Some(DifRole::Create));
                let made = self
                    .node(&name)
                    .and_then(|node| member::configure(&node, &anew));
                self.progress.tell(match made {
                    Ok(()) => format!("node {name} has created the DIF again: it found no member"),
                    Err(error) => format!("node {name} cannot create the DIF again: {error}"),
                });
            }
        }
    }

    /// Ends the Carina nodes of nodes that no longer have a link with carrier `dif`.
    pub(super) fn end_members(&self, current: &HostPart, part: &HostPart) -> Result<()> {
        for node in part.nodes.iter().filter(|node| node.founder.is_none()) {
            let had_one = current
                .node(&node.name)
                .is_some_and(|node| node.founder.is_some());
            if had_one && let Ok(running) = self.node(&node.name) {
                member::end(&running, member::LOOK)?;
            }
        }
        Ok(())
    }

    /// Makes the members on this host leave the DIF before their nodes end, so that the other
    /// members need not detect it. A node that does not answer in time ends without leaving.
    pub(crate) fn leave_dif(&self) {
        // While it is locked, the network is being changed, and there may be no members yet.
        let Ok(part) = self.part.try_lock().map(|part| part.clone()) else {
            return;
        };
        let members: Vec<&NodePart> = part
            .nodes
            .iter()
            .filter(|node| node.founder.is_some())
            .collect();
        let left = each(&members, |wanted| {
            let node = self.node(&wanted.name)?;
            member::end(&node, LEAVE)
        });
        if let Err(error) = left {
            self.progress
                .tell(format!("a member has not left the DIF: {error}"));
        }
    }

    /// Whether another node on this host is a member of the same DIF.
    fn has_members(&self, part: &HostPart, but: &NodePart) -> bool {
        let mut others = part.nodes.iter();
        others.any(|other| {
            other.name != but.name
                && other.founder == but.founder
                && self.node(&other.name).is_ok_and(|node| {
                    let member = member::member_info(&node, &part.name).ok().flatten();
                    member.is_some_and(|member| member.state == MemberState::Enrolled)
                })
        })
    }

    /// Waits until all members on this host are enrolled, and starts echo servers under their
    /// names.
    pub(super) fn join(&self, part: &HostPart) -> Result<()> {
        let has_far = has_far(part);
        let limit = if has_far { JOIN_FAR } else { JOIN };
        let deadline = Instant::now() + limit;
        // A stopped node joins when it is started.
        let nodes: Vec<&NodePart> = part
            .nodes
            .iter()
            .filter(|node| node.founder.is_some() && self.node(&node.name).is_ok())
            .collect();
        each(&nodes, |wanted| {
            let node = self.node(&wanted.name)?;
            loop {
                self.progress.check()?;
                let member = member::look_and_serve(&node, &part.name)?;
                let state = member.as_ref().map(|member| member.state);
                if state == Some(MemberState::Enrolled) {
                    // The echo server may have started before the enrollment; it is started again
                    // if needed.
                    return member::look_and_serve(&node, &part.name).map(drop);
                }
                if Instant::now() > deadline {
                    // Members on another host may not be ready yet; probes report that.
                    return if has_far {
                        Ok(())
                    } else {
                        Err(not_enrolled(&wanted.name, member.as_ref(), limit))
                    };
                }
                std::thread::sleep(LOOK_AGAIN);
            }
        })
    }

    /// Round trip between the ends of a link with carrier `dif`. Checks that each end on this host
    /// has an N-1 flow over the link, and that the node at the other end answers by its name.
    pub(super) fn probe_flow(
        &self,
        part: &HostPart,
        link: &LinkPart,
        limit: Duration,
    ) -> Result<Duration> {
        let deadline = Instant::now() + limit;
        let near = self.node(&link.near.node)?;
        let ends: Vec<Arc<Node>> = link
            .ends()
            .map(|end| self.node(&end.node))
            .collect::<Result<_>>()?;
        loop {
            match self.neighbours(part, link, &ends) {
                Ok(far) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    return member::ping(&near, &far, &part.name, left.max(ASK));
                }
                Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
                Err(error) => return Err(error),
            }
        }
    }

    /// Like [`Vnet::probe_flow`], for the link from a node to a neighbour's address. `None` if
    /// there is no such link, or it has another carrier.
    pub(crate) fn probe_flow_to(
        &self,
        part: &HostPart,
        from: &str,
        to: Ipv4Addr,
        limit: Duration,
    ) -> Option<Result<Duration>> {
        let mut interfaces = part.node(from)?.interfaces.iter();
        let number = interfaces.find(|interface| interface.peer == to)?.link;
        let link = part.link(number)?;
        (link.carrier == Carrier::Dif).then(|| self.probe_flow(part, link, limit))
    }

    /// Checks that each end here has a neighbour over the link. Returns the node at the far end.
    fn neighbours(&self, part: &HostPart, link: &LinkPart, ends: &[Arc<Node>]) -> Result<String> {
        let mut found = None;
        for node in ends {
            let member = member::look_and_serve(node, &part.name)?;
            let far = member::neighbour(member.as_ref(), link.number);
            let far = far.map_err(|reason| Error::NoFlow {
                link: link.number,
                node: node.name().to_owned(),
                reason,
            })?;
            found.get_or_insert(far);
        }
        found.ok_or_else(|| self.no_node(&link.near.node))
    }

    /// Whether two nodes are members of the same DIF of the network.
    pub(crate) fn are_in_one_dif(part: &HostPart, pair: [&str; 2]) -> bool {
        let [one, other] = pair.map(|name| part.node(name).and_then(|node| node.founder.as_ref()));
        one.is_some() && one == other
    }

    /// Round trip of an echo between two nodes, by their names in the DIF.
    ///
    /// # Errors
    /// There is no such node, or the other node does not answer within `limit`.
    pub(crate) fn echo_by_name(&self, [from, to]: [&str; 2], limit: Duration) -> Result<Duration> {
        let dif = lock(&self.part).name.clone();
        member::ping(&*self.node(from)?, to, &dif, limit)
    }

    /// Sends SDUs from one node to another over a flow of the DIF, and returns what arrived.
    ///
    /// # Errors
    /// There is no such node, or no flow.
    pub(crate) fn stream_by_name(
        &self,
        [from, to]: [&str; 2],
        time: Duration,
        limit: Duration,
    ) -> Result<Arrived> {
        let dif = lock(&self.part).name.clone();
        member::stream([&*self.node(from)?, &*self.node(to)?], &dif, time, limit)
    }
}

/// Whether some link of a part is a flow to another host.
fn has_far(part: &HostPart) -> bool {
    part.links.iter().any(|link| pair_of(link).is_some())
}

fn not_enrolled(node: &str, member: Option<&MemberInfo>, limit: Duration) -> Error {
    let why = member.map_or("no Carina node answers in it".to_owned(), |member| {
        let why = member.last_error.clone().unwrap_or_default();
        format!("{} {why}", member.step)
    });
    let what = format!("node {node} has not joined the DIF of its network: {why}");
    Error::Timeout { what, limit }
}

/// Longest time for a member to enroll; emulation is slow.
const JOIN: Duration = Duration::from_secs(120);
/// Time to wait for enrollment if the DIF has members on other hosts, before the change continues.
const JOIN_FAR: Duration = Duration::from_secs(1);
/// How long a founder that was made again looks for members on other hosts.
const RETURN: Duration = Duration::from_secs(40);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Longest time for a member to leave the DIF of a network that is being removed.
const LEAVE: Duration = Duration::from_secs(4);
/// Least time allowed for an echo.
const ASK: Duration = Duration::from_secs(2);
