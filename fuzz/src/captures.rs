//! Capture files and the packets in them.

use carina_dissect::{AnyReader, Dissector, FileError, Layer, Settings, SettingsError};
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
    whole.is_ok_and(|(lines, rest)| !lines.is_empty() && rest == 0)
}

/// The words for each packet of a file, and the bytes that are left.
fn words_of(file: &[u8], portion: usize) -> Result<(Vec<String>, usize), Broken> {
    let mut dissector = Dissector::new(Settings::default());
    let mut reader = AnyReader::of_file(file);
    let mut said = Vec::new();
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
                Item::Packet(packet) => said.push(words(&dissector.dissect(&packet))),
            }
        }
    }
    Ok((said, reader.rest()))
}

/// Why a file was not read to its end.
#[derive(Debug, PartialEq)]
enum Broken {
    File(FileError),
    Interface(SettingsError),
}

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
    let said = ["", "dialect=native", "dialect=rlite", "dialect=irati"];
    let description = format!("carina normal {}", said[usize::from(choice >> 2 & 3)]);
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
            all.len() <= SAID_MAX + SAID_FOR_A_BYTE * bytes.len(),
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
const SAID_MAX: usize = 4096;
const SAID_FOR_A_BYTE: usize = 64;
