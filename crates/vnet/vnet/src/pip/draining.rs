//! Drained hosts: they keep their nodes, and get no new ones.
//!
//! The mark is in the store and is compared like a promise: a process of the provider that has not
//! read the mark cannot place anything on the host.

use std::collections::BTreeSet;

use carina_embed::HostId;
use carina_time::{Duration, Instant};

use crate::host_part::VnetId;
use crate::message::{Reason, ReasonCode};
use crate::store::{Outcome, Store, StoreError};

use super::{Pip, Step, TRIES};

/// A node on a host that is drained, and the hosts to which it can move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAway {
    /// Identifier (uid) of the node's network.
    pub vnet: VnetId,
    /// The name of the node's network.
    pub name: String,
    /// Name of the node that has to move.
    pub node: String,
    /// The hosts to which the node can move now, those with the most free processors first; or why
    /// it cannot move. A reason of code `Conflict` may soon be over.
    pub to: Result<Vec<String>, Reason>,
}

impl<S: Store> Pip<S> {
    /// Marks a host as drained, so that it gets no new nodes, or removes the mark. Returns whether
    /// this changed anything.
    ///
    /// # Errors
    /// There is no such host, the store does not answer, or other writes interfered each time.
    pub fn set_drained(
        &mut self,
        now: Instant,
        host: &str,
        is_drained: bool,
    ) -> Result<bool, Reason> {
        if self.ground.host(host).is_none() {
            let hosts = self.ground.inventory.hosts.iter();
            let known: Vec<&str> = hosts.map(|host| host.name.as_str()).collect();
            let host: String = host.chars().take(64).collect();
            let words = format!(
                "the inventory has no host {host}; it has: {}",
                known.join(", ")
            );
            return Err(Reason::new(ReasonCode::Impossible, words));
        }
        for _ in 0..TRIES {
            match self.try_set_drained(now, host, is_drained) {
                Ok((Step::Done, is_new)) => return Ok(is_new),
                Ok((Step::Again, _)) => {}
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

    fn try_set_drained(
        &mut self,
        now: Instant,
        host: &str,
        is_drained: bool,
    ) -> Result<(Step, bool), StoreError> {
        self.books.refresh(&mut self.store, now, &self.ground)?;
        if self.books.is_drained(host) == is_drained {
            // The books may be out of date: the store decides.
            let check = self.books.drained_as_read(host);
            return Ok(match self.store.commit(now, &check)? {
                Outcome::Done(_) => (Step::Done, false),
                Outcome::Conflict => (Step::Again, false),
            });
        }
        let write = self.books.drain(host, is_drained);
        match self.store.commit(now, &write)? {
            Outcome::Conflict => Ok((Step::Again, false)),
            Outcome::Done(_) => {
                self.books.refresh(&mut self.store, now, &self.ground)?;
                Ok((Step::Done, true))
            }
        }
    }

    /// The nodes on a host, by network and name: nodes of parts that are made or reserved, and
    /// nodes that will move there.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn nodes_at(
        &mut self,
        now: Instant,
        host: &str,
    ) -> Result<BTreeSet<(VnetId, String)>, StoreError> {
        self.books.refresh(&mut self.store, now, &self.ground)?;
        let nodes = self.nodes_here(host).into_iter();
        Ok(nodes.map(|(vnet, _, node)| (vnet, node)).collect())
    }

    /// The nodes on a host, and where each can move; includes nodes of reserved parts. A node that
    /// is about to move to this host cannot move elsewhere until it has arrived (`Conflict`).
    pub fn nodes_away(&mut self, now: Instant, host: &str) -> Vec<NodeAway> {
        if let Err(error) = self.books.refresh(&mut self.store, now, &self.ground) {
            self.discard(&error);
        }
        let away = |(vnet, name, node): (VnetId, String, String)| NodeAway {
            to: self.destinations(now, vnet, host, &node),
            vnet,
            name,
            node,
        };
        self.nodes_here(host).into_iter().map(away).collect()
    }

    /// The nodes on a host according to the books: uid of the network, its name, name of the node.
    /// A part that is being changed counts both as it was and as it is to become.
    fn nodes_here(&self, host: &str) -> BTreeSet<(VnetId, String, String)> {
        let at = self.books.at(host).into_iter();
        let made = at.filter_map(|vnet| Some((vnet, self.books.made(vnet)?)));
        let made: Vec<_> = made.collect();
        // Also nodes of moves that wait for another provider's agreement.
        let come = self.books.all_made().filter_map(|(vnet, made)| {
            let moving = made.undecided().filter(|moving| moving.to == host)?;
            Some((vnet, &made.laid.part.name, &moving.node))
        });
        let laid = made.iter().map(|(vnet, made)| (*vnet, &made.laid));
        let held = self.books.all_held().map(|(vnet, held)| (vnet, &held.laid));
        let nodes = laid.chain(held).flat_map(|(vnet, laid)| {
            let all = laid.placement.hosts.iter();
            let here = all.filter(move |(_, at)| *at == host);
            here.map(move |(node, _)| (vnet, &laid.part.name, node))
        });
        let nodes = come.chain(nodes);
        nodes
            .map(|(vnet, name, node)| (vnet, name.clone(), node.clone()))
            .collect()
    }

    /// The hosts that are drained.
    pub(super) fn drained_hosts(&self) -> Vec<HostId> {
        let drained = self.books.drained();
        drained.filter_map(|host| self.ground.host(host)).collect()
    }

    fn destinations(
        &self,
        now: Instant,
        vnet: VnetId,
        from: &str,
        node: &str,
    ) -> Result<Vec<String>, Reason> {
        if self.books.made(vnet).is_none() {
            let words = "its network is being made";
            return Err(Reason::new(ReasonCode::Conflict, words));
        }
        let free = self.free(now, Some(vnet));
        let hosts = self.ground.inventory.hosts.iter().zip(free.hosts());
        let mut hosts: Vec<_> = hosts.filter(|(it, _)| it.name != from).collect();
        hosts.sort_by_key(|(_, free)| std::cmp::Reverse(free.cpu));
        let names = vnet.to_string();
        let mut room = None;
        let (mut ways, mut refusals): (Vec<String>, Vec<Reason>) = (Vec::new(), Vec::new());
        for (host, _) in hosts {
            let target = [&*names, node, &host.name];
            let planned = self.planned_in(now, target, 0, Duration::ZERO, &mut room);
            match planned {
                Ok(_) => ways.push(host.name.clone()),
                Err(reason)
                    if refusals
                        .iter()
                        .any(|refusal| refusal.message == reason.message) => {}
                Err(reason) => refusals.push(reason),
            }
        }
        if !ways.is_empty() {
            return Ok(ways);
        }
        let passes = refusals
            .iter()
            .any(|refusal| refusal.code == ReasonCode::Conflict);
        let words: Vec<String> = refusals
            .into_iter()
            .map(|refusal| refusal.message)
            .collect();
        let (code, words) = match (passes, words.is_empty()) {
            (true, _) => (ReasonCode::Conflict, words.join("; ")),
            (false, false) => (ReasonCode::Impossible, words.join("; ")),
            (false, true) => (ReasonCode::Impossible, "there is no other host".to_owned()),
        };
        Err(Reason::new(code, words))
    }
}
