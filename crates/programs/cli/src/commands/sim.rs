//! `carina sim`: simulates networks of whole IPCPs on a virtual clock.

mod all_cpus;
mod figure;
mod scale;
mod soak;
mod vnets;

use std::ops::Range;
use std::time::Instant;

use carina_sim::scenario::{Numbers, Outcome as Run, Overrides, Scenario, Selection};
use carina_sim::trace::Sink;
use carina_wire::dif::Dialect;
use clap::Subcommand;
use serde_json::{Value, json};

use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Outcome, failed, usage};
use crate::report::{print_json, print_line};

/// Simulate networks of IPCPs on a virtual clock, to find errors in protocols
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run one scenario: a DIF grows, carries traffic through faults, recovers and is checked
    #[command(
        after_help = "Examples:\n  carina sim run --seed 7\n  carina sim run --seed 7 \
        --trace > events.txt\n  carina sim run --dialect rlite --seed 7\n  carina sim run \
        --seed 7 --keep-members 0-2 --keep-faults none --keep-calls 3\n\nThe same seed repeats \
        the same run, byte for byte, so that its hash is the same."
    )]
    Run(RunArgs),
    /// Run many scenarios on all CPUs, and print the seeds of those that fail
    #[command(
        after_help = "Examples:\n  carina sim soak --seeds 0..10000\n  carina sim soak \
        --dialect irati --seeds 0..1000\n\nThe first ten scenarios that fail are run again with \
        fewer members, faults and calls, as long as they fail\nin the same way. The command \
        line that repeats the smallest scenario is printed."
    )]
    Soak(SoakArgs),
    /// Compare one DIF of a thousand members with the same systems in small stacked DIFs
    #[command(after_help = "Examples:\n  carina sim scale\n  \
        carina sim scale --systems 200 --regions 8 --json > scale.json")]
    Scale(scale::ScaleArgs),
    /// Simulate virtual networks whose operators, providers and hosts are killed at any step
    #[command(
        after_help = "Examples:\n  carina sim vnet --seeds 0..1000\n  carina sim vnet \
        --seeds 7..8 --trace > events.txt\n  carina sim vnet --scale large --seeds \
        0..10\n\nChecks: no host or link ever carries more than its capacity; each network ends \
        ready, or refused with a\nreason; when all networks are removed, nothing is left."
    )]
    Vnet(vnets::VnetArgs),
}

/// Options of `carina sim run`: the seed of the scenario, and which parts of it to keep.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Number from which the scenario is drawn, such as 7: the same seed gives the same run
    #[arg(long)]
    seed: u64,
    #[command(flatten)]
    overrides: WantedArgs,
    /// Keep only these members of the scenario, by number from 0, such as 0-3,7; cables must
    /// connect them [default: all members]
    #[arg(long, value_name = "NUMBERS")]
    keep_members: Option<Numbers>,
    /// Keep only these faults of the scenario, by number from 0, such as 0-2,5; the word none
    /// removes all faults [default: all faults]
    #[arg(long, value_name = "NUMBERS")]
    keep_faults: Option<Numbers>,
    /// Keep only these calls (flows between applications), by number from 0 in order of time, such
    /// as 0-2,5; the word none removes all calls [default: all calls]
    #[arg(long, value_name = "NUMBERS")]
    keep_calls: Option<Numbers>,
    /// Print every event of the run
    #[arg(long)]
    trace: bool,
}

impl RunArgs {
    /// The scenario of the seed, reduced to the members, faults and calls that the options keep.
    fn scenario(&self) -> Result<Scenario, crate::failure::Failure> {
        let scenario = self.overrides.scenario(self.seed);
        let all = scenario.kept.clone();
        let kept = Selection {
            members: self.keep_members.clone().unwrap_or(all.members),
            faults: self.keep_faults.clone().unwrap_or(all.faults),
            calls: self.keep_calls.clone().unwrap_or(all.calls),
        };
        scenario
            .keep(kept)
            .map_err(|error| usage(format!("seed {}: {error}", self.seed)))
    }
}

/// Options of `carina sim soak`: the seeds to run, and how long to reduce a failing scenario.
#[derive(Debug, clap::Args)]
pub(crate) struct SoakArgs {
    /// Range of seeds to run, such as 0..1000, which is 0 to 999
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// Longest time in seconds to reduce each failing scenario to a smaller one with the same
    /// failure; 0: do not reduce
    #[arg(long, value_name = "S", default_value_t = 20)]
    shrink_seconds: u64,
    #[command(flatten)]
    overrides: WantedArgs,
}

/// Options that replace properties of a scenario which its seed would draw: members, faults and
/// dialect.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct WantedArgs {
    /// Number of members of the DIF [default: drawn from the seed]
    #[arg(long)]
    members: Option<usize>,
    /// Inject no faults except those of the cables: loss, delay and others
    #[arg(long)]
    calm: bool,
    /// Dialect of the DIF: native, rlite or irati; also prints which checks that dialect does not
    /// have
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

/// Runs a command of `carina sim`.
///
/// # Errors
/// A check fails in a scenario, or the output cannot be written.
pub(crate) fn run(shared: &Shared, command: SimCommand) -> Outcome {
    match command {
        SimCommand::Run(args) => run_one(shared, &args),
        SimCommand::Soak(args) => soak::run(shared, &args),
        SimCommand::Scale(args) => scale::run(shared, &args),
        SimCommand::Vnet(args) => vnets::run(shared, &args),
    }
}

fn run_one(shared: &Shared, args: &RunArgs) -> Outcome {
    let scenario = args.scenario()?;
    if args.trace {
        print_line(&scenario)?;
    }
    let sink: Option<Sink> = args.trace.then(|| {
        let sink: Sink = Box::new(|line: &str| {
            // A closed standard output is reported at the end of the run.
            let _ = print_line(line);
        });
        sink
    });
    let began = Instant::now();
    let outcome = scenario.run(carina_sim::member_factory(), sink);
    let seconds = began.elapsed().as_secs_f64();
    if shared.json {
        print_json(&as_json(args.seed, &scenario, &outcome))?;
    } else {
        if !args.trace {
            print_line(&scenario)?;
        }
        print_line(summary(&outcome, seconds))?;
    }
    if outcome.failures.is_empty() {
        Ok(())
    } else {
        Err(failed(format!(
            "seed {}: {}\n{}",
            args.seed,
            outcome.failures.join("\n"),
            outcome.state
        )))
    }
}

fn summary(outcome: &Run, seconds: f64) -> String {
    let tallies = &outcome.tallies;
    format!(
        "hash {:016x}, {} events in {:.0} s of virtual time ({seconds:.2} s of real time)\n\
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
