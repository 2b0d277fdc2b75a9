//! The scenarios of `seeds.rs` in other dialects.

use carina_sim::member::MemberFactory;
use carina_sim::member_factory;
use carina_sim::scenario::{Outcome, Overrides, Scenario};
use carina_wire::dif::Dialect;

use crate::asked;
use crate::once_enrolled::once_enrolled_factory;

/// Runs a seed. The message of a panic contains the command that repeats the run.
fn holds(dialect: Dialect, seed: u64, members: Option<usize>) -> Outcome {
    holds_with(member_factory(), dialect, seed, members)
}

/// Runs a seed with members from `factory`.
fn holds_with(
    factory: MemberFactory,
    dialect: Dialect,
    seed: u64,
    members: Option<usize>,
) -> Outcome {
    let overrides = Overrides {
        members,
        dialect,
        is_calm: false,
    };
    let scenario = Scenario::new(seed, overrides);
    let mut outcome = scenario.run(factory, None);
    // Members must not repeat endlessly what all of them know.
    let sent_max = outcome.virtual_ns / 1_000_000_000 * scenario.edges.len() as u64 * PDUS_MAX;
    let sent = outcome.tallies.wire_pdus;
    if dialect != Dialect::Native && sent > sent_max {
        let text = format!("{sent} PDUs on cables, more than {PDUS_MAX} a second on each");
        outcome.failures.push(text);
    }
    if !outcome.failures.is_empty() {
        let name = dialect.name();
        let members = members.map_or(String::new(), |count| format!(" --members {count}"));
        panic!(
            "{}\n{scenario}{}\nagain: CARINA_SIM_SEED={seed} cargo test -p carina-sim --test all dialects::{name} -- --nocapture\n   or: carina sim run --dialect {name} --seed {seed}{members} --trace",
            outcome.failures.join("\n"),
            outcome.state,
        );
    }
    outcome
}

/// Runs half of the seeds of a dialect. `CARINA_SIM_SEED` selects a single seed, which prints every
/// event, or the first of `CARINA_SIM_COUNT` seeds.
fn all_hold(dialect: Dialect, half: u64) {
    if let Ok(seed) = std::env::var("CARINA_SIM_SEED") {
        let seed = seed.parse().expect("CARINA_SIM_SEED is a number");
        if half == 0 {
            let overrides = Overrides {
                dialect,
                ..Overrides::default()
            };
            let scenario = Scenario::new(seed, overrides);
            println!("{scenario}");
            let sink = Box::new(|line: &str| println!("{line}"));
            let outcome = scenario.run(member_factory(), Some(sink));
            let Outcome {
                failures, state, ..
            } = outcome;
            assert!(failures.is_empty(), "{failures:?}\n{state}");
        }
        return;
    }
    for seed in (0..SEEDS).filter(|seed| seed % 2 == half) {
        holds(dialect, seed, None);
    }
}

#[test]
fn even_seeds_hold_with_members_that_speak_rlite() {
    all_hold(Dialect::Rlite, 0);
}

#[test]
fn odd_seeds_hold_with_members_that_speak_rlite() {
    all_hold(Dialect::Rlite, 1);
}

#[test]
fn even_seeds_hold_with_members_that_speak_irati() {
    all_hold(Dialect::Irati, 0);
}

#[test]
fn odd_seeds_hold_with_members_that_speak_irati() {
    all_hold(Dialect::Irati, 1);
}

#[test]
fn seeds_hold_with_members_that_enroll_once_in_their_lives() {
    for seed in asked::seeds(SEEDS / 2) {
        holds_with(once_enrolled_factory(), Dialect::Rlite, seed, None);
    }
}

#[test]
fn seeds_that_once_failed_hold() {
    for (dialect, seed, members) in ONCE_FAILED {
        holds(*dialect, *seed, *members);
    }
}

#[test]
fn same_seed_is_the_same_run_and_another_dialect_another() {
    let runs = [Dialect::Native, Dialect::Rlite, Dialect::Irati].map(|dialect| {
        let first = holds(dialect, 3, None);
        let ballast: Vec<Vec<u8>> = (1..2_000).map(|len| vec![0; 7 * len]).collect();
        let second = holds(dialect, 3, None);
        assert_eq!(ballast.len(), 1_999);
        assert_eq!((first.hash, first.events), (second.hash, second.events));
        first.hash
    });
    assert!(runs[0] != runs[1] && runs[1] != runs[2] && runs[0] != runs[2]);
}

/// Largest average number of PDUs per second on a cable over a whole run. Management needs one or
/// two.
const PDUS_MAX: u64 = 10;

