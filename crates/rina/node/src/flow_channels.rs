//! Channels and sockets of flows: made for both ends and handed to the applications.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use carina_api::control::EventKind;
use carina_api::ipc::{Flow, Mode, Reply};
use carina_api::{ErrorBody, ErrorCode, IpcpId, PortId};
use carina_dataplane::{Command, FlowEnd, StreamSocket};
use carina_ring::WakeMode;
use carina_ring::channel::{ChannelMemory, Side};
use carina_sys::{Interest, socketpair_seqpacket, socketpair_stream};

use crate::connections::ConnectionId;
use crate::core::{Core, Token};
use crate::endpoints::{AllocatedFlow, ChannelEnd, DataPath, Endpoint, FlowOwner, Relay, Stage};

impl Core {
    /// Makes both sides of a flow between its owner and the data plane. `attached` is the socket
    /// that the owner attached in stream mode, which the data plane then uses; `None` in other
    /// modes.
    pub(crate) fn make_channel_end(
        &self,
        port: PortId,
        end: &Endpoint,
        attached: Option<StreamSocket>,
    ) -> Result<(ChannelEnd, FlowEnd), ErrorBody> {
        if let FlowOwner::Ipcp(ipcp, n1) = end.owner {
            let to_plane = self.plane.n1_end(end.ipcp, ipcp, n1, port);
            return Ok((ChannelEnd::Ipcp, to_plane.map_err(no_memory)?));
        }
        self.channel_end(end, end.ring_bytes, attached)
            .map_err(no_memory)
    }

    fn channel_end(
        &self,
        end: &Endpoint,
        ring_bytes: usize,
        attached: Option<StreamSocket>,
    ) -> io::Result<(ChannelEnd, FlowEnd)> {
        if let FlowOwner::Ipcp(ipcp, n1) = end.owner {
            return Ok((ChannelEnd::Ipcp, FlowEnd::Ipcp { ipcp, n1 }));
        }
        match end.mode {
            Mode::Ring => {
                let light = end.membarrier && self.barrier_is_free;
                ring_with_data_plane(ring_bytes, light)
            }
            Mode::Socket => {
                let (theirs, ours) = socketpair_seqpacket()?;
                Ok((ChannelEnd::Socket(theirs), FlowEnd::Socket(ours)))
            }
            Mode::Stream => {
                let ipcp = self.ipcps.get(end.ipcp);
                let sdu_max = ipcp.map_or(usize::MAX, |ipcp| self.longest_sdu(ipcp));
                let (theirs, ours) = match attached {
                    Some(socket) => (ChannelEnd::Attached, socket),
                    None => {
                        let (theirs, ours) = socketpair_stream()?;
                        (ChannelEnd::Socket(theirs), StreamSocket::new(ours))
                    }
                };
                Ok((theirs, FlowEnd::Stream(ours, sdu_max)))
            }
        }
    }

    /// Connects the two endpoints of a flow within this system: the caller's and the called one.
    pub(crate) fn connect_local(
        &mut self,
        ipcp: IpcpId,
        caller: PortId,
        conn: Option<ConnectionId>,
    ) {
        let local = self.ipcps.get(ipcp).map(|ipcp| ipcp.process.as_dyn());
        let peer = local.and_then(|local| local.local_peer(caller));
        let Some(called) = peer.filter(|called| self.endpoints.contains(*called)) else {
            let owner = self.remove_endpoint(caller).map(|end| end.owner);
            let what = "the accepting application has ended";
            return match (conn, owner) {
                (Some(conn), _) => {
                    self.connections.send_refusal(
                        conn,
                        None,
                        ErrorBody::new(ErrorCode::FlowDenied, what),
                    );
                }
                (None, Some(FlowOwner::Ipcp(upper, n1))) => self.n1_ended(upper, n1, what),
                _ => {}
            };
        };
        match self.make_local_channel(caller, called) {
            Ok((channel_ends, data_paths)) => {
                let [mine, theirs] = channel_ends;
                self.deliver_channel(called, theirs, data_paths[1]);
                self.deliver_channel(caller, mine, data_paths[0]);
            }
            Err(error) => {
                let error = no_memory(error);
                self.report_refusal(caller, &error);
                self.report_refusal(called, &error);
                self.remove_endpoint(called);
                self.withdraw_request(caller, "the node could not make the flow");
            }
        }
    }

