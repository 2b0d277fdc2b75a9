//! Tests of two systems with the same name: exactly one of them is a member, whenever they joined.

use carina_sim::member_factory;
use carina_sim::name_conflict::{Found, NameConflict, When};

fn found(seed: u64, when: When, has_crashes: bool) -> Found {
    let conflict = NameConflict {
        seed,
        when,
        has_crashes,
    };
    match conflict.run(member_factory()) {
        Ok(found) => found,
        Err(reason) => panic!("{conflict:?}: {reason}"),
    }
}

#[test]
fn second_of_a_name_waits_while_the_first_can_be_reached() {
    for seed in 0..SEEDS {
        let found = found(seed, When::Later, false);
        let once = Found {
            winner: 0,
            enrollments: [1, 0],
        };
        assert_eq!(found, once, "seed {seed}");
    }
}

#[test]
fn of_two_that_join_at_once_one_stays() {
    for seed in 0..SEEDS {
        found(seed, When::AtOnce, false);
    }
}

#[test]
fn of_two_in_the_parts_of_a_dif_one_stays() {
    let mut first = 0;
    for seed in 0..SEEDS {
        let found = found(seed, When::Parted, false);
        first += u64::from(found.winner == 0);
    }
    // The other half knew the first member when the second one joined.
    assert_eq!(first, SEEDS);
}

#[test]
fn one_stays_when_systems_die_and_start_again() {
    for seed in 0..SEEDS / 2 {
        for when in [When::Later, When::AtOnce, When::Parted] {
            found(seed, when, true);
        }
    }
}

const SEEDS: u64 = 40;
