//! Runs the frames of two capture files through an AFTR, and compares what leaves with what is
//! expected.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use carina_apps::capture_file::{CaptureFileError, CapturedFrames};
use carina_filter::FilterError;
use carina_frame::{Pool, PoolConfig, PoolError};
use carina_time::Instant;
use carina_wire::capture::{CaptureError, NoFrame, Stations};
use carina_wire::ether::TPID_CUSTOMER;
use carina_wire::inet::ETHERTYPE_IPV6;
use carina_wire::ipv6::FRAGMENT;
use carina_wire::pcap::{file_header, record};
use carina_wire::pcapng::LinkType;

use crate::aftr::Aftr;
use crate::config::{Address, Config, Queue, Rules};
use crate::counters::Counters;
use crate::file::Loaded;

/// The frames of a capture file, each with its time since the first frame.
pub type Frames = Vec<(Instant, Vec<u8>)>;

/// The frames that arrive at the AFTR during a check, with their times.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Frames that arrive from the IPv4 Internet.
    pub external: Frames,
    /// Frames that arrive from the IPv6 access network.
    pub internal: Frames,
    /// Whether one port serves both sides ("on a stick").
    pub is_stick: bool,
}

/// The result of a check: the frames that the AFTR sent, and its counters.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Frames that the AFTR sent to the IPv4 Internet.
    pub external: Vec<Vec<u8>>,
    /// Frames that the AFTR sent to the IPv6 access network.
    pub internal: Vec<Vec<u8>>,
    /// The AFTR's counters at the end.
    pub counters: Counters,
}

/// Why a check could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A file is not a capture.
    #[error(transparent)]
    File(#[from] CaptureFileError),
    /// A file is truncated: it ends within its header, a block or a packet.
    #[error(transparent)]
    Cut(CaptureError),
    /// A packet is not an Ethernet frame, or was captured only in part.
    #[error("packet {number} is {reason}: every packet must be a whole Ethernet frame")]
    NoFrame {
        /// The packet's number in the file, from 1.
        number: u64,
        /// Why the packet is not an Ethernet frame.
        reason: NoFrame,
    },
    /// The packets of a file have no MAC addresses to compare.
    #[error(
        "the capture has link type {0}: it must have Ethernet frames, because MAC addresses are \
         compared"
    )]
    NoStations(LinkType),
    /// The configuration has no instance with a queue.
    #[error(
        "the configuration needs an instance with a queue, which states the addresses of the AFTR"
    )]
    NoQueue,
    /// A filter cannot be compiled.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Memory for frames could not be allocated.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A line is not a counter's name and value.
    #[error(
        "line {line}: {text:?}: must be the name of a counter and a number, such as \
         in-ipv4-packets 1"
    )]
    Counter {
        /// Number of the malformed line, from 1.
        line: usize,
        /// The text of the malformed line.
        text: String,
    },
    /// A line names an unknown counter.
    #[error("line {line}: the AFTR has no counter {name}")]
    NoCounter {
        /// Number of the line that names the counter, from 1.
        line: usize,
        /// The name that no counter of the AFTR has.
        name: String,
    },
}

/// Reads the frames that arrive at a side whose own addresses are `own`. Packets that were captured
/// without MAC addresses get an Ethernet header with `own` as destination.
///
/// # Errors
/// The file is not a capture, is truncated, or has a packet that is not a whole frame.
pub fn read_inputs<T>(file: impl Read, own: &Address<T>) -> Result<Frames, CheckError> {
    let stations = Stations {
        destination: own.mac,
        vlan: own.vlan,
        ..Stations::default()
    };
    frames(CapturedFrames::read(file, stations)?)
}

/// Reads the frames that are expected to leave.
///
/// # Errors
/// As for [`read_inputs`]; or the packets have no MAC addresses.
pub fn read_frames(file: impl Read) -> Result<Frames, CheckError> {
    let read = CapturedFrames::read(file, Stations::default())?;
    match read.first_given {
        Some(link) => Err(CheckError::NoStations(link)),
        None => frames(read),
    }
}

