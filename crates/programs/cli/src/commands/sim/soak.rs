//! `carina sim soak`: runs many scenarios on all CPUs, and reduces those that fail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carina_sim::scenario::{Scenario, Shrunk, shrink};
use carina_wire::dif::Dialect;
use serde_json::json;

use super::all_cpus::on_all_cpus;
use super::{SoakArgs, WantedArgs};
use crate::Shared;
use crate::failure::{Outcome, failed};
use crate::report::{print_json, print_line, progress};

/// Number of failing scenarios to reduce; for further ones only the seed is printed.
const SHRUNK_MAX: u64 = 10;

/// Time between two progress lines while a scenario is being reduced.
const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// A scenario that fails.
struct Failing {
    seed: u64,
    /// First line of the failure of the smallest scenario.
    failure: String,
    /// The command that runs the smallest scenario.
    command: String,
}

/// Runs the seeds on all CPUs, and prints the failing scenarios. Fails if there are any.
pub(super) fn run(shared: &Shared, args: &SoakArgs) -> Outcome {
    let shrunk = AtomicU64::new(0);
    let began = Instant::now();
    let (mut done, mut bad) = (0_u64, Vec::new());
    let take = |result| {
        done += 1;
        if let Some(failing) = result {
            let Failing {
                seed,
                failure,
                command,
            } = &failing;
            progress(format!("seed {seed}: {failure}\n  repeat with: {command}"));
            bad.push(failing);
        }
        if done.is_multiple_of(1_000) {
            progress(format!("{done} seeds, {} failed", bad.len()));
        }
    };
    on_all_cpus(&args.seeds, |seed| run_seed(args, seed, &shrunk), take);
    bad.sort_unstable_by_key(|failing| failing.seed);
    let seeds: Vec<u64> = bad.iter().map(|failing| failing.seed).collect();
    let elapsed_s = began.elapsed().as_secs_f64();
    if shared.json {
        let failures: Vec<_> = bad
            .iter()
            .map(|one| json!({"seed": one.seed, "failure": one.failure, "again": one.command}))
            .collect();
        print_json(&json!({
            "seeds": done, "failed": seeds, "failures": failures, "seconds": elapsed_s
        }))?;
    } else {
        print_line(format!(
            "{done} seeds in {elapsed_s:.0} s, {} failed",
            bad.len()
        ))?;
    }
    let commands: Vec<&str> = bad.iter().map(|one| one.command.as_str()).collect();
    if bad.is_empty() {
        Ok(())
    } else {
        Err(failed(format!(
            "seeds that failed: {seeds:?}; to repeat them, with --trace to print every event, \
             run\n  {}",
            commands.join("\n  ")
        )))
    }
}

/// Runs the scenario of a seed. If it fails, returns the smallest failing scenario that was found
/// within the time limit; `None` if it does not fail.
fn run_seed(args: &SoakArgs, seed: u64, shrunk: &AtomicU64) -> Option<Failing> {
    let scenario = args.overrides.scenario(seed);
    let failure = failure_of(&scenario)?;
    let is_one_of_the_first = shrunk.fetch_add(1, Ordering::Relaxed) < SHRUNK_MAX;
    let smallest = match args.shrink_seconds {
        1.. if is_one_of_the_first => {
            let limit = Duration::from_secs(args.shrink_seconds);
            make_smaller(&scenario, &failure, limit)
        }
        _ => Shrunk {
            scenario,
            failure,
            runs: 0,
        },
    };
    let command = command(&args.overrides, &smallest.scenario);
    Some(Failing {
        seed,
        failure: smallest.failure,
        command,
    })
}

/// The first line of a scenario's failure; `None` if it does not fail.
fn failure_of(scenario: &Scenario) -> Option<String> {
    let outcome = scenario.run(carina_sim::member_factory(), None);
    let first = outcome.failures.first()?;
    Some(first.lines().next().unwrap_or_default().to_owned())
}

fn make_smaller(scenario: &Scenario, failure: &str, limit: Duration) -> Shrunk {
    let seed = scenario.seed;
    progress(format!(
        "seed {seed}: {failure}; reducing the scenario, for at most {} s",
        limit.as_secs()
    ));
    let began = Instant::now();
    let mut reported_at = began;
    let goes_on = |so_far: &Shrunk| {
        if reported_at.elapsed() >= PROGRESS_PAUSE {
            reported_at = Instant::now();
            let kept = &so_far.scenario.kept;
            progress(format!(
                "seed {seed}: {} members, {} faults and {} calls left after {} runs",
                kept.members.len(),
                kept.faults.len(),
                kept.calls.len(),
                so_far.runs
            ));
        }
        began.elapsed() < limit
    };
    shrink(scenario, failure, failure_of, goes_on)
}

/// The command that runs a scenario, reduced to what it keeps.
fn command(wanted: &WantedArgs, scenario: &Scenario) -> String {
    let mut words = format!("carina sim run --seed {}", scenario.seed);
    if wanted.dialect != Dialect::Native {
        words += &format!(" --dialect {}", wanted.dialect.name());
    }
    if let Some(members) = wanted.members {
        words += &format!(" --members {members}");
    }
    if wanted.calm {
        words += " --calm";
    }
    let (kept, all) = (&scenario.kept, wanted.scenario(scenario.seed).kept);
    let parts = [
        ("members", &kept.members, &all.members),
        ("faults", &kept.faults, &all.faults),
        ("calls", &kept.calls, &all.calls),
    ];
    for (what, kept, all) in parts {
        if kept != all {
            words += &format!(" --keep-{what} {kept}");
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::SimCommand;
    use super::*;

    #[derive(Parser)]
    struct Sim {
        #[command(subcommand)]
        command: SimCommand,
    }

    #[test]
    fn command_of_a_part_plays_that_part() {
        let wanted = WantedArgs {
            members: Some(6),
            calm: false,
            dialect: Dialect::Rlite,
        };
        let whole = wanted.scenario(7);
        assert_eq!(
            command(&wanted, &whole),
            "carina sim run --seed 7 --dialect rlite --members 6"
        );
        let mut kept = whole.kept.clone();
        let [a, b] = whole.edges[0];
        kept.members.0.retain(|at| [a, b].contains(at));
        kept.faults.0.clear();
        kept.calls.0.retain(|at| *at == 1);
        let part = whole.keep(kept).expect("two neighbours");
        let words = command(&wanted, &part);
        assert!(words.ends_with(" --keep-calls 1"), "{words}");
        let words = words.split_whitespace().skip(1);
        let parsed = Sim::try_parse_from(words).expect("a command");
        let SimCommand::Run(run) = parsed.command else {
            panic!("another command");
        };
        let again = run.scenario().expect("a scenario");
        assert_eq!(again.kept, part.kept);
        assert_eq!(again.to_string(), part.to_string());
    }
}
