//! Tests the store in etcd, with three members on loopback, of Debian's etcd-server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use carina_sys::end_with_parent;
use carina_time::{Duration, Instant};
use carina_vnet::store::conformance::{CASES, Subject};
use carina_vnet::store::{KeyRange, Outcome, Store, StoreError, Transaction};
use carina_vnet_roles::etcd::EtcdStore;
use tempfile::TempDir;

/// The members of a cluster; they end with the test.
struct Cluster {
    directory: TempDir,
    clients: Vec<SocketAddr>,
    peers: Vec<SocketAddr>,
    members: Vec<Option<Child>>,
}

impl Cluster {
    fn start() -> Cluster {
        let mut cluster = Cluster {
            directory: tempfile::tempdir().unwrap(),
            clients: addresses(2379),
            peers: addresses(2380),
            members: Vec::new(),
        };
        for number in 0..3 {
            let member = cluster.member(number);
            cluster.members.push(Some(member));
        }
        cluster.wait();
        cluster
    }

    fn member(&self, number: usize) -> Child {
        let url = |address: &SocketAddr| format!("http://{address}");
        let peers = self.peers.iter().enumerate();
        let all: Vec<String> = peers
            .map(|(it, peer)| format!("m{it}={}", url(peer)))
            .collect();
        let log = std::fs::File::create(self.log(number)).unwrap();
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{number}")])
            .args([
                "--data-dir",
                &self
                    .directory
                    .path()
                    .join(format!("m{number}"))
                    .to_string_lossy(),
            ])
            .args(["--listen-client-urls", &url(&self.clients[number])])
            .args(["--advertise-client-urls", &url(&self.clients[number])])
            .args(["--listen-peer-urls", &url(&self.peers[number])])
            .args(["--initial-advertise-peer-urls", &url(&self.peers[number])])
            .args(["--initial-cluster", &all.join(",")])
            // Milliseconds; long enough that a member on a busy machine does not count as failed.
            .args(["--heartbeat-interval", "500", "--election-timeout", "5000"])
            .stdout(Stdio::null())
            .stderr(log);
        let started = end_with_parent(&mut command).spawn();
        started.expect("etcd starts; scripts/packages installs etcd-server")
    }

    fn log(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("m{number}.log"))
    }

    fn store(&self) -> EtcdStore {
        EtcdStore::new(self.clients.clone())
    }

    /// Waits until each running member answers: one that listens may not belong to the cluster yet.
    fn wait(&self) {
        let begin = StdInstant::now();
        for number in (0..3).filter(|number| self.members[*number].is_some()) {
            let mut store = EtcdStore::new(vec![self.clients[number]]);
            while let Err(error) = store.range(Instant::ZERO, &KeyRange::key("a")) {
                if begin.elapsed() > StdDuration::from_secs(120) {
                    let log = std::fs::read_to_string(self.log(number)).unwrap_or_default();
                    panic!("no answer after two minutes: {error}\n{log}");
                }
                std::thread::sleep(StdDuration::from_millis(100));
            }
        }
    }

    fn kill(&mut self, number: usize) {
        let mut member = self.members[number].take().expect("it runs");
        member.kill().unwrap();
        member.wait().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in self.members.iter_mut().flatten() {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

impl Subject for Cluster {
    fn open(&mut self) -> Box<dyn Store> {
        Box::new(self.store())
    }

    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn pass(&mut self, time: Duration) {
        std::thread::sleep(time.into());
    }
}

/// Addresses for three members, on loopback addresses of their own, so that no other process gets
/// their ports before the members use them.
fn addresses(port: u16) -> Vec<SocketAddr> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let address = |_| {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let [_, b, c, d] = (std::process::id() << 9 | count).to_be_bytes();
        SocketAddr::from(([127, b | 0x80, c, d], port))
    };
    (0..3).map(address).collect()
}

#[test]
fn etcd_store_keeps_what_stores_keep() {
    let mut cluster = Cluster::start();
    for (claim, case) in CASES {
        println!("{claim}");
        case(&mut cluster);
    }
}

#[test]
fn store_goes_on_without_one_member_of_three() {
    let mut cluster = Cluster::start();
    let mut store = cluster.store();
    let put = |value: u8| Transaction::new().put("kept", vec![value]);
    write_until_done(&mut store, &put(1));
    cluster.kill(0);
    write_until_done(&mut store, &put(2));
    let snapshot = store.range(Instant::ZERO, &KeyRange::key("kept")).unwrap();
    assert_eq!(snapshot.entries[0].value, [2]);
    cluster.kill(1);
    let error = store.commit(Instant::ZERO, &put(3)).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    cluster.members[0] = Some(cluster.member(0));
    cluster.wait();
    write_until_done(&mut store, &put(4));
    let snapshot = store.range(Instant::ZERO, &KeyRange::key("kept")).unwrap();
    assert_eq!(snapshot.entries[0].value, [4]);
}

/// While a leader is elected, a write may fail; repeating the same write is safe.
fn write_until_done(store: &mut EtcdStore, write: &Transaction) {
    let begin = StdInstant::now();
    loop {
        match store.commit(Instant::ZERO, write) {
            Ok(Outcome::Done(_)) => return,
            Ok(Outcome::Conflict) => panic!("there is nothing to conflict with"),
            Err(error) => assert!(begin.elapsed() < StdDuration::from_secs(120), "{error}"),
        }
        std::thread::sleep(StdDuration::from_millis(100));
    }
}
