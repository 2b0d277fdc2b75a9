//! Tests: entries spread, become outdated, are deleted and become hidden.

use super::*;
use alloc::vec;

fn copy(from: &Store, to: &mut Store, now: Instant) -> Vec<MergeOutcome> {
    from.export(now)
        .into_iter()
        .map(|entry| to.merge(now, entry))
        .collect()
}

#[test]
fn newer_versions_win_and_tombstones_stay() {
    let (mut a, mut b) = (Store::new("a", 0), Store::new("b", 0));
    let old = a.put(Kind::Application, "x", vec![1]).unwrap();
    assert_eq!(b.merge(Instant::ZERO, old.clone()), MergeOutcome::Accepted);
    assert_eq!(b.merge(Instant::ZERO, old.clone()), MergeOutcome::Known);
    let gone = a.delete(Instant::ZERO, Kind::Application, "x").unwrap();
    assert_eq!(b.merge(Instant::ZERO, gone), MergeOutcome::Accepted);
    assert_eq!(b.merge(Instant::ZERO, old), MergeOutcome::Outdated);
    assert_eq!(b.visible(Kind::Application).count(), 0);
    assert_eq!(a.digests(), b.digests());
}

#[test]
fn restarted_member_supersedes_its_old_entries() {
    let (mut a, mut b) = (Store::new("a", 0), Store::new("b", 0));
    for name in ["x", "y"] {
        a.put(Kind::Application, name, vec![1]).unwrap();
    }
    copy(&a, &mut b, Instant::ZERO);
    let mut a = Store::new("a", 0);
    a.put(Kind::Application, "y", vec![2]).unwrap();
    for entry in b.export_of(Instant::ZERO, "a") {
        let key = entry.key.clone();
        assert_eq!(a.merge(Instant::ZERO, entry), MergeOutcome::Disputed);
        let again = a.reissue(Instant::ZERO, &key);
        assert_eq!(b.merge(Instant::ZERO, again), MergeOutcome::Accepted);
    }
    let seen: Vec<_> = b.visible(Kind::Application).collect();
    assert_eq!(seen, [("a", "y", &[2][..])]);
    assert_eq!(a.digests(), b.digests());
}

#[test]
fn digests_of_other_versions_differ() {
    let digest = |first: u64, second: u64| {
        let key = |kind, name: &str| Key {
            origin: "m2".into(),
            kind,
            name: name.into(),
        };
        let member = hash(&key(Kind::Member, "m2"), first);
        member.wrapping_add(hash(&key(Kind::Application, "app2"), second))
    };
    let mut seen = BTreeSet::new();
    for seq in 1..2_000 {
        assert!(seen.insert(digest(seq, seq + 1)), "{seq}");
    }
}

#[test]
fn entries_of_silent_members_hide_and_are_forgotten_everywhere() {
    let (mut a, mut b, mut c) = (Store::new("a", 0), Store::new("b", 0), Store::new("c", 0));
    a.put(Kind::Application, "x", vec![1]).unwrap();
    copy(&a, &mut b, Instant::ZERO);
    b.refresh(Instant::ZERO, |_| true);
    assert_eq!(b.visible(Kind::Application).count(), 1);
    let late = Instant::from_secs(1) + SILENT_AFTER;
    b.refresh(late, |_| false);
    assert_eq!(b.visible(Kind::Application).count(), 0);
    // C learns the entry with its age, so it forgets it at the same time although it got it later.
    copy(&b, &mut c, late);
    c.refresh(late, |_| false);
    assert_eq!(c.visible(Kind::Application).count(), 0);
    c.refresh(Instant::from_secs(1) + FORGET_AFTER, |_| false);
    assert_eq!(c.entries.len(), 0);
    // B has not refreshed yet, but what it still sends does not return to C.
    assert_eq!(
        copy(&b, &mut c, Instant::from_secs(1) + FORGET_AFTER),
        [MergeOutcome::Refused]
    );
}

#[test]
fn full_store_refuses() {
    let mut a = Store::new("a", 0);
    for number in 0..PER_ORIGIN_MAX {
        a.put(Kind::Application, &alloc::format!("{number}"), Vec::new())
            .unwrap();
    }
    assert!(a.put(Kind::Application, "one more", Vec::new()).is_err());
    assert!(a.put(Kind::Application, "7", vec![1]).is_ok());
    assert!(a.put(Kind::Member, "a", Vec::new()).is_ok());
}
