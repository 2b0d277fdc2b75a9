//! Nodes that move between simulated hosts.
//!
//! A simulated guest is a text that is unique in the run. It is created with its node, and moves
//! with it. The simulation checks that no guest ever runs on two hosts.

use carina_time::Instant;
use carina_vnet::host_part::{HostPart, VnetId};
use carina_vnet::message::{MoveState, MoveStatus, ReceiveNode, SendNode};

use super::{PlayedHost, Verdict};

/// The guest in a node: a text that is unique in the run.
pub type Guest = String;

/// A guest that one host has sent and the other has not yet received.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Name of the destination host.
    pub to: String,
    /// Number of the move, by which both hosts know it.
    pub number: u64,
    /// The guest that moves to the destination.
    pub guest: Guest,
}

/// A move of a node from or to this host.
#[derive(Clone, Debug)]
pub(super) struct Move {
    vnet: VnetId,
    node: String,
    at: At,
}

#[derive(Clone, Debug)]
enum At {
    /// This host is the source of the move: it has sent the guest, whose copy here is paused.
    Source,
    /// The host awaits the guest, or has received it. The part says which resources its node needs.
    Destination(Box<HostPart>, Option<Guest>),
    /// This host is the destination of the move, and the guest runs here.
    Runs,
    /// This host cannot make the node, and waits for the end of the move.
    Failed,
}

impl PlayedHost {
    /// Starts to await a node. The move of a node that cannot be made here fails: an agent prepares
    /// a place for the node before it takes the guest.
    pub(super) fn await_node(&mut self, now: Instant, order: ReceiveNode) {
        let vnet = order.part.vnet;
        let generation = self.parts.get(&vnet).map(|(part, _)| part.generation);
        if generation == Some(order.part.generation) && !self.moves.contains_key(&order.number) {
            let node = order.node;
            let at = match self.decide(now, vnet, &node) {
                Verdict::Makes => At::Destination(order.part, None),
                Verdict::Fails(_) | Verdict::Refuses => At::Failed,
            };
            self.moves.insert(order.number, Move { vnet, node, at });
        }
    }

    /// Sends a node, which is paused from then on.
    pub(super) fn send_node(&mut self, order: SendNode) {
        let (vnet, node) = (order.vnet, order.node);
        let current = self.parts.get(&vnet);
        let is_older = current.is_some_and(|(part, _)| part.generation < order.generation);
        let guest = self.guests.get(&(vnet, node.clone())).cloned();
        let has_ended = self.ended.contains_key(&(vnet, node.clone()));
        let runs = self.verdict(vnet, &node) == Verdict::Makes;
        if let (Some(guest), true, false) = (guest.filter(|_| runs), is_older, has_ended)
            && !self.moves.contains_key(&order.number)
        {
            let at = At::Source;
            self.moves.insert(order.number, Move { vnet, node, at });
            self.sent.push(Sent {
                to: order.to,
                number: order.number,
                guest,
            });
        }
    }

    /// Receives a guest. A guest that is not awaited is dropped.
    pub fn take_guest(&mut self, number: u64, guest: Guest) {
        if let Some(moving) = self.moves.get_mut(&number)
            && let At::Destination(_, place @ None) = &mut moving.at
        {
            *place = Some(guest);
        }
    }

    /// Ends a move, which is complete or was given up.
    pub(super) fn end_move(&mut self, number: u64) {
        self.moves.remove(&number);
    }

    /// Whether the guest of a node has arrived but does not run yet.
    pub(super) fn has_come(&self, vnet: VnetId, node: &str) -> bool {
        let mut moves = self
            .moves
            .values()
            .filter(|candidate| candidate.vnet == vnet && candidate.node == node);
        moves.any(|candidate| matches!(candidate.at, At::Destination(_, Some(_))))
    }

    /// Forgets the moves whose guest has not arrived, because the agent has died.
    pub fn forget_awaited(&mut self) {
        let is_awaited = |moving: &Move| matches!(moving.at, At::Destination(_, None) | At::Failed);
        self.moves.retain(|_, moving| !is_awaited(moving));
    }

    /// Updates the guests for a changed part: keeps those of nodes that stay, takes those that
    /// arrived into service, and creates new ones. Returns the number of those that arrived.
    pub(super) fn change_guests(&mut self, part: &HostPart) -> u64 {
        let vnet = part.vnet;
        let mut came = 0;
        for moving in self
            .moves
            .values_mut()
            .filter(|candidate| candidate.vnet == vnet)
        {
            let At::Destination(model, guest) = &mut moving.at else {
                continue;
            };
            let is_next = model.generation + 1 == part.generation;
            if let (Some(guest), true) =
                (guest.take(), is_next && part.node(&moving.node).is_some())
            {
                self.guests.insert((vnet, moving.node.clone()), guest);
                moving.at = At::Runs;
                came += 1;
            }
        }
        let is_over = |moving: &Move| match &moving.at {
            At::Destination(model, _) => model.generation < part.generation,
            At::Source => part.node(&moving.node).is_none(),
            At::Runs | At::Failed => false,
        };
        self.moves
            .retain(|_, moving| moving.vnet != vnet || !is_over(moving));
        self.guests
            .retain(|(of, node), _| *of != vnet || part.node(node).is_some());
        for node in &part.nodes {
            let key = (vnet, node.name.clone());
            if !self.guests.contains_key(&key) {
                self.renew_guest(key);
            }
        }
        came
    }

    /// Gives a recreated node a new guest.
    pub(super) fn renew_guest(&mut self, key: (VnetId, String)) {
        self.made += 1;
        let guest = format!("{}/{}", self.name, self.made);
        self.guests.insert(key, guest);
    }

    pub(super) fn forget_guests(&mut self, vnet: VnetId) {
        self.guests.retain(|(of, _), _| *of != vnet);
        self.moves.retain(|_, moving| moving.vnet != vnet);
    }

    /// The guests of a network that run on this host.
    pub fn running(&self, vnet: VnetId) -> impl Iterator<Item = &Guest> {
        let stands = move |node: &str| {
            let mut all = self.moves.values();
            all.any(|candidate| {
                candidate.vnet == vnet
                    && candidate.node == node
                    && matches!(candidate.at, At::Source)
            })
        };
        let own = self.guests.range((vnet, String::new())..);
        let own = own.take_while(move |((of, _), _)| *of == vnet);
        own.filter(move |((_, node), _)| !stands(node))
            .map(|(_, guest)| guest)
    }

    /// The nodes that the host awaits, each with its part.
    pub(super) fn awaited(&self) -> impl Iterator<Item = (&HostPart, &str)> {
        let all = self.moves.values();
        all.filter_map(|moving| match &moving.at {
            At::Destination(part, _) => Some((&**part, moving.node.as_str())),
            At::Source | At::Runs | At::Failed => None,
        })
    }

    /// The states of the host's moves, for its report.
    pub(super) fn moves(&self) -> Vec<MoveStatus> {
        let status = |(number, moving): (&u64, &Move)| MoveStatus {
            vnet: moving.vnet,
            number: *number,
            state: match &moving.at {
                At::Source => MoveState::Sending {},
                At::Destination(_, None) => MoveState::Awaited {},
                At::Destination(_, Some(_)) => MoveState::Arrived {},
                At::Runs => MoveState::Runs { paused_us: Some(1) },
                At::Failed => MoveState::Failed {
                    reason: format!("{} has no place for node {}", self.name, moving.node),
                },
            },
        };
        self.moves.iter().map(status).collect()
    }
}
