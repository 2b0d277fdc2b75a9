//! `carina sim`: networks of whole IPCPs on a virtual clock.

mod figure;
mod scale;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use carina_sim::scenario::{Outcome as Run, Overrides, Scenario};
use carina_sim::trace::Sink;
use carina_wire::dif::Dialect;
use clap::Subcommand;
use serde_json::{Value, json};

use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Outcome, failed};
use crate::report::{print_json, print_line, progress};

/// Simulate networks of IPCPs on a virtual clock
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// One scenario: a DIF grows, carries traffic through faults, recovers and is checked
    #[command(after_help = "Examples:\n  carina sim run --seed 7\n  \
        carina sim run --seed 7 --trace > events.txt\n  \
        carina sim run --dialect rlite --seed 7\n\nThe same seed gives the same run, byte for \
        byte, and so the same hash.")]
    Run(RunArgs),
    /// Many scenarios; the seeds of those that fail
    #[command(after_help = "Example:\n  carina sim soak --seeds 0..10000\n  \
        carina sim soak --dialect irati --seeds 0..1000")]
    Soak(SoakArgs),
    /// One DIF of a thousand members beside the same systems in small DIFs
    #[command(after_help = "Examples:\n  carina sim scale\n  \
        carina sim scale --systems 200 --regions 8 --json > scale.json")]
    Scale(scale::ScaleArgs),
}

/// Options of `carina sim run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The seed
    #[arg(long)]
    seed: u64,
    #[command(flatten)]
    overrides: WantedArgs,
    /// Print every event
    #[arg(long)]
    trace: bool,
}

/// Options of `carina sim soak`.
#[derive(Debug, clap::Args)]
pub struct SoakArgs {
    /// Seeds, the last one not included
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Range<u64>,
    #[command(flatten)]
    overrides: WantedArgs,
}

/// What is not left to the seed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct WantedArgs {
    /// Members of the DIF [default: what the seed says]
    #[arg(long)]
    members: Option<usize>,
    /// No faults but those of the cables
    #[arg(long)]
    calm: bool,
    /// Dialect of the DIF: native, rlite or irati; prints what is not checked in that dialect
    #[arg(long, default_value = "native", value_parser = parse_dialect)]
    dialect: Dialect,
}

impl WantedArgs {
    fn scenario(&self, seed: u64) -> Scenario {
        let overrides = Overrides {
            members: self.members,
            is_calm: self.calm,
            dialect: self.dialect,
        };
        Scenario::new(seed, overrides)
    }
}

/// Runs the command.
///
/// # Errors
/// Something does not hold in a scenario, or cannot be written.
pub fn run(shared: &Shared, command: SimCommand) -> Outcome {
    match command {
        SimCommand::Run(args) => run_one(shared, &args),
        SimCommand::Soak(args) => soak(shared, &args),
        SimCommand::Scale(args) => scale::run(shared, &args),
    }
}

fn run_one(shared: &Shared, args: &RunArgs) -> Outcome {
    let scenario = args.overrides.scenario(args.seed);
    if args.trace {
        print_line(&scenario)?;
    }
    let sink: Option<Sink> = args.trace.then(|| {
        let sink: Sink = Box::new(|line: &str| {
            // A reader that went away shows at the end.
            let _ = print_line(line);
        });
        sink
    });
    let began = Instant::now();
    let outcome = scenario.run(carina_sim::member_factory(), sink);
    let took = began.elapsed().as_secs_f64();
    if shared.json {
        print_json(&as_json(args.seed, &scenario, &outcome))?;
    } else {
        if !args.trace {
            print_line(&scenario)?;
        }
        print_line(summary(&outcome, took))?;
    }
    match outcome.failures.is_empty() {
        true => Ok(()),
        false => Err(failed(format!(
            "seed {}: {}\n{}",
            args.seed,
            outcome.failures.join("\n"),
            outcome.state
        ))),
    }
}

