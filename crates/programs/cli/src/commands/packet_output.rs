//! Where captured packets are written: to the screen, a file or standard output.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carina_dissect::Settings;
use carina_wire::pcapng::{Item, Reader};

use crate::Shared;
use crate::commands::dissect::Show;
use crate::failure::{Attempt, Failure, failed};
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
    pub(crate) fn snap_bytes(&self) -> Option<u32> {
        self.snap
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
    /// Writes a portion of the capture. Returns true when the wanted number of packets is reached.
    /// A file contains whole blocks only, however the command ends.
    ///
    /// # Errors
    /// The portions are not a capture, or the file cannot be written.
    pub(crate) fn take(&mut self, portion: &[u8]) -> Result<bool, Failure> {
        self.reader.feed(portion);
        while self.packets < self.packets_max {
            let item = self.reader.poll().map_err(failed)?;
            let Some(item) = item else { break };
            self.packets += u64::from(matches!(item, Item::Packet(_)));
            if let To::Screen(show) = &mut self.to {
                show.item(&item)?;
            }
        }
        let whole = self.reader.whole();
        match &mut self.to {
            To::File(file) => file.write_all(whole).attempt("writing the capture")?,
            To::Output => print_bytes(whole)?,
            To::Screen(_) => {}
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
