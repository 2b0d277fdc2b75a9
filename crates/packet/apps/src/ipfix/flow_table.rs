//! The table of flows being measured, of bounded size.
//!
//! Each flow is in two lists: one in the order of the flows' last packets, one in the order of
//! their first. The next flow to end by either timeout is therefore at the head of a list, and so
//! is the flow that has been silent longest.

use std::collections::HashMap;

use carina_time::{Duration, Instant};

use super::packet::{FlowKey, Packet};

/// The measurements of a flow so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// When the flow's first packet arrived.
    pub first: Instant,
    /// When the flow's last packet arrived.
    pub last: Instant,
    /// Number of packets of the flow so far.
    pub packets: u64,
    /// Bytes of these packets, from the IP header on.
    pub bytes: u64,
    /// The TCP flags of all packets, combined by OR.
    pub tcp_flags: u16,
}

/// Why a flow has ended. (RFC 7012, flowEndReason)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// No packet arrived during the idle timeout.
    Idle = 1,
    /// The flow has lasted for the active timeout; its further packets form a new flow.
    Active = 2,
    /// The flow was removed to make room for another one.
    LackOfResources = 5,
}

/// A flow that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The fields that identify the flow.
    pub key: FlowKey,
    /// The measurements of the flow.
    pub flow: Flow,
    /// Why the flow has ended.
    pub reason: EndReason,
}

/// The timeouts after which flows end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time without a packet after which a flow ends.
    pub idle: Duration,
    /// Time since the first packet after which a flow ends, even if it continues.
    pub active: Duration,
}

/// The flows that are being measured at present, at most a given number.
#[derive(Debug)]
pub struct FlowTable {
    places: HashMap<FlowKey, u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    flows_max: usize,
    /// The flows in the order of their last and of their first packet, the oldest at the head.
    lists: [List; 2],
}

#[derive(Debug)]
struct Slot {
    key: FlowKey,
    flow: Flow,
    links: [Link; 2],
}

/// The neighbours of a slot in a list; [`NONE`] at either end.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    behind: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

const NONE: u32 = u32::MAX;
const BY_LAST: usize = 0;
const BY_FIRST: usize = 1;
const UNLINKED: Link = Link {
    before: NONE,
    behind: NONE,
};

impl FlowTable {
    /// An empty table for at most `flows_max` flows.
    #[must_use]
    pub fn new(flows_max: usize) -> FlowTable {
        FlowTable {
            places: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            flows_max: flows_max.clamp(1, NONE as usize),
            lists: [List {
                head: NONE,
                tail: NONE,
            }; 2],
        }
    }

