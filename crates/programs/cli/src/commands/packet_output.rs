//! Where captured packets are written: to the screen, a file or standard output.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carina_dissect::Settings;
use carina_wire::pcapng::{Item, Reader};

use crate::Shared;
use crate::commands::dissect::Show;
use crate::failure::{Attempt, Failure, failed, usage};
use crate::report::print_bytes;

/// Options of `carina capture`, `carina trace` and `carina vnet capture`: where to write the
/// packets, and when to stop.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Write the packets to this file in pcapng format; `-` writes to standard output [default:
    /// show them on the screen]
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Print all fields of each packet [default: one line for each packet]
    #[arg(long, short)]
    verbose: bool,
    /// Keep at most this many bytes of each packet, such as 128 [default: all]
    #[arg(long, value_name = "BYTES")]
    snap: Option<u32>,
    /// Exit after this number of packets [default: no limit]
    #[arg(long, short, value_name = "PACKETS")]
    count: Option<u64>,
    /// Exit after this time, such as 10s [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = carina_text::duration::parse_ns)]
    hold: Option<u64>,
}

impl OutputArgs {
    /// Number of bytes to keep of each packet; `None` keeps all.
    ///
    /// # Errors
    /// The option is 0, which a file of pcapng takes for all bytes.
    pub(crate) fn snap_bytes(&self) -> Result<Option<u32>, Failure> {
        if self.snap == Some(0) {
            return Err(usage("--snap 0: must be at least 1 byte"));
        }
        Ok(self.snap)
    }

    /// Opens the output. The time of `--for` begins now.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn open(&self, shared: &Shared) -> Result<Sink, Failure> {
        let to = match &self.write {
            None => To::Screen(Show::new(Settings::default(), shared.json, self.verbose)),
            Some(path) if path.as_os_str() == "-" => To::Output,
            Some(path) => {
                let file = File::create(path).attempt(format!("making {}", path.display()))?;
                To::File(file)
            }
        };
        let hold = self.hold.map(Duration::from_nanos);
        Ok(Sink {
            to,
            reader: Reader::new(),
            packets: 0,
            packets_max: self.count.unwrap_or(u64::MAX),
            end: hold.and_then(|hold| Instant::now().checked_add(hold)),
        })
    }
}

/// Output of a capture, which arrives in portions.
pub(crate) struct Sink {
    to: To,
    reader: Reader,
    packets: u64,
    packets_max: u64,
    end: Option<Instant>,
}

enum To {
    File(File),
    Output,
    Screen(Show),
}

impl Sink {
    /// Writes a portion of the capture. Returns true when the wanted number of packets is reached;
    /// packets beyond it are left out, but not the statistics that end the capture. A file contains
    /// whole blocks only, however the command ends.
    ///
    /// # Errors
    /// The portions are not a capture, or the file cannot be written.
    pub(crate) fn take(&mut self, portion: &[u8]) -> Result<bool, Failure> {
        self.reader.feed(portion);
        // The blocks of this portion from the first packet to leave out to the last one.
        let mut beyond: Option<Range<usize>> = None;
        loop {
            let begin = self.reader.whole().len();
            let item = self.reader.poll().map_err(failed)?;
            let Some(item) = item else { break };
            let is_packet = matches!(item, Item::Packet(_));
            if is_packet && self.packets >= self.packets_max {
                let end = self.reader.whole().len();
                beyond.get_or_insert(begin..end).end = end;
                continue;
            }
            self.packets += u64::from(is_packet);
            if let To::Screen(show) = &mut self.to {
                show.item(&item)?;
            }
        }
        let whole = self.reader.whole();
        let beyond = beyond.unwrap_or(whole.len()..whole.len());
        for blocks in [&whole[..beyond.start], &whole[beyond.end..]] {
            match &mut self.to {
                To::File(file) => file.write_all(blocks).attempt("writing the capture")?,
                To::Output => print_bytes(blocks)?,
                To::Screen(_) => {}
            }
        }
        Ok(self.packets >= self.packets_max)
    }

    /// Number of packets so far.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Number of packets missing from the capture, as reported at its end; `None` when the capture
    /// was cut off before its end.
    pub(crate) fn missed(&self) -> Option<u64> {
        let is_whole = self.reader.ends_with_statistics();
        is_whole.then(|| self.reader.missed())
    }

    /// Time left for the capture; `Duration::MAX` without a limit.
    pub(crate) fn time_left(&self) -> Duration {
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        self.end.map_or(Duration::MAX, left)
    }
}

#[cfg(test)]
mod tests {
    use carina_wire::pcapng::{Direction, Interface, LinkType, Packet, Statistics, Writer};

    use super::*;

    #[test]
    fn packets_beyond_the_count_go_and_statistics_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.pcapng");
        let mut sink = Sink {
            to: To::File(File::create(&path).unwrap()),
            reader: Reader::new(),
            packets: 0,
            packets_max: 3,
            end: None,
        };
        let mut portion = Vec::new();
        let mut writer = Writer::begin(&mut portion);
        let interface = Interface {
            link: LinkType(1),
            name: "a.output -> b.input".to_owned(),
            description: String::new(),
            snap_bytes: 0,
        };
        let interface = writer.interface(&mut portion, &interface);
        let packet = |number: u8| Packet {
            interface,
            time_ns: 0,
            direction: Direction::Unknown,
            bytes: &[0; 64][..usize::from(number)],
            original_bytes: u32::from(number),
        };
        for number in 1..=5 {
            assert!(writer.packet(&mut portion, &packet(number)));
        }
        assert!(sink.take(&portion).unwrap());
        assert_eq!(sink.missed(), None);
        portion.clear();
        assert!(writer.packet(&mut portion, &packet(6)));
        let statistics = Statistics {
            interface,
            time_ns: 0,
            packets: 8,
            missed: 2,
        };
        writer.statistics(&mut portion, &statistics);
        assert!(sink.take(&portion).unwrap());
        assert_eq!((sink.packets(), sink.missed()), (3, Some(2)));
        let mut reader = Reader::new();
        reader.feed(&std::fs::read(&path).unwrap());
        let mut lengths = Vec::new();
        while let Some(item) = reader.poll().unwrap() {
            if let Item::Packet(packet) = item {
                lengths.push(packet.bytes.len());
            }
        }
        assert_eq!((lengths, reader.missed()), (vec![1, 2, 3], 2));
        assert!(reader.is_at_end());
    }
}
