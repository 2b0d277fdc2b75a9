//! `carina capture`: what an IPCP sends and receives, on the screen or into a file.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carina_api::control::{CaptureCreate, CaptureInfo, Client};
use carina_dissect::Settings;
use carina_wire::pcapng::{Item, Reader};

use crate::Shared;
use crate::commands::dissect::Show;
use crate::failure::{Attempt, Outcome, failed};
use crate::report::{print_bytes, progress};

/// Copy what an IPCP sends and receives: PDUs of a normal DIF, VMPI records, Ethernet frames
///
/// Shows packets as `carina dissect` does, or writes them into a file (pcapng) that `carina
/// dissect` and Wireshark read. PDUs of a normal DIF are copied without their SDU protection. The
/// data plane never waits for a capture: packets that are not read in time are counted as missed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  carina capture blue
  carina capture blue --write blue.pcapng --for 10s
  carina capture vm1 --write - | carina dissect --verbose -")]
pub struct CaptureArgs {
    /// The IPCP, or a DIF that has only one IPCP in this system
    ipcp: String,
    /// Write pcapng to this file; - for standard output
    #[arg(long, short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Show all fields of each packet
    #[arg(long, short)]
    verbose: bool,
    /// Keep at most this many bytes of each packet [default: all]
    #[arg(long, value_name = "BYTES")]
    snap: Option<u32>,
    /// End after so many packets
    #[arg(long, short, value_name = "PACKETS")]
    count: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = carina_measure::duration::parse_ns)]
    hold: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// The node does not run or refuses, or the file cannot be written.
pub fn run(shared: &Shared, args: &CaptureArgs) -> Outcome {
    let mut sink = Sink::new(shared, args)?;
    let control = shared.control();
    let create = CaptureCreate {
        ipcp: args.ipcp.clone(),
        snap_bytes: args.snap,
    };
    let info = control
        .create_capture(&create)
        .attempt(format!("capturing at {}", args.ipcp))?;
    let result = copy(&control, &info, args, &mut sink);
    let end = control.end_capture(info.id);
    result?;
    let end = end.attempt("ending the capture")?;
    progress(format!(
        "{} packets of {} in DIF {}, {} missed",
        sink.packets, info.ipcp, info.dif, end.missed
    ));
    Ok(())
}

fn copy(control: &Client, info: &CaptureInfo, args: &CaptureArgs, sink: &mut Sink) -> Outcome {
    let end = args
        .hold
        .and_then(|ns| Instant::now().checked_add(Duration::from_nanos(ns)));
    loop {
        let left = end.map_or(WAIT, |end| end.saturating_duration_since(Instant::now()));
        let portion = control
            .read_capture(info.id, left.min(WAIT))
            .attempt("reading the capture")?;
        if sink.take(&portion)? || left.is_zero() {
            return Ok(());
        }
    }
}

/// Where packets go.
struct Sink {
    to: To,
    reader: Reader,
    /// Packets so far.
    packets: u64,
    packets_max: u64,
}

enum To {
    File(File),
    Output,
    Screen(Show),
}

impl Sink {
    fn new(shared: &Shared, args: &CaptureArgs) -> Result<Sink, crate::failure::Failure> {
        let to = match &args.write {
            None => To::Screen(Show::new(Settings::default(), shared.json, args.verbose)),
            Some(path) if path.as_os_str() == "-" => To::Output,
            Some(path) => {
                let file = File::create(path).attempt(format!("making {}", path.display()))?;
                To::File(file)
            }
        };
        Ok(Sink {
            to,
            reader: Reader::new(),
            packets: 0,
            packets_max: args.count.unwrap_or(u64::MAX),
        })
    }

    /// Takes a portion of the capture; true when there were as many packets as wanted. A file has
    /// whole blocks only, however the command ends.
    fn take(&mut self, portion: &[u8]) -> Result<bool, crate::failure::Failure> {
        self.reader.feed(portion);
        let mut wanted = 0;
        loop {
            let before = self.reader.rest();
            if self.packets >= self.packets_max {
                break;
            }
            let item = self.reader.poll().map_err(failed)?;
            let Some(item) = item else { break };
            self.packets += u64::from(matches!(item, Item::Packet(_)));
            if let To::Screen(show) = &mut self.to {
                show.item(&item)?;
            }
            wanted += before - self.reader.rest();
        }
        let whole = &portion[..wanted];
        match &mut self.to {
            To::File(file) => file.write_all(whole).attempt("writing the capture")?,
            To::Output => print_bytes(whole)?,
            To::Screen(_) => {}
        }
        Ok(self.packets >= self.packets_max)
    }
}

/// How long the node is asked to wait for a packet.
const WAIT: Duration = Duration::from_secs(1);
