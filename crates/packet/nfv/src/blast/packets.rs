//! The packets that a load generator sends: generated, or read from a capture file.
//!
//! ```text
//!   Ethernet 14 | IPv4 20 | UDP 8, no checksum | trial u16, number u64, time u64 (ns) | fill
//! ```
//!
//! Generated packets over IPv6 have the same contents, and a UDP checksum.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::str::FromStr;

use carina_apps::capture_file::{CaptureFileError, CapturedFrames, FrameList};
use carina_apps::sample_packet::{ETHERNET_SIZES, udp_packet};
use carina_wire::capture::{CaptureError, Skipped, Stations};
use carina_wire::ether::Mac;
use carina_wire::inet::checksum;
use carina_wire::pcapng::LinkType;

use crate::destination::Destination;

mod over_ipv6;

/// How to generate packets: their lengths, addresses and flows.
#[derive(Clone, Debug)]
pub struct Synthesis {
    /// Lengths of the frames in bytes, without FCS.
    pub sizes: Mix,
    /// Source MAC address.
    pub source_mac: Mac,
    /// Destination MAC address.
    pub destination_mac: Mac,
    /// Source IP address.
    pub source: IpAddr,
    /// Destination addresses, used in turn; of the same IP version as the source.
    pub destinations: Destination,
    /// UDP destination port.
    pub port: u16,
    /// Number of flows, 1 to 64,512. Flows differ by their UDP source port: 1024 and up, used in
    /// turn.
    pub flows: u16,
}

/// Lengths of frames and how often each occurs in a round, written `64x7,594x3,1500`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(Vec<usize>);

/// Why a load generator has no packets to send: invalid options, or an unusable capture file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketsError {
    /// The text is not a valid mix.
    #[error("{0:?}: write lengths of frames as 64 or 64x7,594x3,1500")]
    Mix(String),
    /// A length is out of range.
    #[error(
        "frames of {0} bytes: must be {STAMPED_MIN} to {max} bytes, without FCS",
        max = ETHERNET_SIZES.end()
    )]
    Length(usize),
    /// A length is out of range for IPv6.
    #[error(
        "frames of {0} bytes: must be {STAMPED_MIN6} to {max} bytes over IPv6, without FCS",
        max = ETHERNET_SIZES.end()
    )]
    Length6(usize),
    /// Source and destination have different IP versions.
    #[error("from {source_address} to {destinations}: both must have the same IP version")]
    Versions {
        /// The given source IP address.
        source_address: IpAddr,
        /// The given prefix of destination IP addresses.
        destinations: Destination,
    },
    /// One round of a mix has too many frames; holds their number.
    #[error("the lengths make a round of {0} frames: must be at most {ROUND_MAX}")]
    Round(usize),
    /// The number of flows is 0 or too high; holds the number.
    #[error("{0} flows: must be 1 to {FLOWS_MAX}")]
    Flows(u16),
    /// The file cannot be read, or is not a capture file.
    #[error("{path}: {source}")]
    File {
        /// Path of the file that cannot be read.
        path: String,
        /// Why no packets can be read from the file.
        source: CaptureFileError,
    },
    /// The file has packets, but none that can be sent.
    #[error("{path} has no whole Ethernet frame that could be sent: of its packets {skipped}")]
    NoFrame {
        /// Path of the file whose packets cannot be sent.
        path: String,
        /// Number of packets by the reason why they cannot be sent.
        skipped: Skipped,
    },
    /// The file has no packet.
    #[error("{path} has no packet")]
    Empty {
        /// Path of the file without packets.
        path: String,
    },
}

impl FromStr for Mix {
    type Err = PacketsError;

    fn from_str(text: &str) -> Result<Mix, PacketsError> {
        let wrong = || PacketsError::Mix(text.to_owned());
        let mut round = Vec::new();
        for part in text.split(',') {
            let (bytes, times) = part.split_once('x').unwrap_or((part, "1"));
            let bytes: usize = bytes.trim().parse().map_err(|_| wrong())?;
            let times: usize = times.trim().parse().map_err(|_| wrong())?;
            if !(STAMPED_MIN..=*ETHERNET_SIZES.end()).contains(&bytes) {
                return Err(PacketsError::Length(bytes));
            }
            if times == 0 {
                return Err(wrong());
            }
            if round.len() + times > ROUND_MAX {
                return Err(PacketsError::Round(round.len() + times));
            }
            round.extend(std::iter::repeat_n(bytes, times));
        }
        Ok(Mix(round))
    }
}

