//! The scenarios of `seeds.rs` with members that speak other dialects.

use carina_sim::member::MemberFactory;
use carina_sim::member_factory;
use carina_sim::scenario::{Outcome, Overrides, Scenario};
use carina_wire::dif::Dialect;

use crate::asked;
use crate::once_enrolled::once_enrolled_factory;

/// Runs a seed; a panic says all that is needed to see it again.
fn holds(dialect: Dialect, seed: u64, members: Option<usize>) -> Outcome {
    holds_with(member_factory(), dialect, seed, members)
}

/// The same with members of another kind.
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
    // No member repeats without end what all members know.
    let most = outcome.virtual_ns / 1_000_000_000 * scenario.edges.len() as u64 * PDUS_MAX;
    let sent = outcome.tallies.wire_pdus;
    if dialect != Dialect::Native && sent > most {
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

/// The seeds of a dialect; one alone, with every event, when a person asks for it, or others.
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

/// PDUs a second on a cable at most, over a whole run. Management needs one or two.
const PDUS_MAX: u64 = 10;

/// Seeds of every run of the tests, of each dialect.
const SEEDS: u64 = 200;

/// Dialects and seeds, with the number of members when it was not the seed's, that found something
/// wrong.
const ONCE_FAILED: &[(Dialect, u64, Option<usize>)] = &[
    // Two versions of a member's record went round for ever.
    (Dialect::Rlite, 2, None),
    (Dialect::Rlite, 28, None),
    // Several versions of a member's record went round for ever: 40 to 80 times as many PDUs.
    (Dialect::Rlite, 89, None),
    (Dialect::Rlite, 153, None),
    // Two that connected at once both gave way, and neither asked again.
    (Dialect::Rlite, 94, None),
    (Dialect::Rlite, 102, None),
    // An N-1 flow whose other end was gone was asked over for ever.
    (Dialect::Rlite, 296, None),
    // An address that a member had had before came back with a member that missed the new one.
    (Dialect::Rlite, 302, None),
    // An attempt that was refused kept the one through a member waiting for ever.
    (Dialect::Irati, 2, None),
    // An N-1 flow whose other end was gone was asked over for ever.
    (Dialect::Irati, 24, None),
    (Dialect::Irati, 36, None),
    // A neighbour that died before it had answered its first keep-alive was never missed. (4 and
    // 35, too.)
    (Dialect::Irati, 127, None),
    (Dialect::Irati, 242, None),
    // An M_CONNECT that its sender had given up was answered later, and not sent again.
    (Dialect::Irati, 147, None),
    // The member that had asked for an N-1 flow let it lie when its other end was gone.
    (Dialect::Irati, 296, None),
    (Dialect::Irati, 777, None),
    // Two versions of a link-state object with one sequence number stayed beside each other.
    (Dialect::Irati, 71, None),
    (Dialect::Irati, 114, None),
    // A flow without retransmission whose answer was lost finished for ever.
    (Dialect::Irati, 50, None),
    (Dialect::Irati, 978, None),
    // Others of the same causes.
    (Dialect::Irati, 302, None),
    (Dialect::Irati, 490, None),
    // The answer to a request was lost, and nothing told the called end so.
    (Dialect::Rlite, 8_000_158, None),
    (Dialect::Rlite, 8_010_056, None),
    (Dialect::Rlite, 8_010_422, None),
    (Dialect::Rlite, 8_012_103, None),
    (Dialect::Rlite, 8_016_700, None),
    // A member that had left refused records as outdated after it had come back.
    (Dialect::Rlite, 1_795_379_740_855, None),
    (Dialect::Rlite, 1_795_379_742_414, None),
    (Dialect::Rlite, 1_795_379_743_075, None),
    (Dialect::Rlite, 1_795_379_744_199, None),
    (Dialect::Rlite, 1_795_379_744_234, None),
    (Dialect::Rlite, 1_795_379_744_428, None),
    // (8014018, 1795379742414 and 1795379744428, too:) one that had left gave back the N-1 flows of
    // others before it was ordered to come back.
    // A record with another's own address stayed although its member had a new one.
    (Dialect::Rlite, 1_795_379_741_055, None),
    // A member was given a second address, and its flows went on with the first.
    (Dialect::Rlite, 1_795_379_741_959, None),
    // A flow that failed at the end that had ended it seemed to end in order at the other.
    (Dialect::Rlite, 8_014_018, None),
    (Dialect::Rlite, 8_019_070, None),
    (Dialect::Irati, 9_012_522, None),
    // An N-1 flow whose other end was gone stayed, because orders to enroll kept coming.
    (Dialect::Irati, 1_795_382_293_488, None),
    // Refusals through many N-1 flows kept the one through a member waiting for ever.
    (Dialect::Irati, 9_014_830, None),
    (Dialect::Irati, 9_016_027, None),
    (Dialect::Irati, 9_016_715, None),
    (Dialect::Irati, 9_016_842, None),
    (Dialect::Irati, 9_019_409, None),
    // The first PDU of a run came after the gap below a later one was given up, and was read.
    (Dialect::Rlite, 1795390290691, None),
    (Dialect::Rlite, 1795390293579, None),
    // The key of a flow was used again while its reader had not read to the end of it.
    (Dialect::Rlite, 1795390283151, None),
    (Dialect::Rlite, 1795390302607, None),
    // A flow ended before the route to its other end was back after the last fault.
    (Dialect::Rlite, 1795390295482, None),
    (Dialect::Rlite, 1795390297827, None),
    (Dialect::Rlite, 1795390300813, None),
    (Dialect::Rlite, 1795390310777, None),
];
