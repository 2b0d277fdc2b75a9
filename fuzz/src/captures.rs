//! Capture files and the packets in them.

use carina_dissect::{Dissector, Layer, Settings, SettingsError};
use carina_wire::capture::{CaptureError, FrameReader, NoFrame, Reader, Stations};
use carina_wire::pcap::{file_header, record};
use carina_wire::pcapng::{Direction, Interface, Item, LinkType, Packet};

/// Capture files of both kinds: see [`reads_capture`].
pub fn capture(data: &[u8]) {
    reads_capture(data);
}

/// True for a file of whole blocks with a packet; the first byte is the size of the portions in
/// which it is read. In portions it gives the same words as at once.
///
/// # Panics
/// When a reader or a printer breaks a promise.
pub fn reads_capture(data: &[u8]) -> bool {
    let Some((portion, file)) = data.split_first() else {
        return false;
    };
    let whole = words_of(file, file.len());
    assert_eq!(words_of(file, usize::from(*portion) + 1), whole);
    whole.is_ok_and(|(lines, is_whole)| !lines.is_empty() && is_whole)
}

/// The words for each packet of a file, and whether it ends where it may.
fn words_of(file: &[u8], portion: usize) -> Result<(Vec<String>, bool), Broken> {
    let mut dissector = Dissector::new(Settings::default());
    let mut reader = Reader::new();
    let mut all = Vec::new();
    for bytes in file.chunks(portion.max(1)) {
        reader.feed(bytes);
        while let Some(item) = reader.poll().map_err(Broken::File)? {
            match item {
                Item::Section => dissector.begin_section(),
                Item::Interface(interface) => {
                    dissector
                        .add_interface(interface)
                        .map_err(Broken::Interface)?;
                }
                Item::Packet(packet) => all.push(words(&dissector.dissect(&packet))),
            }
        }
    }
    Ok((all, reader.end().is_ok()))
}

/// Why a file was not read to its end.
#[derive(Debug, PartialEq)]
enum Broken {
    File(CaptureError),
    Interface(SettingsError),
}

/// Capture files as Ethernet frames: see [`reads_capture_frames`].
pub fn capture_frames(data: &[u8]) {
    reads_capture_frames(data);
}

/// True when the bytes are a capture file of which every packet is a frame. A frame has a header of
/// Ethernet; what is made of a packet is little longer than the packet; a frame that was read is
/// read again from a file of Ethernet frames; and in portions a file gives the same as at once.
///
/// # Panics
/// When the reader breaks a promise.
pub fn reads_capture_frames(data: &[u8]) -> bool {
    let (frames, end) = frames_of(data, data.len());
    let portion = usize::from(data.last().copied().unwrap_or(0)) + 1;
    assert_eq!(frames_of(data, portion), (frames.clone(), end));
    let made = frames.iter().flatten();
    let bytes: usize = made.clone().map(Vec::len).sum();
    assert!(
        bytes <= 2 * data.len() + VLAN_BYTES * frames.len(),
        "{bytes} bytes"
    );
    let mut again = file_header(u32::MAX).to_vec();
    for frame in made {
        assert!(frame.len() >= MAC_BYTES);
        again.extend(record(0, frame.len(), frame.len()));
        again.extend(frame);
    }
    let (read, end_of_written) = frames_of(&again, again.len());
    assert_eq!(end_of_written, Ok(()));
    assert!(read.iter().eq(frames.iter().filter(|frame| frame.is_ok())));
    end.is_ok() && !frames.is_empty() && frames.iter().all(Result::is_ok)
}

type Frames = Vec<Result<Vec<u8>, NoFrame>>;

/// The packets of a file as frames, and why there are no more.
fn frames_of(file: &[u8], portion: usize) -> (Frames, Result<(), CaptureError>) {
    let stations = Stations {
        vlan: Some(7),
        ..Stations::default()
    };
    let (mut reader, mut frames) = (FrameReader::new(stations), Vec::new());
    for bytes in file.chunks(portion.max(1)) {
        reader.feed(bytes);
        loop {
            match reader.poll() {
                Ok(Some(record)) => frames.push(record.frame.map(<[u8]>::to_vec)),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, reader.end())
}

const MAC_BYTES: usize = 14;
const VLAN_BYTES: usize = 4;

/// Packets in words: see [`reads_packets`].
pub fn dissect(data: &[u8]) {
    reads_packets(data);
}

/// True when every packet is understood to its end. The first byte chooses the kind of the
/// interface and what is said of its DIF; then come packets, a length of two bytes (big-endian)
/// before each, of which the highest bit says that a byte was cut off its end.
///
/// # Panics
/// When the words for a packet are too many, or contain control characters.
pub fn reads_packets(data: &[u8]) -> bool {
    let Some((&choice, mut rest)) = data.split_first() else {
        return false;
    };
    let links = [
        LinkType::ETHERNET,
        LinkType::PDU,
        LinkType::SDU,
        LinkType::VMPI,
    ];
    let dialects = ["", "dialect=native", "dialect=rlite", "dialect=irati"];
    let description = format!("carina normal {}", dialects[usize::from(choice >> 2 & 3)]);
    let mut dissector = Dissector::new(Settings::default());
    let added = dissector.add_interface(&Interface {
        link: links[usize::from(choice & 3)],
        name: "x".to_owned(),
        description,
        snap_bytes: 0,
    });
    added.expect("dialects have widths");
    let mut is_understood = !rest.is_empty();
    while let Some((length, more)) = rest.split_first_chunk() {
        let length = u16::from_be_bytes(*length);
        let bytes;
        (bytes, rest) = more.split_at(usize::from(length & 0x7fff).min(more.len()));
        let layers = dissector.dissect(&Packet {
            interface: 0,
            time_ns: 0,
            direction: Direction::Unknown,
            bytes,
            original_bytes: bytes.len() as u32 + u32::from(length >> 15),
        });
        assert!(!layers.is_empty(), "nothing is said of a packet");
        let all = words(&layers);
        assert!(
            all.len() <= WORDS_BYTES_MAX + WORDS_BYTES_PER_BYTE * bytes.len(),
            "{} bytes are said of {}",
            all.len(),
            bytes.len()
        );
        is_understood &= !all.contains("malformed") && !all.contains("unknown");
    }
    is_understood
}

/// All words for a packet.
fn words(layers: &[Layer]) -> String {
    let mut all = Vec::new();
    for layer in layers {
        for line in [layer.summary.clone()].into_iter().chain(layer.to_lines()) {
            assert!(
                !line.contains(char::is_control),
                "what a packet says controls the terminal: {line:?}"
            );
            all.push(line);
        }
        all.push(layer.to_json().to_string());
    }
    all.join("\n")
}

/// The words for a packet have at most so many bytes, and so many more for each byte of it.
const WORDS_BYTES_MAX: usize = 4096;
const WORDS_BYTES_PER_BYTE: usize = 64;
