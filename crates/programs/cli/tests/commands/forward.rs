//! Tests of `carina forward` between systems with kernel network stacks, and of `carina blast`
//! through it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::commands::node::CARINA;
use crate::room::Room;
use crate::traffic::{FAR, OWN, tcp_goes_through, udp_goes_both_ways};

/// Two systems, and a third one between them with interfaces `left` and `right` to them.
struct Site {
    own: Room,
    between: Room,
    far: Room,
    run: tempfile::TempDir,
}

impl Site {
    fn new() -> Option<Site> {
        let site = Site {
            own: Room::new()?,
            between: Room::new()?,
            far: Room::new()?,
            run: tempfile::tempdir().unwrap(),
        };
        site.own.join("own0", &site.between, "left", 1500);
        site.far.join("far0", &site.between, "right", 1500);
        site.own.ip(&format!("address add {OWN}/24 dev own0"));
        site.far.ip(&format!("address add {FAR}/24 dev far0"));
        Some(site)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(self.run.path()).args(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a forwarder, and waits until its counters exist.
    fn start(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        let child = self.between.run(move || command.spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(60);
        while self.counter_files() == 0 {
            assert!(Instant::now() < end, "no counters");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    }

    fn counter_files(&self) -> usize {
        let files = std::fs::read_dir(self.run.path().join("graphs"));
        files.map_or(0, Iterator::count)
    }
}

/// Ends a command as Ctrl-C does, and returns its JSON output.
fn interrupt(child: Child) -> Value {
    let asked = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let elapsed = asked.elapsed();
    // The promise is two seconds; the rest allows for a busy machine.
    assert!(
        elapsed < Duration::from_secs(20),
        "it took {elapsed:?} to end"
    );
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn packets_in(report: &Value) -> Vec<u64> {
    let ports = report["ports"].as_array().unwrap();
    ports
        .iter()
        .map(|port| port["in_packets"].as_u64().unwrap())
        .collect()
}

#[test]
fn two_systems_talk_over_a_wire_and_a_bridge() {
    let Some(site) = Site::new() else { return };
    for by in ["wire", "mac"] {
        let child = site.start(&["--json", "forward", "left", "right", "--by", by]);
        udp_goes_both_ways(&site.own, &site.far);
        tcp_goes_through(&site.own, &site.far);
        let report = interrupt(child);
        let packets = packets_in(&report);
        assert!(packets[0] > 690 && packets[1] > 5, "{report}");
        assert_eq!(site.counter_files(), 0, "counters of what has ended");
    }
}

#[test]
fn two_networks_are_joined_by_routes() {
    let Some(site) = Site::new() else { return };
    // Two networks: 10.9.0.0/31 and the rest.
    for (room, interface, address, gateway) in [
        (&site.own, "own0", OWN, "10.9.1.1"),
        (&site.far, "far0", FAR, "10.9.2.1"),
    ] {
        room.ip(&format!("address flush dev {interface}"));
        room.ip(&format!("address add {address}/32 dev {interface}"));
        room.ip(&format!("route add {gateway} dev {interface}"));
        room.ip(&format!("route add default via {gateway}"));
    }
    let (left, right) = (format!("left={OWN}"), format!("right={FAR}"));
    let (to_left, to_right) = (format!("{OWN}/32=left"), format!("{FAR}/32=right"));
    let child = site.start(&[
        "--json",
        "forward",
        "left",
        "right",
        "--by",
        "route",
        "--address",
        "left=10.9.1.1",
        "--next",
        &left,
        "--address",
        "right=10.9.2.1",
        "--next",
        &right,
        "--route",
        &to_left,
        "--route",
        &to_right,
    ]);
    udp_goes_both_ways(&site.own, &site.far);
    tcp_goes_through(&site.own, &site.far);
    let report = interrupt(child);
    assert!(packets_in(&report)[0] > 690, "{report}");
}

#[test]
fn pings_of_both_versions_of_ip_are_routed() {
    let Some(site) = Site::new() else { return };
    for (room, interface, net) in [(&site.own, "own0", 1), (&site.far, "far0", 2)] {
        room.ip(&format!("address flush dev {interface}"));
        room.ip(&format!("address add 10.9.{net}.2/24 dev {interface}"));
        room.ip(&format!(
            "address add fd09:{net}::2/64 dev {interface} nodad"
        ));
        room.ip(&format!("route add default via 10.9.{net}.1"));
        room.ip(&format!("-6 route add default via fd09:{net}::1"));
    }
    let mut words: Vec<String> = ["--json", "forward", "left", "right", "--by", "route"]
        .map(str::to_owned)
        .into();
    for (port, net) in [("left", 1), ("right", 2)] {
        for (four, six) in [("--address", "1"), ("--next", "2")] {
            words.extend([four.to_owned(), format!("{port}=10.9.{net}.{six}")]);
            words.extend([four.to_owned(), format!("{port}=fd09:{net}::{six}")]);
        }
        words.extend(["--route".to_owned(), format!("10.9.{net}.0/24={port}")]);
        words.extend(["--route".to_owned(), format!("fd09:{net}::/64={port}")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let child = site.start(&words);
    for target in ["10.9.2.2", "fd09:2::2"] {
        until_answered(&site.own, target);
    }
    // The hop is counted in the header of either IP version.
    let report = interrupt(child);
    let drops = report["drops"].as_object().unwrap();
    for what in ["route/drop_no_route", "route6/drop_no_route"] {
        assert_eq!(drops.get(what), None, "{report}");
    }
    assert!(
        packets_in(&report).iter().all(|packets| *packets >= 4),
        "{report}"
    );
}

/// Sends datagrams to a closed port until the target's kernel reports that the port is closed.
fn until_answered(from: &Room, target: &'static str) {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let error = from.run(move || {
            let any = if target.contains(':') {
                "[::]:0"
            } else {
                "0.0.0.0:0"
            };
            let socket = std::net::UdpSocket::bind(any).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            socket.connect((target, 9)).unwrap();
            let _ = socket.send(b"x");
            socket.recv(&mut [0]).unwrap_err()
        });
        if error.kind() == std::io::ErrorKind::ConnectionRefused {
            return;
        }
        assert!(Instant::now() < end, "{target}: {error}");
    }
}

#[test]
fn wrong_forwarders_have_their_exit_codes() {
    let Some(site) = Site::new() else { return };
    let fails = |words: &[&str], code, part: &str| {
        let mut command = site.command(words);
        let output = site.between.run(move || command.output().unwrap());
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
        assert!(printed.contains(part), "{words:?}: {printed}");
    };
    fails(&["forward", "left"], 2, "a wire needs two ports");
    fails(&["forward", "left", "tip:x"], 2, "is not a kind of port");
    fails(
        &["forward", "left", "left"],
        2,
        "two ports have the name left; each port needs its own",
    );
    fails(
        &["forward", "left", "nope"],
        3,
        "no network interface \"nope\"",
    );
    fails(
        &["forward", "left", "right,mtu=5"],
        2,
        "unknown field `mtu`",
    );
    fails(
        &["forward", "left", "right", "--route", "0.0.0.0/0=left"],
        2,
        "--by route",
    );
    fails(
        &["forward", "left", "right", "--by", "route"],
        2,
        "--route PREFIX=PORT",
    );
    fails(
        &["forward", "left", "right", "--frames", "0"],
        2,
        "pool of 0 frames",
    );
}

#[test]
fn packets_that_are_sent_come_back_through_a_forwarder() {
    let Some(site) = Site::new() else { return };
    // The load generator has both ends, and the forwarder is between them.
    site.own.join("in0", &site.between, "back", 1500);
    let child = site.start(&["--json", "forward", "left", "back", "--hops", "2"]);
    let blast = |words: &[&str]| {
        let mut all = vec!["--json", "blast"];
        all.extend(words);
        let mut command = site.command(&all);
        let output = site.own.run(move || command.output().unwrap());
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {printed}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report
    };
    let steady = |count: &str| {
        let rate = ["own0", "in0", "--rate", "2kpps", "--count", count];
        blast(&[&rate[..], &["--size", "64x2,1500", "--flows", "7"]].concat())
    };
    // The forwarder's files exist before it forwards, and a busy machine may keep it from running
    // for longer than the rings of a packet socket last. So the test tries several times.
    let mut tries = 0..20;
    let is_whole = |report: &Value| report["received"] == report["sent"];
    while !is_whole(&steady("20")) {
        assert!(tries.next().is_some(), "nothing comes back");
    }
    let mut report = steady("2000");
    while !is_whole(&report) {
        assert!(tries.next().is_some(), "{report}");
        assert_eq!(
            (&report["sent"], &report["reordered"]),
            (&2000.into(), &0.into()),
            "{report}"
        );
        report = steady("2000");
    }
    assert_eq!(
        (&report["sent"], &report["received"]),
        (&2000.into(), &2000.into()),
        "{report}"
    );
    assert_eq!(
        (&report["lost"], &report["reordered"]),
        (&0.into(), &0.into()),
        "{report}"
    );
    assert!(
        report["latency_ns"]["min"].as_u64().unwrap() > 0,
        "{report}"
    );
    let report = blast(&[
        "own0",
        "in0",
        "--find",
        "--trial",
        "100ms",
        "--resolution",
        "30%",
    ]);
    assert!(report["rate_pps"].as_f64().unwrap() >= 0.0, "{report}");
    assert!(!report["trials"].as_array().unwrap().is_empty(), "{report}");
    let through = interrupt(child);
    assert!(packets_in(&through)[0] >= 2000, "{through}");
}
