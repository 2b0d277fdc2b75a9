//! Conformance tests that every kind of store must pass.
//!
//! A case panics with what it found. The cases run on one store, each with its own keys.

use std::collections::BTreeMap;

use carina_random::Random;
use carina_time::{Duration, Instant};

use super::memory::MemoryStore;
use super::{
    Entry, KeyRange, LeaseId, OPERATIONS_MAX, Outcome, Revision, Store, StoreError, Transaction,
};

/// Gives the conformance tests a store under test, and the clock of that store.
pub trait Subject {
    /// Opens another handle on the same store, as another process would.
    fn open(&mut self) -> Box<dyn Store>;

    /// The current time.
    fn now(&self) -> Instant;

    /// Waits: advances a simulated clock, or sleeps.
    fn pass(&mut self, time: Duration);
}

/// A case: its claim, and the function that checks it.
pub type Case = (&'static str, fn(&mut dyn Subject));

/// All cases.
pub const CASES: &[Case] = &[
    ("a value reads as it was written", a_value_reads_as_written),
    (
        "a transaction is whole or not at all",
        a_transaction_is_whole,
    ),
    (
        "of two writers one is refused",
        of_two_writers_one_is_refused,
    ),
    (
        "every change has a revision of its own",
        every_change_has_a_revision,
    ),
    (
        "changes bring a copy up to date",
        changes_bring_a_copy_up_to_date,
    ),
    (
        "a compacted history is said to be one",
        a_compacted_history_is_said,
    ),
    ("keys go with their lease", keys_go_with_their_lease),
    ("a lease that is renewed stays", a_renewed_lease_stays),
    (
        "a lease that has ended takes no key",
        an_ended_lease_takes_no_key,
    ),
    (
        "a key put anew leaves its lease",
        a_key_put_anew_leaves_its_lease,
    ),
    (
        "impossible requests are refused",
        impossible_requests_are_refused,
    ),
    (
        "random work agrees with the store in memory",
        random_work_agrees,
    ),
];

/// A lease short enough for tests; stores count in seconds and have a least length.
const TTL: Duration = Duration::from_secs(3);

fn a_value_reads_as_written(subject: &mut dyn Subject) {
    let (mut store, now) = (subject.open(), subject.now());
    let value: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let write = Transaction::new().put("read/all", value.clone());
    let revision = done(store.commit(now, &write.put("read/none", vec![])));
    let read = all(&mut *subject.open(), now, "read/");
    let keys: Vec<&str> = read.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, ["read/all", "read/none"]);
    assert!(
        read[0].value == value,
        "a value of all bytes came back changed"
    );
    assert!(read[1].value.is_empty() && read[1].modified == revision);
    let one = store.range(now, &KeyRange::key("read/all"));
    assert_eq!(one.expect("reads").entries.len(), 1);
    let none = store.range(now, &KeyRange::key("read/al")).expect("reads");
    assert!(none.entries.is_empty() && none.revision >= revision);
}

fn a_transaction_is_whole(subject: &mut dyn Subject) {
    let (mut store, now) = (subject.open(), subject.now());
    let first = Transaction::new().if_absent("whole/a");
    let first = first
        .put("whole/a", b"1".to_vec())
        .put("whole/b", b"1".to_vec());
    let at = done(store.commit(now, &first));
    let again = store.commit(now, &first).expect("answers");
    assert_eq!(again, Outcome::Conflict, "the key is there");
    let half = Transaction::new()
        .if_unchanged("whole/a", at)
        .if_absent("whole/b");
    let half = half.put("whole/a", b"2".to_vec()).delete("whole/b");
    assert_eq!(
        store.commit(now, &half).expect("answers"),
        Outcome::Conflict
    );
    let read = all(&mut *store, now, "whole/");
    assert!(read.len() == 2 && read.iter().all(|entry| entry.value == b"1"));
    let both = Transaction::new()
        .if_unchanged("whole/a", at)
        .if_unchanged("whole/b", at);
    let both = both.put("whole/a", b"2".to_vec()).delete("whole/b");
    let then = done(store.commit(now, &both));
    let read = all(&mut *store, now, "whole/");
    assert!(read.len() == 1 && read[0].value == b"2" && read[0].modified == then);
}

