//! A service that registers a name and connects each flow to the name with a UDP server, by a UDP
//! socket for each flow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use carina_api::DifName;
use carina_client::{FlowInfo, FlowRequest, Node, Registration, RegistrationEvent};
use carina_sys::Interest;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::datagrams::{BURST, DATAGRAM_BYTES_MAX, Moved, from_flow, send_udp, to_flow};
use crate::endpoint::Resolved;
use crate::error::GatewayError;
use crate::refusals::Refusals;
use crate::service::{Service, Watch};
use crate::settings::Expose;

/// The service that exposes one UDP server.
pub(crate) struct UdpExposed {
    settings: Expose,
    server: SocketAddr,
    registration: Registration,
    watch: Watch,
    /// Numbers of flow requests that were accepted and have not become flows yet.
    accepted: BTreeSet<u32>,
    /// Peers by the number of their flow in the epoll set; the UDP socket of a peer has the next
    /// number.
    peers: BTreeMap<u32, Peer>,
    last_item: u32,
    sweep_at: Instant,
    buffer: Vec<u8>,
    refusals: Refusals,
}

/// A flow, and the UDP socket that connects it with the server.
struct Peer {
    flow: OwnedFd,
    udp: UdpSocket,
    sdu_max: u64,
    used_at: Instant,
}

impl UdpExposed {
    pub(crate) fn new(
        node: &Node,
        settings: Expose,
        watch: Watch,
    ) -> Result<(UdpExposed, Vec<DifName>), GatewayError> {
        let server = match settings
            .to
            .resolve()
            .map_err(GatewayError::resolving(&settings.to))?
        {
            Resolved::Udp(address) | Resolved::Tcp(address) => address,
            Resolved::Unix(_) => {
                return Err(GatewayError::Setting {
                    field: "to",
                    value: settings.to.to_string(),
                    right: "udp:HOST:PORT",
                });
            }
        };
        let registered = node.register(&settings.name, settings.dif.as_ref());
        let registration = registered.map_err(|source| GatewayError::Register {
            name: settings.name.clone(),
            source,
        })?;
        watch
            .add(&registration, REGISTRATION, Interest::Read)
            .map_err(GatewayError::system("waiting for flows"))?;
        let difs = registration.difs().to_vec();
        let exposed = UdpExposed {
            refusals: Refusals::new(format_args!("{} to {}", settings.name, settings.to)),
            settings,
            server,
            registration,
            watch,
            accepted: BTreeSet::new(),
            peers: BTreeMap::new(),
            last_item: REGISTRATION,
            sweep_at: Instant::now(),
            buffer: vec![0; DATAGRAM_BYTES_MAX],
        };
        Ok((exposed, difs))
    }

    fn ended(&self) -> impl FnOnce(carina_client::Error) -> GatewayError + use<> {
        let name = self.settings.name.clone();
        move |source| GatewayError::Ended { name, source }
    }

    fn begin(&mut self, request: &FlowRequest, now: Instant) -> Result<(), GatewayError> {
        let max = self.settings.connections_max;
        let result = if self.accepted.len() + self.peers.len() >= max {
            let why = format!("{} has {max} peers; that is the limit", self.settings.to);
            self.refusals.note(&why, now);
            self.registration.refuse(request, &why)
        } else {
            self.accepted.insert(request.number());
            self.registration.start_accept_socket(request)
        };
        result.map_err(self.ended())
    }

    fn open(&mut self, flow: OwnedFd, info: &FlowInfo, now: Instant) {
        if let Err(error) = self.try_open(flow, info, now) {
            self.refusals.note(error, now);
        }
    }

    fn try_open(&mut self, flow: OwnedFd, info: &FlowInfo, now: Instant) -> std::io::Result<()> {
        let any: SocketAddr = match self.server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let udp = UdpSocket::bind(any)?;
        udp.connect(self.server)?;
        let item = self.last_item.checked_add(2).unwrap_or(REGISTRATION + 2);
        self.watch.add(&flow, item, Interest::Read)?;
        self.watch.add(&udp, item + 1, Interest::Read)?;
        self.last_item = item;
        let peer = Peer {
            flow,
            udp,
            sdu_max: info.sdu_max,
            used_at: now,
        };
        self.peers.insert(item, peer);
        Ok(())
    }

    /// Moves datagrams that wait on one of the two sockets of a peer to the other.
    fn move_some(&mut self, item: u32, now: Instant) {
        let key = item & !1;
        let Some(peer) = self.peers.get_mut(&key) else {
            return;
        };
        let moved = if item == key {
            from_flow(&peer.flow, &mut self.buffer, |datagram| {
                send_udp(&peer.udp, datagram)
            })
        } else {
            to_the_flow(peer, &mut self.buffer)
        };
        if moved.count > 0 {
            peer.used_at = now;
        }
        if moved.is_over {
            self.peers.remove(&key);
        }
    }
}

fn to_the_flow(peer: &Peer, buffer: &mut [u8]) -> Moved {
    let mut moved = Moved::default();
    for _ in 0..BURST {
        match recv(&peer.udp, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, bytes)) => to_flow(&peer.flow, &buffer[..bytes], peer.sdu_max, &mut moved),
            // The server's port was closed when an earlier datagram arrived there.
            Err(Errno::CONNREFUSED | Errno::INTR) => {}
            Err(_) => break,
        }
    }
    moved
}

impl Service for UdpExposed {
    fn handle(&mut self, item: u32, now: Instant) -> Result<(), GatewayError> {
        if item != REGISTRATION {
            self.move_some(item, now);
            return Ok(());
        }
        while let Some(event) = self.registration.try_next_event().map_err(self.ended())? {
            match event {
                RegistrationEvent::Request(request) => self.begin(&request, now)?,
                RegistrationEvent::Accepted {
                    number,
                    socket,
                    info,
                } => {
                    self.accepted.remove(&number);
                    if let Some(flow) = socket {
                        self.open(flow, &info, now);
                    }
                }
                RegistrationEvent::NotAccepted { number, error } => {
                    self.accepted.remove(&number);
                    self.refusals.note(error, now);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn handle_due(&mut self, now: Instant) -> Result<(), GatewayError> {
        self.refusals.log(now);
        if self.sweep_at <= now {
            let idle = Duration::from_millis(self.settings.idle_ms);
            self.peers.retain(|_, peer| now < peer.used_at + idle);
            self.sweep_at = now + idle / 4;
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        let sweep = (!self.peers.is_empty()).then_some(self.sweep_at);
        sweep.into_iter().chain(self.refusals.deadline()).min()
    }
}

/// Number of the registration in the epoll set.
const REGISTRATION: u32 = 0;
