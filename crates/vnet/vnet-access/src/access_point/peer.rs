//! A user of an access point.

use std::net::{Ipv4Addr, SocketAddr};

use carina_time::Instant;
use carina_wire::inet::Ipv4Header;

use super::{PeerConfig, PeerSeen, Sink};
use crate::control::{POINT, Request, USER, message};
use crate::discard::{Discard, Discards};
use crate::tunnel::{Given, Tunnel};
use crate::waiting::UserQueue;

/// A user who has joined, with the tunnel to the user's system.
#[derive(Debug)]
pub(super) struct Peer {
    pub config: PeerConfig,
    pub tunnel: Tunnel,
    pub index: u32,
    pub up: UserQueue,
    pub down: UserQueue,
    pub seen: PeerSeen,
}

impl Peer {
    /// Processes a datagram from the user's system.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        (mtu, buffer): (usize, &mut [u8]),
        sink: &mut impl Sink,
    ) -> Result<(), Discard> {
        let Peer {
            config,
            tunnel,
            up,
            seen,
            index,
            ..
        } = self;
        let mut outcome = Ok(());
        tunnel.receive(from.ip(), datagram, buffer, |given| match given {
            Given::Datagram(bytes) => {
                sink.send(from, bytes);
            }
            Given::Packet(bytes) => {
                outcome = passes(config, mtu, bytes)
                    .and_then(|passing| match passing {
                        Passing::Request(request) => {
                            if sink.request((*index, from.ip()), config.key, request) {
                                Ok(0)
                            } else {
                                Err(Discard::Requests)
                            }
                        }
                        Passing::Packet => {
                            if !up.pass(now, bytes) {
                                Ok(0)
                            } else if sink.deliver(bytes) {
                                Ok(bytes.len() as u64)
                            } else {
                                Err(Discard::NoRoom)
                            }
                        }
                    })
                    .map(|bytes| seen.sent_bytes += bytes);
            }
        })?;
        // An authenticated datagram shows the user's current address.
        self.seen.from = Some(from);
        outcome
    }

    /// Forwards the packets that the user's rate limit held back, in both directions, as far as the
    /// limit (a token bucket) lets them pass now.
    pub(super) fn release(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        discards: &mut Discards,
        sink: &mut impl Sink,
    ) {
        while let Some(packet) = self.up.pop(now) {
            if sink.deliver(&packet) {
                self.seen.sent_bytes += packet.len() as u64;
            } else {
                discards.note(Discard::NoRoom);
            }
        }
        while let Some(packet) = self.down.pop(now) {
            match self.send(&packet, buffer, sink) {
                Ok(()) => self.seen.received_bytes += packet.len() as u64,
                Err(reason) => discards.note(reason),
            }
        }
    }

    /// Number of packets that wait, in both directions.
    pub(super) fn waiting(&self) -> usize {
        self.up.len() + self.down.len()
    }

    /// When a packet that waits may pass next.
    pub(super) fn due(&mut self, now: Instant) -> Option<Instant> {
        let due = [self.up.due(now), self.down.due(now)];
        due.into_iter().flatten().min()
    }

    /// Sends a packet to the user's system.
    pub(super) fn send(
        &mut self,
        packet: &[u8],
        buffer: &mut [u8],
        sink: &mut impl Sink,
    ) -> Result<(), Discard> {
        let to = self.seen.from.ok_or(Discard::Silent)?;
        let mut has_room = true;
        self.tunnel
            .send(packet, buffer, |bytes| has_room &= sink.send(to, bytes))?;
        if has_room {
            Ok(())
        } else {
            Err(Discard::NoRoom)
        }
    }
}

/// The kind of a packet that came from a user through the tunnel: a request to the access point, or
/// a packet for the network.
enum Passing {
    Request(Request),
    Packet,
}

/// Checks whether a user's packet may pass, apart from the user's rate.
fn passes(config: &PeerConfig, mtu: usize, packet: &[u8]) -> Result<Passing, Discard> {
    if let Some(request) = message(packet, USER, POINT) {
        return Ok(Passing::Request(request));
    }
    let header = Ipv4Header::decode(packet).map_err(|_| Discard::NotIpv4)?;
    if Ipv4Addr::from(header.source) != config.address {
        return Err(Discard::Source);
    }
    let to = Ipv4Addr::from(header.destination);
    if to.is_multicast() || to.is_broadcast() || to.is_link_local() {
        return Err(Discard::Group);
    }
    if packet.len() > mtu {
        return Err(Discard::Length);
    }
    if !config.passage.lets_in(&header, packet) {
        return Err(Discard::Right);
    }
    Ok(Passing::Packet)
}
