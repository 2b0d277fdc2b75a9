//! Creates the users of flows: their apps, their links to IPCPs, and relays between two users on
//! one system.

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use carina_api::{IpcpId, PortId};
use carina_engine::counters::Kind;
use carina_engine::{AppId, BundleLimits, Close, Credit, LinkId};
use carina_ipcp::N1Port;
use thiserror::Error;

use super::Plane;
use crate::command::{Command, FlowEnd};
use crate::crossing::{CROSSING_BYTES, CROSSING_WINDOW, Crossed};
use crate::event::Event;
use crate::flow::{Flow, Report};
use crate::ipcp_app::{FlowLinks, MemberRequest, N1Links, Request};
use crate::normal;
use crate::port_table::{CloseRequest, FlowOwner, PortEntry};
use crate::read_size::READ_BYTES_MAX;
use crate::ring_flow::{RingFlow, piece_max, window_of};
use crate::socket_end::{SOCKET_WINDOW, SocketEnd};
use crate::socket_flow::SocketFlow;
use crate::stream_flow::StreamFlow;

impl Plane {
    /// Attaches a user to a flow: creates the app of the flow's end, or finds the IPCP that is the
    /// end, and creates the links between it and the providing IPCP.
    pub(super) fn attach(
        &mut self,
        ipcp: IpcpId,
        port: PortId,
        name: String,
        end: FlowEnd,
    ) -> Result<FlowLinks, AttachError> {
        let handle = self.ipcps.get(&ipcp);
        let handle = handle.ok_or(AttachError::NoIpcp(ipcp))?;
        let provider = handle.app;
        let window = match &end {
            // A peer that keeps to its credit needs no larger window than with other users.
            FlowEnd::Elsewhere { .. } if !handle.enforces_credit || handle.uses_n1_flows => {
                CROSSING_BYTES as u64
            }
            end => window(end),
        };
        let credit = if handle.enforces_credit {
            Credit::Unlimited
        } else {
            Credit::Window(window)
        };
        let id = self.app_of(&end)?;
        let to_flow = self.engine.connect(provider, id, credit, piece_max(window));
        let from_flow = self.engine.connect(id, provider, Credit::Stated, 0);
        let ends = (to_flow, from_flow);
        let owner = self
            .seize(id, port, name.clone(), ends, end, Role::Only)
            .inspect_err(|_| {
                self.engine.links().disconnect(to_flow);
                self.engine.links().disconnect(from_flow);
            })?;
        let entry = PortEntry {
            ipcp: Some(ipcp),
            name,
            owner: Some(owner),
        };
        self.ports.insert(port, entry);
        Ok(FlowLinks {
            to_flow,
            from_flow,
            window,
        })
    }

    /// The app at a flow's end: a new app for an application, or the app of the IPCP that uses the
    /// flow.
    fn app_of(&mut self, end: &FlowEnd) -> Result<AppId, AttachError> {
        match end {
            FlowEnd::Ipcp { ipcp, .. } => match self.ipcps.get(ipcp) {
                Some(handle) if handle.uses_n1_flows => Ok(handle.app),
                _ => Err(AttachError::NotNormal(*ipcp)),
            },
            _ => Ok(self.engine.reserve()),
        }
    }

    /// Connects `end` with the app that [`Plane::app_of`] returned. `ends` are the links toward and
    /// from the app. On an error the app is removed.
    fn seize(
        &mut self,
        id: AppId,
        port: PortId,
        name: String,
        ends: (LinkId, LinkId),
        end: FlowEnd,
        role: Role,
    ) -> io::Result<FlowOwner> {
        if let FlowEnd::Ipcp { ipcp, n1 } = end {
            let is_silent = role == Role::RelaySecond;
            self.attach_n1(ipcp, n1, port, ends, is_silent);
            return Ok(FlowOwner::Ipcp(ipcp, n1));
        }
        let close_request = CloseRequest::default();
        let mut flow = self.flow(id, port, name, ends, &close_request);
        if role == Role::RelaySecond {
            flow.report = Report::Nothing;
        }
        flow.has_channel = role != Role::Only;
        let user = match &end {
            FlowEnd::Elsewhere { user, .. } => Some(user.clone()),
            _ => None,
        };
        self.add_end(id, flow, end)?;
        Ok(match user {
            Some(user) => FlowOwner::Elsewhere(Rc::new(move |port, reason| {
                user.put(Command::Deallocate { port, reason });
            })),
            None => FlowOwner::App(id, close_request),
        })
    }

    /// Gives a normal IPCP the links of an N-1 flow.
    fn attach_n1(
        &mut self,
        ipcp: IpcpId,
        n1: N1Port,
        port: PortId,
        (input, output): (LinkId, LinkId),
        is_silent: bool,
    ) {
        let cookie = normal::n1_cookie(n1);
        self.engine.links().set_sink_cookie(input, cookie);
        self.engine.links().set_source_cookie(output, cookie);
        let links = N1Links {
            port,
            input,
            output,
            is_silent,
        };
        self.request_member(ipcp, MemberRequest::Attach { n1, links });
    }

