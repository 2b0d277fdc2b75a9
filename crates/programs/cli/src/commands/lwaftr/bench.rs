//! `carina lwaftr bench`: measures the rates of an AFTR on one core.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carina_bench::lwaftr::captures::{CaptureBench, Passage};
use carina_text::duration::parse_ns;

use super::{Source, inputs};
use crate::Shared;
use crate::failure::{Attempt, Outcome, refused};
use crate::interrupt::Interrupt;
use crate::report::{print_json, print_line};

/// Options of `carina lwaftr bench`: the configuration, the captures to forward, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    source: Source,
    /// Capture (pcap or pcapng) of frames that arrive from the Internet
    in4: PathBuf,
    /// Capture (pcap or pcapng) of frames that arrive from the access network
    in6: PathBuf,
    /// Run for this time, such as 10s [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_ns)]
    time: Option<u64>,
    /// Number of the processor to run on, from 0 [default: any]
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    /// Write the printed lines to this file as CSV, in addition to standard output [default: write
    /// no file]
    #[arg(short, long, value_name = "FILE")]
    bench_file: Option<PathBuf>,
}

/// Forwards the frames of two captures through an AFTR, over and over, and prints the rates at
/// intervals, until a signal or the time limit ends it.
///
/// # Errors
/// A file is invalid or has no frames, or the system refuses a resource.
pub(crate) fn run(shared: &Shared, args: &BenchArgs) -> Outcome {
    let loaded = args.source.load()?;
    let [external, internal] = inputs(&args.source.conf, &loaded, [&args.in4, &args.in6])?;
    for (file, frames) in [(&args.in4, &external), (&args.in6, &internal)] {
        if frames.is_empty() {
            return Err(refused(format!("{}: has no frames", file.display())));
        }
    }
    let interrupt = Interrupt::take().attempt("taking signals")?;
    let rules = args.source.behaviour.rules();
    let mut bench = CaptureBench::new(loaded, rules, external, internal, args.cpu)?;
    let mut lines = format!("{HEADER}\n");
    if !shared.json {
        print_line(HEADER)?;
    }
    let begin = Instant::now();
    let limit = args.time.map(Duration::from_nanos);
    while !interrupt.is_pending().attempt("signals")? {
        let left = limit.map_or(LINE_EVERY, |limit| limit.saturating_sub(begin.elapsed()));
        if left.is_zero() {
            break;
        }
        let time = left.min(LINE_EVERY);
        let passage = bench.run(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))?;
        let line = csv(&passage);
        if shared.json {
            print_json(&passage)?
        } else {
            print_line(&line)?
        }
        if let Some(file) = &args.bench_file {
            let _ = writeln!(lines, "{line}");
            fs::write(file, &lines).attempt(format!("writing {}", file.display()))?;
        }
    }
    Ok(())
}

const HEADER: &str = "time_s,decap_mpps,decap_gbps,encap_mpps,encap_gbps";

fn csv(passage: &Passage) -> String {
    format!(
        "{:.2},{:.3},{:.3},{:.3},{:.3}",
        passage.time_s,
        passage.decap_mpps,
        passage.decap_gbps,
        passage.encap_mpps,
        passage.encap_gbps
    )
}

const LINE_EVERY: Duration = Duration::from_secs(1);
