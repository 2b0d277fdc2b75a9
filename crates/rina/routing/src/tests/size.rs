//! A network of a thousand members. Times are only printed; the tests check the amount of work.
#![allow(clippy::disallowed_methods, reason = "measures what the machine takes")]

use alloc::collections::BTreeSet;
use std::eprintln;
use std::time::Instant as Clock;

use carina_time::{Duration, Instant};

use crate::compute::{Computation, Paths};
use crate::database::{Database, Limits};
use crate::message::{Address, FlowState};

const MEMBERS: u64 = 1000;

/// A ring with chords, with about six links for each member.
fn database() -> Database {
    let limits = Limits {
        objects: 1 << 20,
        age: Duration::from_millis(900_000),
        refresh: Duration::from_millis(300_000),
    };
    let mut database = Database::new(0, "", limits);
    for member in 0..MEMBERS {
        for step in [1, 31, 173] {
            set(
                &mut database,
                1 + member,
                1 + (member + step) % MEMBERS,
                1,
                Some(1),
            );
        }
    }
    database
}

fn set(database: &mut Database, a: Address, b: Address, seq: u64, cost: Option<u32>) {
    for (from, to) in [(a, b), (b, a)] {
        let object = FlowState {
            from,
            name: "member".into(),
            to,
            cost: cost.unwrap_or(1),
            seq,
            is_up: cost.is_some(),
            age_ms: 0,
        };
        database.insert(Instant::ZERO, &object);
    }
}

#[test]
fn a_thousand_members_and_a_link_that_fails_far_away() {
    let mut database = database();
    let paths = Paths {
        max: 8,
        has_alternates: true,
    };
    let mut computation = Computation::new(paths);
    computation.set_root(1);
    let all: BTreeSet<_> = database.keys().map(|(a, b)| (a.min(b), a.max(b))).collect();
    let began = Clock::now();
    computation.update(&database, all);
    let full = began.elapsed();
    let began = Clock::now();
    assert_eq!(computation.routes().len() as u64, MEMBERS - 1);
    let routes = began.elapsed();

    set(&mut database, 500, 501, 2, None);
    let began = Clock::now();
    let touched = computation.update(&database, BTreeSet::from([(500, 501)]));
    let one = began.elapsed();
    eprintln!(
        "1000 members, 6 neighbours: all trees {full:?}, all routes {routes:?}, one link {one:?}"
    );
    assert!(touched.len() < 200, "{} destinations", touched.len());
}
