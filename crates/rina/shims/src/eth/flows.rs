//! How flows of an Ethernet shim start and end. There is one flow per station.

use std::collections::HashMap;

use carina_api::{AppName, PortId};
use carina_dataplane::{FlowLinks, Request};
use carina_engine::counters::Value;
use carina_engine::{Close, LinkId, Links, Packet};
use carina_time::Duration;
use carina_wire::ether::Mac;

use super::Eth;
use crate::flow_table::{CREDIT_ANY, Names, Stage};

/// Maps the MAC address of a station to its flow.
#[derive(Default)]
pub(super) struct FlowByMac {
    places: HashMap<Mac, usize>,
    /// The station of the last SDU, as a cache, because most SDUs arrive in bursts.
    last: Option<(Mac, usize)>,
}

impl FlowByMac {
    fn get(&mut self, mac: Mac) -> Option<usize> {
        if let Some((last, at)) = self.last
            && last == mac
        {
            return Some(at);
        }
        let at = *self.places.get(&mac)?;
        self.last = Some((mac, at));
        Some(at)
    }

    fn insert(&mut self, mac: Mac, at: usize) {
        self.places.insert(mac, at);
        self.last = None;
    }

    fn remove(&mut self, mac: Mac) {
        self.places.remove(&mac);
        self.last = None;
    }
}

impl Eth {
    /// Processes all pending requests of the plane.
    pub(super) fn handle_requests(&mut self, links: &mut Links) {
        while let Some(request) = self.flows.next_request() {
            match request {
                Request::Register(name, reader) => {
                    if reader.is_some() {
                        self.close_guessed(links);
                    }
                    self.flows.register(name, reader);
                }
                Request::Unregister(name) => self.flows.unregister(&name),
                Request::Allocate {
                    port,
                    local,
                    remote,
                    links: ends,
                    ..
                } => match self.nic.link() {
                    Ok(()) => {
                        let names = Names { local, remote };
                        self.flows
                            .request(self.now, (port, names, ends), None, links);
                        self.retries.begin(self.now, port);
                    }
                    Err(error) => self.flows.reject(port, ends, error.to_string(), links),
                },
                Request::Respond {
                    port,
                    answer: Ok(ends),
                } => self.accepted(port, ends, links),
                Request::Respond { port, .. } | Request::Refuse { port, .. } => {
                    if let Some(Some(mac)) = self.flows.refuse(port) {
                        self.arp_cache.flow_ended(mac, self.now);
                        self.flow_by_mac.remove(mac);
                    }
                }
                // Such requests are only for IPCPs that use N-1 flows.
                Request::Member(_) => {}
                Request::Remove => {
                    self.fail_all("the IPC process was destroyed", links);
                    self.is_removed = true;
                    return links.finish(self.flows.id);
                }
            }
        }
    }

    fn accepted(&mut self, port: PortId, ends: FlowLinks, links: &mut Links) {
        let credit = self.credit();
        self.flows.accept(self.now, (port, ends), credit, links);
    }

    pub(super) fn credit(&self) -> (u64, usize) {
        (CREDIT_ANY, self.nic.sdu_bytes_max())
    }

    /// Delivers an SDU from the station `from`.
    pub(super) fn receive_sdu(&mut self, from: Mac, packet: Packet, links: &mut Links) {
        let at = match self.flow_by_mac.get(from) {
            Some(at) => Some(at),
            None => self.first_sdu(from, &packet),
        };
        if let Some(at) = at {
            self.flows.deliver(at, packet, links);
        }
    }

    /// Starts a flow with the first SDU of a station.
    fn first_sdu(&mut self, from: Mac, packet: &Packet) -> Option<usize> {
        // An M_CONNECT starts a new flow, whatever is known of its station: an IPCP that has
        // resolved a name once does not send ARP requests for it again.
        let connecting = self.flows.connecting(packet).filter(|_| self.is_up);
        let is_late = connecting.is_none() && self.arp_cache.is_late(from, self.now);
        if !self.is_up || is_late {
            self.flows.row.add(Value::DropFlowEnded, 1);
            return None;
        }
        let names = connecting.or_else(|| self.requested_names(from));
        let Some(names) = names.or_else(|| self.guessed_names(from)) else {
            self.flows.row.add(Value::DropUnknownChannel, 1);
            return None;
        };
        let at = self.flows.add_incoming(self.now, names, Some(from))?;
        self.arp_cache.flow_begins(from);
        self.flow_by_mac.insert(from, at);
        Some(at)
    }

    /// The names of the flow that a station has requested, if the called application is registered
    /// with this shim.
    fn requested_names(&self, from: Mac) -> Option<Names> {
        let names = self.arp_cache.requester(from)?;
        let is_here = self.flows.names.contains(&names.local);
        is_here.then(|| names.clone())
    }

    /// Guesses the names of a flow of which this side has lost its state, for example by a restart:
    /// the first registered application is taken. If an IPCP to which peers connect is registered
    /// with this shim, there is no guess: the station probably runs a peer of it, and its SDUs
    /// before the next M_CONNECT belong to the old flow.
    fn guessed_names(&self, from: Mac) -> Option<Names> {
        let local = self.flows.names.first()?.clone();
        let remote = unknown_at(from).filter(|_| self.flows.connectable.is_empty())?;
        Some(Names { local, remote })
    }

