//! Hashes of frames that are equal for all frames of a flow, or between two addresses. Apps
//! distribute frames by them.

use carina_wire::ipv6::{FRAGMENT, Upper};

/// Hashes the fields that identify the flow of a frame. For IPv4 and IPv6 these are the addresses,
/// the protocol and, unless the packet is a fragment, the ports of TCP, UDP and SCTP, also behind
/// extension headers. For other frames they are the first 14 bytes.
///
/// The hash distributes flows evenly. It does not resist a sender that searches for collisions.
#[must_use]
pub fn flow_hash(frame: &[u8]) -> u32 {
    let mut hash = Mix::default();
    let Some((ether, packet)) = frame.split_first_chunk::<14>() else {
        hash.bytes(frame);
        return hash.end();
    };
    let version = match [ether[12], ether[13]] {
        [0x08, 0x00] => 4,
        [0x86, 0xdd] => 6,
        _ => 0,
    };
    if !hash.packet(version, packet) {
        hash.bytes(ether);
    }
    hash.end()
}

/// Like [`flow_hash`], for an IPv4 or IPv6 packet without a link header. `None` for anything but
/// IP.
#[must_use]
pub fn packet_hash(packet: &[u8]) -> Option<u32> {
    let mut hash = Mix::default();
    let version = packet.first()? >> 4;
    hash.packet(version, packet).then(|| hash.end())
}

/// Hashes only the addresses of an IPv4 or IPv6 packet. All fragments of a packet therefore get the
/// hash of the whole packet. So do the packets of a tunnel, whether they are fragments or carry
/// fragments. `None` for anything but IP.
#[must_use]
pub fn address_hash(packet: &[u8]) -> Option<u32> {
    let mut hash = Mix::default();
    match packet.first()? >> 4 {
        4 => hash.bytes(packet.get(12..20)?),
        6 => hash.bytes(packet.get(8..40)?),
        _ => return None,
    }
    Some(hash.end())
}