    /// Number of flows being measured.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no flow is being measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a packet to its flow. Returns another flow if that was removed to make room for a new
    /// one.
    pub fn measure(&mut self, packet: &Packet, now: Instant) -> Option<Ended> {
        if let Some(place) = self.places.get(&packet.key).copied() {
            let flow = &mut self.slots[place as usize].flow;
            flow.last = now;
            flow.packets += 1;
            flow.bytes += packet.bytes;
            flow.tcp_flags |= packet.tcp_flags;
            self.unlink(BY_LAST, place);
            self.append(BY_LAST, place);
            return None;
        }
        let evicted = (self.len() >= self.flows_max)
            .then(|| self.remove(self.lists[BY_LAST].head, EndReason::LackOfResources));
        let slot = Slot {
            key: packet.key,
            flow: Flow {
                first: now,
                last: now,
                packets: 1,
                bytes: packet.bytes,
                tcp_flags: packet.tcp_flags,
            },
            links: [UNLINKED; 2],
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.places.insert(packet.key, place);
        self.append(BY_LAST, place);
        self.append(BY_FIRST, place);
        evicted
    }

    /// Removes and returns a flow that has ended by `now`; `None` if no flow has ended.
    pub fn take_ended(&mut self, timeouts: &Timeouts, now: Instant) -> Option<Ended> {
        let is_due = |place: u32, since: fn(&Flow) -> Instant, timeout| {
            let slot = self.slots.get(place as usize)?;
            (now.since(since(&slot.flow)) >= timeout).then_some(place)
        };
        let idle = is_due(self.lists[BY_LAST].head, |flow| flow.last, timeouts.idle);
        if let Some(place) = idle {
            return Some(self.remove(place, EndReason::Idle));
        }
        let active = is_due(
            self.lists[BY_FIRST].head,
            |flow| flow.first,
            timeouts.active,
        );
        active.map(|place| self.remove(place, EndReason::Active))
    }

    fn remove(&mut self, place: u32, reason: EndReason) -> Ended {
        self.unlink(BY_LAST, place);
        self.unlink(BY_FIRST, place);
        let Slot { key, flow, .. } = self.slots[place as usize];
        self.places.remove(&key);
        self.free.push(place);
        Ended { key, flow, reason }
    }

    fn append(&mut self, list: usize, place: u32) {
        let tail = std::mem::replace(&mut self.lists[list].tail, place);
        self.slots[place as usize].links[list] = Link {
            before: tail,
            behind: NONE,
        };
        match self.slots.get_mut(tail as usize) {
            Some(slot) => slot.links[list].behind = place,
            None => self.lists[list].head = place,
        }
    }

    fn unlink(&mut self, list: usize, place: u32) {
        let Link { before, behind } = self.slots[place as usize].links[list];
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.links[list].behind = behind,
            None => self.lists[list].head = behind,
        }
        match self.slots.get_mut(behind as usize) {
            Some(slot) => slot.links[list].before = before,
            None => self.lists[list].tail = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Version;
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        idle: Duration::from_secs(10),
        active: Duration::from_secs(25),
    };

    fn packet(port: u16) -> Packet {
        Packet {
            key: FlowKey {
                version: Version::V4,
                source: [1; 16],
                destination: [2; 16],
                protocol: 17,
                ports: [port, 9],
                vlan: 0,
            },
            bytes: 100,
            tcp_flags: 1 << (port % 8),
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_secs(seconds)
    }

    fn ended(table: &mut FlowTable, seconds: u64) -> Vec<(u16, u64, EndReason)> {
        let mut all = Vec::new();
        while let Some(one) = table.take_ended(&TIMEOUTS, at(seconds)) {
            assert_eq!(one.flow.bytes, one.flow.packets * 100);
            all.push((one.key.ports[0], one.flow.packets, one.reason));
        }
        all
    }

    #[test]
    fn flows_end_by_silence_and_by_age() {
        let mut table = FlowTable::new(10);
        for seconds in 0..30 {
            assert_eq!(table.measure(&packet(1), at(seconds)), None);
            if seconds < 3 {
                assert_eq!(table.measure(&packet(2), at(seconds)), None);
            }
            let wanted: &[_] = match seconds {
                12 => &[(2, 3, EndReason::Idle)],
                25 => &[(1, 26, EndReason::Active)],
                _ => &[],
            };
            assert_eq!(ended(&mut table, seconds), wanted, "second {seconds}");
        }
        assert_eq!(table.len(), 1, "what came after is another flow");
        assert_eq!(ended(&mut table, 39), [(1, 4, EndReason::Idle)]);
        assert!(table.is_empty());
    }

    #[test]
    fn silent_flows_make_room_for_others() {
        let mut table = FlowTable::new(3);
        for port in [1, 2, 3, 1] {
            assert_eq!(table.measure(&packet(port), at(0)), None);
        }
        for (port, evicted) in [(4, 2), (5, 3), (6, 1), (2, 4)] {
            let ended = table.measure(&packet(port), at(1)).unwrap();
            assert_eq!((ended.key.ports[0], table.len()), (evicted, 3));
            assert_eq!(ended.reason, EndReason::LackOfResources);
        }
        assert_eq!(table.slots.len(), 3);
        let rest: Vec<u16> = ended(&mut table, 11).iter().map(|one| one.0).collect();
        assert_eq!(rest, [5, 6, 2]);
    }

    #[test]
    fn any_order_of_packets_keeps_lists_and_table_together() {
        let mut table = FlowTable::new(16);
        let (mut came, mut left) = (0, 0);
        let mut number = 1_u32;
        for step in 0..5000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let port = (number >> 24) as u16 % 40;
            came += 1;
            let evicted = table.measure(&packet(port), at(step / 7));
            left += evicted.map_or(0, |one| one.flow.packets);
            if step % 11 == 0 {
                let all = ended(&mut table, step / 7);
                left += all.iter().map(|one| one.1).sum::<u64>();
            }
            assert!(table.len() <= 16 && table.slots.len() <= 16);
        }
        left += ended(&mut table, 10_000)
            .iter()
            .map(|one| one.1)
            .sum::<u64>();
        assert_eq!((left, table.len()), (came, 0));
    }
}
