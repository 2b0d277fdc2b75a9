//! The table of connections, of bounded size; new connections replace the oldest.

use std::hash::{BuildHasher, RandomState};

use carina_time::{Duration, Instant};
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_TCP, PROTOCOL_UDP};
use carina_wire::ipv6::{IPV6_BYTES, Upper};

/// Identifies a connection; equal for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Address and port of both ends, the lower one first.
    ends: [(u128, u16); 2],
    protocol: u8,
    is_ipv6: bool,
}

/// The key of a TCP or UDP frame over IPv4 or IPv6. `None` for frames with VLAN tags, for fragments
/// other than the first, and for anything else.
#[must_use]
pub fn key_of(frame: &[u8]) -> Option<Key> {
    let (ether, packet) = frame.split_first_chunk::<14>()?;
    let (protocol, is_ipv6, addresses, transport) = match u16::from_be_bytes([ether[12], ether[13]])
    {
        ETHERTYPE_IPV4 => {
            let head = packet.first_chunk::<20>()?;
            let is_behind = head[6] & 0x1f != 0 || head[7] != 0;
            let length = usize::from(head[0] & 0xf) * 4;
            if head[0] >> 4 != 4 || length < 20 || is_behind {
                return None;
            }
            // Ethernet padding may follow the packet; it has no ports.
            let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let packet = &packet[..total.min(packet.len())];
            let address = |at: usize| {
                let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
                u128::from(u32::from_be_bytes(bytes))
            };
            let addresses = [address(12), address(16)];
            (head[9], false, addresses, packet.get(length..)?)
        }
        ETHERTYPE_IPV6 => {
            let upper = Upper::seen(packet)?;
            let head = packet.first_chunk::<IPV6_BYTES>()?;
            let (source, destination) = head[8..].split_first_chunk::<16>()?;
            let destination = destination.first_chunk::<16>()?;
            let addresses = [
                u128::from_be_bytes(*source),
                u128::from_be_bytes(*destination),
            ];
            let transport = packet.get(upper.start..upper.end)?;
            (upper.protocol, true, addresses, transport)
        }
        _ => return None,
    };
    if ![PROTOCOL_TCP, PROTOCOL_UDP].contains(&protocol) {
        return None;
    }
    let ports = transport.first_chunk::<4>()?;
    let source = (addresses[0], u16::from_be_bytes([ports[0], ports[1]]));
    let destination = (addresses[1], u16::from_be_bytes([ports[2], ports[3]]));
    let ends = [source.min(destination), source.max(destination)];
    Some(Key {
        ends,
        protocol,
        is_ipv6,
    })
}

/// Connections in sets of [`WAYS`], as in the bridge's table of addresses: a look-up reads one set
/// only. A flood of connections replaces others, but needs no more memory.
pub(super) struct Connections {
    sets: Vec<[Option<Entry>; WAYS]>,
    idle: Duration,
    /// A random number that senders cannot know, so that they cannot choose connections of one set.
    seed: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    key: Key,
    seen: Instant,
}

const WAYS: usize = 4;

/// How [`Connections::enter`] found a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    InAFreePlace,
    /// Replaced a connection that had not expired.
    InPlaceOfAnother,
}

impl Connections {
    /// A table for at least `count` connections, each of which expires after `idle` without a
    /// frame.
    pub(super) fn new(count: usize, idle: Duration) -> Connections {
        Connections {
            sets: vec![[None; WAYS]; count.div_ceil(WAYS).next_power_of_two()],
            idle,
            seed: RandomState::new().hash_one(0),
        }
    }

