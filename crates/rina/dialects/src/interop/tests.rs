//! Tests of the link-state database and the directory by themselves.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::Event;
use carina_routing::compute::Paths;
use carina_time::{Duration, Instant};

use super::directory::{self, Directory};
use super::link_state::{Key, Limits, LinkReport, LinkState, MergeOutcome};

const S: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

const LIMITS: Limits = Limits {
    entries: 100,
    age_max: Duration::from_secs(900),
    renew: Duration::from_secs(270),
    hold: Duration::from_secs(5),
    restart: Duration::from_secs(30),
    needs_both: true,
};

fn key(from: &str, to: &str) -> Key {
    (from.to_string(), to.to_string())
}

fn up(seq: u64, age: Duration) -> LinkReport {
    LinkReport {
        cost: 1,
        seq,
        is_up: true,
        age,
    }
}

/// The next hops and alternates of each member. Members have one-letter names whose codes are their
/// addresses.
fn routes(links: &LinkState, has_alternates: bool) -> BTreeMap<String, (Vec<u64>, Vec<u64>)> {
    let paths = Paths {
        max: 4,
        has_alternates,
    };
    let address = |name: &str| name.bytes().next().map(u64::from);
    let all = links.routes(paths, &address);
    let plain = |list: &[carina_wire::dif::Address]| list.iter().map(|at| at.0).collect();
    all.iter()
        .map(|reach| {
            let route = &reach.route;
            (
                reach.name.clone(),
                (plain(&route.next), plain(&route.alternates)),
            )
        })
        .collect()
}

#[test]
fn versions_age_and_are_replaced_by_later_ones() {
    let mut links = LinkState::new("a", LIMITS);
    let ab = key("b", "c");
    assert_eq!(
        links.insert(at(0), ab.clone(), up(5, 10 * S)),
        MergeOutcome::New
    );
    assert_eq!(links.get(at(7), &ab).map(|link| link.age), Some(17 * S));
    assert_eq!(
        links.insert(at(7), ab.clone(), up(5, Duration::ZERO)),
        MergeOutcome::Same
    );
    assert_eq!(
        links.insert(at(7), ab.clone(), up(4, 20 * S)),
        MergeOutcome::Old
    );
    assert_eq!(
        links.insert(at(7), ab.clone(), up(6, Duration::ZERO)),
        MergeOutcome::New
    );
    // A version made much later, by an author that restarted and counts from 1 again.
    assert_eq!(
        links.insert(at(30), ab.clone(), up(1, Duration::ZERO)),
        MergeOutcome::Old
    );
    assert_eq!(
        links.insert(at(38), ab.clone(), up(1, Duration::ZERO)),
        MergeOutcome::New
    );
    assert!(links.expire(at(937)).is_empty());
    assert_eq!(links.expire(at(938)), [ab]);
    // A version that is already too old is not accepted.
    let old = links.insert(at(0), key("x", "y"), up(1, 900 * S));
    assert_eq!(old, MergeOutcome::Old);
}

#[test]
fn of_two_versions_with_one_number_the_worse_counts() {
    let [mut author, mut near, mut far] = ["b", "x", "y"].map(|own| LinkState::new(own, LIMITS));
    let bc = key("b", "c");
    let down = LinkReport {
        is_up: false,
        ..up(4, Duration::ZERO)
    };
    // b reported version 4 before it restarted, and makes version 4 again because it receives 3.
    assert_eq!(far.insert(at(0), bc.clone(), down), MergeOutcome::New);
    assert!(author.report(at(0), "c", Some(1)));
    assert_eq!(
        author.insert(at(0), bc.clone(), up(3, Duration::ZERO)),
        MergeOutcome::Corrected
    );
    assert_eq!(
        near.insert(at(0), bc.clone(), up(4, Duration::ZERO)),
        MergeOutcome::New
    );
    assert_eq!(
        far.insert(at(0), bc.clone(), up(4, Duration::ZERO)),
        MergeOutcome::Old
    );
    assert_eq!(near.insert(at(0), bc.clone(), down), MergeOutcome::New);
    assert_eq!(near.insert(at(0), bc.clone(), down), MergeOutcome::Same);
    assert_eq!(
        author.insert(at(0), bc.clone(), down),
        MergeOutcome::Corrected
    );
    assert_eq!(author.get(at(0), &bc), Some(up(5, Duration::ZERO)));
    let dear = LinkReport {
        cost: 7,
        ..up(5, Duration::ZERO)
    };
    assert_eq!(
        near.insert(at(0), bc.clone(), up(5, Duration::ZERO)),
        MergeOutcome::New
    );
    assert_eq!(near.insert(at(0), bc.clone(), dear), MergeOutcome::New);
    assert_eq!(
        near.insert(at(0), bc, up(5, Duration::ZERO)),
        MergeOutcome::Old
    );
}

