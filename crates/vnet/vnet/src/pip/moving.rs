//! Moves of running nodes to another host of the provider.
//!
//! ```text
//!   begin_move      the destination is ready          every host matches its part
//!  (nothing) ----> undecided --------------> decided ----------------------------> moved
//!                    |   resources of both placements are reserved    |
//!                    +---> given up: a host refuses or fails, the time is over
//! ```
//!
//! If links of the node lead to other providers, these are asked first, and nothing is made
//! anywhere until they agree ([`repointing`](super::repointing)).
//!
//! Only the store records where a node is. One write changes that, when the destination has the
//! whole node. Before this write the node is at its source, even if a process fails; after it, at
//! its destination. A host that reports a move other than the current one is ordered to end that
//! move.

mod planning;

use std::net::Ipv4Addr;

use carina_time::{Duration, Instant};

use crate::host_part::{LinkState, NodeState, VnetId};
use crate::message::{MoveState, PartEnd, Reason, ReasonCode, ReceiveNode, SendNode, ToAgent};
use crate::store::{Outcome, Store, StoreError};
use crate::store_copy::to_value;

use super::books::round_of;
use super::moves::{MoveOutcome, Moving, Untold};
use super::repointing::outer_ends;
use super::{Pip, Step, TRIES, hosting};

/// A node of this provider at the other end of one of a node's links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Name of the neighbour's host.
    pub host: String,
    /// Name of the neighbour, a node of the same network.
    pub node: String,
    /// Whether the neighbour is a namespace or a bridge; otherwise it is a virtual machine.
    pub is_namespace: bool,
    /// Address of the node (not of the neighbour) on their link.
    pub address: Ipv4Addr,
}

impl<S: Store> Pip<S> {
    /// Begins to move a node to another host. `number` must be random: a process that knows it can
    /// send the node to the destination. The network is given by its uid, or by its name if that is
    /// unique. Returns the uid.
    ///
    /// # Errors
    /// There is no such network, node or host; the node cannot move, with the reason; it does not
    /// fit there; or the network is being changed.
    pub fn begin_move(
        &mut self,
        now: Instant,
        [vnet, node, to]: [&str; 3],
        number: u64,
        limit: Duration,
    ) -> Result<VnetId, Reason> {
        for _ in 0..TRIES {
            match self.try_begin_move(now, [vnet, node, to], number, limit) {
                Ok(Ok((vnet, Step::Done))) => return Ok(vnet),
                Ok(Ok((_, Step::Again))) => {}
                Ok(Err(reason)) => return Err(reason),
                Err(error) => {
                    let words = format!("the provider's store: {error}");
                    self.discard(&error);
                    return Err(Reason::new(ReasonCode::Unreachable, words));
                }
            }
        }
        let words = "concurrent changes prevented every attempt; try again";
        Err(Reason::new(ReasonCode::Conflict, words))
    }

    /// The outcome of a move; `None` while it is in progress.
    ///
    /// # Errors
    /// Nothing is known of the move: the network is gone, or another move has taken place since.
    pub fn outcome_of_move(
        &mut self,
        now: Instant,
        vnet: VnetId,
        number: u64,
    ) -> Result<Option<MoveOutcome>, Reason> {
        if let Err(error) = self.books.refresh(&mut self.store, now, &self.ground) {
            self.discard(&error);
            return Ok(None);
        }
        let made = self.books.made(vnet).filter(|made| !made.is_leaving);
        let gone = || Reason::new(ReasonCode::Removing, "the network is being removed");
        let made = made.ok_or_else(gone)?;
        if made
            .moving
            .as_ref()
            .is_some_and(|moving| moving.number == number)
        {
            return Ok(None);
        }
        let moved = made.moved.as_ref().filter(|moved| moved.number == number);
        let unknown = || {
            Reason::new(
                ReasonCode::Conflict,
                "the network was changed in the meantime",
            )
        };
        moved
            .map(|moved| Some(moved.outcome.clone()))
            .ok_or_else(unknown)
    }

    /// The uid of a network given by its uid, or by its name if that is unique.
    ///
    /// # Errors
    /// There is no such network, or several have the name.
    pub fn vnet_named(&mut self, now: Instant, name: &str) -> Result<VnetId, Reason> {
        if let Err(error) = self.books.refresh(&mut self.store, now, &self.ground) {
            self.discard(&error);
        }
        self.made_named(name).map(|(vnet, _)| vnet)
    }

