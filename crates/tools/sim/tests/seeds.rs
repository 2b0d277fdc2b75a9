//! Tests of scenarios drawn from seeds. A failure prints the seed, the scenario and the command
//! that repeats it.

use carina_sim::member_factory;
use carina_sim::scenario::{Numbers, Outcome, Overrides, Scenario};

/// Runs a seed. The message of a panic contains the command that repeats the run.
fn holds(seed: u64, overrides: Overrides) -> Outcome {
    let scenario = Scenario::new(seed, overrides);
    let outcome = scenario.run(member_factory(), None);
    if !outcome.failures.is_empty() {
        let members = match overrides.members {
            Some(members) => format!(" --members {members}"),
            None => String::new(),
        };
        panic!(
            "{}\n{scenario}{}\nagain: CARINA_SIM_SEED={seed} cargo test -p carina-sim --test all seeds:: -- --nocapture\n   or: carina sim run --seed {seed}{members}",
            outcome.failures.join("\n"),
            outcome.state,
        );
    }
    outcome
}

/// Runs a quarter of the seeds. `CARINA_SIM_SEED` selects a single one.
fn quarter(number: u64) {
    if let Ok(seed) = std::env::var("CARINA_SIM_SEED") {
        let seed = seed.parse().expect("CARINA_SIM_SEED is a number");
        if number == 0 {
            let scenario = Scenario::new(seed, Overrides::default());
            println!("{scenario}");
            let sink = Box::new(|line: &str| println!("{line}"));
            let outcome = scenario.run(member_factory(), Some(sink));
            assert!(
                outcome.failures.is_empty(),
                "{:?}\n{}",
                outcome.failures,
                outcome.state
            );
        }
        return;
    }
    for seed in (0..SEEDS).filter(|seed| seed % 4 == number) {
        holds(seed, Overrides::default());
    }
}

#[test]
fn first_quarter_of_the_seeds_holds() {
    quarter(0);
}

#[test]
fn second_quarter_of_the_seeds_holds() {
    quarter(1);
}

#[test]
fn third_quarter_of_the_seeds_holds() {
    quarter(2);
}

#[test]
fn fourth_quarter_of_the_seeds_holds() {
    quarter(3);
}

#[test]
fn seeds_that_once_failed_hold() {
    for (seed, members) in ONCE_FAILED {
        let overrides = Overrides {
            members: *members,
            ..Overrides::default()
        };
        holds(*seed, overrides);
    }
}

#[test]
fn same_seed_is_the_same_run_whatever_lies_in_memory() {
    for seed in [3, 11] {
        let first = holds(seed, Overrides::default());
        // Memory addresses and free lists differ in the second run: the result must not depend on
        // them.
        let ballast: Vec<Vec<u8>> = (1..2_000).map(|len| vec![0; 7 * len]).collect();
        let holes: Vec<&Vec<u8>> = ballast.iter().step_by(3).collect();
        let second = holds(seed, Overrides::default());
        assert_eq!(holes.len(), 667);
        assert_eq!(
            (first.hash, first.events),
            (second.hash, second.events),
            "seed {seed}"
        );
        drop(ballast);
        let third = holds(seed, Overrides::default());
        assert_eq!(first.hash, third.hash, "seed {seed}");
    }
    let hashes = [3, 11].map(|seed| holds(seed, Overrides::default()).hash);
    assert_ne!(hashes[0], hashes[1]);
}

#[test]
fn a_part_of_a_scenario_is_played_as_that_part() {
    let whole = Scenario::new(3, Overrides::default());
    let all = whole.keep(whole.kept.clone()).expect("everything");
    let run = |scenario: &Scenario| scenario.run(member_factory(), None);
    assert_eq!(run(&all).hash, run(&whole).hash);
    let mut kept = whole.kept.clone();
    kept.members = Numbers(whole.edges[0].into());
    kept.faults = Numbers::default();
    kept.calls.0.retain(|number| *number == 0);
    let part = whole.keep(kept).expect("two neighbours");
    let (first, second) = (run(&part), run(&part));
    assert_eq!(first.failures, Vec::<String>::new());
    assert_eq!(first.tallies.enrollments, 2);
    assert_eq!(first.hash, second.hash);
    let text = part.to_string();
    assert!(text.contains("faults none and calls 0 are kept"), "{text}");
}

/// Number of seeds in every run of the tests.
const SEEDS: u64 = 100;

/// Seeds that once detected an error, with the number of members if it was not drawn from the seed.
const ONCE_FAILED: &[(u64, Option<usize>)] = &[
    // Requests went forever over N-1 flows whose other end had restarted unnoticed.
    (48, None),
    (54, None),
    (59, None),
    // A member that left and returned looked unchanged: flows from before stayed open at the other
    // end.
    (40, None),
    // A joining IPCP sent its requests over some of its many N-1 flows only.
    (72, None),
    // PDUs for members were accepted from an IPCP that was not a neighbour, and so without
    // protection.
    (633, None),
    // Each old copy of a replicated entry that arrived made its owner announce a new one, which led
    // to a storm of announcements.
    (1072, None),
    // The digests of a restarted member's entries were those of its old entries.
    (1502, None),
    // A damaged refusal, or a damaged configuration, left two members side by side forever.
    (2319, None),
    (2448, None),
    // The announcement that a flow ended was not repeated for long enough.
    (2889, None),
    // A member that returned with another address left its old links at all others.
    (7010603, None),
    (7014740, None),
    (7018858, None),
    (7020216, None),
    (7036491, None),
    (7042533, None),
    (7045158, None),
    // A flow that had ended at one end still delivered slowly what was written before.
    (1795392193241, None),
    // An N-1 flow stayed after its other end had left, and had crashed before the flow was ended.
    (7049122, None),
    // As before, but the other end crashed during its enrollment.
    (1795392146946, None),
    // A path that loses half of all PDUs is slow, but data that is still on the way is not lost.
    (7017946, None),
    // PDUs between neighbours had no check of their own: damaged ones were accepted, and wrong
    // addresses, nonces and CEP-ids stayed.
    (7001143, None),
    (7012239, None),
    (7015602, None),
    (7041100, None),
    (7041308, None),
    (7044237, None),
    (7049948, None),
    (1795379945265, None),
    (1795379950626, None),
    (1795379951733, None),
    (1795383752048, None),
    (1795383752611, None),
];