fn frames(read: CapturedFrames) -> Result<Frames, CheckError> {
    if let Some((number, reason)) = read.first_skipped {
        return Err(CheckError::NoFrame { number, reason });
    }
    if let Some(cut) = read.cut {
        return Err(CheckError::Cut(cut));
    }
    let first = read.times_ns.first().copied().unwrap_or(0);
    let times = read.times_ns.iter();
    let times = times.map(|nanos| Instant::from_nanos(nanos.saturating_sub(first)));
    let frames = read.frames.iter().map(<[u8]>::to_vec);
    Ok(times.zip(frames).collect())
}

/// Makes a capture file of frames, all with time 0.
#[must_use]
pub fn write_frames(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = file_header(SNAP).to_vec();
    for frame in frames {
        file.extend(record(0, frame.len(), frame.len()));
        file.extend(frame);
    }
    file
}

const SNAP: u32 = 65_535;

/// The first queue of a configuration.
///
/// # Errors
/// The configuration has none.
pub fn first_queue(config: &Config) -> Result<&Queue, CheckError> {
    config.queues().next().ok_or(CheckError::NoQueue)
}

/// Checks that an AFTR can run with each queue of a configuration, as a graph with this
/// configuration would run it.
///
/// # Errors
/// The configuration has no queue, or a filter cannot be compiled.
pub fn check(loaded: &Loaded, rules: Rules) -> Result<(), CheckError> {
    first_queue(&loaded.config)?;
    let pool = Pool::new(PoolConfig {
        frames: 1,
        frame_bytes: LONGEST_FRAME,
    })?;
    let table = Arc::new(loaded.table.clone());
    let mut queues = loaded.config.queues();
    queues.try_for_each(|queue| {
        Aftr::new(
            &loaded.config,
            queue,
            Arc::clone(&table),
            rules,
            pool.clone(),
        )?;
        Ok(())
    })
}

/// Runs frames through an AFTR, each at its time. Of two frames with one time, the external one
/// goes first.
///
/// # Errors
/// No AFTR can be made of the configuration.
pub fn run(loaded: &Loaded, rules: Rules, inputs: &Inputs) -> Result<Ran, CheckError> {
    let pool = Pool::new(PoolConfig {
        frames: POOL_FRAMES,
        frame_bytes: LONGEST_FRAME,
    })?;
    let table = Arc::new(loaded.table.clone());
    let queue = first_queue(&loaded.config)?;
    let mut aftr = Aftr::new(&loaded.config, queue, table, rules, pool.clone())?;
    // Snabb's own check starts from this number as well.
    aftr.number_from(FIRST_IDENTIFICATION);
    let mut ran = Ran {
        external: Vec::new(),
        internal: Vec::new(),
        counters: Counters::default(),
    };
    let mut waiting: Vec<(Instant, bool, &[u8])> = Vec::new();
    for (frames, is_internal) in [(&inputs.external, false), (&inputs.internal, true)] {
        let of = frames
            .iter()
            .map(|(time, frame)| (*time, is_internal, frame.as_slice()));
        waiting.extend(of);
    }
    waiting.sort_by_key(|(time, is_internal, _)| (*time, *is_internal));
    aftr.handle_time(Instant::ZERO);
    for (time, is_internal, bytes) in waiting {
        aftr.handle_time(time);
        if let Some(frame) = pool.frame_of(bytes) {
            match (inputs.is_stick, is_internal) {
                (true, _) => aftr.handle_stick(frame, time),
                (false, false) => aftr.handle_external(frame, time),
                (false, true) => aftr.handle_internal(frame, time),
            }
        }
        let out = aftr.outputs();
        let bytes = |frame: carina_frame::Frame| frame.bytes().to_vec();
        ran.external.extend(out.external.drain(..).map(bytes));
        ran.internal.extend(out.internal.drain(..).map(bytes));
    }
    let out = aftr.outputs();
    ran.external
        .extend(out.external.drain(..).map(|frame| frame.bytes().to_vec()));
    ran.internal
        .extend(out.internal.drain(..).map(|frame| frame.bytes().to_vec()));
    ran.counters = aftr.counters().clone();
    Ok(ran)
}

