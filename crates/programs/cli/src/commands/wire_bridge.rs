//! The bridge that `impair` and `vlan-translate` share: it runs until stopped, and prints its
//! counters.

use std::os::fd::AsFd;

use carina_netdev::{Bridge, BridgeCounts, Change, FaultPlan};
use carina_sys::StopSignal;
use carina_sys::monotonic_ns;
use carina_text::duration::parse_ns;
use carina_text::table::Table;
use serde_json::{Value, json};

use crate::Shared;
use crate::failure::{Attempt, Outcome, usage};
use crate::report::{print_json, print_line};

/// Options of `carina impair` and `carina vlan-translate`: the time to run, and the interval
/// between two prints of counters.
#[derive(Debug, clap::Args)]
pub(super) struct Pace {
    /// Exit after this time, such as 60s [default: run until stopped]
    #[arg(long, short = 't', value_parser = parse_ns)]
    duration: Option<u64>,
    /// Interval at which to print the counters so far, such as 1s [default: only at the end]
    #[arg(long, short, value_parser = parse_ns)]
    interval: Option<u64>,
}

/// Runs a bridge until it is stopped or its time is over, and prints its counters.
///
/// # Errors
/// An interface cannot be used, or both names are the same.
pub(super) fn run(
    shared: &Shared,
    names: [&str; 2],
    plans: [FaultPlan; 2],
    changes: [Option<Change>; 2],
    pace: &Pace,
) -> Outcome {
    if names[0] == names[1] {
        let what = format!(
            "{} cannot be joined with itself; name two interfaces",
            names[0]
        );
        return Err(usage(what));
    }
    let stop = StopSignal::new().attempt("waiting for signals")?;
    let opened = Bridge::open(names, plans, changes);
    let mut bridge = opened.attempt(format!("joining {} and {}", names[0], names[1]))?;
    bridge.watch(stop.as_fd()).attempt("waiting for signals")?;
    if shared.json {
        print_json(&json!({ "joined": names }))?
    } else {
        print_line(format!("{} and {} are joined", names[0], names[1]))?
    }
    let start = monotonic_ns();
    let end = pace.duration.map(|ns| start.saturating_add(ns));
    let mut report = pace.interval.map(|ns| start.saturating_add(ns));
    loop {
        let now = monotonic_ns();
        let deadline = end.into_iter().chain(report).min();
        let is_stopped = bridge.step(deadline).attempt("moving frames")?;
        if is_stopped || end.is_some_and(|end| now >= end) {
            break;
        }
        if let (Some(at), Some(every)) = (report, pace.interval)
            && now >= at
        {
            report = Some(at.saturating_add(every).max(now));
            show(shared, names, &mut bridge)?;
        }
    }
    show(shared, names, &mut bridge)
}

fn show(shared: &Shared, names: [&str; 2], bridge: &mut Bridge) -> Outcome {
    let counts = bridge.counts();
    if shared.json {
        let directions =
            [(0, 1), (1, 0)].map(|(from, to)| direction(names[from], names[to], &counts[from]));
        return print_json(&json!({ "ways": directions }));
    }
    let mut table = Table::new([
        "FROM",
        "TO",
        "FRAMES",
        "BYTES",
        "CHANGED",
        "LOST",
        "DUP",
        "REORDERED",
        "SENT",
        "DROPPED",
    ]);
    for (from, to) in [(0, 1), (1, 0)] {
        let one = &counts[from];
        table.row([
            names[from].to_owned(),
            names[to].to_owned(),
            one.received.to_string(),
            one.received_bytes.to_string(),
            one.changed.to_string(),
            one.fault.lost.to_string(),
            one.fault.duplicated.to_string(),
            one.fault.reordered.to_string(),
            one.sent.to_string(),
            dropped(one).to_string(),
        ]);
    }
    print_line(table)
}

/// Frames dropped for other reasons than the requested faults.
fn dropped(counts: &BridgeCounts) -> u64 {
    counts.no_room + counts.unsupported + counts.missed + counts.fault.overflowed
}

/// The counts of one direction as JSON.
fn direction(from: &str, to: &str, counts: &BridgeCounts) -> Value {
    json!({
        "from": from,
        "to": to,
        "received": counts.received,
        "received_bytes": counts.received_bytes,
        "changed": counts.changed,
        "sent": counts.sent,
        "lost": counts.fault.lost,
        "duplicated": counts.fault.duplicated,
        "reordered": counts.fault.reordered,
        "drop_queue": counts.fault.overflowed,
        "drop_no_room": counts.no_room,
        "drop_unsupported": counts.unsupported,
        "drop_missed": counts.missed,
    })
}