/// Maps a hash evenly to a number below `count`, or to 0 if `count` is 0. Uses the upper bits, and
/// no division.
#[must_use]
#[inline]
pub fn choice(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

#[derive(Default)]
struct Mix(u64);

impl Mix {
    fn word(&mut self, word: u64) {
        // Multiplies by an odd constant and folds, like the finaliser of SplitMix64.
        let mixed = (self.0 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ mixed >> 32;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    /// Hashes what identifies the flow of an IP packet. Returns false, and hashes nothing, if it is
    /// no packet of this version.
    fn packet(&mut self, version: u8, packet: &[u8]) -> bool {
        match (version, packet) {
            (4, [first @ 0x45..=0x4f, ..]) if packet.len() >= 20 => {
                self.bytes(&packet[12..20]);
                let (protocol, is_fragment) = (packet[9], packet[6] & 0x3f != 0 || packet[7] != 0);
                let header = usize::from(first & 0xf) * 4;
                self.transport(protocol, packet.get(header..).filter(|_| !is_fragment));
            }
            (6, [0x60..=0x6f, ..]) if packet.len() >= 40 => {
                self.bytes(&packet[8..40]);
                // All fragments of a packet get the same hash, including the first one.
                match Upper::seen(packet) {
                    Some(Upper { part: Some(_), .. }) | None => self.transport(FRAGMENT, None),
                    Some(upper) => {
                        self.transport(upper.protocol, packet.get(upper.start..upper.end));
                    }
                }
            }
            _ => return false,
        }
        true
    }

    fn transport(&mut self, protocol: u8, segment: Option<&[u8]>) {
        self.word(u64::from(protocol));
        let has_ports = matches!(protocol, 6 | 17 | 132);
        if let Some(ports) = segment.and_then(|segment| segment.first_chunk::<4>())
            && has_ports
        {
            self.word(u64::from(u32::from_le_bytes(*ports)));
        }
    }

    fn end(self) -> u32 {
        let mixed = self.0.wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_packet::udp_packet;

    #[test]
    fn frames_of_a_flow_have_one_hash_and_flows_spread() {
        let base = udp_packet(100);
        let mut other = base.clone();
        (other[22], other[99]) = (1, 0xff);
        assert_eq!(flow_hash(&base), flow_hash(&other));
        let mut outputs = [0; 4];
        for port in 0..4000u16 {
            other[34..36].copy_from_slice(&port.to_be_bytes());
            outputs[(flow_hash(&other) >> 30) as usize] += 1;
        }
        assert!(
            outputs.iter().all(|count| (800..1200).contains(count)),
            "{outputs:?}"
        );
    }

    #[test]
    fn fragments_of_a_packet_stay_together() {
        let mut first = udp_packet(100);
        first[20] = 0x20;
        let mut second = first.clone();
        (second[20], second[21]) = (0, 8);
        second[34..38].copy_from_slice(b"data");
        assert_eq!(flow_hash(&first), flow_hash(&second));
    }

    #[test]
    fn ports_behind_extension_headers_count() {
        let packet = |headers: &[u8], port: u8| {
            let mut frame = vec![0; 54];
            (frame[12], frame[13], frame[14]) = (0x86, 0xdd, 0x60);
            frame[20] = if headers.is_empty() { 17 } else { 60 };
            frame.extend_from_slice(headers);
            frame.extend([0, port, 0, 9, 0, 8, 0, 0]);
            frame[19] = (frame.len() - 54) as u8;
            frame
        };
        const LIMIT: [u8; 8] = [17, 0, 4, 1, 4, 1, 1, 0];
        let hash = |headers: &[u8], port| flow_hash(&packet(headers, port));
        assert_eq!(hash(&LIMIT, 5), hash(&[], 5));
        assert_ne!(hash(&LIMIT, 5), hash(&LIMIT, 6));
        let part = |word: u8| {
            let mut headers = [LIMIT, [17, 0, 0, word, 0, 0, 0, 7]];
            headers[0][0] = 44;
            headers.concat()
        };
        assert_eq!(hash(&part(1), 5), hash(&part(8), 77));
    }

    #[test]
    fn address_hash_is_that_of_the_addresses() {
        let packet = udp_packet(100).split_off(14);
        let mut fragment = packet.clone();
        (fragment[6], fragment[9], fragment[22]) = (0x20, 6, 9);
        assert_eq!(address_hash(&packet), address_hash(&fragment));
        fragment[19] ^= 1;
        assert_ne!(address_hash(&packet), address_hash(&fragment));
        assert_eq!(address_hash(&packet[..19]), None);
        let mut outputs = [0; 3];
        for host in 0..3000_u16 {
            fragment[14..16].copy_from_slice(&host.to_be_bytes());
            outputs[choice(address_hash(&fragment).unwrap(), 3)] += 1;
        }
        assert!(
            outputs.iter().all(|count| (800..1200).contains(count)),
            "{outputs:?}"
        );
        let mut tunnel = [0; 40];
        (tunnel[0], tunnel[6]) = (0x60, 4);
        let whole = address_hash(&tunnel);
        tunnel[6] = 44;
        assert_eq!(address_hash(&tunnel), whole);
        assert_eq!((choice(u32::MAX, 5), choice(0, 5)), (4, 0));
        assert_eq!(address_hash(&[]), None);
    }

    #[test]
    fn packet_has_the_hash_of_its_frame() {
        let frame = udp_packet(100);
        assert_eq!(packet_hash(&frame[14..]), Some(flow_hash(&frame)));
        assert_eq!((packet_hash(&frame), packet_hash(&[])), (None, None));
    }

    #[test]
    fn every_length_of_frame_has_a_hash() {
        let frame = udp_packet(80);
        for len in 0..80 {
            let _ = flow_hash(&frame[..len]);
        }
    }
}