    /// Attaches a flow that another worker provides to its user on this worker. If that fails, the
    /// other worker sees that its channel has failed.
    pub(super) fn cross(&mut self, crossed: Crossed) {
        let Crossed {
            ipcp,
            n1,
            port,
            end,
            with,
        } = crossed;
        let Ok(user) = self.app_of(&FlowEnd::Ipcp { ipcp, n1 }) else {
            return;
        };
        let id = self.engine.reserve();
        let to_user = Credit::Window(normal::N1_WINDOW);
        let to_user = self
            .engine
            .connect(id, user, to_user, piece_max(normal::N1_WINDOW));
        // The longest piece depends on the IPCP at the other end, which reports it later.
        let to_flow = Credit::Window(CROSSING_WINDOW);
        let to_flow = self.engine.connect(user, id, to_flow, 0);
        let name = format!("{port} to ipcp {ipcp}");
        let mut flow = self.flow(
            id,
            port,
            name.clone(),
            (to_flow, to_user),
            &CloseRequest::default(),
        );
        flow.report = Report::PortOnly;
        flow.has_channel = true;
        if self
            .engine
            .add(id, Box::new(RingFlow::crossing(flow, *end, with)))
            .is_err()
        {
            self.engine.links().disconnect(to_flow);
            self.engine.links().disconnect(to_user);
            return;
        }
        self.attach_n1(ipcp, n1, port, (to_user, to_flow), true);
        let entry = PortEntry {
            ipcp: None,
            name,
            owner: Some(FlowOwner::Crossed(id, ipcp, n1)),
        };
        self.ports.insert(port, entry);
    }

    fn flow(
        &self,
        id: AppId,
        port: PortId,
        name: String,
        (input, output): (LinkId, LinkId),
        close_request: &CloseRequest,
    ) -> Flow {
        Flow {
            id,
            port,
            input,
            output,
            row: self.counters.row(Kind::Flow, u64::from(port.0), &name),
            name,
            events: self.events.clone(),
            ports: self.ports.clone(),
            close_request: Rc::clone(close_request),
            report: Report::End,
            is_done: false,
            has_channel: false,
        }
    }

    fn add_end(&mut self, id: AppId, flow: Flow, end: FlowEnd) -> io::Result<()> {
        if matches!(end, FlowEnd::Ring(_) | FlowEnd::Elsewhere { .. }) {
            let any = BundleLimits {
                bytes_max: usize::MAX,
                sdu_bytes_max: usize::MAX,
            };
            self.engine.links().accept_bundles(flow.input, any);
        }
        match end {
            FlowEnd::Ring(end) => self.engine.add(id, Box::new(RingFlow::new(flow, *end))),
            FlowEnd::Elsewhere { end, with, .. } => {
                let end = RingFlow::crossing(flow, *end, with);
                self.engine.add(id, Box::new(end))
            }
            FlowEnd::Socket(socket) => {
                let end = SocketFlow::new(self.socket_end(flow, socket));
                self.engine.add(id, Box::new(end))
            }
            FlowEnd::Stream(socket, sdu_max) => {
                let (end, budget) = (self.socket_end(flow, socket), self.budget.clone());
                let end = StreamFlow::new(end, budget, sdu_max);
                self.engine.add(id, Box::new(end))
            }
            FlowEnd::Ipcp { .. } => Err(io::Error::other("an IPCP needs no app of its own")),
        }
    }

    fn socket_end<S: AsFd>(&self, flow: Flow, socket: S) -> SocketEnd<S> {
        let (pool, lingering) = (self.engine.pool().clone(), Rc::clone(&self.lingering));
        SocketEnd::new(flow, socket, pool, lingering)
    }

    pub(super) fn respond(&mut self, port: PortId, answer: Result<FlowEnd, String>) {
        // If the request no longer exists, the manager knows that. Dropping the end closes it.
        let Some(PortEntry {
            ipcp: Some(ipcp),
            name,
            ..
        }) = self.ports.get(port)
        else {
            return;
        };
        let answer = match answer {
            Ok(end) => {
                let attached = self.attach(ipcp, port, name, end);
                let attached = attached.map_err(|error| error.to_string());
                if let Err(reason) = &attached {
                    let reason = reason.clone();
                    self.events.put(Event::FlowClosed { port, reason });
                }
                attached
            }
            Err(reason) => Err(reason),
        };
        self.request(ipcp, Request::Respond { port, answer });
    }

