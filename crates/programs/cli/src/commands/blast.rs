//! `carina blast`: sends packets at a rate, and measures which come back and when.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Instant;

use carina_apps::capture_file::CaptureFileError;
use carina_frame::PoolConfig;
use carina_measure::traffic::{Rate, share};
use carina_nfv::blast::{
    BlastError, Blaster, Blasting, FLOWS_MAX, FileNotes, Mix, Outcome as Trial, Packets,
    PacketsError, Search, Synthesis,
};
use carina_nfv::destination::Destination;
use carina_nfv::port::PortSpec;
use carina_sys::pin_to_cpu;
use carina_text::duration::parse_ns;
use carina_text::table::{Table, short};
use carina_time::Duration;
use carina_wire::capture::Stations;
use carina_wire::ether::Mac;
use clap::Args;
use serde_json::json;

use crate::Shared;
use crate::data_plane::runner_failure;
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::graph_directory::OwnCounters;
use crate::interrupt::Interrupt;
use crate::report::{print_json, print_line, progress};

/// Send packets out of a port, such as eth1, and measure loss, reordering and latency of the
/// packets that return to that port or to another one
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  carina blast eth1 eth2 --rate 100kpps --for 10s\n  carina blast \
    eth1 --size 64x7,594x3,1500 --flows 1000\n  carina blast eth1 eth2 --replay traffic.pcap \
    --rate 1Gbit\n  carina blast eth1 eth2 --find --trial 2s --json\n  carina blast eth1 eth2 \
    --to 2001:db8::/64 --size 80\n  carina blast loop --for 1s\n\nA port is INTERFACE, a PCI \
    address such as 0000:00:04.0, or KIND:NAME followed by options (docs/reference/ports.md); \
    port loop sends directly to the receiver, which shows how fast sender and receiver are. \
    Generated packets are UDP over IPv4 or IPv6, and carry a number and the time of sending. \
    Packets of a file (--replay) are sent unchanged, and only counted. Lengths and rates are \
    without FCS. Ctrl-C ends the command, which then prints its results."
)]
pub(crate) struct BlastArgs {
    /// Port that sends the packets, such as eth1 (see below)
    #[arg(value_name = "TX")]
    tx: String,
    /// Port at which the packets return, such as eth2 [default: the sending port]
    #[arg(value_name = "RX")]
    rx: Option<PortSpec>,
    /// Send the Ethernet frames of this pcap or pcapng file, repeatedly [default: send generated
    /// UDP packets]
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// With --replay: send the file once only
    #[arg(long, requires = "replay")]
    once: bool,
    /// Frame lengths in bytes without FCS, each with its number of frames in a row: 64x7,594x3,1500
    /// repeats 7 frames of 64 bytes, 3 of 594 and 1 of 1500
    #[arg(long, default_value = "64", conflicts_with = "replay")]
    size: Mix,
    /// Number of flows, which differ in their UDP source ports
    #[arg(long, default_value_t = 1, conflicts_with = "replay",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(FLOWS_MAX)))]
    flows: u16,
    /// Source MAC address of generated packets, and of packets in the file that were captured
    /// without one
    #[arg(long, default_value = "02:00:00:00:00:01")]
    source_mac: Mac,
    /// Destination MAC address of generated packets, and of packets in the file that were captured
    /// without one
    #[arg(long, default_value = "02:00:00:00:00:02")]
    mac: Mac,
    /// Source IP address [default: 198.18.0.1, or 2001:2::1 to IPv6 destinations]
    #[arg(long, conflicts_with = "replay")]
    source: Option<IpAddr>,
    /// Prefix of the IPv4 or IPv6 destination addresses; the packets go to each address of the
    /// prefix in turn
    #[arg(long, default_value = "198.18.0.2/32", conflicts_with = "replay")]
    to: Destination,
    /// UDP destination port
    #[arg(long, default_value_t = 9, conflicts_with = "replay")]
    port: u16,
    /// Rate at which to send, such as 100kpps or 1Gbit [default: as fast as the port accepts
    /// packets]
    #[arg(long)]
    rate: Option<Rate>,
    /// Exit after sending this number of packets [default: no limit]
    #[arg(long)]
    count: Option<u64>,
    /// Send for this time, such as 10s [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_ns)]
    time: Option<u64>,
    /// Find the highest rate at which no more packets are lost than --loss allows, by bisection in
    /// trials (RFC 2544)
    #[arg(long, conflicts_with_all = ["count", "time", "once"])]
    find: bool,
    /// With --find: duration of each trial, such as 2s
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_ns)]
    trial: u64,
    /// With --find: stop when the rate is known to within this fraction of the rate, such as 0.5%;
    /// at least 0.01%
    #[arg(long, default_value = "1%", value_parser = share)]
    resolution: f64,
    /// With --find: fraction of the packets that a successful trial may lose, such as 0.1% or 0.001
    #[arg(long, default_value = "0", value_parser = share)]
    loss: f64,
    /// With --find: number of times to repeat a trial that lost more than --loss allows, before the
    /// rate counts as too high
    #[arg(long, default_value_t = 2)]
    retries: u32,
    /// Interval at which rates are printed, such as 1s; 0, or with --find: never
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_ns)]
    every: u64,
    /// Also print a histogram of the latencies
    #[arg(long)]
    histogram: bool,
    /// Number of the processor to run on, from 0 [default: any]
    #[arg(long)]
    cpu: Option<usize>,
    /// Number of frames that the pool of buffers holds
    #[arg(long, default_value_t = PoolConfig::default().frames)]
    frames: usize,
}