/// The identification from which fragmented IPv4 packets are counted, where the rules give them new
/// ones.
const FIRST_IDENTIFICATION: u16 = 0x4242;
/// Length of the longest IP packet with its Ethernet header and VLAN tag, in bytes.
const LONGEST_FRAME: usize = 65_535 + 18;
const POOL_FRAMES: usize = 1024;

/// Describes how the frames that left differ from the expected ones; empty if they do not. The
/// comparison ignores the identification of IPv6 fragments, which is unpredictable.
#[must_use]
pub fn differences(found: &[Vec<u8>], expected: &[Vec<u8>]) -> Vec<String> {
    let mut differences = Vec::new();
    if found.len() != expected.len() {
        differences.push(format!(
            "the AFTR sent {} frames, {} are expected",
            found.len(),
            expected.len()
        ));
    }
    for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (one, other) = (without_id(found), without_id(expected));
        if one == other {
            continue;
        }
        let at = one.iter().zip(&other).position(|(one, other)| one != other);
        let what = match at {
            Some(at) => format!(
                "byte {at} is {:#04x}, {:#04x} is expected",
                one[at], other[at]
            ),
            None => format!(
                "the frame has {} bytes, {} are expected",
                one.len(),
                other.len()
            ),
        };
        differences.push(format!("frame {}: {what}", number + 1));
        if differences.len() == DIFFERENCES_MAX {
            break;
        }
    }
    differences
}

/// Number of differences after which the list ends.
const DIFFERENCES_MAX: usize = 20;

/// A copy of a frame in which the identification of an IPv6 fragment is 0.
fn without_id(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let is_type =
        |at: usize, ethertype: u16| frame.get(at..at + 2) == Some(&ethertype.to_be_bytes());
    let at = if is_type(12, TPID_CUSTOMER) { 18 } else { 14 };
    let is_fragment = is_type(at - 2, ETHERTYPE_IPV6) && frame.get(at + 6) == Some(&FRAGMENT);
    if is_fragment && let Some(id) = frame.get_mut(at + 44..at + 48) {
        id.fill(0);
    }
    frame
}

/// Reads a file of counters: one `name value` per line, or a Lua table as in Snabb's tests. Leaves
/// out the memory that reassembly occupies, which depends on the implementation.
///
/// # Errors
/// A line is not a counter and its value, or names an unknown counter.
pub fn read_counters(text: &str) -> Result<BTreeMap<String, u64>, CheckError> {
    let names = Counters::names();
    let mut counters = BTreeMap::new();
    for (number, text) in text.lines().enumerate() {
        let line = number + 1;
        let is_punctuation =
            |c: char| matches!(c, '[' | ']' | '"' | '\'' | ',' | ';' | '=' | '{' | '}');
        let plain = text.replace(is_punctuation, " ");
        let words: Vec<&str> = plain.split_whitespace().collect();
        let words = match words.split_first() {
            Some((&"return", rest)) => rest,
            Some((first, _)) if first.starts_with("--") || first.starts_with('#') => continue,
            _ => &words,
        };
        for pair in words.chunks(2) {
            let value = pair.get(1).and_then(|value| value.parse::<u64>().ok());
            let value = value.ok_or_else(|| CheckError::Counter {
                line,
                text: text.chars().take(80).collect(),
            })?;
            let name = pair[0].to_owned();
            if !names.contains(&name) {
                return Err(CheckError::NoCounter { line, name });
            }
            if !name.starts_with(MEMORY) {
                counters.insert(name, value);
            }
        }
    }
    Ok(counters)
}

