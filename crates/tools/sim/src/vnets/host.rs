//! A simulated host: the parts of networks that it is ordered to have, and how far they are.

mod moves;
mod temper;

use std::collections::{BTreeMap, BTreeSet};

use carina_time::{Duration, Instant};
use carina_vnet::document::Carrier;
use carina_vnet::host_part::{
    Cause, Far, HostLimits, HostPart, HostStatus, LinkPart, LinkState, LinkStatus, NodeState,
    NodeStatus, RefusedChange, VnetId,
};
use carina_vnet::message::{FromAgent, ToAgent};
use carina_vnet::pip::inventory::{Host, Inventory};

pub use self::moves::{Guest, Sent};
use self::temper::Verdict;
pub use self::temper::{REFUSED, Temper};

/// A simulated host with its agent. When only the agent dies, this state stays. When the host dies,
/// everything on it is lost. When a machine dies, its node is lost until the agent has recreated
/// it.
#[derive(Debug)]
pub struct PlayedHost {
    /// Name of the simulated host, as in its provider's inventory.
    pub name: String,
    /// Copy of the host's entry in its provider's inventory: processors, memory and the rest.
    pub owns: Host,
    /// Sum of the rates of all its links to other hosts, in bits per second.
    rate_bps: u64,
    /// The host's parts of networks, each with the time at which its nodes are up.
    pub parts: BTreeMap<VnetId, (HostPart, Instant)>,
    /// Nodes whose machine has ended, each with the time at which it is up again.
    ended: BTreeMap<(VnetId, String), Instant>,
    /// Removed networks, each with the last removed generation and the time; kept on disk for ten
    /// minutes.
    removed: BTreeMap<VnetId, (u64, Instant)>,
    /// Set if the agent will die at the next order: before or after it carries the order out.
    pub dies_at_order: Option<Death>,
    /// The guest in each node on this host.
    guests: BTreeMap<(VnetId, String), Guest>,
    /// Number of guests that were created on this host.
    made: u64,
    /// Moves in which this host takes part, by number.
    moves: BTreeMap<u64, moves::Move>,
    /// Guests that the host has sent, and that the simulation has yet to deliver.
    sent: Vec<Sent>,
    /// Number of guests that arrived here by a move and were then resumed.
    pub came: u64,
    /// The limits on nodes that the host reports to its provider; `None` for a host without limits.
    limits: Option<HostLimits>,
    temper: Option<Temper>,
    /// Changes of parts that the host has refused.
    refused: BTreeMap<VnetId, RefusedChange>,
    /// Decisions on the nodes that the host was ordered to make.
    verdicts: BTreeMap<(VnetId, String), Verdict>,
}

/// Time from the moment at which a node is up until its console answers.
pub const CONSOLE: Duration = Duration::from_millis(200);

/// When an agent that has got an order dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The agent dies before it has carried out any part of the order.
    Before,
    /// The agent dies after it has carried out the order, and before it reports that.
    After,
}

impl PlayedHost {
    /// A host of a provider that has no parts of networks yet.
    #[must_use]
    pub fn new(owns: &Host, inventory: &Inventory) -> PlayedHost {
        let links = inventory.links.iter();
        let links = links.filter(|link| link.ends.contains(&owns.name));
        let borders = inventory.borders.iter();
        let borders = borders.filter(|border| border.host == owns.name);
        let rates = links.map(|link| link.rate_bps);
        PlayedHost {
            name: owns.name.clone(),
            owns: owns.clone(),
            rate_bps: rates.chain(borders.map(|border| border.rate_bps)).sum(),
            parts: BTreeMap::new(),
            ended: BTreeMap::new(),
            removed: BTreeMap::new(),
            dies_at_order: None,
            guests: BTreeMap::new(),
            made: 0,
            moves: BTreeMap::new(),
            sent: Vec::new(),
            came: 0,
            limits: None,
            temper: None,
            refused: BTreeMap::new(),
            verdicts: BTreeMap::new(),
        }
    }

