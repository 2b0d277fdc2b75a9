//! Tests the store in an SQLite file.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use carina_time::{Duration, Instant};
use carina_vnet::store::conformance::{CASES, Subject};
use carina_vnet::store::{KeyRange, Outcome, Store, StoreError, Transaction};
use carina_vnet_roles::sqlite::SqliteStore;

struct File {
    path: PathBuf,
    now: Instant,
}

impl Subject for File {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(open(&self.path))
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, ROOM).expect("the store opens")
}

#[test]
fn sqlite_store_keeps_what_stores_keep() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = File {
        path: directory.path().join("store"),
        now: Instant::from_secs(1),
    };
    for (claim, case) in CASES {
        println!("{claim}");
        case(&mut file);
    }
}

#[test]
fn what_was_answered_outlives_kill_9() {
    if let Ok(path) = std::env::var(WRITER) {
        write_until_killed(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let now = Instant::from_secs(1);
    let mut last = 0;
    for round in 0..5_u64 {
        let mut child = writer(&path);
        let number_file = path.with_extension("said");
        let enough = last + 20 + round * 7;
        let begin = std::time::Instant::now();
        while answered(&number_file) < enough {
            assert!(begin.elapsed().as_secs() < 120, "the writer does not write");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let answered = answered(&number_file);
        let mut store = open(&path);
        let entries = store
            .range(now, &KeyRange::prefix("count/"))
            .unwrap()
            .entries;
        let counts: Vec<u64> = entries.iter().map(|entry| number(&entry.value)).collect();
        assert_eq!(counts.len(), 2);
        assert_eq!(counts[0], counts[1], "a transaction is whole");
        assert!(
            counts[0] >= answered,
            "{} was answered, {counts:?} is there",
            answered
        );
        last = counts[0];
    }
}

/// Counts in the store, with two keys per transaction, and writes answered counts to a file.
fn write_until_killed(path: &Path) -> ! {
    let mut store = open(path);
    let now = Instant::from_secs(1);
    let range = KeyRange::prefix("count/");
    loop {
        let entries = store.range(now, &range).unwrap().entries;
        let next = entries.first().map_or(0, |entry| number(&entry.value)) + 1;
        let value = next.to_string().into_bytes();
        let write = Transaction::new()
            .put("count/a", value.clone())
            .put("count/b", value.clone());
        assert!(matches!(store.commit(now, &write), Ok(Outcome::Done(_))));
        let new = path.with_extension("new");
        std::fs::write(&new, value).unwrap();
        std::fs::rename(&new, path.with_extension("said")).unwrap();
    }
}

fn writer(path: &Path) -> Child {
    let this = std::env::current_exe().unwrap();
    Command::new(this)
        .args(["--exact", "sqlite::what_was_answered_outlives_kill_9"])
        .env(WRITER, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn answered(number_file: &Path) -> u64 {
    std::fs::read(number_file).map_or(0, |value| number(&value))
}

fn number(value: &[u8]) -> u64 {
    String::from_utf8_lossy(value).parse().unwrap()
}

#[test]
fn full_store_says_so_and_keeps_what_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut store = SqliteStore::open(&path, 300_000).unwrap();
    let now = Instant::from_secs(1);
    let put = |number: u32| Transaction::new().put(format!("k/{number}"), vec![7; 10_000]);
    let error = (0..100).find_map(|number| store.commit(now, &put(number)).err());
    let error = error.expect("300,000 bytes have no room for a million");
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    assert!(
        error.to_string().contains("give the store more space"),
        "{error}"
    );
    let entries = store.range(now, &KeyRange::prefix("k/")).unwrap().entries;
    assert!(entries.len() > 5 && entries.iter().all(|entry| entry.value == [7; 10_000]));
    store
        .commit(now, &Transaction::new().delete("k/0").delete("k/1"))
        .unwrap();
    store.commit(now, &put(200)).unwrap();
}

#[test]
fn damaged_or_foreign_file_is_said_to_be_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    std::fs::write(&path, vec![b'x'; 100_000]).unwrap();
    let error = SqliteStore::open(&path, ROOM).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error}");
    let other = directory.path().join("other");
    let foreign = rusqlite::Connection::open(&other).unwrap();
    foreign.execute_batch("create table t (a)").unwrap();
    let error = SqliteStore::open(&other, ROOM).unwrap_err().to_string();
    assert!(error.contains("format 0"), "{error}");
    let nowhere = SqliteStore::open(&directory.path().join("no/where"), ROOM).unwrap_err();
    assert!(matches!(nowhere, StoreError::Unavailable(_)), "{nowhere}");
}

const ROOM: u64 = 1 << 30;

/// The environment variable that makes a test's child process the writer that is killed.
const WRITER: &str = "CARINA_TEST_STORE_WRITER";