    /// Reports to the owner of an endpoint that its flow was refused.
    fn report_refusal(&mut self, port: PortId, error: &ErrorBody) {
        let Some(end) = self.endpoints.get(port) else {
            return;
        };
        match (&end.stage, end.owner) {
            (_, FlowOwner::Ipcp(upper, n1)) => self.n1_ended(upper, n1, &error.message),
            (
                Stage::Requested {
                    conn: Some(conn), ..
                },
                _,
            ) => self.connections.send_refusal(*conn, None, error.clone()),
            (
                Stage::Accepted {
                    answer: Some((conn, request)),
                },
                _,
            ) => {
                self.connections
                    .send_refusal(*conn, Some(*request), error.clone());
            }
            _ => {}
        }
    }

    fn make_local_channel(
        &mut self,
        caller: PortId,
        called: PortId,
    ) -> io::Result<([ChannelEnd; 2], [DataPath; 2])> {
        let mut attached = [caller, called].map(|port| {
            let end = self.endpoints.get_mut(port);
            end.and_then(|end| end.attached.take())
        });
        let (a, b) = (&self.endpoints[caller], &self.endpoints[called]);
        let is_app = a.owner == FlowOwner::App && b.owner == FlowOwner::App;
        match (a.mode, b.mode) {
            (Mode::Ring, Mode::Ring) if is_app => {
                let channel = Arc::new(ChannelMemory::create(a.ring_bytes)?);
                let light = a.membarrier && b.membarrier;
                let channel_end = |side| ChannelEnd::Ring {
                    channel: Arc::clone(&channel),
                    side,
                    light,
                };
                let data_paths = [DataPath::Direct(called), DataPath::Direct(caller)];
                Ok(([channel_end(Side::A), channel_end(Side::B)], data_paths))
            }
            (Mode::Socket, Mode::Socket) if is_app => {
                let pair = socketpair_seqpacket()?;
                self.hand_over([caller, called], pair)
            }
            (Mode::Stream, Mode::Stream) if is_app && attached.iter().all(Option::is_none) => {
                let pair = socketpair_stream()?;
                self.hand_over([caller, called], pair)
            }
            (Mode::Stream, Mode::Stream) if is_app && attached.iter().any(Option::is_none) => {
                self.hand_through([caller, called], attached)
            }
            _ => {
                let [of_a, of_b] = attached.each_mut().map(Option::take);
                // The rings at both ends have the size that the caller requested.
                let (bytes, ipcp) = (a.ring_bytes, a.ipcp);
                let ((mine, a), (theirs, b)) = (
                    self.channel_end(a, bytes, of_a)?,
                    self.channel_end(b, bytes, of_b)?,
                );
                self.plane.send(Command::Relay { a, b, port: caller });
                let ends = [caller, called];
                self.endpoints.add_relay(caller, Relay { ipcp, ends });
                let data_path = |peer| DataPath::Relayed {
                    peer,
                    relay: caller,
                };
                Ok(([mine, theirs], [data_path(called), data_path(caller)]))
            }
        }
    }

    /// Prepares to hand the two sockets of a pair to two applications, and watches both sockets.
    fn hand_over(
        &mut self,
        [caller, called]: [PortId; 2],
        (a, b): (OwnedFd, OwnedFd),
    ) -> io::Result<([ChannelEnd; 2], [DataPath; 2])> {
        let data_paths = [
            DataPath::Sockets {
                peer: called,
                watched: self.watch_socket(&a)?,
            },
            DataPath::Sockets {
                peer: caller,
                watched: self.watch_socket(&b)?,
            },
        ];
        Ok(([ChannelEnd::Socket(a), ChannelEnd::Socket(b)], data_paths))
    }

    /// Prepares to hand the socket that one application attached to the other application.
    fn hand_through(
        &mut self,
        [caller, called]: [PortId; 2],
        attached: [Option<StreamSocket>; 2],
    ) -> io::Result<([ChannelEnd; 2], [DataPath; 2])> {
        let (socket, is_of_caller) = match attached {
            [Some(socket), _] => (socket, true),
            [None, Some(socket)] => (socket, false),
            [None, None] => return Err(io::Error::other("no socket is attached")),
        };
        let mut socket = socket;
        socket.take_filler();
        let watched = self.watch_socket(&socket)?;
        let given = ChannelEnd::Socket(socket.into_fd());
        let channel_ends = if is_of_caller {
            [ChannelEnd::Attached, given]
        } else {
            [given, ChannelEnd::Attached]
        };
        let data_path = |peer| DataPath::Sockets { peer, watched };
        Ok((channel_ends, [data_path(called), data_path(caller)]))
    }

    /// Watches a socket that the node is about to hand over, to detect when it is closed. Returns
    /// the socket's token.
    fn watch_socket(&mut self, socket: impl AsFd) -> io::Result<u64> {
        self.last_watched += 1;
        self.socket_watch.add(socket, self.last_watched)?;
        self.has_socket_flows = true;
        Ok(self.last_watched)
    }