    /// Removes and returns the guests that this host has sent, which the world delivers to other
    /// hosts.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Ends the machine of one of the host's nodes, if it has any. `pick` chooses its index from
    /// the number of nodes. The agent recreates the machine, which is up at `again`.
    pub fn end_machine(&mut self, again: Instant, pick: impl FnOnce(usize) -> usize) {
        let parts = self.parts.iter();
        let nodes = parts
            .flat_map(|(vnet, (part, _))| part.nodes.iter().map(|node| (*vnet, node.name.clone())));
        let nodes: Vec<(VnetId, String)> = nodes.collect();
        if !nodes.is_empty() {
            let node = nodes[pick(nodes.len())].clone();
            self.renew_guest(node.clone());
            self.ended.insert(node, again);
        }
    }

    /// Loses everything that ran on the host, because the host itself has died.
    pub fn lose_all(&mut self) {
        self.parts.clear();
        self.refused.clear();
        self.ended.clear();
        self.guests.clear();
        self.moves.clear();
    }

    /// Carries out an order. New nodes are up after `boot`.
    pub fn handle(&mut self, now: Instant, message: ToAgent, boot: Duration) {
        match message {
            ToAgent::Set(part) => {
                let removed = self.removed.get(&part.vnet).map(|(through, _)| *through);
                let current = self
                    .parts
                    .get(&part.vnet)
                    .map(|(current, _)| current.generation);
                if Some(part.generation) > removed.max(current) {
                    let refused = self.refused_node(now, &part);
                    if let Some(node) = refused.filter(|_| current.is_some()) {
                        self.refuse(&part, node);
                        return;
                    }
                    self.came += self.change_guests(&part);
                    self.parts.insert(part.vnet, (*part, now + boot));
                }
            }
            ToAgent::Remove { vnet, through } => {
                let current = self.parts.get(&vnet);
                if current.is_some_and(|(current, _)| current.generation > through) {
                    return;
                }
                self.parts.remove(&vnet);
                self.refused.remove(&vnet);
                self.forget_guests(vnet);
                let known = self.removed.get(&vnet).map_or(0, |(known, _)| *known);
                self.removed.insert(vnet, (through.max(known), now));
            }
            ToAgent::Receive(order) => self.await_node(now, order),
            ToAgent::Send(order) => self.send_node(order),
            ToAgent::EndMove { number, .. } => self.end_move(number),
        }
    }

    /// Removes remembered orders older than ten minutes. Returns whether there were any.
    pub fn tidy(&mut self, now: Instant) -> bool {
        let kept = Duration::from_secs(600);
        let before = self.removed.len();
        self.removed.retain(|_, (_, at)| now.since(*at) < kept);
        self.ended.retain(|_, again| *again > now);
        self.removed.len() < before
    }

    /// Time of the next change of its report without any outside event.
    pub(super) fn changes_after(&self, now: Instant) -> Instant {
        let up = self.parts.values().map(|(_, up_at)| *up_at);
        let again = self.ended.values().copied();
        let made = self.verdicts.values().filter_map(|verdict| match verdict {
            Verdict::Fails(until) => Some(*until),
            Verdict::Makes | Verdict::Refuses => None,
        });
        let times = up
            .flat_map(|at| [at, at + CONSOLE])
            .chain(again)
            .chain(made);
        let next = times.filter(|at| *at > now).min();
        next.unwrap_or(Instant::MAX)
    }

    /// Describes resources that the host carries beyond its own; `None` if it carries no such
    /// resources. `nics` returns the number of the host's cards that a node has.
    #[must_use]
    pub fn excess(&self, nics: impl Fn(&HostPart, &str) -> u64) -> Option<String> {
        let owns = &self.owns;
        let room = [owns.cpus, owns.memory_mib, owns.nics, self.rate_bps];
        let mut sums = [0; 4];
        let parts = || self.parts.values().map(|(part, _)| part);
        for part in parts() {
            for node in &part.nodes {
                sums[0] += u64::from(node.cpus);
                sums[1] += node.memory_mib;
                sums[2] += nics(part, &node.name);
            }
        }
        for node in self.awaited().filter_map(|(part, node)| part.node(node)) {
            sums[0] += u64::from(node.cpus);
            sums[1] += node.memory_mib;
        }
        let links = || parts().flat_map(|part| &part.links);
        let leaving = links().filter(|link| matches!(link.far, Far::Host(_)));
        sums[3] = leaving.map(|link| link.rate.bps()).sum();
        if sums.iter().zip(room).any(|(sum, room)| *sum > room) {
            return Some(format!(
                "host {} carries {sums:?} and has {room:?}",
                self.name
            ));
        }
        let mut known = BTreeSet::new();
        links().find_map(|link| {
            let Far::Host(far) = &link.far else {
                return None;
            };
            let tag = (link.carrier != Carrier::Ipip).then_some(link.tag);
            let is_new = known.insert((far.local, far.remote, tag));
            (!is_new).then(|| format!("host {}: two tunnels are one: {far:?} {tag:?}", self.name))
        })
    }

