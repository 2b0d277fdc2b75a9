//! Which version of a report wins, and when it expires.

use alloc::vec;

use carina_time::{Duration, Instant};

use crate::database::{Database, Limits, MergeOutcome, NAME_MAX, SEQ_MAX};
use crate::message::{Address, FlowState};

const LIMITS: Limits = Limits {
    objects: 16,
    age: Duration::from_millis(9_000),
    refresh: Duration::from_millis(3_000),
};

fn object(from: Address, to: Address, seq: u64) -> FlowState {
    FlowState {
        from,
        name: "peer".into(),
        to,
        cost: 1,
        seq,
        is_up: true,
        age_ms: 0,
    }
}

fn database() -> Database {
    Database::new(1, "me", LIMITS)
}

#[test]
fn newer_wins_and_equal_is_known() {
    let mut database = database();
    assert_eq!(
        database.insert(Instant::ZERO, &object(2, 3, 5)),
        MergeOutcome::Accepted
    );
    assert_eq!(
        database.insert(Instant::ZERO, &object(2, 3, 5)),
        MergeOutcome::Known
    );
    assert_eq!(
        database.insert(Instant::ZERO, &object(2, 3, 4)),
        MergeOutcome::Outdated
    );
    assert_eq!(
        database.insert(Instant::ZERO, &object(2, 3, 6)),
        MergeOutcome::Accepted
    );
    assert_eq!(database.len(), 1);
}

#[test]
fn of_two_objects_with_one_number_all_choose_the_same() {
    let up = object(2, 3, 5);
    let down = FlowState {
        is_up: false,
        ..up.clone()
    };
    for order in [[&up, &down], [&down, &up]] {
        let mut database = database();
        let verdicts = order.map(|object| database.insert(Instant::ZERO, object));
        assert_eq!(verdicts[0], MergeOutcome::Accepted);
        assert_eq!(database.cost(2, 3), None);
    }
}

#[test]
fn a_tombstone_rejects_older_copies_until_they_expire() {
    let mut database = database();
    let old = object(2, 3, 5);
    database.insert(Instant::ZERO, &old);
    let tombstone = FlowState {
        is_up: false,
        seq: 6,
        ..old.clone()
    };
    database.insert(Instant::from_millis(1_000), &tombstone);
    assert_eq!(
        database.insert(Instant::from_millis(8_000), &old),
        MergeOutcome::Outdated
    );
    assert!(database.expire(Instant::from_millis(9_999)).is_empty());
    assert_eq!(database.expire(Instant::from_millis(10_000)), vec![(2, 3)]);
    // A member that still has the old copy also has its age.
    let stale = FlowState {
        age_ms: 10_000,
        ..old
    };
    assert_eq!(
        database.insert(Instant::from_millis(10_000), &stale),
        MergeOutcome::Expired
    );
    assert!(database.is_empty());
}

#[test]
fn age_is_carried_along_and_grows_with_every_hop() {
    let (mut a, mut b) = (database(), Database::new(9, "other", LIMITS));
    a.insert(Instant::ZERO, &object(2, 3, 1));
    let copy = a
        .object(Instant::from_millis(5_000), (2, 3))
        .expect("it is there");
    assert_eq!(copy.age_ms, 5_001);
    b.insert(Instant::ZERO, &copy);
    assert!(b.object(Instant::ZERO, (2, 3)).expect("it is there").age_ms > copy.age_ms);
    assert_eq!(b.expire(Instant::from_millis(4_000)).len(), 1);
}

#[test]
fn own_object_from_a_former_life_is_outdone() {
    let mut database = database();
    database.report(Instant::ZERO, 2, Some(7));
    let ghost = FlowState {
        cost: 3,
        ..object(1, 2, 50)
    };
    assert_eq!(
        database.insert(Instant::ZERO, &ghost),
        MergeOutcome::Disputed
    );
    let own = database.object(Instant::ZERO, (1, 2)).expect("it is there");
    assert_eq!((own.seq, own.cost, own.is_up), (51, 7, true));
    // A link that this member does not have is withdrawn.
    assert_eq!(
        database.insert(Instant::ZERO, &object(1, 9, 4)),
        MergeOutcome::Disputed
    );
    let own = database.object(Instant::ZERO, (1, 9)).expect("it is there");
    assert_eq!((own.seq, own.is_up), (5, false));
    assert_eq!(own.name, "me");
    // This member's own report, returned to it, is not a dispute.
    assert_eq!(database.insert(Instant::ZERO, &own), MergeOutcome::Known);
}