#[test]
fn own_entries_are_the_authors() {
    let mut links = LinkState::new("a", LIMITS);
    assert!(links.report(at(0), "b", Some(1)));
    assert!(!links.report(at(1), "b", Some(1)));
    assert!(links.report(at(1), "b", Some(2)));
    let ab = key("a", "b");
    assert_eq!(
        links.get(at(1), &ab).map(|link| (link.seq, link.cost)),
        Some((2, 2))
    );
    // A version from an earlier incarnation, or a false one: the author makes a later version.
    assert_eq!(
        links.insert(at(1), ab.clone(), up(9, Duration::ZERO)),
        MergeOutcome::Corrected
    );
    assert_eq!(
        links.get(at(1), &ab).map(|link| (link.seq, link.cost)),
        Some((10, 2))
    );
    assert_eq!(
        links.insert(at(1), ab.clone(), up(9, Duration::ZERO)),
        MergeOutcome::Old
    );
    // A link that does not exist.
    let ax = key("a", "x");
    assert_eq!(
        links.insert(at(1), ax.clone(), up(3, Duration::ZERO)),
        MergeOutcome::Corrected
    );
    let reported = links.get(at(1), &ax).expect("the word that it is down");
    assert!(!reported.is_up && reported.seq == 4);
    assert!(!links.withdraw(at(1), &ab, 99), "only its author ends it");
    assert!(links.refresh(at(200)).is_empty());
    assert_eq!(links.refresh(at(271)), core::slice::from_ref(&ab));
    assert_eq!(
        links.get(at(271), &ab).map(|link| (link.seq, link.age)),
        Some((11, Duration::ZERO))
    );
    // A link that comes back has a later version than its end.
    assert!(links.report(at(272), "b", None));
    assert!(links.report(at(273), "b", Some(1)));
    assert_eq!(links.get(at(273), &ab).map(|link| link.seq), Some(13));
}

#[test]
fn a_late_copy_does_not_restore_an_ended_entry() {
    let mut links = LinkState::new("a", LIMITS);
    let bc = key("b", "c");
    links.insert(at(0), bc.clone(), up(3, Duration::ZERO));
    assert!(!links.withdraw(at(1), &bc, 2), "of an earlier version");
    assert!(links.withdraw(at(1), &bc, 3));
    assert!(!links.withdraw(at(1), &bc, 3), "no news");
    assert_eq!(
        links.insert(at(2), bc.clone(), up(3, Duration::ZERO)),
        MergeOutcome::Old
    );
    assert_eq!(
        links.insert(at(2), bc.clone(), up(2, Duration::ZERO)),
        MergeOutcome::Old
    );
    let mut forgiven = LinkState::new("a", LIMITS);
    forgiven.insert(at(0), bc.clone(), up(3, Duration::ZERO));
    forgiven.withdraw(at(1), &bc, 3);
    forgiven.forget_end(&bc);
    assert_eq!(
        forgiven.insert(at(1), bc.clone(), up(1, Duration::ZERO)),
        MergeOutcome::New
    );
    assert!(links.expire(at(7)).is_empty(), "it was down");
    assert_eq!(
        links.insert(at(7), bc, up(1, Duration::ZERO)),
        MergeOutcome::New
    );
}

#[test]
fn tables_are_full_at_their_bounds() {
    let mut links = LinkState::new("a", LIMITS);
    for n in 0..100 {
        let verdict = links.insert(at(0), key("b", &n.to_string()), up(1, Duration::ZERO));
        assert_eq!(verdict, MergeOutcome::New);
    }
    assert_eq!(
        links.insert(at(0), key("b", "x"), up(1, Duration::ZERO)),
        MergeOutcome::Full
    );
    assert_eq!(
        links.insert(at(0), key("a", "x"), up(1, Duration::ZERO)),
        MergeOutcome::Full
    );
    assert!(links.report(at(0), "b", Some(1)), "an own one always fits");
}

#[test]
fn routes_need_both_reports_except_own_links() {
    let mut links = LinkState::new("a", LIMITS);
    links.report(at(0), "b", Some(1));
    links.insert(at(0), key("b", "c"), up(1, Duration::ZERO));
    assert_eq!(routes(&links, false).into_keys().collect::<String>(), "b");
    links.insert(at(0), key("c", "b"), up(1, Duration::ZERO));
    let via_b = (alloc::vec![u64::from(b'b')], Vec::new());
    assert_eq!(routes(&links, false).get("c"), Some(&via_b));
    assert!(links.take_changed() && !links.take_changed());
    links.withdraw(at(0), &key("c", "b"), 1);
    assert!(links.take_changed());
    assert_eq!(routes(&links, false).len(), 1);
    // With the other setting, the report of one end suffices.
    let mut half = LinkState::new(
        "a",
        Limits {
            needs_both: false,
            ..LIMITS
        },
    );
    half.report(at(0), "b", Some(1));
    half.insert(at(0), key("b", "c"), up(1, Duration::ZERO));
    assert_eq!(routes(&half, false).len(), 2);
}

