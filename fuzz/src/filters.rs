//! Packet filters, frames that they judge, and files of frames.

use carina_apps::pcap_file::{FILE_HEADER_BYTES, RECORD_BYTES, read_pcap, record};
use carina_filter::Filter;

/// See [`reads_filter`].
pub fn filter(data: &[u8]) {
    reads_filter(data);
}

/// The first line is a filter, the rest a frame. True when it compiles; then it ends for the frame
/// and for its beginnings, and its opposite does not accept what it accepts.
pub fn reads_filter(data: &[u8]) -> bool {
    let end = data.iter().position(|byte| *byte == b'\n');
    let (text, frame) = data.split_at(end.unwrap_or(data.len()));
    let frame = frame.get(1..).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let filter = match Filter::compile(text) {
        Ok(filter) => filter,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    assert!(filter.program().instructions() > 0);
    let opposite = Filter::compile(&format!("not ({text})"));
    for length in (0..=frame.len()).rev().take(LENGTHS) {
        let accepts = filter.matches(&frame[..length]);
        if let Ok(opposite) = &opposite {
            assert!(!(accepts && opposite.matches(&frame[..length])), "{text}");
        }
    }
    true
}

/// Lengths at which a frame is judged.
const LENGTHS: usize = 80;

/// See [`reads_pcap_file`].
pub fn pcap_file(data: &[u8]) {
    reads_pcap_file(data);
}

/// True when the bytes are a file of frames, all whole. Then frames lie one behind the other inside
/// of it, and are read again from what is written of them.
pub fn reads_pcap_file(data: &[u8]) -> bool {
    let read = match read_pcap(data) {
        Ok(read) => read,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let mut end = FILE_HEADER_BYTES;
    let mut again = carina_apps::pcap_file::file_header(65535).to_vec();
    for (nanos, place) in &read.frames {
        assert_eq!(place.start, end + RECORD_BYTES);
        end = place.end;
        again.extend(record(*nanos, place.len(), place.len()));
        again.extend(&data[place.clone()]);
    }
    assert_eq!(end + read.cut, data.len());
    let written = read_pcap(&again).expect("a file that was written");
    assert_eq!((written.cut, written.frames.len()), (0, read.frames.len()));
    for ((nanos, place), (again_nanos, again_place)) in read.frames.iter().zip(&written.frames) {
        // Seconds have 32 bits.
        let seconds = (nanos / 1_000_000_000) as u32;
        assert_eq!(u64::from(seconds), again_nanos / 1_000_000_000);
        assert_eq!(data[place.clone()], again[again_place.clone()]);
    }
    read.cut == 0
}
