//! How flows of a TCP shim start and end, and how received frames are processed.

use std::net::IpAddr;

use carina_api::AppName;
use carina_dataplane::Request;
use carina_engine::counters::Value;
use carina_engine::{Close, LinkId, Links};
use carina_netdev::connect_stream;
use carina_time::Duration;
use carina_wire::pcapng::Direction;

use super::conn::Phase;
use super::{BUFFER_PAUSE, OUT_BYTES_MAX, Tcp};
use crate::address_resolver::Answer;
use crate::error::AddressError;
use crate::flow_table::{Held, Names, Stage};
use crate::udp::frame::Frame;

impl Tcp {
    fn credit(&self) -> (u64, usize) {
        (OUT_BYTES_MAX as u64, self.framing.piece_bytes_max())
    }

    fn is_native(&self) -> bool {
        self.framing == carina_netdev::StreamFraming::Long
    }

    /// Processes all pending requests of the plane.
    pub(super) fn handle_requests(&mut self, links: &mut Links) {
        while let Some(request) = self.flows.next_request() {
            match request {
                Request::Register(name, reader) => self.flows.register(name, reader),
                Request::Unregister(name) => self.flows.unregister(&name),
                Request::Allocate {
                    port,
                    local,
                    remote,
                    links: ends,
                    ..
                } => {
                    let names = Names { local, remote };
                    self.resolver.resolve(port, &names.remote);
                    self.flows
                        .request(self.now, (port, names, ends), None, links);
                }
                Request::Respond {
                    port,
                    answer: Ok(ends),
                } => {
                    let (now, credit) = (self.now, self.credit());
                    if let Some(at) = self.flows.accept(now, (port, ends), credit, links) {
                        self.send_acceptance(at);
                    }
                }
                Request::Respond {
                    port,
                    answer: Err(reason),
                }
                | Request::Refuse { port, reason } => {
                    if let Some(Some(id)) = self.flows.refuse(port) {
                        self.refuse(id, &reason);
                    }
                }
                // Such requests are only for IPCPs that use N-1 flows.
                Request::Member(_) => {}
                Request::Remove => {
                    for id in 0..self.conns.len() {
                        self.write(id, links);
                        self.fail(id, "the IPC process was destroyed", links);
                    }
                    for at in self.flows.indices() {
                        let text = "the IPC process was destroyed".to_owned();
                        self.flows.close(at, Close::Failed(text), links);
                    }
                    self.is_removed = true;
                    return links.finish(self.flows.id);
                }
            }
        }
    }

    pub(super) fn handle_answers(&mut self, links: &mut Links) {
        while let Some(answer) = self.resolver.answer() {
            match answer {
                Answer::Address(port, found) => {
                    let Some(at) = self.flows.index_of_port(port) else {
                        continue;
                    };
                    let made = found.and_then(|address| {
                        let stream = connect_stream(address);
                        stream.map_err(|source| AddressError::Connect { address, source })
                    });
                    let made = made.map(|stream| self.admit(stream, Phase::Connecting));
                    match made {
                        Ok(Some(id)) => self.join(at, id),
                        Ok(None) => {
                            let text = "no file descriptor is free".to_owned();
                            self.flows.close(at, Close::Refused(text), links);
                        }
                        Err(error) => {
                            let reason = error.to_string();
                            tracing::debug!(target: "carina::shim::ip", reason, "not connected");
                            self.flows.close(at, Close::Refused(reason), links);
                        }
                    }
                }
                Answer::Name(ip, name) => self.name_resolved(ip, &name),
            }
        }
    }

    fn join(&mut self, at: usize, id: usize) {
        if let Some(flow) = self.flows.get_mut(at) {
            flow.peer = Some(id);
        }
        if let Some(conn) = self.conn(id) {
            conn.place = Some(at);
        }
    }