    /// The nodes of this provider at the other ends of a node's links.
    #[must_use]
    pub fn neighbours(&self, vnet: VnetId, node: &str) -> Vec<Neighbour> {
        let Some(made) = self.books.made(vnet) else {
            return Vec::new();
        };
        let laid = &made.laid;
        let wanted = |name: &str| laid.part.nodes.iter().find(|node| node.node.name == name);
        let own = wanted(node)
            .into_iter()
            .flat_map(|place| &place.node.interfaces);
        let neighbour = |own: &crate::host_part::InterfacePart| {
            let link = laid
                .part
                .links
                .iter()
                .find(|link| link.number == own.link)?;
            let other = link.ends.iter().find_map(|end| match end {
                PartEnd::Node(end) if end.node != node => Some(&end.node),
                _ => None,
            })?;
            Some(Neighbour {
                host: laid.placement.hosts.get(other)?.clone(),
                node: other.clone(),
                is_namespace: wanted(other)?.node.kind.has_namespace(),
                address: own.address.address(),
            })
        };
        own.filter_map(neighbour).collect()
    }

    fn try_begin_move(
        &mut self,
        now: Instant,
        [vnet, node, to]: [&str; 3],
        number: u64,
        limit: Duration,
    ) -> Result<Result<(VnetId, Step), Reason>, StoreError> {
        self.books.refresh(&mut self.store, now, &self.ground)?;
        let (vnet, then) = match self.planned(now, [vnet, node, to], number, limit) {
            Ok(planned) => planned,
            Err(reason) => return Ok(Err(reason)),
        };
        let write = self.books.change(vnet, true);
        let write = write.put(self.books.made_key(vnet), to_value(&then));
        match self.store.commit(now, &write)? {
            Outcome::Conflict => Ok(Ok((vnet, Step::Again))),
            Outcome::Done(_) => {
                self.books.refresh(&mut self.store, now, &self.ground)?;
                self.order(now, vnet);
                self.drive_move(now, vnet)?;
                Ok(Ok((vnet, Step::Done)))
            }
        }
    }

