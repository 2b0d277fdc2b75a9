//! `carina bench wrap`: every case once, and what is left when the bench is killed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::node::CARINA;

fn bench(cases: &[&str], time: &str) -> Command {
    let mut command = Command::new(CARINA);
    command.args(["--json", "bench", "wrap", "--runs", "1", "--time", time]);
    command
        .args(["--cases", &cases.join(",")])
        .stdin(Stdio::null());
    command
}

/// Runs cases that must all be measured, and returns the results.
fn results(cases: &[&str]) -> Value {
    let output = bench(cases, "100ms").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{cases:?}: {errors}{text}");
    serde_json::from_str(&text).unwrap()
}

fn has(results: &Value, case: &str, system: &str, metric: &str) -> bool {
    let rows = results["rows"].as_array().unwrap();
    rows.iter().any(|row| {
        row["case"] == case
            && row["system"] == system
            && row["metric"] == metric
            && row["median"].as_f64().unwrap() > 0.0
    })
}

fn is_left_out(results: &Value, name: &str) -> bool {
    let mut notes = results["notes"].as_array().unwrap().iter();
    let start = format!("{name}: left out");
    notes.any(|note| note.as_str().unwrap().starts_with(&start))
}

#[test]
fn programs_are_measured_in_every_system_that_is_installed() {
    let cases = [
        ("iperf3", "iperf3", "goodput_mbps"),
        ("redis", "redis", "msgs_per_s"),
        ("connections", "redis", "msgs_per_s"),
        ("wrk", "nginx", "msgs_per_s"),
        ("static", "static", "goodput_mbps"),
        ("static-round-trips", "static", "rtt_p99_us"),
    ];
    let results = results(&cases.map(|(case, ..)| case));
    for (case, program, metric) in cases {
        if is_left_out(&results, program) {
            println!("SKIP: {case} needs programs that are not installed");
            continue;
        }
        for system in [
            "carina",
            "tcp",
            "connect",
            "socat",
            "ssh",
            "pasta",
            "slirp4netns",
        ] {
            let is_there = has(&results, case, system, metric);
            assert!(
                is_there || is_left_out(&results, system),
                "{case}, {system}: {results}"
            );
        }
    }
}

#[test]
fn relays_are_measured_with_many_connections() {
    let results = results(&["round-trips", "many-16", "many-256"]);
    for case in ["many-16", "many-256"] {
        for system in ["tcp", "connect"] {
            assert!(has(&results, case, system, "goodput_mbps"), "{results}");
        }
        assert!(!has(&results, case, "carina", "goodput_mbps"));
    }
    assert!(
        has(&results, "round-trips", "proxy", "rtt_p50_us"),
        "{results}"
    );
}

#[test]
fn killed_bench_leaves_no_process() {
    let mut child = bench(&["iperf3", "static", "connections"], "20s");
    let mut child = child
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let run = format!("/dev/shm/carina-bench-wrap-{}", child.id());
    std::thread::sleep(Duration::from_secs(5));
    let before = using(&run);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(!before.is_empty(), "the bench has started nothing in {run}");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !using(&run).is_empty() {
        assert!(Instant::now() < deadline, "{:?}", using(&run));
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = std::fs::remove_dir_all(run);
}

/// The commands of processes whose output goes to a directory, or whose arguments name it.
fn using(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let commands = entries.filter_map(|entry| {
        let path = entry.path();
        let command = std::fs::read(path.join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let output = std::fs::read_link(path.join("fd/1")).unwrap_or_default();
        (command.contains(directory) || output.starts_with(directory)).then_some(command)
    });
    commands.collect()
}