/// Number of seeds of each dialect in every run of the tests.
const SEEDS: u64 = 100;

/// Dialects and seeds that once detected an error, with the number of members if it was not drawn
/// from the seed.
const ONCE_FAILED: &[(Dialect, u64, Option<usize>)] = &[
    // Two versions of a member's record circulated forever.
    (Dialect::Rlite, 2, None),
    (Dialect::Rlite, 28, None),
    // Several versions of a member's record circulated forever: 40 to 80 times as many PDUs.
    (Dialect::Rlite, 89, None),
    (Dialect::Rlite, 153, None),
    // Of two members that connected to each other at the same time, both gave up their own
    // connection in favour of the other's, and neither tried again.
    (Dialect::Rlite, 94, None),
    (Dialect::Rlite, 102, None),
    // Requests went forever over an N-1 flow whose other end was gone.
    (Dialect::Rlite, 296, None),
    // A member that had missed another's new address announced the earlier address again.
    (Dialect::Rlite, 302, None),
    // After one attempt to enroll was refused, another attempt, through a member, waited forever.
    (Dialect::Irati, 2, None),
    // Requests went forever over an N-1 flow whose other end was gone.
    (Dialect::Irati, 24, None),
    (Dialect::Irati, 36, None),
    // A neighbour that died before it answered its first keep-alive was never detected as dead.
    // (Also seeds 4 and 35.)
    (Dialect::Irati, 127, None),
    (Dialect::Irati, 242, None),
    // An M_CONNECT that its sender had given up was answered later, and not sent again.
    (Dialect::Irati, 147, None),
    // The initiator of an N-1 flow kept it after its other end was gone.
    (Dialect::Irati, 296, None),
    (Dialect::Irati, 777, None),
    // Members kept different versions of a link-state object with the same sequence number.
    (Dialect::Irati, 71, None),
    (Dialect::Irati, 114, None),
    // A flow without retransmission whose answer was lost never ended.
    (Dialect::Irati, 50, None),
    (Dialect::Irati, 978, None),
    // More seeds with the same causes.
    (Dialect::Irati, 302, None),
    (Dialect::Irati, 490, None),
    // The answer to a flow request was lost, and the called end was never notified.
    (Dialect::Rlite, 8_000_158, None),
    (Dialect::Rlite, 8_010_056, None),
    (Dialect::Rlite, 8_010_422, None),
    (Dialect::Rlite, 8_012_103, None),
    (Dialect::Rlite, 8_016_700, None),
    // A member that had left and come back rejected records as outdated.
    (Dialect::Rlite, 1_795_379_740_855, None),
    (Dialect::Rlite, 1_795_379_742_414, None),
    (Dialect::Rlite, 1_795_379_743_075, None),
    (Dialect::Rlite, 1_795_379_744_199, None),
    (Dialect::Rlite, 1_795_379_744_234, None),
    (Dialect::Rlite, 1_795_379_744_428, None),
    // Second cause, of seeds 8014018, 1795379742414 and 1795379744428: a member that had left
    // deallocated the N-1 flows of others before it was ordered to return.
    // A record with another member's address stayed, although its member had a new address.
    (Dialect::Rlite, 1_795_379_741_055, None),
    // A member got a second address, and its flows continued with the first.
    (Dialect::Rlite, 1_795_379_741_959, None),
    // A flow that failed at the end which had ended it looked like an orderly end at the other.
    (Dialect::Rlite, 8_014_018, None),
    (Dialect::Rlite, 8_019_070, None),
    (Dialect::Irati, 9_012_522, None),
    // An N-1 flow whose other end was gone stayed, because orders to enroll kept arriving.
    (Dialect::Irati, 1_795_382_293_488, None),
    // After refusals over many N-1 flows, the attempt to enroll through a member waited forever.
    (Dialect::Irati, 9_014_830, None),
    (Dialect::Irati, 9_016_027, None),
    (Dialect::Irati, 9_016_715, None),
    (Dialect::Irati, 9_016_842, None),
    (Dialect::Irati, 9_019_409, None),
    // The first PDU of a run arrived after the gap below a later one was given up, and was
    // delivered.
    (Dialect::Rlite, 1795390290691, None),
    (Dialect::Rlite, 1795390293579, None),
    // The key of a flow was reused while its reader had not read to the end.
    (Dialect::Rlite, 1795390283151, None),
    (Dialect::Rlite, 1795390302607, None),
    // A flow ended before the route to its other end was restored after the last fault.
    (Dialect::Rlite, 1795390295482, None),
    (Dialect::Rlite, 1795390297827, None),
    (Dialect::Rlite, 1795390300813, None),
    (Dialect::Rlite, 1795390310777, None),
];