    /// The link with this number of a network, if the host has an end of it.
    #[must_use]
    pub fn link(&self, vnet: VnetId, number: u32) -> Option<&LinkPart> {
        let (part, _) = self.parts.get(&vnet)?;
        part.links.iter().find(|link| link.number == number)
    }

    /// The host's report to its provider. `reaches` returns whether a link reaches its other end.
    #[must_use]
    pub fn report(&self, now: Instant, reaches: impl Fn(VnetId, &LinkPart) -> bool) -> FromAgent {
        let parts = self.parts.values().map(|(part, up_at)| {
            let is_up = now >= *up_at;
            let status = |name: &String| {
                let ended = self.ended.get(&(part.vnet, name.clone()));
                let verdict = self.verdict(part.vnet, name);
                let state = match is_up {
                    _ if verdict == Verdict::Refuses => self.refusal(),
                    false => NodeState::Starting,
                    true if matches!(verdict, Verdict::Fails(until) if now < until) => {
                        NodeState::Failed {
                            reason: format!("on {} it is not made yet", self.name),
                            cause: Cause::Host,
                        }
                    }
                    true if ended.is_some_and(|again| *again > now) => NodeState::Failed {
                        reason: format!("on {} it has ended", self.name),
                        cause: Cause::Ended,
                    },
                    true => NodeState::Up,
                };
                let is_console_ready = state == NodeState::Up && now >= *up_at + CONSOLE;
                NodeStatus {
                    state,
                    is_console_ready,
                }
            };
            let refused = self.refused.get(&part.vnet).cloned();
            let nodes = part.nodes.iter();
            let nodes = nodes.map(|node| (node.name.clone(), status(&node.name)));
            let links = part.links.iter().map(|link| {
                let down = LinkState::Down {
                    reason: format!("{} hears nothing", self.name),
                    cause: Cause::Silent,
                };
                let runs = match self.verdict(part.vnet, &link.near.node) {
                    Verdict::Makes => true,
                    Verdict::Fails(until) => now >= until,
                    Verdict::Refuses => false,
                };
                let is_whole = is_up && runs && reaches(part.vnet, link);
                let state = if is_whole { LinkState::Up } else { down };
                let rtt_ns = None;
                (link.number, LinkStatus { state, rtt_ns })
            });
            HostStatus {
                vnet: part.vnet,
                generation: part.generation,
                nodes: nodes.collect(),
                links: links.collect(),
                refused: refused.filter(|refused| refused.generation > part.generation),
            }
        });
        let removed = self
            .removed
            .iter()
            .map(|(vnet, (through, _))| (*vnet, *through));
        FromAgent {
            host: self.name.clone(),
            parts: parts.collect(),
            removed: removed.collect(),
            moves: self.moves(),
            moves_at: Some(self.name.clone()),
            limits: self.limits.clone(),
        }
    }
}

/// Whether both ends of a link name each other with the same tag. `find` returns the host with a
/// name.
#[must_use]
pub fn is_whole<'a>(
    find: impl Fn(&str) -> Option<&'a PlayedHost>,
    here: &str,
    vnet: VnetId,
    link: &LinkPart,
) -> bool {
    match &link.far {
        Far::Here(_) | Far::Users(_) | Far::Nic(_) => true,
        Far::Host(far) => {
            let far_host = find(&far.host);
            let other = far_host.and_then(|far_host| far_host.link(vnet, link.number));
            other.is_some_and(|other| match &other.far {
                Far::Here(_) | Far::Users(_) | Far::Nic(_) => false,
                Far::Host(back) => {
                    let addresses = (back.local, back.remote) == (far.remote, far.local);
                    addresses && back.host == here && other.tag == link.tag
                }
            })
        }
    }
}