    fn send_frame(&mut self, id: usize, frame: &Frame<'_>) {
        let framing = self.framing;
        let Some(conn) = self.conn(id) else { return };
        let mut message = Vec::new();
        frame.encode(&mut message);
        framing.put_head(conn.out(), message.len(), false);
        conn.out().extend_from_slice(&message);
    }

    /// Continues after a connection that this side requested is established.
    pub(super) fn connected(&mut self, id: usize, links: &mut Links) {
        let is_native = self.is_native();
        let Some(conn) = self.conn(id) else { return };
        conn.phase = if is_native {
            Phase::Greeting
        } else {
            Phase::Open
        };
        let Some(at) = conn.place else { return };
        if !is_native {
            return self.begin(id, at, links);
        }
        let names = self.flows.get_mut(at).map(|flow| flow.names.clone());
        if let Some(Names { local, remote }) = names {
            let request = Frame::Request {
                from: 0,
                caller: local,
                called: remote,
            };
            self.send_frame(id, &request);
        }
    }

    /// Opens the flow of a connection that this side requested.
    fn begin(&mut self, id: usize, at: usize, links: &mut Links) {
        if let Some(conn) = self.conn(id) {
            conn.phase = Phase::Open;
            conn.until = None;
        }
        let credit = self.credit();
        self.flows.confirm(self.now, at, credit, links);
    }

    /// Continues when the resolver knows the name of an address: waiting connections from there
    /// become flows.
    fn name_resolved(&mut self, ip: IpAddr, remote: &AppName) {
        for id in 0..self.conns.len() {
            let Some(conn) = self.conn(id) else { continue };
            let is_it = conn.phase == Phase::Expecting
                && conn
                    .stream
                    .peer_addr()
                    .is_ok_and(|a| a.ip().to_canonical() == ip.to_canonical());
            if !is_it {
                continue;
            }
            let remote = remote.clone();
            match self.flows.names.first().cloned() {
                Some(local) => self.offer(id, Names { local, remote }),
                None => self.drop_conn(id),
            }
        }
    }

    fn offer(&mut self, id: usize, names: Names) {
        let Some(at) = self.flows.add_incoming(self.now, names, Some(id)) else {
            return self.drop_conn(id);
        };
        if let Some(conn) = self.conn(id) {
            conn.phase = Phase::Offered;
            // The manager limits how long the application may take to answer.
            conn.until = None;
        }
        self.join(at, id);
    }

    fn send_acceptance(&mut self, at: usize) {
        let Some(id) = self.flows.get_mut(at).and_then(|flow| flow.peer) else {
            return;
        };
        if self.is_native() {
            self.send_frame(id, &Frame::Accept { flow: 0, from: 0 });
        }
        if let Some(conn) = self.conn(id) {
            conn.phase = Phase::Open;
        }
    }

    fn refuse(&mut self, id: usize, reason: &str) {
        if self.is_native() {
            self.send_frame(id, &Frame::Refuse { flow: 0, reason });
        }
        self.close(id);
    }

    /// Starts to close a connection: remaining bytes are written first.
    fn close(&mut self, id: usize) {
        let until = self.now + CLOSING_MAX;
        if let Some(conn) = self.conn(id) {
            conn.phase = Phase::Closing;
            conn.place = None;
            conn.until = Some(until);
        }
    }

