//! Tests of `carina bridge` between two DIFs of one node.

// Helper functions of tests may panic, as tests may.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carina_client::{DifName, Error, Flow, FlowSpec, Node, Registration, name};
use serde_json::Value;

/// The program under test.
const CARINA: &str = env!("CARGO_BIN_EXE_carina");

/// A node with the normal DIFs `near` and `far`, and a bridge from the name `front` in `near` to
/// the name `back` in `far`.
struct Site {
    directory: tempfile::TempDir,
    node: Child,
    bridge: Option<Child>,
    events: BufReader<std::process::ChildStdout>,
}

fn carina(run: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(CARINA);
    command
        .arg("--run")
        .arg(run)
        .args(["--wait", "600s"])
        .args(words);
    command
}

/// A command without `--wait`.
fn at_once(run: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(run).args(words);
    command
}

impl Site {
    /// Starts a bridge without `--wait`, which refuses at once a flow whose onward name is unknown.
    fn new(dialect: &str, options: &[&str]) -> Site {
        Site::with(dialect, options, at_once)
    }

    fn with(dialect: &str, options: &[&str], bridge: fn(&Path, &[&str]) -> Command) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let node = carina(&run, &["node"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for dif in ["near", "far"] {
            let made = carina(
                &run,
                &[
                    "dif",
                    "create",
                    dif,
                    "--over",
                    "local",
                    "--dialect",
                    dialect,
                ],
            )
            .output();
            let made = made.unwrap();
            assert!(
                made.status.success(),
                "{}",
                String::from_utf8_lossy(&made.stderr)
            );
        }
        let words = [
            "--json",
            "bridge",
            "--listen",
            "front",
            "--listen-dif",
            "near",
            "--to",
            "back",
            "--to-dif",
            "far",
        ];
        let mut bridge = bridge(&run, &[&words, options].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let events = BufReader::new(bridge.stdout.take().unwrap());
        let mut site = Site {
            directory,
            node,
            bridge: Some(bridge),
            events,
        };
        assert_eq!(site.event()["event"], "registered");
        site
    }

    fn run(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    fn node(&self) -> Node {
        Node::connect_to(self.run().join("ipc.sock")).unwrap()
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Reads events until the next one of this kind, and returns it.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event();
            if event["event"] == kind {
                return event;
            }
        }
    }

    fn back(&self) -> Registration {
        let far = DifName::new("far").unwrap();
        self.node()
            .register(&name("back").unwrap(), Some(&far))
            .unwrap()
    }

    /// Allocates a flow to `front`, as soon as the name is known.
    fn ask(&self, spec: &FlowSpec) -> Result<Flow, Error> {
        let near = DifName::new("near").unwrap();
        let (local, remote) = (name("caller").unwrap(), name("front").unwrap());
        self.node().allocate(&local, &remote, Some(&near), spec)
    }

    /// Allocates a flow through the bridge, and returns both ends.
    fn flow(&self, back: &mut Registration, spec: FlowSpec) -> (Flow, Flow) {
        std::thread::scope(|scope| {
            let asking = scope.spawn(move || self.ask(&spec).unwrap());
            let request = back.next_request().unwrap();
            assert_eq!(
                request.remote.as_str(),
                "caller",
                "the caller's name goes along"
            );
            assert_eq!(request.spec, spec, "and so does the specification");
            let theirs = back.accept_request(&request).unwrap();
            (asking.join().unwrap(), theirs)
        })
    }

    /// Stops the bridge, and returns its last event.
    fn stop(&mut self) -> Value {
        let mut bridge = self.bridge.take().unwrap();
        let stopped = Command::new("kill").arg(bridge.id().to_string()).status();
        assert!(stopped.unwrap().success());
        let totals = self.until("totals");
        assert!(bridge.wait().unwrap().success());
        totals
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.bridge.iter_mut().chain([&mut self.node]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn sdus_keep_boundaries_both_ways_on_many_flows() {
    let mut site = Site::new("native", &[]);
    let mut back = site.back();
    let mut flows = Vec::new();
    for _ in 0..20 {
        flows.push(site.flow(&mut back, FlowSpec::reliable()));
    }
    let sizes = [1, 2, 100, 1400, 5000, 70_000];
    for (mine, theirs) in &mut flows {
        for size in sizes {
            mine.send(&vec![1; size]).unwrap();
        }
        for size in sizes {
            assert_eq!(theirs.recv_vec(1 << 20).unwrap(), vec![1; size]);
            theirs.send(&vec![2; size]).unwrap();
        }
        for size in sizes {
            assert_eq!(mine.recv_vec(1 << 20).unwrap(), vec![2; size]);
        }
    }
    // Data sent before the end of a flow arrives before the end.
    for (mut mine, mut theirs) in flows {
        mine.send(b"last").unwrap();
        drop(mine);
        assert_eq!(theirs.recv_vec(100).unwrap(), b"last");
        assert!(matches!(theirs.recv_vec(100), Err(Error::Closed)));
        drop(theirs);
        let ended = site.until("ended");
        assert_eq!(ended["failure"], Value::Null, "{ended}");
        assert_eq!(ended["there"]["sdus"], 7);
        assert_eq!(ended["back"]["sdus"], 6);
    }
    let totals = site.stop();
    assert_eq!(
        (&totals["flows"], &totals["failed"]),
        (&20.into(), &0.into())
    );
    assert_eq!(totals["there"]["sdus"], 140);
}

#[test]
fn the_other_side_may_end_it_too() {
    let mut site = Site::new("irati", &["--once"]);
    let mut back = site.back();
    let (mut mine, mut theirs) = site.flow(&mut back, FlowSpec::unreliable());
    theirs.send(b"bye").unwrap();
    drop(theirs);
    assert_eq!(mine.recv_vec(100).unwrap(), b"bye");
    assert!(matches!(mine.recv_vec(100), Err(Error::Closed)));
    drop(mine);
    assert_eq!(site.until("totals")["flows"], 1);
    assert!(site.bridge.take().unwrap().wait().unwrap().success());
}

#[test]
fn a_reader_that_stops_holds_back_the_writer_and_loses_nothing() {
    let site = Site::new("rlite", &[]);
    let mut back = site.back();
    let (mut mine, mut theirs) = site.flow(&mut back, FlowSpec::reliable());
    let sdu = vec![7; 1000];
    let mut sent = 0u64;
    // Both flows and everything between them fill up, and then nothing moves.
    let mut still = Instant::now();
    while still.elapsed() < Duration::from_secs(2) {
        let held = sent * sdu.len() as u64;
        assert!(held <= HELD_MAX, "{sent} unread SDUs");
        if mine.try_send(&sdu).unwrap() {
            sent += 1;
            still = Instant::now();
        } else {
            std::thread::sleep(Duration::from_millis(1))
        }
    }
    assert!(sent > 0);
    let sender = std::thread::spawn(move || {
        // The SDU that was partly sent must be finished first.
        mine.send(&sdu).unwrap();
        drop(mine);
    });
    for n in 0..=sent {
        let got = theirs.recv_vec(1 << 20).unwrap();
        assert!(
            got.len() == 1000 && got.iter().all(|byte| *byte == 7),
            "SDU {n}"
        );
    }
    assert!(matches!(theirs.recv_vec(1 << 20), Err(Error::Closed)));
    sender.join().unwrap();
}

/// Private memory of a process in bytes: this includes a node's buffers, but not the rings of
/// flows.
fn private_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib << 10
}

#[test]
fn stopped_reader_takes_bounded_memory_and_blocks_no_other() {
    let site = Site::new("native", &[]);
    let mut back = site.back();
    let (mut mine, mut theirs) = site.flow(&mut back, FlowSpec::reliable());
    let before = private_bytes(site.node.id());
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..STOPPED_SDUS {
                mine.send(&vec![n as u8; LONG]).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
            drop(mine);
        });
        // Wait until nothing moves, or until more data was accepted than is allowed.
        let (mut last, mut still) = (0, Instant::now());
        while still.elapsed() < Duration::from_secs(2) {
            let now = written.load(Ordering::Relaxed);
            if now != last {
                (last, still) = (now, Instant::now());
            }
            assert!(now * LONG as u64 <= HELD_MAX, "{now} unread SDUs");
            let held = private_bytes(site.node.id()).saturating_sub(before);
            assert!(held <= HELD_MAX, "{held} bytes for {now} unread SDUs");
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut other, mut other_peer) = site.flow(&mut back, FlowSpec::reliable());
        for n in 0..300u64 {
            other.send(&vec![n as u8; LONG]).unwrap();
            assert_eq!(other_peer.recv_vec(1 << 20).unwrap(), vec![n as u8; LONG]);
        }
        for n in 0..STOPPED_SDUS {
            let got = theirs.recv_vec(1 << 20).unwrap();
            assert!(got == vec![n as u8; LONG], "SDU {n}");
        }
        assert!(matches!(theirs.recv_vec(1 << 20), Err(Error::Closed)));
    });
    assert_eq!(written.into_inner(), STOPPED_SDUS);
}

/// Nearly the longest PDU of a DIF over the loopback, because a window counts PDUs, not bytes.
const LONG: usize = 60_000;
const STOPPED_SDUS: u64 = 2_000;

/// Upper limit for the bytes that the bridge's path holds: for each of the two flows, 16 MiB that
/// its window has admitted, 1 MiB in front of the window, and rings.
const HELD_MAX: u64 = 48 << 20;

#[test]
fn bridge_with_wait_waits_for_a_name_not_known_yet() {
    let mut site = Site::with("native", &[], carina);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| site.ask(&FlowSpec::reliable()).unwrap());
        // Time in which the bridge is refused several times.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!asking.is_finished());
        let mut back = site.back();
        let request = back.next_request().unwrap();
        let mut theirs = back.accept_request(&request).unwrap();
        let mut mine = asking.join().unwrap();
        mine.send(b"at last").unwrap();
        assert_eq!(theirs.recv_vec(100).unwrap(), b"at last");
    });
    // The application refuses, not the node, so the bridge does not retry.
    let mut back = site.back();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| site.ask(&FlowSpec::reliable()));
        let request = back.next_request().unwrap();
        back.refuse(&request, "not today").unwrap();
        let refused = asking.join().unwrap();
        assert!(
            matches!(&refused, Err(Error::Refused(body)) if body.message.contains("not today"))
        );
    });
    let totals = site.stop();
    assert_eq!(
        (&totals["flows"], &totals["refused"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn what_is_refused_behind_the_bridge_is_refused_before_it() {
    let mut site = Site::new("native", &["--flows-max", "1"]);
    let refused = |site: &Site| match site.ask(&FlowSpec::reliable()) {
        Err(Error::Refused(body)) => body.message,
        other => panic!("{other:?}"),
    };
    let printed = refused(&site);
    assert!(printed.contains("back"), "{printed}");
    assert_eq!(site.until("refused")["caller"], "caller");
    let mut back = site.back();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| refused(&site));
        let request = back.next_request().unwrap();
        back.refuse(&request, "not today").unwrap();
        let printed = asking.join().unwrap();
        assert!(printed.contains("not today"), "{printed}");
    });
    let _held = site.flow(&mut back, FlowSpec::reliable());
    let printed = refused(&site);
    assert!(
        printed.contains("the bridge carries 1 flows already"),
        "{printed}"
    );
    let usage = carina(&site.run(), &["bridge", "--listen", "x", "--to", "x"]).output();
    let usage = usage.unwrap();
    assert_eq!(usage.status.code(), Some(2));
}