    /// Whether the names of a flow are only guessed.
    fn is_guessed(&mut self, at: usize) -> bool {
        self.flows.get_mut(at).is_some_and(|flow| {
            let unknown = flow.peer.and_then(unknown_at);
            unknown.is_some_and(|unknown| flow.names.remote == unknown)
        })
    }

    /// Called when an IPCP is registered: closes flows with guessed names, because their stations
    /// may run peers of the IPCP, which will connect.
    fn close_guessed(&mut self, links: &mut Links) {
        for at in self.flows.indices() {
            if self.is_guessed(at) {
                let text = "the station may want to reach an IPCP that was registered after the \
                    flow began";
                self.close_flow(at, Close::Graceful(text.to_owned()), links);
            }
        }
    }

    /// Processes an ARP request of a station for an application that is registered with this shim.
    pub(super) fn handle_request(&mut self, from: Mac, names: Names, links: &mut Links) {
        let now = self.now;
        // A station does not request a flow that it has, so the old flow has ended on its side. A
        // repeated request that arrives late is no sign of that, unless the names of the flow were
        // guessed.
        if let Some(at) = self.flow_by_mac.get(from)
            && let is_guessed = self.is_guessed(at)
            && let Some(flow) = self.flows.get_mut(at)
            && flow.is_passive
            && (is_guessed || flow.names == names && now.since(flow.since) > SETTLED_AFTER)
        {
            let close = Close::Graceful(format!("{} has restarted", names.remote));
            self.close_flow(at, close, links);
        }
        self.arp_cache.note_request(from, names);
    }

    /// Processes an ARP reply: the station `from` has a requested name.
    pub(super) fn handle_reply(&mut self, from: Mac, names: Names, links: &mut Links) {
        let places = self
            .retries
            .ports()
            .filter_map(|port| self.flows.index_of_port(port));
        let places: Vec<usize> = places.collect();
        let is_it = |at: &usize| self.flows.get_mut(*at).is_some_and(|l| l.names == names);
        let Some(at) = places.into_iter().find(is_it) else {
            return;
        };
        let Some(port) = self.flows.get_mut(at).map(|flow| flow.port) else {
            return;
        };
        self.retries.end(port);
        tracing::debug!(target: "carina::shim::eth", ipcp = %self.flows.ipcp,
            remote = %names.remote, station = %from, "ARP request answered");
        if let Some(other) = self.flow_by_mac.get(from)
            && let is_guessed = self.is_guessed(other)
            && let Some(flow) = self.flows.get_mut(other)
        {
            if flow.stage == Stage::Open && !is_guessed {
                let reason = format!(
                    "{} is at {from}, with which a flow exists already (from {} to {}); the \
                     shim has one flow per pair of stations",
                    names.remote, flow.names.local, flow.names.remote
                );
                self.flows.close(at, Close::Refused(reason), links);
                return;
            }
            // Both sides requested a flow at the same time. One flow is enough, and this side's own
            // is kept.
            let text = format!("{} has a flow to {} of its own", names.local, names.remote);
            self.close_flow(other, Close::Failed(text), links);
        }
        self.arp_cache.flow_begins(from);
        if let Some(flow) = self.flows.get_mut(at) {
            flow.peer = Some(from);
        }
        self.flow_by_mac.insert(from, at);
        let credit = self.credit();
        self.flows.confirm(self.now, at, credit, links);
    }

    /// Ends a flow because the network ended it.
    pub(super) fn close_flow(&mut self, at: usize, close: Close, links: &mut Links) {
        if let Some(Some(mac)) = self.flows.close(at, close, links) {
            self.flow_by_mac.remove(mac);
        }
    }

    /// Removes a flow that its application has closed, after its SDUs were put into the ring.
    pub(super) fn flow_ended(&mut self, link: LinkId, links: &mut Links) {
        if let Some(flow) = self.flows.take_closed(link, links) {
            self.retries.end(flow.port);
            if let Some(mac) = flow.peer {
                self.flow_by_mac.remove(mac);
                self.arp_cache.flow_ended(mac, self.now);
            }
        }
    }

    /// Reports the new longest SDU after the MTU has changed. If it has shrunk, all flows fail:
    /// their users would otherwise lose every longer SDU without notice.
    pub(super) fn follow_mtu(&mut self, links: &mut Links) {
        let sdu_bytes_max = self.nic.sdu_bytes_max();
        let before = std::mem::replace(&mut self.sdu_bytes_max, sdu_bytes_max);
        if sdu_bytes_max != before {
            tracing::info!(target: "carina::shim::eth", ipcp = %self.flows.ipcp, before,
                sdu_bytes_max, "MTU changed");
            self.flows.sdu_max_changed(sdu_bytes_max);
        }
        if sdu_bytes_max < before {
            let label = self.nic.label();
            let reason = format!(
                "{label} now carries SDUs of at most {sdu_bytes_max} bytes, before \
                    {before}"
            );
            self.fail_all(&reason, links);
        }
        self.flows.restate_credit(self.credit(), links);
    }

    /// Fails all flows and requests, because the medium is down.
    pub(super) fn fail_all(&mut self, reason: &str, links: &mut Links) {
        self.retries.clear();
        for at in self.flows.indices() {
            self.close_flow(at, Close::Failed(reason.to_owned()), links);
        }
        self.stalled.clear();
    }
}

/// The name of an unknown application at a station.
fn unknown_at(station: Mac) -> Option<AppName> {
    AppName::new(format!("station {station}")).ok()
}

/// Age above which an ARP request for a flow with the same names is not a repetition of the
/// request for the existing flow.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
