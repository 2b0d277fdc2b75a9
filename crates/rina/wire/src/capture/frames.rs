//! Reads the packets of a capture file as Ethernet frames.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use super::encapsulation::{Encapsulation, Stations};
use super::no_frame::NoFrame;
use super::{CaptureError, Reader};
use crate::pcapng::{INTERFACES_MAX, Item, LinkType, Packet};

/// Reads a capture file in either format and converts its packets to Ethernet frames.
#[derive(Debug)]
pub struct FrameReader {
    reader: Reader,
    stations: Stations,
    /// Link types of the interfaces in the current section.
    links: Vec<LinkType>,
    packets: u64,
    frame: Vec<u8>,
}

/// A packet of the capture file, converted to an Ethernet frame where possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Number of the packet in the file, from 1.
    pub number: u64,
    /// Time of capture, in nanoseconds since 1970 (Unix time).
    pub time_ns: u64,
    /// The Ethernet frame without FCS, or the reason why the packet cannot be converted to a frame.
    pub frame: Result<&'a [u8], NoFrame>,
    /// Link type of the packet. For types other than Ethernet, [`Stations`] supplies missing MAC
    /// addresses.
    pub link: LinkType,
}

impl core::error::Error for NoFrame {}

/// Counts the packets that cannot be converted to frames, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped(BTreeMap<NoFrame, u64>);

impl Skipped {
    /// Counts one packet that cannot be converted for this reason.
    pub fn count(&mut self, reason: NoFrame) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// Returns all reasons that were counted, each with its number of packets.
    pub fn iter(&self) -> impl Iterator<Item = (NoFrame, u64)> + '_ {
        self.0.iter().map(|(reason, count)| (*reason, *count))
    }

    /// Returns the number of packets that were counted with `reason`.
    #[must_use]
    pub fn of(&self, reason: NoFrame) -> u64 {
        self.0.get(&reason).copied().unwrap_or(0)
    }

    /// Returns the number of packets that were counted with any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

impl fmt::Display for Skipped {
    /// Writes the counts in the form `3 are cut short by the capture (snap length), 1 is shorter
    /// than a header`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (reason, count)) in self.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            let verb = if count == 1 { "is" } else { "are" };
            write!(f, "{comma}{count} {verb} {reason}")?;
        }
        Ok(())
    }
}

impl FrameReader {
    /// Makes a reader that uses the addresses of `stations` for packets without MAC addresses.
    #[must_use]
    pub fn new(stations: Stations) -> FrameReader {
        FrameReader {
            reader: Reader::new(),
            stations,
            links: Vec::new(),
            packets: 0,
            frame: Vec::new(),
        }
    }

    /// Adds the next bytes of the file; [`FrameReader::poll`] then returns the packets in them.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.reader.feed(bytes);
    }

    /// Returns the next packet; `None` when the reader needs more bytes.
    ///
    /// # Errors
    /// The file is damaged; nothing after that point can be read.
    pub fn poll(&mut self) -> Result<Option<Record<'_>>, CaptureError> {
        let (time_ns, link, made) = loop {
            match self.reader.poll()? {
                None => return Ok(None),
                Some(Item::Section) => self.links.clear(),
                Some(Item::Interface(interface)) if self.links.len() < INTERFACES_MAX => {
                    self.links.push(interface.link);
                }
                Some(Item::Interface(_)) => {}
                Some(Item::Packet(packet)) => {
                    let link = self.links.get(packet.interface as usize);
                    let link = link.copied().unwrap_or(UNKNOWN);
                    self.frame.clear();
                    let made = make(link, &packet, &self.stations, &mut self.frame);
                    break (packet.time_ns, link, made);
                }
            }
        };
        self.packets += 1;
        Ok(Some(Record {
            number: self.packets,
            time_ns,
            frame: made.map(|()| self.frame.as_slice()),
            link,
        }))
    }

    /// Checks that the file may end after the bytes fed so far.
    ///
    /// # Errors
    /// The file ends within its header, a block or a packet.
    pub fn end(&self) -> Result<(), CaptureError> {
        self.reader.end()
    }
}

/// The bytes of the packet, if the capture has all of them and the packet is not shorter than its
/// header.
fn whole<'a>(packet: &Packet<'a>, header: usize) -> Result<&'a [u8], NoFrame> {
    match packet.bytes.len() {
        length if length < packet.original_bytes as usize => Err(NoFrame::Cut),
        length if length < header => Err(NoFrame::Short),
        _ => Ok(packet.bytes),
    }
}

/// Appends the Ethernet frame of a packet to `out`.
fn make(
    link: LinkType,
    packet: &Packet<'_>,
    stations: &Stations,
    frame: &mut Vec<u8>,
) -> Result<(), NoFrame> {
    if link == LinkType::ETHERNET {
        frame.extend_from_slice(whole(packet, MAC_BYTES)?);
        return Ok(());
    }
    // The protocol is checked before the length, because an unsupported link type is the more
    // helpful reason.
    let encapsulation = Encapsulation::decode(link, packet.bytes)?;
    let payload = &whole(packet, encapsulation.bytes)?[encapsulation.bytes..];
    if encapsulation.ethertype.is_none() && payload.len() > LENGTH_MAX {
        return Err(NoFrame::Protocol);
    }
    encapsulation.begin_frame(stations, payload, frame);
    frame.extend_from_slice(payload);
    Ok(())
}

/// Bytes of an Ethernet header.
const MAC_BYTES: usize = 14;
/// Longest payload of an IEEE 802.3 frame, in bytes.
const LENGTH_MAX: usize = 1500;
/// Link type for packets of an interface that the file does not describe.
const UNKNOWN: LinkType = LinkType(u16::MAX);