    /// Hands an application its end of a flow. If the application no longer exists, the flow ends.
    pub(crate) fn deliver_channel(
        &mut self,
        port: PortId,
        channel_end: ChannelEnd,
        data_path: DataPath,
    ) {
        let Some(end) = self.endpoints.get(port) else {
            return;
        };
        let (conn, request) = match end.stage {
            Stage::Requested {
                conn: Some(conn), ..
            } => (conn, None),
            Stage::Accepted {
                answer: Some((conn, request)),
            } => (conn, Some(request)),
            Stage::Requested { conn: None, .. } => return self.n1_allocated(port, data_path, true),
            Stage::Accepted { answer: None } => return self.n1_allocated(port, data_path, false),
            _ => return,
        };
        if let Err(error) = self.try_deliver_channel(port, channel_end, data_path, conn, request) {
            self.connections
                .send_refusal(conn, request, no_memory(error));
            self.release_endpoint(port);
        }
    }

    fn try_deliver_channel(
        &mut self,
        port: PortId,
        channel_end: ChannelEnd,
        data_path: DataPath,
        conn: ConnectionId,
        request: Option<u32>,
    ) -> io::Result<()> {
        let mut allocated = AllocatedFlow {
            control_socket: None,
            channel: None,
            data_path,
            close_reported: false,
            peer_graceful: false,
        };
        let (mut fds, mut ring_bytes, mut tx_ring, mut light_wake) = (Vec::new(), 0, 0, false);
        match channel_end {
            ChannelEnd::Ipcp | ChannelEnd::Attached => {}
            ChannelEnd::Socket(socket) => fds.push(socket),
            ChannelEnd::Ring {
                channel,
                side,
                light,
            } => {
                let (ours, theirs) = socketpair_seqpacket()?;
                rustix::io::ioctl_fionbio(&ours, true)?;
                fds.push(theirs);
                fds.extend(channel.endpoint_fds(side)?);
                ring_bytes = channel.capacity() as u64;
                tx_ring = side.tx_ring() as u8;
                light_wake = light;
                self.epoll
                    .add(&ours, Token::FlowControl(port).pack(), Interest::Read)?;
                allocated.control_socket = Some(ours);
                allocated.channel = Some((channel, side));
            }
        }
        let carried = match self.endpoints.get(port).map(|end| &self.ipcps[end.ipcp]) {
            Some(ipcp) => self.longest_sdu(ipcp) as u64,
            None => return Ok(()),
        };
        let Some(end) = self.endpoints.allocate(port, allocated) else {
            return Ok(());
        };
        let flow = Flow {
            request,
            port,
            local: end.local.clone(),
            remote: end.remote.clone(),
            dif: self.ipcps[end.ipcp].dif.clone(),
            spec: end.spec,
            ring_bytes,
            tx_ring,
            light_wake,
            sdu_max: if end.mode == Mode::Socket {
                SOCKET_SDU_MAX.min(carried)
            } else {
                0
            },
            mode: end.mode,
        };
        let shown = format!("{} to {} in {}", flow.local, flow.remote, flow.dif);
        let is_detached = end.is_detached;
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        // Who has closed the connection of a detached request has the flow all the same.
        if self.connections.send_reply(conn, &Reply::Flow(flow), &fds) || is_detached {
            self.journal.note(EventKind::FlowAllocated, port, shown);
            if self.connections.get(conn).is_some_and(|conn| conn.closes) {
                // The caller needs this connection for the answer only. Closing it here saves the
                // node a wake-up for the caller's end of it.
                self.connections.close_later(conn);
            }
        } else {
            self.release_endpoint(port);
        }
        Ok(())
    }
}

/// Creates both sides of a flow over rings between an application and the data plane. The
/// application is always side A.
fn ring_with_data_plane(ring_bytes: usize, light: bool) -> io::Result<(ChannelEnd, FlowEnd)> {
    let channel = Arc::new(ChannelMemory::create(ring_bytes)?);
    let wake = if light {
        WakeMode::Light
    } else {
        WakeMode::Fence
    };
    let endpoint = channel.endpoint(Side::B, wake)?;
    let channel_end = ChannelEnd::Ring {
        channel,
        side: Side::A,
        light,
    };
    Ok((channel_end, FlowEnd::Ring(Box::new(endpoint))))
}

fn no_memory(error: io::Error) -> ErrorBody {
    ErrorBody::new(
        ErrorCode::LimitReached,
        format!("the flow's memory or sockets: {error}"),
    )
}

/// Longest SDU of a flow in socket mode: the default limit of a datagram on a Unix socket.
const SOCKET_SDU_MAX: u64 = carina_dataplane::SOCKET_SDU_MAX as u64;