    /// Continues the current move of a network as far as its hosts have got.
    pub(super) fn drive_move(&mut self, now: Instant, vnet: VnetId) -> Result<(), StoreError> {
        self.tell_beyond(now, vnet);
        let made = self.books.made(vnet).filter(|made| !made.is_leaving);
        let Some((made, moving)) = made.and_then(|made| Some((made, made.moving.as_ref()?))) else {
            return Ok(());
        };
        let number = moving.number;
        let [at_source, at_destination] =
            [&moving.from, &moving.to].map(|host| self.state_of_move(host, vnet, number));
        let is_late = now.as_millis() >= moving.until_ms;
        if moving.is_decided {
            return self.finish_move(now, vnet, is_late);
        }
        if !moving.awaits.is_empty() {
            let words = "the provider at the other end of a link did not agree in time";
            return if is_late {
                self.give_up_move(now, vnet, words.to_owned())
            } else {
                Ok(())
            };
        }
        match (at_destination, at_source) {
            (Some(MoveState::Failed { reason }), _) | (_, Some(MoveState::Failed { reason })) => {
                let reason = reason.clone();
                self.give_up_move(now, vnet, reason)
            }
            _ if is_late => {
                let reason = "it has not arrived in time".to_owned();
                self.give_up_move(now, vnet, reason)
            }
            (Some(MoveState::Arrived {}), _) => self.decide_move(now, vnet),
            (Some(MoveState::Awaited {}), None) => {
                self.tell_source(now, vnet);
                Ok(())
            }
            (None, _) => {
                let reported = self.status_of(vnet, &moving.to);
                if reported.is_some_and(|reported| reported.generation >= made.generation()) {
                    let part = hosting::host_part(vnet, made, &moving.placement, &moving.to);
                    let order = ReceiveNode {
                        number,
                        node: moving.node.clone(),
                        from: moving.from.clone(),
                        part: Box::new(part),
                    };
                    let to = moving.to.clone();
                    self.send(&to, ToAgent::Receive(order));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Orders the source of a move to send the node, when its destination awaits the node. An order
    /// is repeated after a time: a source that cannot send answers with a report that does not
    /// mention the move.
    fn tell_source(&mut self, now: Instant, vnet: VnetId) {
        let made = self.books.made(vnet);
        let Some((made, moving)) = made.and_then(|made| Some((made, made.moving.as_ref()?))) else {
            return;
        };
        let reported = self.report_of(&moving.to).map(|(_, reported)| reported);
        let Some(at) = reported.and_then(|reported| reported.moves_at.clone()) else {
            return;
        };
        let number = moving.number;
        if self.sends.get(&number).is_some_and(|again| now < *again) {
            return;
        }
        let part = hosting::host_part(vnet, made, &moving.placement, &moving.from);
        let order = SendNode {
            vnet,
            generation: made.generation(),
            number,
            node: moving.node.clone(),
            to: moving.to.clone(),
            at,
            limit_ms: moving.until_ms - now.as_millis(),
            part: Box::new(part),
        };
        let from = moving.from.clone();
        self.sends.insert(number, now + self.timing.repeat);
        self.send(&from, ToAgent::Send(order));
    }

    /// Writes the new placement to the store. From then on the node is at its destination.
    fn decide_move(&mut self, now: Instant, vnet: VnetId) -> Result<(), StoreError> {
        let Some(then) = self.books.made(vnet).and_then(|made| {
            let mut then = made.clone();
            let moving = then.moving.as_mut()?;
            moving.is_decided = true;
            std::mem::swap(&mut then.laid.placement, &mut moving.placement);
            then.moves += 1;
            let (number, node) = (moving.number, moving.node.clone());
            then.previous.push(made.laid.clone());
            let ends = outer_ends(&then.laid.part, &node);
            then.untold = (!ends.is_empty()).then_some(Untold { number, ends });
            Some(then)
        }) else {
            return Ok(());
        };
        self.books.rewrite(&mut self.store, now, vnet, &then)?;
        self.books.refresh(&mut self.store, now, &self.ground)?;
        self.order(now, vnet);
        self.tell_beyond(now, vnet);
        Ok(())
    }

    pub(super) fn give_up_move(
        &mut self,
        now: Instant,
        vnet: VnetId,
        reason: String,
    ) -> Result<(), StoreError> {
        self.end_move(now, vnet, MoveOutcome::Stayed { reason })
    }

    /// Records the outcome of a decided move, once its hosts have completed it or its time has
    /// ended.
    fn finish_move(&mut self, now: Instant, vnet: VnetId, is_late: bool) -> Result<(), StoreError> {
        let Some((made, moving)) = self
            .books
            .made(vnet)
            .and_then(|made| Some((made, made.moving.as_ref()?)))
        else {
            return Ok(());
        };
        let status = self.status_of(vnet, &moving.to);
        let status = status.filter(|status| status.generation >= made.generation());
        let node = status.and_then(|status| status.nodes.get(&moving.node));
        let is_up = node.is_some_and(|node| node.state == NodeState::Up);
        let is_own = |end: &PartEnd| matches!(end, PartEnd::Node(end) if end.node == moving.node);
        let links = made.laid.part.links.iter();
        let mut links = links.filter(|link| link.ends.iter().any(is_own));
        let is_linked = links.all(|link| {
            let link = status.and_then(|status| status.links.get(&link.number));
            link.is_some_and(|link| link.state == LinkState::Up)
        });
        let is_known = made.previous.is_empty() && made.untold.is_none();
        if !(is_late || is_up && is_linked && is_known) {
            return Ok(());
        }
        let outcome = match self.state_of_move(&moving.to, vnet, moving.number) {
            Some(MoveState::Runs { paused_us }) => MoveOutcome::Moved {
                paused_us: *paused_us,
            },
            // The node resumes in a moment.
            Some(MoveState::Arrived {}) if !is_late => return Ok(()),
            _ => MoveOutcome::Recreated {},
        };
        self.end_move(now, vnet, outcome)
    }

    fn end_move(
        &mut self,
        now: Instant,
        vnet: VnetId,
        outcome: MoveOutcome,
    ) -> Result<(), StoreError> {
        let Some((then, hosts)) = self.books.made(vnet).and_then(|made| {
            let mut then = made.clone();
            let moving = then.end_move(outcome)?;
            if moving.is_awaited() {
                // An order to await the node may still be on its way; the new count makes its
                // generation obsolete.
                then.moves += 1;
            }
            Some((then, [moving.from, moving.to]))
        }) else {
            return Ok(());
        };
        self.books.rewrite(&mut self.store, now, vnet, &then)?;
        self.books.refresh(&mut self.store, now, &self.ground)?;
        self.order(now, vnet);
        for host in hosts {
            self.end_moves(&host);
        }
        Ok(())
    }

    /// Orders a host to end every move that it reports and that is not the current one.
    pub(super) fn end_moves(&mut self, host: &str) {
        let reported = self.report_of(host).map(|(_, reported)| reported);
        let named: Vec<(VnetId, u64)> = reported
            .into_iter()
            .flat_map(|reported| &reported.moves)
            .map(|link| (link.vnet, link.number))
            .collect();
        for (vnet, number) in named {
            let made = self.books.made(vnet);
            let is_under_way = made
                .and_then(|made| made.moving.as_ref())
                .is_some_and(|moving| moving.number == number);
            // First the host's new part tells it whether the node runs there.
            let is_behind = made.is_some_and(|made| {
                let reported = self.status_of(vnet, host);
                reported.is_some_and(|reported| reported.generation < made.generation_at(host))
            });
            if !is_under_way && !is_behind {
                self.send(host, ToAgent::EndMove { vnet, number });
            }
        }
    }

    fn state_of_move(&self, host: &str, vnet: VnetId, number: u64) -> Option<&MoveState> {
        let (_, report) = self.report_of(host)?;
        let mut moves = report.moves.iter();
        let found = moves.find(|candidate| candidate.vnet == vnet && candidate.number == number)?;
        Some(&found.state)
    }
}