/// Sends packets out of a port and prints what returned. With `--find`, searches the highest rate
/// without loss.
///
/// # Errors
/// The packets cannot be made, or the system refuses a port.
pub(crate) fn run(shared: &Shared, args: &BlastArgs) -> Outcome {
    let blaster = blaster(args)?;
    if args.find && args.resolution < RESOLUTION_MIN {
        return Err(usage(format!(
            "--resolution {}%: must be at least 0.01%",
            args.resolution * 100.0
        )));
    }
    say(&blaster.packets.notes, args);
    let interrupt = Interrupt::take().attempt("taking signals")?;
    if let Some(cpu) = args.cpu {
        pin_to_cpu(cpu).attempt(format!("running on processor {cpu}"))?;
    }
    let round = args.once.then(|| blaster.packets.round() as u64);
    let count = args.count.into_iter().chain(round).min();
    let counters = OwnCounters::of_process(shared, "blast")?;
    let started = blaster.start(args.frames, &counters);
    let mut run = Run {
        blasting: started.map_err(as_failure)?,
        interrupt,
        every_ns: args.every,
    };
    let rate = args
        .rate
        .map(|rate| rate.sdus_per_s(run.blasting.mean_bytes()));
    if args.find {
        return find(shared, args, &mut run, rate);
    }
    run.trial(rate, count, args.time)?;
    show(shared, args, &run.blasting)
}

/// Tells the user which packets of a capture file are skipped or changed.
fn say(notes: &FileNotes, args: &BlastArgs) {
    if notes.skipped.total() > 0 {
        progress(format!(
            "packets of the file that the command does not send: {}",
            notes.skipped
        ));
    }
    if let Some((count, link)) = notes.given_stations {
        progress(format!(
            "{count} packets without MAC addresses (link type {link}) are sent from {} to {}",
            args.source_mac, args.mac
        ));
    }
    if let Some(cut) = notes.cut {
        progress(format!("{cut}; the frames before it are sent"));
    }
}

fn blaster(args: &BlastArgs) -> Result<Blaster, Failure> {
    let packets = match &args.replay {
        Some(path) => {
            let stations = Stations {
                destination: args.mac,
                source: args.source_mac,
                vlan: None,
            };
            Packets::of_file(path, stations).map_err(|error| match error {
                PacketsError::File {
                    source: CaptureFileError::System(_),
                    ..
                } => failed(error),
                _ => refused(error),
            })?
        }
        None => Packets::made(Synthesis {
            sizes: args.size.clone(),
            source_mac: args.source_mac,
            destination_mac: args.mac,
            source: args.source.unwrap_or(match args.to {
                Destination::V4(_) => OWN4.into(),
                Destination::V6(_) => OWN6.into(),
            }),
            destinations: args.to,
            port: args.port,
            flows: args.flows,
        })
        .map_err(usage)?,
    };
    let tx = match args.tx.as_str() {
        LOOP if args.rx.is_some() => {
            return Err(usage(
                "port loop cannot be combined with \
            another port",
            ));
        }
        LOOP => None,
        text => Some(text.parse::<PortSpec>().map_err(usage)?),
    };
    Ok(Blaster {
        tx,
        rx: args.rx.clone(),
        packets,
    })
}

