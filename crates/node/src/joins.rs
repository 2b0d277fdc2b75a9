//! Plugging: channels and sockets for the ends of a flow, and their way to the applications.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use carina_api::control::EventKind;
use carina_api::ipc::{Flow, Mode, Reply};
use carina_api::{ErrorBody, ErrorCode, IpcpId, PortId};
use carina_dataplane::{Command, FlowEnd};
use carina_ring::WakeMode;
use carina_ring::channel::{ChannelMemory, Side};
use carina_sys::{Interest, socketpair_seqpacket};

use crate::conns::ConnId;
use crate::core::{Core, Token};
use crate::ends::{End, Live, Owner, Plug, Stage, Wiring};
use crate::ipcps::Carrier;

impl Core {
    /// Makes the two sides of a flow between an application and the data plane.
    pub fn make_plug(&self, end: &End) -> Result<(Plug, FlowEnd), ErrorBody> {
        self.plug(end, end.ring_bytes).map_err(no_memory)
    }

    fn plug(&self, end: &End, ring_bytes: usize) -> io::Result<(Plug, FlowEnd)> {
        if let Owner::Ipcp(ipcp, n1) = end.owner {
            return Ok((Plug::Ipcp, FlowEnd::Ipcp { ipcp, n1 }));
        }
        let light = end.membarrier && self.barrier_is_free;
        plug_with_plane(end.mode, ring_bytes, light)
    }

    /// Plugs the two ends of a local flow together: the one who asked, and the one that its shim
    /// has as peer.
    pub fn join(&mut self, ipcp: IpcpId, caller: PortId, conn: Option<ConnId>) {
        let peer = match self.ipcps.get(&ipcp).map(|ipcp| &ipcp.carrier) {
            Some(Carrier::Loopback(loopback)) => loopback.peer_of(caller),
            _ => None,
        };
        let Some(called) = peer.filter(|called| self.ends.contains_key(called)) else {
            let owner = self.drop_end(caller).map(|end| end.owner);
            let what = "the application that accepted is gone";
            return match (conn, owner) {
                (Some(conn), _) => {
                    self.refuse(conn, None, ErrorBody::new(ErrorCode::FlowDenied, what));
                }
                (None, Some(Owner::Ipcp(upper, n1))) => self.n1_ended(upper, n1, what),
                _ => {}
            };
        };
        match self.try_join(caller, called) {
            Ok((plugs, wirings)) => {
                let [mine, theirs] = plugs;
                self.hand_out(called, theirs, wirings[1]);
                self.hand_out(caller, mine, wirings[0]);
            }
            Err(error) => {
                let error = no_memory(error);
                self.tell_refusal(caller, &error);
                self.tell_refusal(called, &error);
                self.drop_end(called);
                self.withdraw(caller, "the node could not make the flow");
            }
        }
    }

    /// Tells the owner of an end that there will be no flow.
    fn tell_refusal(&mut self, port: PortId, error: &ErrorBody) {
        let Some(end) = self.ends.get(&port) else {
            return;
        };
        match (&end.stage, end.owner) {
            (_, Owner::Ipcp(upper, n1)) => self.n1_ended(upper, n1, &error.message),
            (
                Stage::Asked {
                    conn: Some(conn), ..
                },
                _,
            ) => self.refuse(*conn, None, error.clone()),
            (
                Stage::Accepted {
                    answer: Some((conn, request)),
                },
                _,
            ) => {
                self.refuse(*conn, Some(*request), error.clone());
            }
            _ => {}
        }
    }

    fn try_join(&mut self, caller: PortId, called: PortId) -> io::Result<([Plug; 2], [Wiring; 2])> {
        let (a, b) = (&self.ends[&caller], &self.ends[&called]);
        let is_app = a.owner == Owner::App && b.owner == Owner::App;
        match (a.mode, b.mode) {
            (Mode::Ring, Mode::Ring) if is_app => {
                let channel = Arc::new(ChannelMemory::create(a.ring_bytes)?);
                let light = a.membarrier && b.membarrier;
                let plug = |side| Plug::Ring {
                    channel: Arc::clone(&channel),
                    side,
                    light,
                };
                let wirings = [Wiring::Direct(called), Wiring::Direct(caller)];
                Ok(([plug(Side::A), plug(Side::B)], wirings))
            }
            (Mode::Socket, Mode::Socket) if is_app => {
                let (a, b) = socketpair_seqpacket()?;
                let inode = |fd: &OwnedFd| io::Result::Ok(rustix::fs::fstat(fd)?.st_ino);
                let wirings = [
                    Wiring::Sockets {
                        peer: called,
                        inode: inode(&a)?,
                    },
                    Wiring::Sockets {
                        peer: caller,
                        inode: inode(&b)?,
                    },
                ];
                Ok(([Plug::Socket(a), Plug::Socket(b)], wirings))
            }
            _ => {
                // The rings of both ends are those the caller asked for.
                let (bytes, ipcp) = (a.ring_bytes, a.ipcp);
                let ((mine, a), (theirs, b)) = (self.plug(a, bytes)?, self.plug(b, bytes)?);
                let ends = [caller, called];
                self.plane.send(Command::Relay { a, b, port: caller });
                self.relays.insert(caller, (ipcp, ends));
                let wiring = |peer| Wiring::Relayed {
                    peer,
                    relay: caller,
                };
                Ok(([mine, theirs], [wiring(called), wiring(caller)]))
            }
        }
    }

