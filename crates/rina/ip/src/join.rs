//! Joins packets of one connection that arrive together, so that the kernel's stack handles one
//! packet of several segments instead of many packets (generic receive offload, GRO).
//!
//! Packets are joined only if cutting the result gives the same packets again: their headers differ
//! in nothing but the sequence number, lengths, checksums, the identification of IPv4 and PSH.
//! The checksum of each packet is verified first: the kernel gives the packet that results a new
//! checksum, which would hide a damaged one.

use std::ops::Range;

use carina_netdev::{VnetHeader, VnetSegments, word_sum};
use carina_wire::inet::{PROTOCOL_TCP, PROTOCOL_UDP};

/// A packet to which the packets behind it can be joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joint {
    layout: Layout,
    /// Payload of each segment but the last, in bytes.
    size: usize,
    /// Number of packets so far.
    count: usize,
    /// Sequence number of the next TCP segment.
    next_sequence: u32,
    /// Whether the last packet ends the run: it is shorter, or has PSH.
    is_complete: bool,
    has_push: bool,
}

/// Offsets in a packet of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    is_v4: bool,
    is_tcp: bool,
    /// Offset of the transport header.
    transport: usize,
    /// Offset of the payload.
    payload: usize,
}

impl Joint {
    /// Begins a run with a packet, whose length its IP header states. `None` if no packet can be
    /// joined to this one. `joins_udp`: the kernel takes packets of several datagrams.
    pub(crate) fn begin(packet: &[u8], joins_udp: bool) -> Option<Joint> {
        let layout = Layout::read(packet).filter(|layout| layout.is_tcp || joins_udp)?;
        let size = packet.len() - layout.payload;
        let has_push = layout.has_push(packet);
        Some(Joint {
            layout,
            size,
            count: 1,
            next_sequence: layout.sequence(packet).wrapping_add(size as u32),
            is_complete: has_push,
            has_push,
        })
    }

    /// Joins the packet `next` to the run whose first `length` bytes are in `run`, if the packet
    /// continues the run and has space. Returns the new length of the run.
    pub(crate) fn join(&mut self, run: &mut [u8], length: usize, next: &[u8]) -> Option<usize> {
        let layout = Layout::read(next).filter(|layout| *layout == self.layout)?;
        let payload = &next[layout.payload..];
        let end = length + payload.len();
        let fits = end <= run.len().min(LONGEST) && self.count < self.count_max();
        if self.is_complete || payload.len() > self.size || !fits {
            return None;
        }
        let is_next = layout.is_tcp && layout.sequence(next) == self.next_sequence;
        let continues = (is_next || !layout.is_tcp) && layout.is_alike(&run[..length], next);
        // The first packet is verified when it is found to have a second one.
        let is_valid = |packet: &[u8]| layout.is_valid(packet);
        if !continues || !is_valid(next) || (self.count == 1 && !is_valid(&run[..length])) {
            return None;
        }
        run[length..end].copy_from_slice(payload);
        self.count += 1;
        self.next_sequence = self.next_sequence.wrapping_add(payload.len() as u32);
        self.has_push = layout.has_push(next);
        self.is_complete = self.has_push || payload.len() < self.size;
        Some(end)
    }

    /// Number of packets in the run.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Completes the headers of a run. Returns the header for the kernel, which states how to cut
    /// the run again; `None` if the run has one packet, which is unchanged.
    pub(crate) fn finish(&self, run: &mut [u8]) -> Option<VnetHeader> {
        if self.count == 1 {
            return None;
        }
        let layout = &self.layout;
        let (total, transport) = (run.len(), layout.transport);
        if layout.is_v4 {
            put(run, 2, total as u16);
            put(run, 10, 0);
            let sum = !word_sum(&run[..transport]);
            put(run, 10, sum);
        } else {
            put(run, 4, (total - transport) as u16);
        }
        if !layout.is_tcp {
            put(run, transport + 4, (total - transport) as u16);
        } else if self.has_push {
            run[transport + FLAGS] |= PSH;
        }
        let at = layout.checksum_at();
        let sum = layout.pseudo_sum(run);
        put(run, transport + at, sum);
        let kind = match (layout.is_tcp, layout.is_v4) {
            (true, true) => VnetSegments::Tcp4,
            (true, false) => VnetSegments::Tcp6,
            (false, _) => VnetSegments::Udp,
        };
        Some(VnetHeader {
            checksum: Some((transport as u16, at as u16)),
            is_checksum_valid: false,
            segments: Some((kind, self.size as u16, layout.payload as u16)),
        })
    }

    fn count_max(&self) -> usize {
        if self.layout.is_tcp {
            usize::MAX
        } else {
            DATAGRAMS_MAX
        }
    }
}

