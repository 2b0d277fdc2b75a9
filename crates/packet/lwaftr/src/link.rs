//! One side of an AFTR, towards its segment: VLAN tag, filters, next hop, and fragmentation of
//! packets that leave.

use std::collections::VecDeque;

use carina_apps::fragment::{CutError, cut4, cut6};
use carina_apps::next_hop::{Heard, NextHop};
use carina_apps::vlan::{Tag, pop_tag, push_tag, vlan_of};
use carina_filter::{Filter, FilterError};
use carina_frame::{Frame, Pool};
use carina_time::Instant;
use carina_wire::ether::{Mac, TPID_CUSTOMER};
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};

use crate::config::{Rules, Side};
use crate::counters::{Counters, PairCounter, Single};
use crate::numbers::Numbers;
use crate::packet::set_identification;

/// Length of an Ethernet header without VLAN tag, in bytes.
pub const ETHER: usize = 14;

/// One side of an AFTR, external or internal: filters, fragments and sends its packets.
pub struct Link {
    family: Family,
    mac: [u8; 6],
    mtu: usize,
    vlan: Option<(u16, Tag)>,
    next: NextHop,
    ingress: Option<Filter>,
    egress: Option<Filter>,
    /// Whether the fragments of an IPv4 packet keep its identification.
    keeps_identification: bool,
    /// Frames that wait for the next hop's MAC address, each with the counter to increment when it
    /// leaves.
    held: VecDeque<(Frame, Single)>,
}

/// Which side of an AFTR, by its IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4: the external side.
    V4,
    /// IPv6: the internal side.
    V6,
}

impl Family {
    fn ethertype(self) -> u16 {
        match self {
            Family::V4 => ETHERTYPE_IPV4,
            Family::V6 => ETHERTYPE_IPV6,
        }
    }
}

/// The Ethernet settings of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ether {
    /// The AFTR's own MAC address on this side.
    pub mac: Mac,
    /// VLAN of all frames; `None` for untagged frames.
    pub vlan: Option<u16>,
    /// The next hop's MAC address, if it is configured; `None` if it must be resolved.
    pub next: Option<Mac>,
}

/// Resources that a side uses while it sends a packet: where frames go, pool, counters and MTU.
pub struct Leaving<'a> {
    /// The frames that the side sends; appends to it.
    pub out: &'a mut Vec<Frame>,
    /// Counters of packets that are sent, and of packets that are dropped.
    pub counters: &'a mut Counters,
    /// Pool from which the frames of fragments are taken.
    pub pool: &'a Pool,
    /// Source of identifications for fragments.
    pub numbers: &'a mut Numbers,
    /// Length of the longest packet that may leave unfragmented, in bytes.
    pub mtu: usize,
}

/// Largest number of frames that wait for the next hop's MAC address. (RFC 4861 §7.2.2 asks for at
/// least one)
const HELD_MAX: usize = 64;

impl Link {
    /// Makes a side.
    ///
    /// # Errors
    /// A filter cannot be compiled.
    pub fn new(
        family: Family,
        ether: Ether,
        mtu: u16,
        side: &Side,
        rules: Rules,
    ) -> Result<Link, FilterError> {
        let compile = |text: &Option<String>| text.as_deref().map(Filter::compile).transpose();
        let tag = |vlan| Some((vlan, Tag::new(TPID_CUSTOMER, vlan, 0).ok()?));
        Ok(Link {
            family,
            mac: ether.mac.0,
            mtu: usize::from(mtu),
            vlan: ether.vlan.and_then(tag),
            next: NextHop::new(ether.next.map(|mac| mac.0)),
            ingress: compile(&side.ingress_filter)?,
            egress: compile(&side.egress_filter)?,
            keeps_identification: rules.keeps_identification,
            held: VecDeque::new(),
        })
    }

    /// The side's own MAC address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Length of the longest packet that leaves, in bytes.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Removes the VLAN tag of this side from a frame; returns `false` for a frame of another VLAN.
    #[must_use]
    #[inline]
    pub fn untag(&self, frame: &mut Frame) -> bool {
        let found = vlan_of(frame.bytes(), TPID_CUSTOMER);
        let is_ours = found == self.vlan.as_ref().map(|(vlan, _)| *vlan);
        if is_ours && found.is_some() {
            pop_tag(frame);
        }
        is_ours
    }

    /// Whether the ingress filter accepts a frame, which must be reassembled and untagged.
    #[must_use]
    #[inline]
    pub fn lets_in(&self, frame: &[u8]) -> bool {
        let filter = self.ingress.as_ref();
        filter.is_none_or(|filter| filter.matches(frame))
    }