impl Default for Mix {
    fn default() -> Mix {
        Mix(vec![64])
    }
}

/// The packets that a load generator sends, over and over: generated, or from a capture file.
#[derive(Clone, Debug)]
pub struct Packets {
    round: FrameList,
    synthesis: Option<Synthesis>,
    /// Remarks about the capture file for the user.
    pub notes: FileNotes,
}

/// Packets of a capture file that are left out or altered.
#[derive(Clone, Debug, Default)]
pub struct FileNotes {
    /// Packets that are left out, by reason.
    pub skipped: Skipped,
    /// Number of packets that got a new Ethernet header, and the link type of the first of them;
    /// `None` if no packet needed one.
    pub given_stations: Option<(u64, LinkType)>,
    /// Set if the file ends within a packet or block.
    pub cut: Option<CaptureError>,
}

impl Packets {
    /// Generates packets that carry a number and the time of sending.
    ///
    /// # Errors
    /// The number of flows or a length is out of range, or the IP versions differ.
    pub fn made(synthesis: Synthesis) -> Result<Packets, PacketsError> {
        if !(1..=FLOWS_MAX).contains(&synthesis.flows) {
            return Err(PacketsError::Flows(synthesis.flows));
        }
        let make = |bytes: &usize| match (synthesis.source, synthesis.destinations) {
            (IpAddr::V4(source), Destination::V4(destinations)) => {
                let mut frame = udp_packet(*bytes);
                frame[..6].copy_from_slice(&synthesis.destination_mac.0);
                frame[6..12].copy_from_slice(&synthesis.source_mac.0);
                frame[26..30].copy_from_slice(&source.octets());
                frame[36..38].copy_from_slice(&synthesis.port.to_be_bytes());
                frame[40..42].fill(0);
                address(&mut frame, destinations.address());
                Ok(frame)
            }
            (IpAddr::V6(source), Destination::V6(_)) => {
                if *bytes >= STAMPED_MIN6 {
                    Ok(over_ipv6::packet(*bytes, &synthesis, source))
                } else {
                    Err(PacketsError::Length6(*bytes))
                }
            }
            (source_address, destinations) => Err(PacketsError::Versions {
                source_address,
                destinations,
            }),
        };
        let mut round = FrameList::default();
        for bytes in &synthesis.sizes.0 {
            round.push(&make(bytes)?);
        }
        Ok(Packets {
            round,
            synthesis: Some(synthesis),
            notes: FileNotes::default(),
        })
    }

    /// Reads the Ethernet frames of a capture file, pcap or pcapng. Packets that were captured
    /// without MAC addresses get those of `stations`.
    ///
    /// # Errors
    /// The file cannot be read, or has no frame that can be sent.
    pub fn of_file(file: &Path, stations: Stations) -> Result<Packets, PacketsError> {
        let path = || file.display().to_string();
        let read = CapturedFrames::open(file, stations).map_err(|source| PacketsError::File {
            path: path(),
            source,
        })?;
        match (read.frames.is_empty(), read.skipped.total()) {
            (false, _) => {}
            (true, 0) => return Err(PacketsError::Empty { path: path() }),
            (true, _) => {
                return Err(PacketsError::NoFrame {
                    path: path(),
                    skipped: read.skipped,
                });
            }
        }
        Ok(Packets {
            round: read.frames,
            synthesis: None,
            notes: FileNotes {
                skipped: read.skipped,
                given_stations: read.first_given.map(|link| (read.given_stations, link)),
                cut: read.cut,
            },
        })
    }

    /// Number of packets in the list, after which it repeats.
    #[must_use]
    pub fn round(&self) -> usize {
        self.round.len()
    }