impl Layout {
    /// Reads the headers of a packet that may be joined to others: not a fragment, without options
    /// or extensions of IP, with payload; TCP with no flags but ACK and PSH, UDP with a checksum.
    fn read(packet: &[u8]) -> Option<Layout> {
        let is_v4 = packet.first()? >> 4 == 4;
        let (transport, protocol, length) = if is_v4 {
            let is_plain = packet[0] == 0x45 && get(packet, 6)? & !DONT_FRAGMENT == 0;
            let protocol = *packet.get(9).filter(|_| is_plain)?;
            (V4_BYTES, protocol, usize::from(get(packet, 2)?))
        } else {
            let length = V6_BYTES + usize::from(get(packet, 4)?);
            (V6_BYTES, *packet.get(6)?, length)
        };
        if length != packet.len() {
            return None;
        }
        let (is_tcp, payload) = match protocol {
            PROTOCOL_TCP => {
                let offset = *packet.get(transport + 12)?;
                let flags = *packet.get(transport + FLAGS)?;
                let is_data = flags & !PSH == ACK && offset & 0xf == 0 && offset >> 4 >= 5;
                let header = is_data.then_some(usize::from(offset >> 4) * 4)?;
                (true, transport + header)
            }
            PROTOCOL_UDP => {
                let stated = usize::from(get(packet, transport + 4)?);
                let has_sum = get(packet, transport + 6)? != 0;
                let is_whole = has_sum && stated == packet.len() - transport;
                (false, is_whole.then_some(transport + UDP_BYTES)?)
            }
            _ => return None,
        };
        (payload < packet.len()).then_some(Layout {
            is_v4,
            is_tcp,
            transport,
            payload,
        })
    }

    /// Whether the headers of two packets differ only in what changes from segment to segment.
    fn is_alike(&self, run: &[u8], next: &[u8]) -> bool {
        let same = |range: Range<usize>| run.get(range.clone()) == next.get(range);
        // Without length, identification and checksum of the header, or without length.
        let ip = if self.is_v4 {
            same(0..2) && same(6..10) && same(12..20)
        } else {
            same(0..4) && same(6..V6_BYTES)
        };
        let at = |offset: usize| self.transport + offset;
        // Without sequence number, flags and checksum.
        let transport = if self.is_tcp {
            same(at(0)..at(4))
                && same(at(8)..at(FLAGS))
                && same(at(14)..at(16))
                && same(at(18)..self.payload)
        } else {
            same(at(0)..at(4))
        };
        ip && transport
    }

    /// Whether the checksums of a packet are right.
    fn is_valid(&self, packet: &[u8]) -> bool {
        let header = !self.is_v4 || word_sum(&packet[..self.transport]) == 0xffff;
        let sum =
            u32::from(self.pseudo_sum(packet)) + u32::from(word_sum(&packet[self.transport..]));
        header && fold(sum) == 0xffff
    }

    /// The sum of the pseudo header of a packet. (RFC 9293 §3.1, RFC 8200 §8.1)
    fn pseudo_sum(&self, packet: &[u8]) -> u16 {
        let addresses = if self.is_v4 { 12..20 } else { 8..40 };
        let protocol = if self.is_tcp {
            PROTOCOL_TCP
        } else {
            PROTOCOL_UDP
        };
        let length = (packet.len() - self.transport) as u32;
        fold(u32::from(word_sum(&packet[addresses])) + u32::from(protocol) + length)
    }

    /// Offset of the checksum in the transport header.
    fn checksum_at(&self) -> usize {
        if self.is_tcp { 16 } else { 6 }
    }

    fn sequence(&self, packet: &[u8]) -> u32 {
        let at = self.transport + 4;
        match packet.get(at..at + 4) {
            Some(bytes) if self.is_tcp => {
                u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
            }
            _ => 0,
        }
    }

    fn has_push(&self, packet: &[u8]) -> bool {
        let flags = packet.get(self.transport + FLAGS);
        self.is_tcp && flags.is_some_and(|flags| flags & PSH != 0)
    }
}

fn get(packet: &[u8], at: usize) -> Option<u16> {
    let bytes = packet.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Adds the carries of a sum of words.
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// The only bit of the fragment field of IPv4 that a joined packet may have.
const DONT_FRAGMENT: u16 = 0x4000;
/// Offset of the flags in a TCP header.
const FLAGS: usize = 13;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// Length of the longest run, in bytes.
const LONGEST: usize = 65_535;
/// Largest number of datagrams in a run: kernels before Linux 6.9 take no more.
const DATAGRAMS_MAX: usize = 64;

#[cfg(test)]
mod tests;