fn as_failure(error: BlastError) -> Failure {
    match error {
        BlastError::Runner(error) => runner_failure(error),
        BlastError::Port(error) => usage(error),
        error => refused(error),
    }
}

/// The running load generator, and the signals that end it.
struct Run {
    blasting: Blasting,
    interrupt: Interrupt,
    every_ns: u64,
}

impl Run {
    /// Sends packets, and then waits for those still on their way. Returns true when Ctrl-C ended
    /// the trial.
    fn trial(
        &mut self,
        rate: Option<f64>,
        count: Option<u64>,
        time: Option<u64>,
    ) -> Result<bool, Failure> {
        self.blasting.begin(rate, count).map_err(as_failure)?;
        let (begin, limit) = (Instant::now(), time.unwrap_or(u64::MAX));
        let (mut shown_at, mut shown) = (Instant::now(), None);
        let is_ended = loop {
            let passed = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if passed >= limit || self.blasting.is_done() {
                break false;
            }
            if self.interrupt.is_pending().attempt("signals")? {
                break true;
            }
            let slice = Duration::from_nanos(limit - passed).min(SLICE);
            self.blasting.run_for(slice).attempt("sending")?;
            if self.every_ns > 0 && shown_at.elapsed().as_nanos() >= u128::from(self.every_ns) {
                let now = self.blasting.outcome();
                progress(rates(
                    shown.as_ref(),
                    &now,
                    shown_at.elapsed().as_secs_f64(),
                ));
                (shown_at, shown) = (Instant::now(), Some(now));
            }
        };
        self.blasting.stop().map_err(as_failure)?;
        let mut before = u64::MAX;
        for _ in 0..SETTLE_SLICES {
            self.blasting.run_for(SLICE).attempt("receiving")?;
            let received = self.blasting.outcome().received;
            if std::mem::replace(&mut before, received) == received {
                break;
            }
        }
        Ok(is_ended)
    }
}

fn find(shared: &Shared, args: &BlastArgs, run: &mut Run, rate: Option<f64>) -> Outcome {
    run.every_ns = 0;
    let is_lossless = |trial: &Trial| trial.received > 0 && trial.loss <= args.loss;
    let mut trials = Vec::new();
    let mut is_ended = run.trial(rate, None, Some(args.trial))?;
    let first = run.blasting.outcome();
    progress(line(&first, is_lossless(&first)));
    if first.received == 0 && !is_ended {
        return Err(failed(format!(
            "{} packets were sent and none came back; check that the measured system runs, and \
             that it forwards to the receiving port",
            first.sent
        )));
    }
    // When nothing was lost, the sending port itself is the limit: the rate it reached is the
    // result.
    let fastest = rate.unwrap_or(first.sent_pps).max(first.sent_pps);
    let mut found = first.sent_pps;
    let mut best = is_lossless(&first).then(|| first.clone());
    if best.is_none() {
        let guess = first.received as f64 / first.seconds.max(f64::MIN_POSITIVE);
        let mut search = Search::new(fastest, guess, args.resolution, args.retries);
        trials.push(first);
        while let Some(rate) = search.rate().filter(|_| !is_ended) {
            is_ended = run.trial(Some(rate), None, Some(args.trial))?;
            let trial = run.blasting.outcome();
            if is_ended {
                break;
            }
            progress(line(&trial, is_lossless(&trial)));
            search.note(is_lossless(&trial), trial.sent_pps);
            if is_lossless(&trial) {
                best = Some(trial.clone());
            }
            trials.push(trial);
        }
        found = search.found();
    } else {
        trials.push(first);
    }
    let bits = found * 8.0 * run.blasting.mean_bytes();
    if shared.json {
        print_json(&json!({
            "rate_pps": found, "rate_bps": bits, "best": best, "trials": trials,
            "is_complete": !is_ended,
        }))?;
    } else {
        let loss = if args.loss > 0.0 {
            format!("with at most {} % loss", args.loss * 100.0)
        } else {
            "without loss".to_owned()
        };
        print_line(format!(
            "highest rate {loss}: {} Mpps, {} Gb/s, in {} trials",
            short(found / 1e6),
            short(bits / 1e9),
            trials.len()
        ))?;
    }
    if is_ended {
        Err(Failure::Interrupted(
            "interrupted before the search had ended".to_owned(),
        ))
    } else {
        Ok(())
    }
}