    /// Sends a packet to the next hop.
    #[inline]
    pub fn send(&mut self, mut packet: Frame, leaving: Leaving<'_>) {
        let mut header = [0; ETHER];
        header[..6].copy_from_slice(&self.next.mac().unwrap_or_default());
        header[6..12].copy_from_slice(&self.mac);
        header[12..].copy_from_slice(&self.family.ethertype().to_be_bytes());
        if packet.prepend(&header) {
            self.send_frame(packet, true, leaving)
        } else {
            leaving
                .counters
                .count(PairCounter::DropNoFrame, packet.len())
        }
    }

    /// Filters, fragments and sends a frame without VLAN tag. A frame with `to_next` goes to the
    /// next hop, and waits until its MAC address is known.
    #[inline]
    pub fn send_frame(&mut self, frame: Frame, to_next: bool, mut leaving: Leaving<'_>) {
        let filter = self.egress.as_ref();
        if filter.is_some_and(|filter| !filter.matches(frame.bytes())) {
            let of = match self.family {
                Family::V4 => PairCounter::DropFilteredOutIpv4,
                Family::V6 => PairCounter::DropFilteredOutIpv6,
            };
            return leaving.counters.count(of, frame.len());
        }
        if frame.len() - ETHER > leaving.mtu {
            return self.cut(&frame, to_next, &mut leaving);
        }
        let single = match self.family {
            Family::V4 => Single::OutIpv4FragNot,
            Family::V6 => Single::OutIpv6FragNot,
        };
        self.put(frame, single, to_next, &mut leaving);
    }

    fn cut(&mut self, frame: &Frame, to_next: bool, leaving: &mut Leaving<'_>) {
        let Some((ether, packet)) = frame.bytes().split_first_chunk::<ETHER>() else {
            return;
        };
        let mut parts = Vec::new();
        let take = |part: Frame| parts.push(part);
        let cut = match self.family {
            Family::V4 => cut4(packet, leaving.mtu, leaving.pool, take),
            Family::V6 => {
                let id = leaving.numbers.draw() as u32;
                cut6(packet, leaving.mtu, id, leaving.pool, take)
            }
        };
        match cut {
            Ok(_) => {}
            Err(CutError::DontFragment) => {
                let of = PairCounter::DropOverMtuButDontFragmentIpv4;
                return leaving.counters.count(of, frame.len());
            }
            // Without this fragment the others would be useless.
            Err(_) => {
                return leaving
                    .counters
                    .count(PairCounter::DropNoFrame, frame.len());
            }
        }
        let single = match self.family {
            Family::V4 => Single::OutIpv4Frag,
            Family::V6 => Single::OutIpv6Frag,
        };
        if self.family == Family::V4 && !self.keeps_identification {
            let identification = leaving.numbers.next_in_row();
            for part in &mut parts {
                set_identification(part.bytes_mut(), identification);
            }
        }
        for mut part in parts {
            if part.prepend(ether) {
                self.put(part, single, to_next, leaving)
            } else {
                leaving.counters.count(PairCounter::DropNoFrame, part.len())
            }
        }
    }

    #[inline]
    fn put(&mut self, mut frame: Frame, single: Single, to_next: bool, leaving: &mut Leaving<'_>) {
        if let Some((_, tag)) = self.vlan
            && !push_tag(&mut frame, tag)
        {
            return leaving
                .counters
                .count(PairCounter::DropNoFrame, frame.len());
        }
        if !to_next || self.next.mac().is_some() {
            leaving.counters.add(single, 1);
            return leaving.out.push(frame);
        }
        if self.held.len() == HELD_MAX
            && let Some((oldest, _)) = self.held.pop_front()
        {
            let of = match self.family {
                Family::V4 => PairCounter::DropUnresolvedIpv4,
                Family::V6 => PairCounter::DropUnresolvedIpv6,
            };
            // The count of bytes excludes the tag.
            let tag = if self.vlan.is_some() { 4 } else { 0 };
            leaving.counters.count(of, oldest.len() - tag);
        }
        self.held.push_back((frame, single));
    }

    /// Handles what a message tells about the next hop, and sends the frames that have waited for
    /// its MAC address. Returns this address when the message confirms or changes it, otherwise
    /// `None`.
    pub fn hear(&mut self, heard: Heard, now: Instant, leaving: Leaving<'_>) -> Option<[u8; 6]> {
        if !self.next.hear(heard, now) {
            return None;
        }
        let mac = self.next.mac()?;
        for (mut frame, single) in self.held.drain(..) {
            frame.bytes_mut()[..6].copy_from_slice(&mac);
            leaving.counters.add(single, 1);
            leaving.out.push(frame);
        }
        Some(mac)
    }

    /// Whether the next hop's MAC address is known.
    #[must_use]
    pub fn is_resolved(&self) -> bool {
        self.next.mac().is_some()
    }

    /// Whether the caller must now ask for the next hop's MAC address.
    #[must_use]
    pub fn must_ask(&mut self, now: Instant) -> bool {
        self.next.is_due(now)
    }
}