    /// Connects two ends on this system.
    pub(super) fn relay(
        &mut self,
        a: FlowEnd,
        b: FlowEnd,
        port: PortId,
    ) -> Result<(), AttachError> {
        let (window_a, window_b) = (relayed_window(&a, &b), relayed_window(&b, &a));
        let id_a = self.app_of(&a)?;
        let is_new = |end: &FlowEnd| !matches!(end, FlowEnd::Ipcp { .. });
        let (a_is_new, b_is_new) = (is_new(&a), is_new(&b));
        let id_b = match self.app_of(&b) {
            Ok(id) => id,
            Err(reason) => {
                if a_is_new {
                    self.engine.release(id_a);
                }
                return Err(reason);
            }
        };
        let (piece_a, piece_b) = (relayed_piece_max(&a, &b), relayed_piece_max(&b, &a));
        let to_b = self
            .engine
            .connect(id_a, id_b, Credit::Window(window_b), piece_b);
        let to_a = self
            .engine
            .connect(id_b, id_a, Credit::Window(window_a), piece_a);
        let owner = match self.seize(
            id_a,
            port,
            format!("relay {port} a"),
            (to_a, to_b),
            a,
            Role::RelayFirst,
        ) {
            Ok(owner) => owner,
            Err(error) => {
                if b_is_new {
                    self.engine.release(id_b);
                }
                self.engine.links().disconnect(to_a);
                self.engine.links().disconnect(to_b);
                return Err(error.into());
            }
        };
        if let Err(error) = self.seize(
            id_b,
            port,
            format!("relay {port} b"),
            (to_b, to_a),
            b,
            Role::RelaySecond,
        ) {
            // The first end exists already. It ends when it sees that its input is closed.
            let reason = error.to_string();
            self.engine.links().close(to_a, Close::Refused(reason));
            self.engine.links().disconnect(to_b);
            return Err(error.into());
        }
        let entry = PortEntry {
            ipcp: None,
            name: format!("relay {port}"),
            owner: Some(owner),
        };
        self.ports.insert(port, entry);
        Ok(())
    }

    pub(super) fn deallocate(&mut self, port: PortId, reason: String) {
        let Some(PortEntry { ipcp, owner, .. }) = self.ports.get(port) else {
            return;
        };
        match (owner, ipcp) {
            (Some(FlowOwner::App(id, close_request)), _) => {
                *close_request.borrow_mut() = Some(reason);
                self.engine.wake(id);
            }
            (Some(FlowOwner::Ipcp(upper, n1) | FlowOwner::Crossed(_, upper, n1)), _) => {
                self.request_member(upper, MemberRequest::DropN1 { n1, reason });
            }
            (Some(FlowOwner::Elsewhere(user)), _) => {
                user(port, reason);
            }
            (None, Some(ipcp)) => self.request(ipcp, Request::Refuse { port, reason }),
            (None, None) => {}
        }
    }
}

/// Why the user of a flow could not be attached.
#[derive(Debug, Error)]
pub(super) enum AttachError {
    #[error("there is no IPCP {0} on the data plane")]
    NoIpcp(IpcpId),
    #[error("there is no normal IPCP {0} on the data plane")]
    NotNormal(IpcpId),
    #[error("{0}")]
    System(#[from] io::Error),
}

/// The role of an end of a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The only user of the flow on this worker.
    Only,
    /// The first end of a relay, which reports the end of the flow.
    RelayFirst,
    /// The second end of a relay.
    RelaySecond,
}

/// Largest number of ring bytes that may be in transit to an end.
fn window(end: &FlowEnd) -> u64 {
    match end {
        FlowEnd::Ring(end) => window_of(end),
        FlowEnd::Socket(_) | FlowEnd::Stream(..) => SOCKET_WINDOW,
        FlowEnd::Ipcp { .. } => normal::N1_WINDOW,
        FlowEnd::Elsewhere { .. } => CROSSING_WINDOW,
    }
}

/// Largest number of ring bytes that may be in transit to one end of a relay from the other end.
fn relayed_window(end: &FlowEnd, other: &FlowEnd) -> u64 {
    match (end, other) {
        (FlowEnd::Stream(..), FlowEnd::Stream(..)) => STREAM_RELAY_WINDOW,
        _ => window(end),
    }
}

/// Longest piece that a relay passes to an end; 0 if the end reports it later.
fn relayed_piece_max(end: &FlowEnd, other: &FlowEnd) -> usize {
    match (end, other) {
        (FlowEnd::Elsewhere { .. }, _) => 0,
        (FlowEnd::Stream(..), FlowEnd::Stream(..)) => READ_BYTES_MAX,
        _ => piece_max(window(end)),
    }
}

/// Largest number of ring bytes that may be in transit between two stream sockets: two of the
/// longest reads. Bytes that wait for a full socket should still be in a cache when the socket
/// accepts them, also with hundreds of relays. The buffers of the two sockets hold more.
const STREAM_RELAY_WINDOW: u64 = 2 * (READ_BYTES_MAX as u64 + RECORD_OVERHEAD_MAX);

/// No less than what a ring needs for a record in addition to its bytes.
const RECORD_OVERHEAD_MAX: u64 = 64;