    /// Whether each packet carries its number and time.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.synthesis.is_some()
    }

    /// Mean length of the packets in bytes, without FCS.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        let sum: usize = self.round.iter().map(<[u8]>::len).sum();
        sum as f64 / self.round.len() as f64
    }

    /// Length of the longest packet, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.round.iter().map(<[u8]>::len).max().unwrap_or(0)
    }

    /// The bytes of packet `number`, before [`Packets::stamp`] completes them.
    #[inline]
    pub(super) fn bytes(&self, number: u64) -> &[u8] {
        let index = number % self.round.len() as u64;
        self.round.get(index as usize).unwrap_or_default()
    }

    /// Writes flow, destination and stamp into a copy of [`Packets::bytes`]. Does nothing to
    /// packets from a file.
    #[inline]
    pub(super) fn stamp(&self, frame: &mut [u8], stamp: Stamp) {
        let Some(synthesis) = &self.synthesis else {
            return;
        };
        let destinations = match synthesis.destinations {
            Destination::V4(destinations) => destinations,
            Destination::V6(destinations) => {
                return over_ipv6::stamp(frame, synthesis.flows, destinations, stamp);
            }
        };
        if synthesis.flows > 1 {
            let port = FLOW_PORT + (stamp.number % u64::from(synthesis.flows)) as u16;
            frame[34..36].copy_from_slice(&port.to_be_bytes());
        }
        if destinations.bits() < 32 {
            let hosts = 1 << (32 - u64::from(destinations.bits()));
            let first = u64::from(destinations.address().to_bits());
            let host = first + stamp.number % hosts;
            address(frame, Ipv4Addr::from_bits(host as u32));
        }
        stamp.write(&mut frame[HEADERS..]);
    }
}

/// What a generated packet carries: trial, number and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The trial that the packet belongs to.
    pub trial: u16,
    /// The packet's number in the trial, from 0.
    pub number: u64,
    /// When the packet was made, in ns on the engine's clock.
    pub time_ns: u64,
}

impl Stamp {
    #[inline]
    fn write(self, to: &mut [u8]) {
        to[..2].copy_from_slice(&self.trial.to_be_bytes());
        to[2..10].copy_from_slice(&self.number.to_be_bytes());
        to[10..STAMP_BYTES].copy_from_slice(&self.time_ns.to_be_bytes());
    }

    /// Reads the stamp of a frame, which may have a VLAN tag by now. `None` if the frame is not a
    /// UDP packet long enough for a stamp.
    #[inline]
    pub(super) fn of(frame: &[u8]) -> Option<Stamp> {
        let tag = match frame.get(12..14)? {
            [0x81, 0x00] => TAG_BYTES,
            _ => 0,
        };
        let packet = frame.get(MAC_BYTES + tag..)?;
        let (is_udp, at) = match frame.get(12 + tag..14 + tag)? {
            [0x08, 0x00] => (
                packet.first() == Some(&0x45) && packet.get(9) == Some(&17),
                HEADERS,
            ),
            [0x86, 0xdd] => (over_ipv6::is_udp(packet), over_ipv6::HEADERS),
            _ => return None,
        };
        let at = at + tag;
        let stamp = frame.get(at..at + STAMP_BYTES).filter(|_| is_udp)?;
        Some(Stamp {
            trial: u16::from_be_bytes(*stamp[..2].first_chunk()?),
            number: u64::from_be_bytes(*stamp[2..10].first_chunk()?),
            time_ns: u64::from_be_bytes(*stamp[10..].first_chunk()?),
        })
    }
}

/// Writes the destination address of an IPv4 packet, and updates its header checksum.
fn address(frame: &mut [u8], destination: Ipv4Addr) {
    frame[30..34].copy_from_slice(&destination.octets());
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

const MAC_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
/// Bytes in front of the stamp in a packet over IPv4.
const HEADERS: usize = 42;
const STAMP_BYTES: usize = 18;
/// Length of the shortest IPv4 frame that can carry a stamp, in bytes.
pub const STAMPED_MIN: usize = HEADERS + STAMP_BYTES;
/// Length of the shortest IPv6 frame that can carry a stamp, in bytes.
pub const STAMPED_MIN6: usize = over_ipv6::HEADERS + STAMP_BYTES;
/// Largest number of frames in a round of a mix.
pub(super) const ROUND_MAX: usize = 4096;
/// Largest number of flows.
pub const FLOWS_MAX: u16 = u16::MAX - FLOW_PORT + 1;
const FLOW_PORT: u16 = 1024;

#[cfg(test)]
mod tests;
