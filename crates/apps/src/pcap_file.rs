//! Files of captured frames, as `tcpdump -w` writes them. (IETF draft-ietf-opsawg-pcap)
//!
//! ```text
//!   magic 4 | version 2.4 2+2 | 0 8 | snap length 4 | link type 4, 1 is Ethernet
//!   then for each: seconds 4 | micro- or nanoseconds 4 | bytes here 4 | frame's bytes 4 | bytes
//! ```

/// What a file says of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapFrames {
    /// Each frame: when it was captured, in nanoseconds since 1970, and where its bytes are.
    pub frames: Vec<(u64, std::ops::Range<usize>)>,
    /// Bytes behind the last whole frame: the file is cut.
    pub cut: usize,
}

/// Why bytes are no such file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PcapError {
    /// It does not begin as one.
    #[error(
        "no pcap file: it begins with {0:#010x}; a pcapng file is another kind (editcap -F pcap)"
    )]
    Magic(u32),
    /// It is shorter than the header.
    #[error("{0} bytes: a pcap file has 24 and more")]
    Short(usize),
    /// The frames are not those of Ethernet.
    #[error("link type {0}: must be 1, Ethernet")]
    LinkType(u32),
    /// A frame is longer than any.
    #[error("frame {number} has {bytes} bytes: at most {FRAME_BYTES_MAX} are possible")]
    Long {
        /// Its number, from 1.
        number: usize,
        /// Its length.
        bytes: u32,
    },
}

/// Bytes of the file's header.
pub const FILE_HEADER_BYTES: usize = 24;
/// Bytes in front of each frame.
pub const RECORD_BYTES: usize = 16;
/// The longest frame that a file may have: what `tcpdump` writes at most.
pub const FRAME_BYTES_MAX: u32 = 262_144;

const MICROS: u32 = 0xa1b2_c3d4;
const NANOS: u32 = 0xa1b2_3c4d;

/// Reads a file.
///
/// # Errors
/// It is another kind of file, or has frames of something else than Ethernet.
pub fn read_pcap(file: &[u8]) -> Result<PcapFrames, PcapError> {
    let header = file
        .first_chunk::<FILE_HEADER_BYTES>()
        .ok_or(PcapError::Short(file.len()))?;
    let magic = [header[0], header[1], header[2], header[3]];
    // The writer's order of bytes.
    let (word, unit): (fn([u8; 4]) -> u32, u64) = match u32::from_le_bytes(magic) {
        MICROS => (u32::from_le_bytes, 1000),
        NANOS => (u32::from_le_bytes, 1),
        _ => match u32::from_be_bytes(magic) {
            MICROS => (u32::from_be_bytes, 1000),
            NANOS => (u32::from_be_bytes, 1),
            other => return Err(PcapError::Magic(other)),
        },
    };
    let at =
        |bytes: &[u8], at: usize| word([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    // The upper bits say whether frames end with a FCS.
    let link_type = at(header, 20) & 0x0fff_ffff;
    if link_type != 1 {
        return Err(PcapError::LinkType(link_type));
    }
    let mut frames = Vec::new();
    let mut next = FILE_HEADER_BYTES;
    while let Some(record) = file[next..].first_chunk::<RECORD_BYTES>() {
        let (seconds, fraction) = (at(record, 0), at(record, 4));
        let bytes = at(record, 8);
        if bytes > FRAME_BYTES_MAX {
            let number = frames.len() + 1;
            return Err(PcapError::Long { number, bytes });
        }
        let start = next + RECORD_BYTES;
        let end = start + bytes as usize;
        if end > file.len() {
            break;
        }
        let nanos = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit;
        frames.push((nanos, start..end));
        next = end;
    }
    let cut = file.len() - next;
    Ok(PcapFrames { frames, cut })
}

/// The header of a file of Ethernet frames with nanoseconds.
#[must_use]
pub fn file_header(snap: u32) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..4].copy_from_slice(&NANOS.to_le_bytes());
    (header[4], header[6], header[20]) = (2, 4, 1);
    header[16..20].copy_from_slice(&snap.to_le_bytes());
    header
}

/// What stands in front of a frame of `length` bytes of which `captured` follow.
#[must_use]
pub fn record(nanos: u64, captured: usize, length: usize) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    let words = [
        nanos / 1_000_000_000,
        nanos % 1_000_000_000,
        captured as u64,
        length as u64,
    ];
    for (place, word) in record.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&(word as u32).to_le_bytes());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut file = file_header(65535).to_vec();
        for (nanos, bytes) in [(1_500_000_001, &b"first"[..]), (2_000_000_000, b"")] {
            file.extend(record(nanos, bytes.len(), bytes.len()));
            file.extend(bytes);
        }
        file
    }

    #[test]
    fn files_are_read_as_they_were_written() {
        let file = file();
        let read = read_pcap(&file).unwrap();
        assert_eq!(
            read.frames,
            [(1_500_000_001, 40..45), (2_000_000_000, 61..61)]
        );
        assert_eq!(read.cut, 0);
        let cut = read_pcap(&file[..44]).unwrap();
        assert_eq!((cut.frames.len(), cut.cut), (0, 20));
    }

    #[test]
    fn both_orders_of_bytes_and_units_of_time_are_read() {
        let mut big = vec![0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        big.extend([0, 0, 0xff, 0xff, 0, 0, 0, 1]);
        big.extend([0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 9, 7]);
        assert_eq!(read_pcap(&big).unwrap().frames, [(1_000_005_000, 40..41)]);
        big[23] = 113;
        assert_eq!(read_pcap(&big), Err(PcapError::LinkType(113)));
        assert_eq!(read_pcap(&big[..23]), Err(PcapError::Short(23)));
        assert!(matches!(read_pcap(&[10; 24]), Err(PcapError::Magic(_))));
        let mut long = file();
        long[35] = 1;
        assert!(matches!(
            read_pcap(&long),
            Err(PcapError::Long { number: 1, .. })
        ));
    }
}
