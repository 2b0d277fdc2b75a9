//! The user's end of the tunnel as a machine.

use std::net::{Ipv4Addr, SocketAddr};

use carina_wire::inet::Ipv4Header;

use crate::access_point::KEEPALIVE_S;
use crate::control::{POINT, Reply, Request, USER, message, packet};
use crate::key::{PrivateKey, PublicKey};
use crate::tunnel::{BUFFER_BYTES, Given, Tunnel};

/// Where what comes out of the machine goes.
pub trait UserSink {
    /// A datagram for the access point.
    fn send(&mut self, datagram: &[u8]);
    /// A packet of IPv4 for this system.
    fn deliver(&mut self, packet: &[u8]);
    /// What the access point says.
    fn hear(&mut self, reply: Reply);
}

/// The user's end of a tunnel.
#[derive(Debug)]
pub struct UserEnd {
    tunnel: Tunnel,
    /// Where the access point is.
    point: SocketAddr,
    /// The user's address, once it is known.
    address: Option<Ipv4Addr>,
    buffer: Vec<u8>,
}

impl UserEnd {
    /// An end for an access point. Without an address it carries requests only.
    #[must_use]
    pub fn new(
        own: &PrivateKey,
        key: PublicKey,
        point: SocketAddr,
        address: Option<Ipv4Addr>,
    ) -> UserEnd {
        UserEnd {
            tunnel: Tunnel::new(own, key, 1, Some(KEEPALIVE_S)),
            point,
            address,
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// Begins a session, although there is nothing to be sent.
    pub fn begin(&mut self, sink: &mut impl UserSink) {
        self.put(&[], sink);
    }

    /// Asks for something; what is for the network may be a handshake first.
    pub fn ask(&mut self, request: &Request, sink: &mut impl UserSink) {
        let bytes = packet(USER, POINT, request);
        self.put(&bytes, sink);
    }

    /// Sends a packet of this system; false where the user may not send it.
    pub fn handle_packet(&mut self, packet: &[u8], sink: &mut impl UserSink) -> bool {
        let header = Ipv4Header::decode(packet);
        let source = header.map(|header| Ipv4Addr::from(header.source));
        if source.ok() != self.address || self.address.is_none() {
            return false;
        }
        self.put(packet, sink);
        true
    }

    fn put(&mut self, packet: &[u8], sink: &mut impl UserSink) {
        // What cannot be sent is lost, as on any link.
        let _ = self
            .tunnel
            .send(packet, &mut self.buffer, |bytes| sink.send(bytes));
    }

    /// Takes a datagram; false where it has another origin.
    pub fn handle_datagram(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        sink: &mut impl UserSink,
    ) -> bool {
        if from != self.point {
            return false;
        }
        let own = self.address;
        let mut is_ours = true;
        let received = self
            .tunnel
            .receive(from.ip(), datagram, &mut self.buffer, |given| match given {
                Given::Datagram(bytes) => sink.send(bytes),
                Given::Packet(bytes) => match message(bytes, POINT, USER) {
                    Some(reply) => sink.hear(reply),
                    None => {
                        let header = Ipv4Header::decode(bytes);
                        let to = header.map(|header| Ipv4Addr::from(header.destination));
                        is_ours = own.is_some() && to.ok() == own;
                        if is_ours {
                            sink.deliver(bytes);
                        }
                    }
                },
            });
        received.is_ok() && is_ours
    }

    /// Does what is due by time. Call it several times a second.
    pub fn tick(&mut self, sink: &mut impl UserSink) {
        self.tunnel.tick(&mut self.buffer, |bytes| sink.send(bytes));
    }

    /// Whether there is a session.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.tunnel.since_handshake().is_some()
    }
}