fn of_two_writers_one_is_refused(subject: &mut dyn Subject) {
    let now = subject.now();
    let mut stores = [subject.open(), subject.open()];
    done(stores[0].commit(now, &Transaction::new().put("writers/sum", b"0".to_vec())));
    let mut refused = 0;
    for round in 0..10_u8 {
        let read = |store: &mut Box<dyn Store>| all(&mut **store, now, "writers/").remove(0);
        let seen = [read(&mut stores[0]), read(&mut stores[1])];
        for (store, seen) in stores.iter_mut().zip(seen) {
            let sum: u32 = String::from_utf8_lossy(&seen.value)
                .parse()
                .expect("a number");
            let write = Transaction::new().if_unchanged("writers/sum", seen.modified);
            let write = write.put("writers/sum", (sum + 1).to_string().into_bytes());
            let outcome = store.commit(now, &write).expect("answers");
            refused += u32::from(outcome == Outcome::Conflict);
        }
        let sum = read(&mut stores[usize::from(round % 2)]).value;
        assert_eq!(
            sum,
            (round + 1).to_string().into_bytes(),
            "both or none wrote"
        );
    }
    assert_eq!(refused, 10);
}

fn every_change_has_a_revision(subject: &mut dyn Subject) {
    let (mut store, now) = (subject.open(), subject.now());
    let mut last = Revision(0);
    for round in 0..5_u8 {
        let at = done(store.commit(now, &Transaction::new().put("every/a", vec![round])));
        assert!(at > last, "revision {at} comes after {last}");
        assert_eq!(all(&mut *store, now, "every/")[0].modified, at);
        last = at;
    }
    let compared = Transaction::new().if_unchanged("every/a", last);
    assert_eq!(
        done(store.commit(now, &compared)),
        last,
        "a question is no change"
    );
    let gone = done(store.commit(now, &Transaction::new().delete("every/a")));
    assert!(gone > last, "deleting is a change");
    let absent = Transaction::new().if_absent("every/a").delete("every/a");
    assert_eq!(
        done(store.commit(now, &absent)),
        gone,
        "there was nothing to delete"
    );
}

fn changes_bring_a_copy_up_to_date(subject: &mut dyn Subject) {
    let (mut store, now) = (subject.open(), subject.now());
    let mut reader = subject.open();
    let range = KeyRange::prefix("copy/");
    let put = |key: &str| Transaction::new().put(format!("copy/{key}"), key.as_bytes().to_vec());
    done(store.commit(now, &put("a").put("copy/b", vec![]).put("other/a", vec![])));
    let snapshot = reader.range(now, &range).expect("reads");
    let mut copy = by_key(snapshot.entries);
    let mut seen = snapshot.revision;
    let steps = [
        put("c"),
        Transaction::new().delete("copy/a").put("other/a", vec![1]),
        put("a"),
        put("d"),
        Transaction::new().delete("copy/d").delete("copy/b"),
        put("b"),
        Transaction::new().delete("copy/b"),
    ];
    for (number, step) in steps.iter().enumerate() {
        done(store.commit(now, step));
        if number % 3 == 1 {
            continue; // Sometimes two steps are read at once.
        }
        let changes = reader
            .changes(now, &range, seen)
            .expect("the history is there");
        assert!(changes.through > seen);
        seen = changes.through;
        for key in &changes.deleted {
            assert!(range.contains(key), "{key} is not in the range");
            copy.remove(key);
        }
        assert!(
            changes
                .written
                .iter()
                .all(|entry| range.contains(&entry.key))
        );
        copy.extend(by_key(changes.written));
        assert_eq!(
            copy,
            by_key(all(&mut *store, now, "copy/")),
            "after step {number}"
        );
    }
    let none = reader
        .changes(now, &range, seen)
        .expect("the history is there");
    assert!(
        none.written.is_empty() && none.deleted.is_empty(),
        "{none:?}"
    );
}

fn a_compacted_history_is_said(subject: &mut dyn Subject) {
    let (mut store, now) = (subject.open(), subject.now());
    let range = KeyRange::prefix("compacted/");
    let first = done(store.commit(now, &Transaction::new().put("compacted/a", vec![1])));
    let second = done(store.commit(now, &Transaction::new().delete("compacted/a")));
    let third = done(store.commit(now, &Transaction::new().put("compacted/b", vec![1])));
    store.compact(now, second).expect("compacts");
    let error = store
        .changes(now, &range, first)
        .expect_err("that is forgotten");
    assert!(matches!(error, StoreError::Compacted(_)), "{error}");
    let changes = store.changes(now, &range, second).expect("that is kept");
    assert_eq!(changes.written.len(), 1);
    assert!(changes.through >= third);
    store
        .compact(now, first)
        .expect("compacting less is nothing");
    assert_eq!(all(&mut *store, now, "compacted/").len(), 1);
}

