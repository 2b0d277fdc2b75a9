//! A UDP socket that leads to an application name: each peer address gets a flow of its own.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use carina_api::FlowSpec;
use carina_client::{Node, SocketAllocation};
use carina_sys::Interest;

use crate::datagrams::{BURST, DATAGRAM_BYTES_MAX, Moved, from_flow, to_flow};
use crate::endpoint::{Endpoint, Resolved};
use crate::error::GatewayError;
use crate::refusals::Refusals;
use crate::service::{Service, Watch};
use crate::settings::Connect;

/// The service that connects one UDP port with an application name.
pub(crate) struct UdpConnector {
    settings: Connect,
    endpoint: Endpoint,
    node: Node,
    socket: UdpSocket,
    watch: Watch,
    peers: BTreeMap<SocketAddr, Peer>,
    items: BTreeMap<u32, SocketAddr>,
    last_item: u32,
    sweep_at: Instant,
    buffer: Vec<u8>,
    refusals: Refusals,
}

struct Peer {
    item: u32,
    state: State,
    used_at: Instant,
}

enum State {
    /// The flow was requested and the node has not answered; the datagrams of the peer wait.
    Asking(SocketAllocation, VecDeque<Vec<u8>>),
    Open {
        flow: OwnedFd,
        sdu_max: u64,
    },
    /// The flow was refused: datagrams of the peer are dropped until this time.
    Refused(Instant),
}

impl UdpConnector {
    pub(crate) fn new(
        node: Node,
        settings: Connect,
        watch: Watch,
    ) -> Result<UdpConnector, GatewayError> {
        let failed = |source: io::Error| GatewayError::Listen {
            endpoint: settings.listen.clone(),
            source,
        };
        let address = match settings
            .listen
            .resolve()
            .map_err(GatewayError::resolving(&settings.listen))?
        {
            Resolved::Udp(address) | Resolved::Tcp(address) => address,
            Resolved::Unix(_) => return Err(failed(io::ErrorKind::InvalidInput.into())),
        };
        let socket = UdpSocket::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        watch
            .add(&socket, SOCKET, Interest::Read)
            .map_err(GatewayError::system("waiting for datagrams"))?;
        Ok(UdpConnector {
            endpoint: Endpoint::Udp(socket.local_addr().map_err(failed)?.to_string()),
            refusals: Refusals::new(format_args!("{} to {}", settings.listen, settings.name)),
            settings,
            node,
            socket,
            watch,
            peers: BTreeMap::new(),
            items: BTreeMap::new(),
            last_item: SOCKET,
            sweep_at: Instant::now(),
            buffer: vec![0; DATAGRAM_BYTES_MAX],
        })
    }

    /// Returns the address on which the service receives.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn read_some(&mut self, now: Instant) {
        for _ in 0..BURST {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((bytes, from)) => self.take(bytes, from, now),
                // The kernel reports here that a peer refused an earlier datagram.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
    }

    /// Handles a datagram from the peer `from`; the datagram is the first `bytes` bytes of the
    /// buffer.
    fn take(&mut self, bytes: usize, from: SocketAddr, now: Instant) {
        if self
            .peers
            .get(&from)
            .is_some_and(|peer| peer.may_retry(now))
        {
            self.forget(from);
        }
        if !self.peers.contains_key(&from) {
            if self.peers.len() >= self.settings.connections_max {
                self.refusals.note("too many peers", now);
                return;
            }
            self.ask(from, now);
        }
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        peer.used_at = now;
        let datagram = &self.buffer[..bytes];
        match &mut peer.state {
            State::Asking(_, waiting) if waiting.len() < WAITING_MAX => {
                waiting.push_back(datagram.to_vec());
            }
            State::Asking(..) | State::Refused(_) => {}
            State::Open { flow, sdu_max } => {
                let mut moved = Moved::default();
                to_flow(flow, datagram, *sdu_max, &mut moved);
                if moved.is_over {
                    self.forget(from);
                }
            }
        }
    }