    /// Gives an application its side of a flow. When it is gone the flow ends.
    pub fn hand_out(&mut self, port: PortId, plug: Plug, wiring: Wiring) {
        let Some(end) = self.ends.get(&port) else {
            return;
        };
        let (conn, request) = match end.stage {
            Stage::Asked {
                conn: Some(conn), ..
            } => (conn, None),
            Stage::Accepted {
                answer: Some((conn, request)),
            } => (conn, Some(request)),
            Stage::Asked { conn: None, .. } => return self.n1_is_there(port, wiring, true),
            Stage::Accepted { answer: None } => return self.n1_is_there(port, wiring, false),
            _ => return,
        };
        if let Err(error) = self.try_hand_out(port, plug, wiring, conn, request) {
            self.refuse(conn, request, no_memory(error));
            self.end_is_gone(port);
        }
    }

    fn try_hand_out(
        &mut self,
        port: PortId,
        plug: Plug,
        wiring: Wiring,
        conn: ConnId,
        request: Option<u32>,
    ) -> io::Result<()> {
        let mut live = Live {
            tether: None,
            channel: None,
            wiring,
            told: false,
            peer_graceful: false,
        };
        let (mut fds, mut ring_bytes, mut tx_ring, mut light_wake) = (Vec::new(), 0, 0, false);
        match plug {
            Plug::Ipcp => {}
            Plug::Socket(socket) => fds.push(socket),
            Plug::Ring {
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
                    .add(&ours, Token::Tether(port).pack(), Interest::Read)?;
                live.tether = Some(ours);
                live.channel = Some((channel, side));
            }
        }
        let carried = match self.ends.get(&port).map(|end| &self.ipcps[&end.ipcp]) {
            Some(ipcp) => self.longest_sdu(ipcp) as u64,
            None => return Ok(()),
        };
        let Some(end) = self.ends.get_mut(&port) else {
            return Ok(());
        };
        if let Some(until) = end.until() {
            self.deadlines.remove(&(until, port));
        }
        end.stage = Stage::Up(live);
        let flow = Flow {
            request,
            port,
            local: end.local.clone(),
            remote: end.remote.clone(),
            dif: self.ipcps[&end.ipcp].dif.clone(),
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
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if self.say(conn, &Reply::Flow(flow), &fds) {
            self.journal.note(EventKind::FlowAllocated, port, shown);
        } else {
            self.end_is_gone(port);
        }
        Ok(())
    }
}

/// Makes the two sides of a flow between an application and the data plane. The application is
/// always side A.
fn plug_with_plane(mode: Mode, ring_bytes: usize, light: bool) -> io::Result<(Plug, FlowEnd)> {
    match mode {
        Mode::Ring => {
            let channel = Arc::new(ChannelMemory::create(ring_bytes)?);
            let wake = if light {
                WakeMode::Light
            } else {
                WakeMode::Fence
            };
            let endpoint = channel.endpoint(Side::B, wake)?;
            let plug = Plug::Ring {
                channel,
                side: Side::A,
                light,
            };
            Ok((plug, FlowEnd::Ring(Box::new(endpoint))))
        }
        Mode::Socket => {
            let (theirs, ours) = socketpair_seqpacket()?;
            Ok((Plug::Socket(theirs), FlowEnd::Socket(ours)))
        }
    }
}

fn no_memory(error: io::Error) -> ErrorBody {
    ErrorBody::new(
        ErrorCode::LimitReached,
        format!("the flow's memory or sockets: {error}"),
    )
}

/// Longest SDU of a flow in socket mode: what a datagram of a Unix socket takes by default.
const SOCKET_SDU_MAX: u64 = carina_dataplane::SOCKET_SDU_MAX as u64;
