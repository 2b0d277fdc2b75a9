//! The user's end of a tunnel as a state machine.

use std::net::{Ipv4Addr, SocketAddr};

use carina_wire::inet::Ipv4Header;

use crate::access_point::KEEPALIVE_S;
use crate::control::{POINT, Reply, Request, USER, message, packet};
use crate::key::{PrivateKey, PublicKey};
use crate::tunnel::{BUFFER_BYTES, Given, Tunnel};

/// Receives what the user's end of a tunnel emits: datagrams to the access point, packets for this
/// system, and messages of the access point.
pub trait UserSink {
    /// Sends a datagram to the access point.
    fn send(&mut self, datagram: &[u8]);
    /// Delivers an IPv4 packet to this system.
    fn deliver(&mut self, packet: &[u8]);
    /// Receives a message of the access point.
    fn hear(&mut self, reply: Reply);
}

/// The user's end of a tunnel.
#[derive(Debug)]
pub struct UserEnd {
    tunnel: Tunnel,
    /// Address and port of the access point.
    point: SocketAddr,
    /// Address of the user; `None` before the user has joined.
    address: Option<Ipv4Addr>,
    buffer: Vec<u8>,
}

impl UserEnd {
    /// The user's end for an access point. Without an address it carries requests only.
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

    /// Starts a session, without any data to send.
    pub fn begin(&mut self, sink: &mut impl UserSink) {
        self.put(&[], sink);
    }

    /// Sends a request; without a session, a handshake is sent first.
    pub fn ask(&mut self, request: &Request, sink: &mut impl UserSink) {
        let bytes = packet(USER, POINT, request);
        self.put(&bytes, sink);
    }

    /// Sends a packet of this system; returns false if the user must not send it.
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
        // A packet that cannot be sent is lost, as on any link.
        let _ = self
            .tunnel
            .send(packet, &mut self.buffer, |bytes| sink.send(bytes));
    }

    /// Processes a datagram; returns false if it does not come from the access point.
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

    /// Runs the timers of the tunnel: sends the handshakes and keep-alives that are due. The caller
    /// calls this several times a second.
    pub fn tick(&mut self, sink: &mut impl UserSink) {
        self.tunnel.tick(&mut self.buffer, |bytes| sink.send(bytes));
    }

    /// Whether the tunnel has a session with the access point.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.tunnel.since_handshake().is_some()
    }
}