fn keys_go_with_their_lease(subject: &mut dyn Subject) {
    let (mut store, now) = (subject.open(), subject.now());
    let [short, long] = [TTL, Duration::from_secs(3600)].map(|ttl| granted(&mut *store, now, ttl));
    let write = Transaction::new().put_leased("lease/short", vec![1], short);
    let write = write.put_leased("lease/short2", vec![1], short);
    let write = write
        .put_leased("lease/long", vec![1], long)
        .put("lease/none", vec![1]);
    let before = done(store.commit(now, &write));
    assert_eq!(all(&mut *store, now, "lease/")[2].lease, Some(short));
    let left = wait_until(subject, &mut *store, "lease/", |entries| entries.len() < 4);
    let keys: Vec<&str> = left.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, ["lease/long", "lease/none"]);
    let now = subject.now();
    let changes = store
        .changes(now, &KeyRange::prefix("lease/"), before)
        .expect("is there");
    assert_eq!(changes.deleted, ["lease/short", "lease/short2"]);
    let error = store.renew(now, short).expect_err("it has ended");
    assert_eq!(error, StoreError::NoSuchLease(short));
    store.revoke(now, long).expect("revokes");
    assert_eq!(all(&mut *store, now, "lease/").len(), 1);
    store
        .revoke(now, long)
        .expect("revoking what has ended is no error");
}

fn a_renewed_lease_stays(subject: &mut dyn Subject) {
    let mut store = subject.open();
    let lease = granted(&mut *store, subject.now(), TTL);
    let write = Transaction::new().put_leased("renewed/a", vec![], lease);
    done(store.commit(subject.now(), &write));
    // Longer than the lease of any store: etcd has a least length, and adds the time that its
    // members take to elect a leader.
    for _ in 0..12 {
        subject.pass(Duration::from_secs(1));
        store
            .renew(subject.now(), lease)
            .expect("the lease is there");
    }
    assert_eq!(all(&mut *store, subject.now(), "renewed/").len(), 1);
    wait_until(subject, &mut *store, "renewed/", <[Entry]>::is_empty);
}

fn an_ended_lease_takes_no_key(subject: &mut dyn Subject) {
    let (mut store, now) = (subject.open(), subject.now());
    let lease = granted(&mut *store, now, TTL);
    store.revoke(now, lease).expect("revokes");
    let write = Transaction::new().put("ended/a", vec![]);
    let write = write.put_leased("ended/b", vec![], lease);
    let error = store.commit(now, &write).expect_err("the lease has ended");
    assert_eq!(error, StoreError::NoSuchLease(lease));
    assert!(
        all(&mut *store, now, "ended/").is_empty(),
        "nothing of it was written"
    );
}

fn a_key_put_anew_leaves_its_lease(subject: &mut dyn Subject) {
    let (mut store, now) = (subject.open(), subject.now());
    let lease = granted(&mut *store, now, Duration::from_secs(3600));
    let write = Transaction::new().put_leased("anew/a", vec![1], lease);
    done(store.commit(now, &write.put_leased("anew/b", vec![1], lease)));
    done(store.commit(now, &Transaction::new().put("anew/a", vec![2])));
    store.revoke(now, lease).expect("revokes");
    let left = all(&mut *store, now, "anew/");
    assert!(left.len() == 1 && left[0].value == [2] && left[0].lease.is_none());
}

fn impossible_requests_are_refused(subject: &mut dyn Subject) {
    let (mut store, now) = (subject.open(), subject.now());
    let twice = Transaction::new()
        .put("refused/a", vec![])
        .delete("refused/a");
    let error = store.commit(now, &twice).expect_err("twice");
    assert_eq!(error, StoreError::Twice("refused/a".to_owned()));
    let many = (0..=OPERATIONS_MAX).fold(Transaction::new(), |transaction, number| {
        transaction.put(format!("refused/{number}"), vec![])
    });
    let error = store.commit(now, &many).expect_err("too many");
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    assert!(all(&mut *store, now, "refused/").is_empty());
}