#[test]
fn equal_paths_share_and_alternates_are_loop_free() {
    let mut links = LinkState::new("a", LIMITS);
    links.report(at(0), "b", Some(1));
    links.report(at(0), "c", Some(1));
    for (from, to) in [
        ("b", "a"),
        ("c", "a"),
        ("b", "d"),
        ("d", "b"),
        ("c", "d"),
        ("d", "c"),
    ] {
        links.insert(at(0), key(from, to), up(1, Duration::ZERO));
    }
    let all = routes(&links, true);
    let (b, c) = (u64::from(b'b'), u64::from(b'c'));
    assert_eq!(all["d"].0, [b, c]);
    // c reaches b through a, or through d at the same cost as through a, so c might lead back here.
    assert_eq!(all["b"], (alloc::vec![b], Vec::new()));
    links.insert(at(0), key("b", "c"), up(1, Duration::ZERO));
    links.insert(at(0), key("c", "b"), up(1, Duration::ZERO));
    assert_eq!(routes(&links, true)["b"], (alloc::vec![b], alloc::vec![c]));
}

fn changes(directory: &mut Directory<String>, reachable: &[&str]) -> Vec<(String, bool)> {
    let is_reachable = |holder: &String| reachable.contains(&holder.as_str());
    let events = directory.changes(&is_reachable).into_iter();
    events
        .map(|event| match event {
            Event::Reachable { name } => (name, true),
            Event::Unreachable { name } => (name, false),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn applications_are_at_their_holders() {
    let limits = directory::Limits {
        entries: 3,
        hold: Duration::from_secs(5),
    };
    let mut directory = Directory::new("a".to_string(), limits);
    let holder = |name: &str| name.to_string();
    assert_eq!(directory.register("x"), Some(1));
    assert_eq!(directory.register("x"), None);
    let new = directory::MergeOutcome::New;
    assert_eq!(directory.insert(at(0), "x", holder("b"), 1), new);
    assert_eq!(directory.insert(at(0), "y", holder("b"), 1), new);
    assert_eq!(directory.holders("x"), ["a", "b"]);
    let all = ["a", "b"];
    let both = [("x".to_string(), true), ("y".to_string(), true)];
    assert_eq!(changes(&mut directory, &all), both);
    assert!(changes(&mut directory, &all).is_empty());
    // b cannot be reached, but x is still registered here.
    directory.touch_all();
    assert_eq!(changes(&mut directory, &["a"]), [("y".to_string(), false)]);
    // Versions of an entry.
    let verdict = directory.insert(at(0), "y", holder("b"), 1);
    assert_eq!(verdict, directory::MergeOutcome::Same);
    assert_eq!(directory.insert(at(0), "y", holder("b"), 4), new);
    let verdict = directory.insert(at(0), "y", holder("b"), 3);
    assert_eq!(verdict, directory::MergeOutcome::Old);
    assert!(!directory.withdraw(at(0), "y", &holder("b"), 3));
    assert!(directory.withdraw(at(0), "y", &holder("b"), 4));
    let verdict = directory.insert(at(1), "y", holder("b"), 4);
    assert_eq!(verdict, directory::MergeOutcome::Old, "a late copy");
    assert_eq!(directory.insert(at(6), "y", holder("b"), 1), new);
    // The limit of entries.
    assert_eq!(directory.insert(at(6), "z", holder("b"), 1), new);
    let verdict = directory.insert(at(6), "w", holder("b"), 1);
    assert_eq!(verdict, directory::MergeOutcome::Full);
    // Entries of a lost member are removed.
    assert_eq!(directory.lost(&holder("b")).len(), 3);
    assert_eq!(directory.holders("x"), ["a"]);
}

#[test]
fn other_members_cannot_register_names_here() {
    let limits = directory::Limits {
        entries: 3,
        hold: Duration::from_secs(5),
    };
    let mut directory = Directory::new(1_u64, limits);
    directory.register("x");
    assert_eq!(
        directory.insert(at(0), "x", 1, 7),
        directory::MergeOutcome::Corrected
    );
    assert_eq!(directory.seq("x", &1), Some(8));
    assert_eq!(
        directory.insert(at(0), "y", 1, 7),
        directory::MergeOutcome::Corrected
    );
    assert_eq!(directory.seq("y", &1), None);
    assert!(!directory.withdraw(at(0), "x", &1, 99));
    assert_eq!(directory.unregister(at(0), "x"), Some(8));
    // The name comes back with a later version than its end.
    assert_eq!(directory.register("x"), Some(9));
}
