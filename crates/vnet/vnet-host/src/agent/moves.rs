//! Moves of nodes between hosts, as a provider orders them.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use carina_vnet::host_part::{HostPart, VnetId};
use carina_vnet::message::{MoveState, ReceiveNode, SendNode};

use super::Agent;
use super::network::Network;
use crate::directory::part_name;
use crate::error::{Attempt, Error, Result};
use crate::guest_wire::{self, GuestCaller, GuestWire, Offer};
use crate::watch::EchoStream;

/// The connections over which nodes are sent to other agents and received from them.
#[derive(Debug, Default)]
pub(super) struct Moves {
    ways: Mutex<Ways>,
}

#[derive(Debug, Default)]
struct Ways {
    at: Option<String>,
    caller: Option<Arc<dyn GuestCaller>>,
}

impl Moves {
    /// The address at which this agent receives nodes; `None` if it receives none.
    pub(super) fn at(&self) -> Option<String> {
        self.lock().at.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Ways> {
        // Every critical section leaves the value consistent, even after a panic.
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agent {
    /// Enables moves of nodes between this host and others. `caller` connects to the agents of
    /// other hosts, to send nodes. `at` is the address at which this agent receives nodes, for its
    /// report to the provider; `None`: it receives none. For each connection that arrives there,
    /// [`Agent::take_node`] must be called.
    pub fn serve_moves(&self, at: Option<String>, caller: Arc<dyn GuestCaller>) {
        let mut ways = self.moves.lock();
        (ways.at, ways.caller) = (at, Some(caller));
        drop(ways);
        self.host.changes.add();
    }

    /// Receives a node over a connection from the agent of host `from`, and returns when the node
    /// has arrived or was refused. The caller must have verified the identity of `from`.
    ///
    /// # Errors
    /// The provider has not ordered this move, or the node does not arrive completely. The agent
    /// that sends the node gets the error as well.
    pub fn take_node(&self, from: &str, wire: &mut GuestWire) -> Result<()> {
        let offer: Offer = guest_wire::read(wire).attempt(format!("taking a node of {from}"))?;
        let network = self.network(&part_name(offer.vnet));
        match network.and_then(|network| network.vnet()) {
            Ok(vnet) => vnet.receive_node(from, &offer, wire),
            Err(error) => {
                let refusal = guest_wire::Reply::Refused(error.to_string());
                // The sender may have closed the connection.
                let _ = guest_wire::write(wire, &refusal);
                Err(error)
            }
        }
    }

    /// Begins to send 1000 echo requests per second from a namespace node to an address.
    ///
    /// # Errors
    /// There is no such network or node, or the node is a machine.
    pub fn watch(&self, name: &str, from: &str, to: Ipv4Addr) -> Result<EchoStream> {
        self.network(name)?.vnet()?.watch(from, to)
    }

    /// Prepares to receive a node. An order that does not match the current generation is ignored:
    /// the provider learns the state from [`Agent::say`].
    pub(super) fn await_node(&self, order: &ReceiveNode) -> Result<()> {
        let part = &order.part;
        let Some((network, vnet)) = self.made(part.vnet) else {
            return Ok(());
        };
        if network.generation() != part.generation || network.has_move(order.number) {
            return Ok(());
        }
        match self.checked(part, &network) {
            Ok(own) => vnet.await_node(order, own),
            Err(error) => network.fail_move(order.number, &error),
        }
        Ok(())
    }

    /// Sends a node, on a thread of its own.
    pub(super) fn send_node(&self, order: &SendNode) -> Result<()> {
        let Some((network, vnet)) = self.made(order.vnet) else {
            return Ok(());
        };
        if network.generation() >= order.generation || network.has_move(order.number) {
            return Ok(());
        }
        let own = match self.checked(&order.part, &network) {
            Ok(own) => own,
            Err(error) => {
                network.fail_move(order.number, &error);
                return Ok(());
            }
        };
        network.set_move(order.number, MoveState::Sending {});
        let (mut order, caller) = (order.clone(), self.moves.lock().caller.clone());
        *order.part = own;
        let act = move || {
            let called = caller.ok_or(Error::Ended("the way to other agents"));
            let what = format!("calling host {}", order.to);
            let wire = called.and_then(|called| called.call(&order.to, &order.at).attempt(what));
            vnet.send_node(order.vnet, &order, wire);
        };
        let thread = std::thread::Builder::new().name("vnet-move".into());
        thread.spawn(act).map(drop).attempt("starting a thread")
    }

    /// The part that a host has after a move, with the uid in this host's names, if this host can
    /// make it.
    fn checked(&self, part: &HostPart, network: &Network) -> Result<HostPart> {
        self.check(part, &self.lock())?;
        Ok(HostPart {
            vnet: network.record().vnet,
            ..part.clone()
        })
    }

    pub(super) fn end_move(&self, vnet: VnetId, number: u64) -> Result<()> {
        match self.made(vnet) {
            Some((_, vnet)) => vnet.end_move(number),
            None => Ok(()),
        }
    }

    /// The network of a provider with this uid, if any part of it exists on this host.
    fn made(&self, vnet: VnetId) -> Option<(Arc<Network>, Arc<crate::vnet::Vnet>)> {
        let network = self.network(&part_name(vnet)).ok()?;
        let vnet = network.vnet().ok()?;
        Some((network, vnet))
    }
}
