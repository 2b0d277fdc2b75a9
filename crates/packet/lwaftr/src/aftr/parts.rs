//! Fragments that wait for the rest of their packets: IPv4 from the Internet, IPv4 within tunnels,
//! and IPv6.

use carina_apps::reassembly::{Bounds, Fragment, Outcome, Reassembly, Whole};
use carina_time::{Duration, Instant};
use carina_wire::inet::Ipv4Header;

use super::arrived::Outer;
use crate::config::ReassemblyBounds;
use crate::counters::{Counters, Single};

/// Identifies the IPv4 packet that a fragment belongs to. (RFC 791 §3.2)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key4 {
    /// Source and destination address.
    ends: [[u8; 4]; 2],
    protocol: u8,
    id: u16,
    /// The outer IPv6 header, if the packet came through a tunnel; `None` if the packet came from
    /// the Internet. Customers who share an IPv4 address differ in the addresses of this header.
    pub outer: Option<Outer>,
}

/// Identifies the IPv6 packet that a fragment belongs to. (RFC 8200 §4.5)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key6 {
    ends: [[u8; 16]; 2],
    id: u32,
}

impl Key6 {
    /// The key of a fragment with the outer header `outer` and the identification `id`.
    #[must_use]
    pub(super) fn new(outer: &Outer, id: u32) -> Key6 {
        let ends = outer.ends();
        Key6 { ends, id }
    }
}

impl Key4 {
    /// The key of a fragment; `header` is the decoded header at the beginning of `packet`.
    #[must_use]
    pub(super) fn new(packet: &[u8], header: &Ipv4Header, outer: Option<Outer>) -> Key4 {
        Key4 {
            ends: [header.source, header.destination],
            protocol: header.protocol,
            id: u16::from_be_bytes([packet[4], packet[5]]),
            outer,
        }
    }
}

/// The incomplete packets of both families.
pub(super) struct Parts {
    v4: Reassembly<Key4>,
    v6: Reassembly<Key6>,
    takes4: bool,
    takes6: bool,
}

/// Largest amount of memory that the fragments of one family may occupy, in bytes.
const BYTES_MAX: usize = 64 << 20;
/// How long a packet may stay incomplete. (RFC 791 §3.2 asks for at least 15 s, RFC 8200 §4.5 for
/// 60 s)
const TIME4: Duration = Duration::from_secs(30);
const TIME6: Duration = Duration::from_secs(60);

impl Parts {
    /// Starts with no fragments.
    #[must_use]
    pub(super) fn new(v4: ReassemblyBounds, v6: ReassemblyBounds) -> Parts {
        let bounds = |bounds: ReassemblyBounds, time| Bounds {
            packets: bounds.packets as usize,
            fragments: bounds.fragments as usize,
            bytes: BYTES_MAX,
            time,
        };
        Parts {
            v4: Reassembly::new(bounds(v4, TIME4)),
            v6: Reassembly::new(bounds(v6, TIME6)),
            takes4: v4.packets > 0 && v4.fragments > 0,
            takes6: v6.packets > 0 && v6.fragments > 0,
        }
    }

    /// Adds an IPv4 fragment, and counts the outcome. Drops the fragment if the configuration
    /// allows no reassembly.
    pub(super) fn add4(
        &mut self,
        key: Key4,
        fragment: &Fragment<'_>,
        now: Instant,
        random: u64,
        counters: &mut Counters,
    ) -> Outcome {
        counters.add(Single::InIpv4FragNeedsReassembly, 1);
        if !self.takes4 {
            counters.add(Single::DropIpv4FragDisabled, 1);
            return Outcome::PassedOver;
        }
        let before = self.v4.evicted();
        let outcome = self.v4.add(key, fragment, now, || random);
        let evicted = (self.v4.evicted() - before) as usize;
        counters.add(Single::DropIpv4FragRandomEvicted, evicted);
        match outcome {
            Outcome::Complete(_) => counters.add(Single::InIpv4FragReassembled, 1),
            Outcome::Discarded(_) => counters.add(Single::DropIpv4FragInvalidReassembly, 1),
            Outcome::Kept | Outcome::PassedOver => {}
        }
        let bytes = self.v4.bytes() as u64;
        counters.set(Single::MemuseIpv4FragReassemblyBuffer, bytes);
        outcome
    }

    /// Like [`Parts::add4`], for an IPv6 fragment.
    pub(super) fn add6(
        &mut self,
        key: Key6,
        fragment: &Fragment<'_>,
        now: Instant,
        random: u64,
        counters: &mut Counters,
    ) -> Outcome {
        counters.add(Single::InIpv6FragNeedsReassembly, 1);
        if !self.takes6 {
            counters.add(Single::DropIpv6FragDisabled, 1);
            return Outcome::PassedOver;
        }
        let before = self.v6.evicted();
        let outcome = self.v6.add(key, fragment, now, || random);
        let evicted = (self.v6.evicted() - before) as usize;
        counters.add(Single::DropIpv6FragRandomEvicted, evicted);
        match outcome {
            Outcome::Complete(_) => counters.add(Single::InIpv6FragReassembled, 1),
            Outcome::Discarded(_) => counters.add(Single::DropIpv6FragInvalidReassembly, 1),
            Outcome::Kept | Outcome::PassedOver => {}
        }
        let bytes = self.v6.bytes() as u64;
        counters.set(Single::MemuseIpv6FragReassemblyBuffer, bytes);
        outcome
    }

    /// Discards packets that have been incomplete for too long. Returns the first fragment of each,
    /// if it had arrived.
    pub(super) fn expire(&mut self, now: Instant, counters: &mut Counters) -> Expired {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        self.v4.expire(now, |key, first| {
            counters.add(Single::DropIpv4FragExpired, 1);
            v4.extend(first.map(|first| (key.outer, first)));
        });
        self.v6.expire(now, |_, first| {
            counters.add(Single::DropIpv6FragExpired, 1);
            v6.extend(first);
        });
        let bytes = [self.v4.bytes() as u64, self.v6.bytes() as u64];
        counters.set(Single::MemuseIpv4FragReassemblyBuffer, bytes[0]);
        counters.set(Single::MemuseIpv6FragReassemblyBuffer, bytes[1]);
        Expired { v4, v6 }
    }
}

/// First fragments of packets that stayed incomplete for too long.
pub(super) struct Expired {
    /// IPv4 fragments; each with its outer header if it came through a tunnel.
    pub v4: Vec<(Option<Outer>, Whole)>,
    /// First fragments of IPv6 packets.
    pub v6: Vec<Whole>,
}