    fn set(&mut self, key: &Key) -> &mut [Option<Entry>; WAYS] {
        let mut mixed = self.seed;
        for (address, port) in key.ends {
            for word in [
                address as u64,
                (address >> 64) as u64 ^ u64::from(port) << 13,
            ] {
                mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                mixed ^= mixed >> 29 ^ self.seed >> 7;
            }
        }
        mixed = (mixed ^ u64::from(key.protocol)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let index = (mixed >> 32) as usize & (self.sets.len() - 1);
        &mut self.sets[index]
    }

    /// Whether a connection is in the table and has not expired; if so, restarts its idle time.
    pub(super) fn refresh(&mut self, key: &Key, now: Instant) -> bool {
        let idle = self.idle;
        let mut entries = self.set(key).iter_mut().flatten();
        let Some(entry) = entries.find(|entry| entry.key == *key) else {
            return false;
        };
        if now.since(entry.seen) > idle {
            return false;
        }
        entry.seen = now;
        true
    }

    /// Adds a connection. If its set is full, it replaces the oldest one there.
    pub(super) fn enter(&mut self, key: Key, now: Instant) -> Entered {
        let idle = self.idle;
        let set = self.set(&key);
        let own = set
            .iter()
            .position(|place| place.is_some_and(|entry| entry.key == key));
        let oldest = (0..WAYS).min_by_key(|at| set[*at].map(|entry| entry.seen));
        let place = &mut set[own.or(oldest).unwrap_or(0)];
        let before = place.replace(Entry { key, seen: now });
        match before {
            Some(before) if before.key != key && now.since(before.seen) <= idle => {
                Entered::InPlaceOfAnother
            }
            _ => Entered::InAFreePlace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_packet::udp_packet;

    fn key(port: u16) -> Key {
        let mut frame = udp_packet(60);
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        key_of(&frame).unwrap()
    }

    #[test]
    fn both_directions_have_one_key() {
        let mut frame = udp_packet(60);
        frame[36] = 1;
        let forward = key_of(&frame).unwrap();
        let (source, rest) = frame[26..38].split_at_mut(4);
        source.swap_with_slice(&mut rest[..4]);
        frame.copy_within(34..36, 38);
        frame.copy_within(36..38, 34);
        frame.copy_within(38..40, 36);
        assert_eq!(key_of(&frame), Some(forward));
        let mut padded = frame.clone();
        (padded[16], padded[17]) = (0, 23);
        assert_eq!(key_of(&padded), None, "ports in the padding");
        frame[20] = 0x20;
        assert_eq!(key_of(&frame), Some(forward), "a first fragment");
        frame[21] = 1;
        assert_eq!(key_of(&frame), None);
        for length in 0..38 {
            assert_eq!(key_of(&frame[..length]), None);
        }
    }

    #[test]
    fn ports_of_ipv6_stand_behind_extension_headers() {
        let packet = |next: u8, headers: &[u8]| {
            let mut frame = vec![0; 54];
            (frame[12], frame[13], frame[14], frame[20]) = (0x86, 0xdd, 0x60, next);
            frame.extend_from_slice(headers);
            frame.extend([0, 5, 0, 6, 0, 8, 0, 0]);
            frame[19] = (frame.len() - 54) as u8;
            frame
        };
        let plain = key_of(&packet(17, &[]));
        assert!(plain.is_some());
        assert_eq!(key_of(&packet(60, &[17, 0, 4, 1, 4, 1, 1, 0])), plain);
        assert_eq!(key_of(&packet(44, &[17, 0, 0, 1, 0, 0, 0, 7])), plain);
        assert_eq!(key_of(&packet(44, &[17, 0, 0, 8, 0, 0, 0, 7])), None);
    }

    #[test]
    fn table_holds_what_it_promises_and_the_oldest_leave() {
        let mut table = Connections::new(4, Duration::from_secs(10));
        let at = Instant::from_secs;
        for port in 0..4 {
            assert_eq!(
                table.enter(key(port), at(port.into())),
                Entered::InAFreePlace
            );
        }
        assert!(table.refresh(&key(0), at(5)));
        assert_eq!(table.enter(key(4), at(6)), Entered::InPlaceOfAnother);
        assert!(!table.refresh(&key(1), at(6)), "the oldest");
        assert!(table.refresh(&key(2), at(12)));
        assert!(!table.refresh(&key(3), at(14)), "idle for too long");
        assert_eq!(table.enter(key(3), at(14)), Entered::InAFreePlace);
    }
}