fn summary(outcome: &Run, took: f64) -> String {
    let tallies = &outcome.tallies;
    format!(
        "hash {:016x}, {} events in {:.0} s of virtual time ({took:.2} s of real time)\n\
         {} PDUs and {} bytes on cables, {} flows, {} SDUs with {} bytes read, {} enrollments",
        outcome.hash,
        outcome.events,
        outcome.virtual_ns as f64 / 1e9,
        tallies.wire_pdus,
        tallies.wire_bytes,
        tallies.flows,
        tallies.sdus,
        tallies.sdu_bytes,
        tallies.enrollments,
    )
}

fn as_json(seed: u64, scenario: &Scenario, outcome: &Run) -> Value {
    json!({
        "seed": seed,
        "dialect": scenario.dialect.name(),
        "members": scenario.members,
        "hash": format!("{:016x}", outcome.hash),
        "events": outcome.events,
        "virtual_s": outcome.virtual_ns as f64 / 1e9,
        "wire_pdus": outcome.tallies.wire_pdus,
        "wire_bytes": outcome.tallies.wire_bytes,
        "flows": outcome.tallies.flows,
        "sdus": outcome.tallies.sdus,
        "enrollments": outcome.tallies.enrollments,
        "failures": outcome.failures,
    })
}

/// Runs the seeds on all CPUs; each run has one thread to itself.
fn soak(shared: &Shared, args: &SoakArgs) -> Outcome {
    let next = AtomicU64::new(args.seeds.start);
    let (results, inbox) = mpsc::channel();
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut done, mut bad) = (0_u64, Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let results = results.clone();
            let next = &next;
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.seeds.end {
                        return;
                    }
                    let outcome = args
                        .overrides
                        .scenario(seed)
                        .run(carina_sim::member_factory(), None);
                    if results.send((seed, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        for (seed, outcome) in inbox {
            done += 1;
            if let Some(failure) = outcome.failures.first() {
                progress(format!(
                    "seed {seed}: {}",
                    failure.lines().next().unwrap_or("")
                ));
                bad.push(seed);
            }
            if done.is_multiple_of(1_000) {
                progress(format!("{done} seeds, {} failed", bad.len()));
            }
        }
    });
    bad.sort_unstable();
    let took = began.elapsed().as_secs_f64();
    if shared.json {
        print_json(&json!({ "seeds": done, "failed": bad, "seconds": took }))?;
    } else {
        print_line(format!("{done} seeds in {took:.0} s, {} failed", bad.len()))?;
    }
    match bad.is_empty() {
        true => Ok(()),
        false => Err(failed(format!(
            "seeds that failed: {bad:?}; look with `carina sim run --dialect {} --seed`",
            args.overrides.dialect.name()
        ))),
    }
}

fn parse_dialect(text: &str) -> Result<Dialect, ArgumentError> {
    Dialect::of_name(text).ok_or_else(|| ArgumentError::Dialect(text.to_owned()))
}

fn parse_seeds(text: &str) -> Result<Range<u64>, ArgumentError> {
    let wrong = || ArgumentError::Seeds(text.to_owned());
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let parse = |number: &str| number.parse::<u64>().map_err(|_| wrong());
    let (from, to) = (parse(from)?, parse(to)?);
    if from >= to {
        return Err(ArgumentError::NoSeed(text.to_owned()));
    }
    Ok(from..to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_are_read_and_wrong_ones_named() {
        assert_eq!(parse_dialect("rlite"), Ok(Dialect::Rlite));
        assert!(
            parse_dialect("klingon").is_err_and(|error| error.to_string().contains("rlite, irati"))
        );
    }

    #[test]
    fn ranges_of_seeds_are_read_and_wrong_ones_named() {
        assert_eq!(parse_seeds("3..10"), Ok(3..10));
        for wrong in ["3", "10..3", "a..b", "5..5"] {
            assert!(parse_seeds(wrong).is_err_and(|error| error.to_string().contains(wrong)));
        }
    }
}