/// Two handles do the same random operations as a store in memory. A copy that one handle updates
/// by `changes` must equal the result of `range`.
fn random_work_agrees(subject: &mut dyn Subject) {
    let now = subject.now();
    let mut random = Random::new(17);
    let mut stores = [subject.open(), subject.open()];
    let mut model = MemoryStore::new(usize::MAX);
    let range = KeyRange::prefix("random/");
    let mut copy = BTreeMap::new();
    let mut seen = stores[0].range(now, &range).expect("reads").revision;
    for _ in 0..200 {
        let entries = [
            all(&mut *stores[0], now, "random/"),
            all(&mut model, now, "random/"),
        ];
        let (real, ideal) = random_transaction(&mut random, &entries);
        let store = random.index(2);
        let outcome = stores[store].commit(now, &real).expect("answers");
        let expected = model.commit(now, &ideal).expect("answers");
        let is_done = |outcome| matches!(outcome, Outcome::Done(_));
        assert_eq!(is_done(outcome), is_done(expected), "{real:?}");
        let values = |entries: Vec<Entry>| -> Vec<(String, Vec<u8>)> {
            entries
                .into_iter()
                .map(|entry| (entry.key, entry.value))
                .collect()
        };
        let other = all(&mut *stores[1 - store], now, "random/");
        let expected = all(&mut model, now, "random/");
        assert_eq!(values(other.clone()), values(expected), "after {real:?}");
        if random.chance(3000) {
            let changes = stores[0]
                .changes(now, &range, seen)
                .expect("the history is there");
            seen = changes.through;
            copy.retain(|key, _| !changes.deleted.contains(key));
            copy.extend(by_key(changes.written));
            assert_eq!(copy, by_key(other));
        }
    }
}

/// The same random transaction for the store under test and for the model, whose revisions differ.
fn random_transaction(
    random: &mut Random,
    entries: &[Vec<Entry>; 2],
) -> (Transaction, Transaction) {
    let mut both = (Transaction::new(), Transaction::new());
    let key = |random: &mut Random| format!("random/{}", random.below(6));
    for _ in 0..random.below(3) {
        let key = key(random);
        let [real, ideal] = [&entries[0], &entries[1]].map(|entries| {
            let entry = entries.iter().find(|entry| entry.key == key);
            entry.map(|entry| entry.modified)
        });
        both = match (real, ideal) {
            (Some(real), Some(ideal)) if random.chance(8000) => (
                both.0.if_unchanged(&*key, real),
                both.1.if_unchanged(&*key, ideal),
            ),
            _ => (both.0.if_absent(&*key), both.1.if_absent(&*key)),
        };
    }
    let mut keys: Vec<String> = (0..6).map(|number| format!("random/{number}")).collect();
    random.shuffle(&mut keys);
    for key in &keys[..random.index(4)] {
        let value = random.next_u64().to_be_bytes().to_vec();
        both = if random.chance(6000) {
            (both.0.put(key, value.clone()), both.1.put(key, value))
        } else {
            (both.0.delete(key), both.1.delete(key))
        };
    }
    both
}

fn done(outcome: Result<Outcome, StoreError>) -> Revision {
    match outcome {
        Ok(Outcome::Done(revision)) => revision,
        other => panic!("the transaction should be done, and is {other:?}"),
    }
}

fn granted(store: &mut dyn Store, now: Instant, ttl: Duration) -> LeaseId {
    store.grant(now, ttl).expect("the store grants a lease")
}

fn all(store: &mut dyn Store, now: Instant, prefix: &str) -> Vec<Entry> {
    let snapshot = store.range(now, &KeyRange::prefix(prefix));
    snapshot.expect("the store reads").entries
}

fn by_key(entries: Vec<Entry>) -> BTreeMap<String, Entry> {
    let pair = |entry: Entry| (entry.key.clone(), entry);
    entries.into_iter().map(pair).collect()
}

/// Waits in steps of a second, at most sixty, until the entries satisfy `is_right`.
fn wait_until(
    subject: &mut dyn Subject,
    store: &mut dyn Store,
    prefix: &str,
    is_right: impl Fn(&[Entry]) -> bool,
) -> Vec<Entry> {
    for _ in 0..60 {
        let entries = all(store, subject.now(), prefix);
        if is_right(&entries) {
            return entries;
        }
        subject.pass(Duration::from_secs(1));
    }
    panic!(
        "after a minute there still is {:?}",
        all(store, subject.now(), prefix)
    );
}