#[test]
fn own_objects_are_made_anew_and_tombstones_are_not() {
    let mut database = database();
    database.report(Instant::ZERO, 2, Some(1));
    database.report(Instant::ZERO, 3, Some(1));
    database.report(Instant::ZERO, 3, None);
    let due = database.refresh_due().expect("a link is up");
    let due_ms = due.as_millis();
    assert!((2_600..=3_000).contains(&due_ms), "{due}");
    assert!(database.refresh(due - Duration::from_millis(1)).is_empty());
    assert_eq!(database.refresh(due), vec![2]);
    assert_eq!(database.object(due, (1, 2)).map(|own| own.seq), Some(2));
    assert_eq!(database.expire(Instant::from_millis(9_000)), vec![(1, 3)]);
}

#[test]
fn report_makes_a_version_only_when_something_changes() {
    let mut database = database();
    assert!(!database.report(Instant::ZERO, 2, None));
    assert!(database.report(Instant::ZERO, 2, Some(1)));
    assert!(!database.report(Instant::from_millis(5), 2, Some(1)));
    assert!(database.report(Instant::from_millis(5), 2, Some(2)));
    assert!(database.report(Instant::from_millis(5), 2, None));
    assert!(!database.report(Instant::from_millis(5), 2, None));
    assert_eq!(
        database
            .object(Instant::from_millis(5), (1, 2))
            .map(|own| own.seq),
        Some(3)
    );
}

#[test]
fn full_database_refuses_others_and_keeps_its_own() {
    let mut database = database();
    for to in 0..16 {
        assert_eq!(
            database.insert(Instant::ZERO, &object(2, 100 + to, 1)),
            MergeOutcome::Accepted
        );
    }
    assert_eq!(
        database.insert(Instant::ZERO, &object(3, 4, 1)),
        MergeOutcome::Full
    );
    assert_eq!(
        database.insert(Instant::ZERO, &object(2, 100, 2)),
        MergeOutcome::Accepted
    );
    assert!(database.report(Instant::ZERO, 2, Some(1)));
    assert_eq!(database.len(), 17);
}

#[test]
fn nonsense_is_refused() {
    let good = object(2, 3, 1);
    for bad in [
        object(0, 3, 1),
        object(2, 0, 1),
        object(2, 2, 1),
        object(2, 3, 0),
        object(2, 3, SEQ_MAX + 1),
        FlowState {
            cost: 0,
            ..good.clone()
        },
        FlowState {
            name: "n".repeat(NAME_MAX + 1),
            ..good.clone()
        },
    ] {
        assert_eq!(
            database().insert(Instant::ZERO, &bad),
            MergeOutcome::Malformed,
            "{bad:?}"
        );
    }
    assert_eq!(
        database().insert(Instant::ZERO, &good),
        MergeOutcome::Accepted
    );
}

#[test]
fn digests_tell_content_and_not_history() {
    let (mut a, mut b) = (database(), database());
    for seq in 1..5 {
        a.insert(Instant::ZERO, &object(2, 3, seq));
    }
    a.insert(Instant::ZERO, &object(4, 5, 1));
    a.insert(Instant::ZERO, &object(6, 5, 1));
    b.insert(Instant::from_millis(700), &object(4, 5, 1));
    b.insert(Instant::from_millis(800), &object(2, 3, 4));
    assert_ne!(a.digest(), b.digest());
    assert_eq!(a.digest_of(2), b.digest_of(2));
    b.insert(Instant::from_millis(900), &object(6, 5, 1));
    assert_eq!(a.digest(), b.digest());
    a.expire(Instant::from_millis(9_000));
    assert_eq!(a.digest(), Default::default());
    assert_eq!(a.origins(0, u64::MAX).count(), 0);
}

#[test]
fn summaries_together_speak_about_every_address() {
    let mut database = database();
    for from in 2..9 {
        database.insert(Instant::ZERO, &object(from, 100, 1));
    }
    let (mut first, mut seen) = (0, 0);
    loop {
        let summary = database.summary(first, 3);
        assert_eq!(summary.first, first);
        assert!(summary.origins.len() <= 3);
        seen += summary.origins.len();
        match summary.last.checked_add(1) {
            Some(next) => first = next,
            None => break,
        }
    }
    assert_eq!(seen, 7);
    assert_eq!(
        super::super::database::Database::new(1, "", LIMITS)
            .summary(0, 3)
            .last,
        u64::MAX
    );
}
