//! A host that is played: what it is to have, and how far that is.

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

/// A host with its agent. The agent's own death touches nothing here; that of the host takes all;
/// that of a machine takes its node, until the agent has made that anew.
#[derive(Debug)]
pub struct PlayedHost {
    /// Its name.
    pub name: String,
    /// What it is.
    pub owns: Host,
    /// The rates of all its links to other hosts together, bits a second.
    rate_bps: u64,
    /// Its parts of networks, and when the nodes of each are up.
    pub parts: BTreeMap<VnetId, (HostPart, Instant)>,
    /// Nodes whose machine has ended, and when they are up again.
    ended: BTreeMap<(VnetId, String), Instant>,
    /// What it is to have no more; kept on its disk for ten minutes.
    removed: BTreeMap<VnetId, (u64, Instant)>,
    /// The agent dies at the next order: before it is carried out, or after that.
    pub dies_at_order: Option<Death>,
    /// What runs in its nodes.
    guests: BTreeMap<(VnetId, String), Guest>,
    /// How many guests were made here.
    made: u64,
    /// Moves in which it has a part, by number.
    moves: BTreeMap<u64, moves::Move>,
    /// Guests that it has sent and that are to be carried.
    sent: Vec<Sent>,
    /// Guests that have come, and run here or did.
    pub came: u64,
    /// What it tells its provider of what it can make.
    limits: Option<HostLimits>,
    temper: Option<Temper>,
    /// Changes of parts that it does not make.
    refused: BTreeMap<VnetId, RefusedChange>,
    /// What it has decided of nodes that it was to make, which it remembers.
    verdicts: BTreeMap<(VnetId, String), Verdict>,
}

/// How long after its node a console answers.
pub const CONSOLE: Duration = Duration::from_millis(200);

/// When an agent dies that has an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Nothing of it was done.
    Before,
    /// It was done, and no provider hears of it yet.
    After,
}

impl PlayedHost {
    /// A host of a provider's, with nothing on it.
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
            rate_bps: rates.chain(borders.map(|it| it.rate_bps)).sum(),
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

    /// Guests that are to be carried to other hosts.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// The machine of one of its nodes ends, if it has any; which one, `pick` says of how many. The
    /// agent makes it anew, which takes until `again`.
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

    /// The host itself ends, and what ran on it is gone.
    pub fn lose_all(&mut self) {
        self.parts.clear();
        self.refused.clear();
        self.ended.clear();
        self.guests.clear();
        self.moves.clear();
    }

    /// Carries an order out; nodes are up after `boot`.
    pub fn handle(&mut self, now: Instant, message: ToAgent, boot: Duration) {
        match message {
            ToAgent::Set(part) => {
                let removed = self.removed.get(&part.vnet).map(|(through, _)| *through);
                let there = self
                    .parts
                    .get(&part.vnet)
                    .map(|(there, _)| there.generation);
                if Some(part.generation) > removed.max(there) {
                    let refused = self.judge(now, &part);
                    if let Some(node) = refused.filter(|_| there.is_some()) {
                        self.refuse(&part, node);
                        return;
                    }
                    self.came += self.change_guests(&part);
                    self.parts.insert(part.vnet, (*part, now + boot));
                }
            }
            ToAgent::Remove { vnet, through } => {
                let there = self.parts.get(&vnet);
                if there.is_some_and(|(there, _)| there.generation > through) {
                    return;
                }
                self.parts.remove(&vnet);
                self.refused.remove(&vnet);
                self.forget_guests(vnet);
                let known = self.removed.get(&vnet).map_or(0, |(known, _)| *known);
                self.removed.insert(vnet, (through.max(known), now));
            }
            ToAgent::Receive(order) => self.await_node(order),
            ToAgent::Send(order) => self.send_node(order),
            ToAgent::EndMove { number, .. } => self.end_move(number),
        }
    }

    /// Forgets orders of long ago; says whether there were any.
    pub fn tidy(&mut self, now: Instant) -> bool {
        let kept = Duration::from_secs(600);
        let before = self.removed.len();
        self.removed.retain(|_, (_, at)| now.since(*at) < kept);
        self.ended.retain(|_, again| *again > now);
        self.removed.len() < before
    }

    /// When it says something else than now, though nothing happens to it.
    pub(super) fn changes_after(&self, now: Instant) -> Instant {
        let up = self.parts.values().map(|(_, up_at)| *up_at);
        let again = self.ended.values().copied();
        let made = self.verdicts.values().filter_map(|it| match it {
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

    /// What more it carries than it has room for. `nics` says how many cards a node has of it.
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

    /// A link of a network of which it has an end.
    #[must_use]
    pub fn link(&self, vnet: VnetId, number: u32) -> Option<&LinkPart> {
        let (part, _) = self.parts.get(&vnet)?;
        part.links.iter().find(|link| link.number == number)
    }

    /// What it says; `reaches` tells whether a link finds its other end.
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
            let nodes = nodes.map(|it| (it.name.clone(), status(&it.name)));
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
                refused: refused.filter(|it| it.generation > part.generation),
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

/// Whether both ends of a link name each other, with the same tag. `find` finds a host by its name.
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
            let there = find(&far.host);
            let other = there.and_then(|there| there.link(vnet, link.number));
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