/// Prefix of the counters of memory in use.
const MEMORY: &str = "memuse-";

/// Writes the counters that are not 0, one `name value` per line.
#[must_use]
pub fn write_counters(counters: &Counters) -> String {
    let all = counters.all();
    let lines = all.iter().filter(|(_, value)| *value > 0);
    lines
        .map(|(name, value)| format!("{name} {value}\n"))
        .collect()
}

/// Describes each expected counter whose value differs.
#[must_use]
pub fn counter_differences(found: &Counters, expected: &BTreeMap<String, u64>) -> Vec<String> {
    let all: BTreeMap<String, u64> = found.all().into_iter().collect();
    let differ = expected
        .iter()
        .filter(|(name, value)| all.get(*name) != Some(*value));
    differ
        .map(|(name, value)| {
            let found = all.get(name).copied().unwrap_or(0);
            format!("{name} is {found}, {value} is expected")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use carina_wire::ether::Mac;

    use super::*;
    use crate::config::NextHopAddress;

    #[test]
    fn counters_are_read_in_both_forms() {
        let lua = "return {\n   [\"in-ipv4-bytes\"] = 66,\n   [\"in-ipv4-packets\"] = 1,\n}\n";
        let plain = "# as written here\nin-ipv4-bytes 66\nin-ipv4-packets = 1\n\
            memuse-ipv4-frag-reassembly-buffer 728203264\n";
        let read = read_counters(lua).unwrap();
        assert_eq!(read, read_counters(plain).unwrap());
        assert_eq!(read.len(), 2);
        let differ = counter_differences(&Counters::default(), &read);
        assert_eq!(differ[0], "in-ipv4-bytes is 0, 66 is expected");
        let error = read_counters("a b c\n").unwrap_err().to_string();
        assert!(
            error.starts_with("line 1: \"a b c\": must be the name of a counter and"),
            "{error}"
        );
        let error = read_counters("\nin-ipv5-packets 1\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2: the AFTR has no counter in-ipv5-packets"
        );
    }

    #[test]
    fn frames_that_differ_are_named_by_number_and_byte() {
        let frames = [vec![1, 2, 3], vec![4; 60]];
        assert_eq!(differences(&frames, &frames), [""; 0]);
        let other = [vec![1, 9, 3], vec![4; 61], vec![5]];
        assert_eq!(
            differences(&frames, &other),
            [
                "the AFTR sent 2 frames, 3 are expected",
                "frame 1: byte 1 is 0x02, 0x09 is expected",
                "frame 2: the frame has 60 bytes, 61 are expected",
            ]
        );
    }

    #[test]
    fn frames_of_files_are_whole_and_have_addresses() {
        let frames = [vec![1; 14], vec![4; 60]];
        let file = write_frames(&frames);
        let again = read_frames(&file[..]).unwrap();
        assert_eq!(again.len(), 2);
        let why = |file: &[u8]| read_frames(file).unwrap_err().to_string();
        assert!(why(&file[..80]).contains("the file is cut"));
        let mut short = file.clone();
        short[24 + 12] = 15;
        assert_eq!(
            why(&short),
            "packet 1 is cut short by the capture (snap length): every packet must be a whole \
             Ethernet frame"
        );
        let mut raw = write_frames(&[vec![0x45; 40]]);
        raw[20] = 101;
        assert!(why(&raw).starts_with("the capture has link type 101 (RAW)"));
        let own = Address {
            ip: (),
            mac: Mac([2, 0, 0, 0, 0, 0x55]),
            vlan: Some(7),
            next_hop: NextHopAddress::Ip(()),
        };
        let inputs = read_inputs(&raw[..], &own).unwrap();
        assert_eq!(inputs[0].1[..6], own.mac.0);
        assert_eq!(inputs[0].1[12..18], [0x81, 0, 0, 7, 8, 0]);
    }
}