    /// Processes received frames. Returns whether there were any.
    pub(super) fn take_frames(&mut self, id: usize, links: &mut Links) -> bool {
        let (mut moved, is_native) = (false, self.is_native());
        loop {
            let Some(conn) = self.conn(id) else {
                return true;
            };
            let phase = conn.phase;
            let frame = match conn.deframer.frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return moved,
                Err(error) => {
                    self.fail(id, &error.to_string(), links);
                    return true;
                }
            };
            match phase {
                Phase::Open => {
                    if !self.deliver(id, links) {
                        return moved;
                    }
                }
                Phase::Greeting | Phase::Expecting if is_native => {
                    let message = frame.0.to_vec();
                    if let Some(conn) = self.conn(id) {
                        conn.deframer.consume();
                    }
                    self.handle_first_frame(id, &message, links);
                }
                Phase::Closing => {
                    conn.deframer.consume();
                    self.flows.row.add(Value::DropFlowEnded, 1);
                }
                _ => return moved,
            }
            moved = true;
        }
    }

    /// Processes the first frame of the peer.
    fn handle_first_frame(&mut self, id: usize, message: &[u8], links: &mut Links) {
        let Some((phase, place)) = self.conn(id).map(|conn| (conn.phase, conn.place)) else {
            return;
        };
        match (phase, Frame::decode(message), place) {
            (Phase::Expecting, Some(Frame::Request { caller, called, .. }), _) => {
                if self.flows.names.contains(&called) {
                    let names = Names {
                        local: called,
                        remote: caller,
                    };
                    self.offer(id, names);
                } else {
                    let reason = format!("no application is registered as {called}");
                    self.refuse(id, &reason);
                }
            }
            (Phase::Greeting, Some(Frame::Accept { .. }), Some(at)) => self.begin(id, at, links),
            (Phase::Greeting, Some(Frame::Refuse { reason, .. }), Some(at)) => {
                let reason = match reason {
                    "" => "the peer refused without a reason".to_owned(),
                    _ => reason.to_owned(),
                };
                self.flows.close(at, Close::Refused(reason), links);
                self.drop_conn(id);
            }
            _ => self.fail(id, "the other side does not speak this framing", links),
        }
    }

    /// Delivers the first received frame, or as much of it as the application has room for. Returns
    /// false if it was not delivered completely.
    fn deliver(&mut self, id: usize, links: &mut Links) -> bool {
        let Some(conn) = self.conns.get_mut(id).and_then(Option::as_mut) else {
            return true;
        };
        let (Some(at), Ok(Some((payload, more)))) = (conn.place, conn.deframer.frame()) else {
            return true;
        };
        loop {
            let rest = &payload[conn.delivered..];
            match self.flows.deliver_piece(at, rest, more, links) {
                Ok(count) if count == rest.len() => break,
                Ok(count) => conn.delivered += count,
                Err(Held::Reader) => return false,
                Err(Held::Buffer) => {
                    self.pause(BUFFER_PAUSE);
                    return false;
                }
            }
        }
        self.flows.taps.note_bytes(Direction::In, payload);
        conn.delivered = 0;
        conn.deframer.consume();
        true
    }

    /// Ends the flow if the peer has closed its sending direction and everything was delivered.
    pub(super) fn look_for_end(&mut self, id: usize, links: &mut Links) {
        let Some(conn) = self.conn(id) else { return };
        let is_whole = matches!(conn.deframer.frame(), Ok(Some(_)));
        if !conn.has_ended || (is_whole && conn.phase != Phase::Closing) {
            return;
        }
        let is_clean = conn.deframer.left() == 0;
        let close = match conn.phase {
            Phase::Open if is_clean => Close::Graceful("the peer closed the flow".to_owned()),
            Phase::Open => Close::Failed("the connection ended within an SDU".to_owned()),
            _ => Close::Refused("the other side closed the connection".to_owned()),
        };
        if let Some(at) = conn.place.take() {
            self.flows.close(at, close, links);
        }
        self.drop_conn(id);
    }

    /// Handles a flow that its application has closed.
    pub(super) fn flow_ended(&mut self, link: LinkId, links: &mut Links) {
        if let Some(flow) = self.flows.take_closed(link, links)
            && let Some(id) = flow.peer
        {
            match flow.stage {
                Stage::Open => self.close(id),
                Stage::Requested | Stage::Offered => self.drop_conn(id),
            }
        }
    }
}

/// How long writing the remaining bytes of a closing connection may take.
const CLOSING_MAX: Duration = Duration::from_secs(10);