fn line(trial: &Trial, is_lossless: bool) -> String {
    format!(
        "{} Mpps: {} of {} lost, {}",
        short(trial.sent_pps / 1e6),
        trial.lost,
        trial.sent,
        if is_lossless { "good" } else { "too much" }
    )
}

/// A line with the rates sent and received since the previous line.
fn rates(before: Option<&Trial>, now: &Trial, seconds: f64) -> String {
    let (sent, received) = before.map_or((0, 0), |before| (before.sent, before.received));
    let mpps = |new: u64, old: u64| short(new.saturating_sub(old) as f64 / seconds / 1e6);
    format!(
        "sent {} Mpps, received {} Mpps, {} not back",
        mpps(now.sent, sent),
        mpps(now.received, received),
        now.lost
    )
}

fn show(shared: &Shared, args: &BlastArgs, blasting: &Blasting) -> Outcome {
    let trial = blasting.outcome();
    if shared.json {
        let mut value = serde_json::to_value(&trial).attempt("writing JSON")?;
        if args.histogram {
            value["histogram_ns"] = json!(blasting.latencies());
        }
        return print_json(&value);
    }
    let mut table = Table::new(["", "packets", "Mpps", "Gb/s"]);
    let mpps = |rate: f64| short(rate / 1e6);
    table.row([
        "sent".into(),
        trial.sent.to_string(),
        mpps(trial.sent_pps),
        short(trial.sent_bps / 1e9),
    ]);
    table.row([
        "received".into(),
        trial.received.to_string(),
        mpps(trial.received_pps),
    ]);
    table.row([
        format!("lost ({} %)", short(trial.loss * 100.0)),
        trial.lost.to_string(),
    ]);
    let positive = |count: u64| (count > 0).then_some(count);
    let missed = "missed by the receiving port, counted as lost";
    for (what, count) in [
        ("refused by the port", positive(trial.refused)),
        (missed, positive(trial.missed)),
        ("duplicates", trial.duplicates),
        ("reordered", trial.reordered),
        ("other frames", Some(trial.others)),
    ] {
        if let Some(count) = count {
            table.row([what.to_owned(), count.to_string()]);
        }
    }
    print_line(table)?;
    if let Some(spread) = trial.latency_ns {
        let us = |ns: u64| short(ns as f64 / 1e3);
        let mut table = Table::new([
            "latency, us",
            "min",
            "mean",
            "50 %",
            "90 %",
            "99 %",
            "99.9 %",
            "max",
        ]);
        let figures = [
            spread.min,
            spread.mean,
            spread.p50,
            spread.p90,
            spread.p99,
            spread.p999,
            spread.max,
        ];
        table.row([String::new()].into_iter().chain(figures.map(us)));
        print_line(format!("\n{table}"))?;
    }
    if args.histogram {
        histogram(blasting)
    } else {
        Ok(())
    }
}

fn histogram(blasting: &Blasting) -> Outcome {
    let mut table = Table::new(["up to, us", "packets"]);
    for (ns, count) in blasting.latencies() {
        table.row([short(ns as f64 / 1e3), count.to_string()]);
    }
    print_line(format!("\n{table}"))
}

const LOOP: &str = "loop";
/// Addresses reserved for benchmarks (RFC 2544, appendix C.2.2; RFC 5180 §8).
const OWN4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const OWN6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
const SLICE: Duration = Duration::from_millis(100);
/// Longest wait for packets still on their way, in slices.
const SETTLE_SLICES: usize = 10;
const RESOLUTION_MIN: f64 = 0.0001;
