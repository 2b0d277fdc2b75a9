//! Reads the Ethernet frames of a capture file into memory, for apps and commands that send them.
//!
//! Files are pcap or pcapng, of any byte order and time unit. Packets of link types without MAC
//! addresses get those of [`Stations`]. Other packets that are not frames are counted by reason. At
//! most [`FILE_BYTES_MAX`] bytes of a file are read, and only its frames are kept.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use carina_wire::capture::{CaptureError, FrameReader, NoFrame, Skipped, Stations};
use carina_wire::pcapng::LinkType;

/// A list of frames in contiguous memory, without an allocation per frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameList {
    bytes: Vec<u8>,
    /// The end of each frame in `bytes`.
    ends: Vec<usize>,
}

impl FrameList {
    /// Appends a frame.
    pub fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// The frame with number `index`, from 0; `None` if the list is shorter.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// Number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the list has no frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All frames.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// The Ethernet frames of a capture file, and what the file contains besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedFrames {
    /// The Ethernet frames.
    pub frames: FrameList,
    /// When each frame was captured, in nanoseconds since 1970.
    pub times_ns: Vec<u64>,
    /// Number of packets that are not frames, by reason.
    pub skipped: Skipped,
    /// The first packet that is not a frame: its number in the file, from 1, and the reason. `None`
    /// if all packets are frames.
    pub first_skipped: Option<(u64, NoFrame)>,
    /// Number of packets that got an Ethernet header with MAC addresses of [`Stations`].
    pub given_stations: u64,
    /// Link type of the first packet that got such a header; `None` if no packet did.
    pub first_given: Option<LinkType>,
    /// Set if the file ends within a packet or block: describes the incomplete end.
    pub cut: Option<CaptureError>,
}

/// Why a file cannot be read as a capture of Ethernet frames.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureFileError {
    /// The operating system could not open or read the file.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The file is not a capture, or is damaged.
    #[error(transparent)]
    Format(#[from] CaptureError),
    /// The file is too long.
    #[error("more than {FILE_BYTES_MAX} bytes: cut the file into parts with `editcap -c`")]
    Large,
}

impl CapturedFrames {
    /// Reads a capture file.
    ///
    /// # Errors
    /// The file cannot be read, is not a capture, or is too long.
    pub fn open(path: &Path, stations: Stations) -> Result<CapturedFrames, CaptureFileError> {
        CapturedFrames::read(File::open(path)?, stations)
    }

    /// Reads a capture from its bytes.
    ///
    /// # Errors
    /// As for [`CapturedFrames::open`].
    pub fn read(input: impl Read, stations: Stations) -> Result<CapturedFrames, CaptureFileError> {
        CapturedFrames::read_at_most(FILE_BYTES_MAX, input, stations)
    }

    fn read_at_most(
        limit: u64,
        input: impl Read,
        stations: Stations,
    ) -> Result<CapturedFrames, CaptureFileError> {
        let mut reader = FrameReader::new(stations);
        let mut found = CapturedFrames {
            frames: FrameList::default(),
            times_ns: Vec::new(),
            skipped: Skipped::default(),
            first_skipped: None,
            given_stations: 0,
            first_given: None,
            cut: None,
        };
        let mut input = input.take(limit + 1);
        let mut portion = vec![0; PORTION_BYTES];
        loop {
            let count = match input.read(&mut portion) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            reader.feed(&portion[..count]);
            while let Some(record) = reader.poll()? {
                match record.frame {
                    Ok(frame) => {
                        found.frames.push(frame);
                        found.times_ns.push(record.time_ns);
                        if record.link != LinkType::ETHERNET {
                            found.given_stations += 1;
                            found.first_given.get_or_insert(record.link);
                        }
                    }
                    Err(reason) => {
                        found.skipped.count(reason);
                        found.first_skipped.get_or_insert((record.number, reason));
                    }
                }
            }
        }
        if input.limit() == 0 {
            return Err(CaptureFileError::Large);
        }
        match reader.end() {
            Err(error) if found.frames.is_empty() && found.first_skipped.is_none() => {
                return Err(error.into());
            }
            end => found.cut = end.err(),
        }
        Ok(found)
    }
}

/// Largest number of bytes that are read of a file.
pub const FILE_BYTES_MAX: u64 = 1 << 30;
const PORTION_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use carina_wire::pcap::{file_header, record};

    use super::*;

    fn file(link: u8, packets: &[(usize, &[u8])]) -> Vec<u8> {
        let mut file = file_header(65_535).to_vec();
        file[20] = link;
        for (number, (length, bytes)) in packets.iter().enumerate() {
            file.extend(record(number as u64, bytes.len(), *length));
            file.extend(*bytes);
        }
        file
    }

    #[test]
    fn whole_frames_are_kept_and_others_are_counted() {
        let (one, other) = ([1; 60], [2; 14]);
        let file = file(1, &[(60, &one), (61, &one), (14, &other)]);
        let found = CapturedFrames::read(&file[..], Stations::default()).unwrap();
        assert_eq!(found.frames.iter().collect::<Vec<_>>(), [&one[..], &other]);
        assert_eq!((found.frames.len(), found.frames.get(2)), (2, None));
        assert_eq!(found.times_ns, [0, 2]);
        assert_eq!(found.first_skipped, Some((2, NoFrame::Cut)));
        assert_eq!((found.skipped.total(), found.cut), (1, None));
        assert_eq!(found.given_stations, 0);
        let cut = CapturedFrames::read(&file[..file.len() - 1], Stations::default()).unwrap();
        assert_eq!(cut.cut, Some(CaptureError::Cut(29)));
    }

    #[test]
    fn a_file_without_a_packet_is_one_if_it_is_whole() {
        let empty = CapturedFrames::read(&file(1, &[])[..], Stations::default()).unwrap();
        assert!(empty.frames.is_empty() && empty.cut.is_none());
        let why = |bytes: &[u8]| {
            let refused = CapturedFrames::read(bytes, Stations::default());
            refused.unwrap_err().to_string()
        };
        assert!(why(&file(1, &[])[..23]).contains("of which 23 bytes"));
        assert!(why(b"").contains("empty"));
        assert!(why(b"#!/bin/sh").contains("neither a pcap nor"));
    }

    #[test]
    fn an_endless_file_is_refused_at_the_limit() {
        // Endless records without bytes follow the first one.
        let bytes = file(1, &[(60, &[1; 60])]);
        let read = |limit| {
            let input = bytes.chain(io::repeat(0)).take(1 << 20);
            CapturedFrames::read_at_most(limit, input, Stations::default())
        };
        let refused = read((1 << 20) - 1).unwrap_err();
        assert!(refused.to_string().contains("editcap -c"), "{refused}");
        let found = read(1 << 20).unwrap();
        assert_eq!(found.frames.len(), 1);
        assert_eq!(found.skipped.of(NoFrame::Short), ((1 << 20) - 100) / 16);
    }

    #[test]
    fn packets_without_mac_addresses_get_those_of_stations() {
        let packet = [0x45; 40];
        let found = CapturedFrames::read(&file(101, &[(40, &packet)])[..], Stations::default());
        let found = found.unwrap();
        assert_eq!(found.frames.get(0).map(<[u8]>::len), Some(54));
        assert_eq!(
            (found.given_stations, found.first_given),
            (1, Some(LinkType(101)))
        );
    }
}