    fn ask(&mut self, from: SocketAddr, now: Instant) {
        let Connect {
            name, dif, local, ..
        } = &self.settings;
        self.last_item = self.last_item.checked_add(1).unwrap_or(SOCKET + 1);
        let item = self.last_item;
        let spec = FlowSpec::unreliable();
        let asked = self
            .node
            .start_allocate_socket(local, name, dif.as_ref(), &spec);
        let asked = asked.map_err(|error| error.to_string()).and_then(|asked| {
            let watched = self.watch.add(&asked, item, Interest::Read);
            watched.map(|()| asked).map_err(|error| error.to_string())
        });
        let state = match asked {
            Ok(asked) => State::Asking(asked, VecDeque::new()),
            Err(why) => {
                self.refusals.note(why, now);
                State::Refused(now + REFUSED_FOR)
            }
        };
        let peer = Peer {
            item,
            state,
            used_at: now,
        };
        self.items.insert(item, from);
        self.peers.insert(from, peer);
        self.sweep_at = self.sweep_at.min(now + self.idle());
    }

    /// Handles an event of a peer's flow: SDUs wait, or the node has answered the request.
    fn progress(&mut self, address: SocketAddr, now: Instant) {
        let Some(peer) = self.peers.get_mut(&address) else {
            return;
        };
        match &mut peer.state {
            State::Asking(allocation, _) => match allocation.try_finish() {
                Ok(None) => {}
                Ok(Some(flow)) => {
                    let item = peer.item;
                    let state = State::Open {
                        flow: flow.socket,
                        sdu_max: flow.info.sdu_max,
                    };
                    let asked = std::mem::replace(&mut peer.state, state);
                    self.open(address, item, asked, now);
                }
                Err(error) => {
                    self.refusals.note(error, now);
                    peer.state = State::Refused(now + REFUSED_FOR);
                }
            },
            State::Open { flow, .. } => {
                let socket = &self.socket;
                let moved = from_flow(flow, &mut self.buffer, |datagram| {
                    socket.send_to(datagram, address).is_ok()
                });
                if moved.count > 0 {
                    peer.used_at = now;
                }
                if moved.is_over {
                    self.forget(address);
                }
            }
            State::Refused(_) => {}
        }
    }

    /// Sends the datagrams that waited for a peer's flow, after the node has allocated the flow.
    fn open(&mut self, address: SocketAddr, item: u32, asked: State, now: Instant) {
        let (Some(peer), State::Asking(allocation, waiting)) = (self.peers.get(&address), asked)
        else {
            return;
        };
        self.watch.remove(&allocation);
        let State::Open { flow, sdu_max } = &peer.state else {
            return;
        };
        let mut moved = Moved::default();
        for datagram in waiting {
            to_flow(flow, &datagram, *sdu_max, &mut moved);
        }
        if let Err(error) = self.watch.add(flow, item, Interest::Read) {
            self.refusals.note(error, now);
            self.forget(address);
        }
    }

    fn forget(&mut self, address: SocketAddr) {
        if let Some(peer) = self.peers.remove(&address) {
            self.items.remove(&peer.item);
        }
    }

    fn idle(&self) -> Duration {
        Duration::from_millis(self.settings.idle_ms)
    }
}

impl Peer {
    /// Whether a flow may be requested again for this peer, whose last request was refused.
    fn may_retry(&self, now: Instant) -> bool {
        matches!(self.state, State::Refused(until) if until <= now)
    }
}

impl Service for UdpConnector {
    fn handle(&mut self, item: u32, now: Instant) -> Result<(), GatewayError> {
        if item == SOCKET {
            self.read_some(now);
        } else if let Some(address) = self.items.get(&item) {
            self.progress(*address, now);
        }
        Ok(())
    }

    fn handle_due(&mut self, now: Instant) -> Result<(), GatewayError> {
        self.refusals.log(now);
        if self.sweep_at <= now {
            let idle = self.idle();
            let old = self
                .peers
                .iter()
                .filter(|(_, peer)| peer.used_at + idle <= now);
            for address in old.map(|(address, _)| *address).collect::<Vec<_>>() {
                self.forget(address);
            }
            self.sweep_at = now + idle / 4;
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        let sweep = (!self.peers.is_empty()).then_some(self.sweep_at);
        sweep.into_iter().chain(self.refusals.deadline()).min()
    }
}

/// Number of the UDP socket in the epoll set.
const SOCKET: u32 = 0;

/// Largest number of datagrams of one peer that wait for its flow.
const WAITING_MAX: usize = 16;

/// How long datagrams of a peer are dropped after its flow was refused.
const REFUSED_FOR: Duration = Duration::from_secs(1);
