//! A WireGuard tunnel: wraps `boringtun`, and calls it until it has nothing more to return.

use std::net::IpAddr;
use std::time::Duration;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::{Tunn, TunnResult};
use carina_vnet::host_part::ACCESS_MTU_MAX;

use crate::discard::Discard;
use crate::key::{PrivateKey, PublicKey};

/// What a tunnel gives its caller: a datagram to send, a packet to deliver, or nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Given<'a> {
    /// A datagram to send to the other end.
    Datagram(&'a [u8]),
    /// An IPv4 packet that the other end has sent.
    Packet(&'a [u8]),
}

/// A WireGuard tunnel to one other end.
pub(crate) struct Tunnel {
    tunn: Tunn,
}

impl Tunnel {
    /// A tunnel between two keys. `index` (24 bits) identifies its datagrams among those of other
    /// tunnels.
    pub(crate) fn new(
        own: &PrivateKey,
        other: PublicKey,
        index: u32,
        keepalive_s: Option<u16>,
    ) -> Tunnel {
        let tunn = Tunn::new(
            own.x25519(),
            other.x25519(),
            None,
            keepalive_s,
            index & INDEX_MASK,
            None,
        );
        Tunnel { tunn }
    }

    /// Processes a datagram of the other end. An `Ok` means that something in it was authenticated.
    pub(crate) fn receive(
        &mut self,
        from: IpAddr,
        datagram: &[u8],
        buffer: &mut [u8],
        mut give: impl FnMut(Given<'_>),
    ) -> Result<(), Discard> {
        let mut input = datagram;
        for _ in 0..GIVEN_MAX {
            match self.tunn.decapsulate(Some(from), input, buffer) {
                TunnResult::WriteToNetwork(bytes) => give(Given::Datagram(bytes)),
                TunnResult::WriteToTunnelV4(packet, _) => {
                    give(Given::Packet(packet));
                    return Ok(());
                }
                TunnResult::WriteToTunnelV6(..) => return Err(Discard::NotIpv4),
                TunnResult::Done => return Ok(()),
                TunnResult::Err(error) => return Err(reason(&error)),
            }
            // Packets that waited for a handshake follow, one per call.
            input = &[];
        }
        Ok(())
    }

    /// Sends a packet; without a session, a handshake is sent first. The library panics if the
    /// buffer is too short for its output.
    pub(crate) fn send(
        &mut self,
        packet: &[u8],
        buffer: &mut [u8],
        mut give: impl FnMut(&[u8]),
    ) -> Result<(), Discard> {
        if packet.len() > PACKET_MAX || packet.len() + AROUND > buffer.len() {
            return Err(Discard::Length);
        }
        match self.tunn.encapsulate(packet, buffer) {
            TunnResult::WriteToNetwork(bytes) => give(bytes),
            TunnResult::Err(error) => return Err(reason(&error)),
            _ => {}
        }
        Ok(())
    }

    /// Sends the handshakes and keep-alives that are due. To be called several times a second.
    pub(crate) fn tick(&mut self, buffer: &mut [u8], mut give: impl FnMut(&[u8])) {
        for _ in 0..GIVEN_MAX {
            match self.tunn.update_timers(buffer) {
                TunnResult::WriteToNetwork(bytes) => give(bytes),
                // After a session has expired, the next packet starts another one.
                _ => return,
            }
        }
    }

    /// Time since the last handshake; `None` if there is no session.
    pub(crate) fn since_handshake(&self) -> Option<Duration> {
        self.tunn.time_since_last_handshake()
    }
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tunnel")
    }
}

/// The reason under which an error is counted.
fn reason(error: &WireGuardError) -> Discard {
    match error {
        WireGuardError::UnderLoad => Discard::UnderLoad,
        WireGuardError::NoCurrentSession
        | WireGuardError::WrongIndex
        | WireGuardError::ConnectionExpired => Discard::Session,
        WireGuardError::InvalidPacket
        | WireGuardError::WrongPacketType
        | WireGuardError::InvalidMac => Discard::NotWireguard,
        WireGuardError::WrongKey
        | WireGuardError::WrongTai64nTimestamp
        | WireGuardError::UnexpectedPacket => Discard::Handshake,
        _ => Discard::Sealed,
    }
}

/// Mask of an index; the library uses eight further bits below it.
pub(crate) const INDEX_MASK: u32 = 0x00ff_ffff;
/// Bytes that WireGuard adds to a packet: a header of 16 and a tag of 16.
pub(crate) const AROUND: usize = 32;
/// The longest datagram that is accepted, bytes.
pub(crate) const DATAGRAM_MAX: usize = 2048;
/// The longest packet, bytes: a longer one would make a datagram that the other end does not
/// accept.
pub(crate) const PACKET_MAX: usize = DATAGRAM_MAX - AROUND;
/// Size of a buffer for any input or output.
pub(crate) const BUFFER_BYTES: usize = DATAGRAM_MAX + AROUND;
// The MTU of an access point is what its tunnels carry.
const _: () = assert!(ACCESS_MTU_MAX as usize == PACKET_MAX);
/// Largest number of datagrams or packets that one call returns: what waited for a handshake, and a
/// few more.
const GIVEN_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{POINT, Request, USER, packet};

    #[test]
    fn packet_that_is_too_long_for_a_datagram_is_counted() {
        let keys = [1, 2].map(|byte| PrivateKey::of([byte; 32]));
        let mut tunnel = Tunnel::new(&keys[0], keys[1].public(), 1, None);
        let mut buffer = vec![0; BUFFER_BYTES];
        let longest = vec![0; usize::from(ACCESS_MTU_MAX)];
        assert_eq!(tunnel.send(&longest, &mut buffer, |_| {}), Ok(()));
        let longer = vec![0; usize::from(ACCESS_MTU_MAX) + 1];
        let refused = tunnel.send(&longer, &mut buffer, |_| panic!("it is sent"));
        assert_eq!(refused, Err(Discard::Length));
    }

    #[test]
    fn packet_passes_after_a_handshake_that_it_starts() {
        let keys = [1, 2].map(|byte| PrivateKey::of([byte; 32]));
        let mut ends = [(0, 1), (1, 0)].map(|(own, other): (usize, usize)| {
            Tunnel::new(&keys[own], keys[other].public(), 5, None)
        });
        let from: IpAddr = "192.0.2.1".parse().unwrap();
        let sent = packet(USER, POINT, &Request::Join("t".to_owned()));
        let (mut buffer, mut waiting) = (vec![0; BUFFER_BYTES], Vec::new());
        ends[0]
            .send(&sent, &mut buffer, |bytes| {
                waiting.push((1, bytes.to_vec()))
            })
            .unwrap();
        let mut arrived = Vec::new();
        while let Some((to, datagram)) = waiting.pop() {
            let mut more = Vec::new();
            ends[to]
                .receive(from, &datagram, &mut buffer, |given| match given {
                    Given::Datagram(bytes) => more.push((1 - to, bytes.to_vec())),
                    Given::Packet(bytes) => arrived.push((to, bytes.to_vec())),
                })
                .unwrap();
            more.reverse();
            waiting.extend(more);
        }
        assert_eq!(arrived, [(1, sent)]);
        assert!(ends.iter().all(|end| end.since_handshake().is_some()));
        let stray = ends[1].receive(from, &[0; 40], &mut buffer, |_| panic!("nothing is there"));
        assert_eq!(stray, Err(Discard::NotWireguard));
    }
}
