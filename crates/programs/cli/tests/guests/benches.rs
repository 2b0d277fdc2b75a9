//! Tests of benchmarks with guests: the smallest case of each, and what is left when one is ended.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::house::{BOOT, CARINA, SOON, told, until};

/// Whether this process can make taps.
fn has_network() -> bool {
    let has = carina_namespaces::can_enter_private();
    if !has {
        println!("SKIP: no network namespaces with taps here");
    }
    has
}

fn bench(words: &[&str]) -> Command {
    let mut command = Command::new(CARINA);
    command.args(["--json", "bench"]).args(words);
    command.stdin(Stdio::null());
    command
}

/// Runs a benchmark that must succeed, and returns its results.
fn results(words: &[&str]) -> Value {
    let output = bench(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", told(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn median(results: &Value, case: &str, system: &str, metric: &str) -> f64 {
    let is_it =
        |row: &&Value| row["case"] == case && row["system"] == system && row["metric"] == metric;
    let row = results["rows"].as_array().unwrap().iter().find(is_it);
    let row = row.unwrap_or_else(|| panic!("no {metric} of {system} in {case}: {results}"));
    row["median"].as_f64().unwrap()
}

#[test]
fn card_of_a_guest_is_measured_over_both_back_ends() {
    if !has_network() {
        return;
    }
    let cases = ["udp-guest-to-host", "tcp-host-to-guest"];
    let list = cases.join(",");
    let words = ["guest", "--cases", &list, "--sizes", "1400", "--runs", "1"];
    let results = results(&[&words[..], &["--time", "200ms"]].concat());
    for case in cases {
        for system in ["carina", "tap"] {
            assert!(median(&results, case, system, "goodput_mbps") > 0.0);
            assert!(median(&results, case, system, "host_cpu_ns_per_sdu") > 0.0);
            let busy = median(&results, case, system, "guest_cpu_percent");
            assert!(busy > 0.0 && busy <= 100.0, "{busy}");
        }
    }
    let notes = results["notes"].to_string();
    assert!(notes.contains("the guest's processor was busy"), "{notes}");
    assert!(notes.contains("x tap"), "{notes}");
}

#[test]
fn wrapped_programs_are_measured_beside_user_networks() {
    if !has_network() {
        return;
    }
    let cases = ["iperf3-to-host", "iperf3-to-guest", "http"];
    let list = cases.join(",");
    let words = [
        "wrap", "--vm", "--cases", &list, "--sizes", "4M", "--runs", "1",
    ];
    let results = results(&words);
    for case in cases {
        for system in ["carina", "ip", "user"] {
            assert!(median(&results, case, system, "goodput_mbps") > 0.0);
        }
    }
    let notes = results["notes"].to_string();
    assert!(notes.contains("x user"), "{notes}");
}

#[test]
fn drivers_in_user_space_are_measured_beside_the_kernels() {
    let cases = ["e1000e-send", "e1000e-receive", "virtio-send"];
    let list = cases.join(",");
    let words = ["drivers", "--cases", &list, "--sizes", "64", "--runs", "1"];
    let results = results(&[&words[..], &["--time", "200ms"]].concat());
    for case in cases {
        for system in ["carina", "kernel"] {
            assert!(median(&results, case, system, "mpps") > 0.0);
            assert!(median(&results, case, system, "goodput_mbps") > 0.0);
        }
    }
}

#[test]
fn pings_are_lost_while_a_back_end_is_gone_and_then_answered() {
    if !has_network() {
        return;
    }
    let case = "back-end-killed-split";
    let results = results(&["restart", "--cases", case, "--runs", "1"]);
    let gap = median(&results, case, "carina", "gap_ms");
    let lost = median(&results, case, "carina", "lost_packets");
    // The guest does not answer while the process starts. The case ends when answers arrive again.
    assert!(gap > 0.0 && lost > 0.0, "{gap} ms, {lost} lost");
}

#[test]
fn bench_that_is_ended_takes_its_guest_along() {
    if !has_network() {
        return;
    }
    for signal in [Signal::INT, Signal::KILL] {
        // The three children: a node, the graph, and a guest.
        let words = ["guest", "--time", "10s", "--sizes", "64"];
        ends_with_its_children(bench(&words), 3, "guest", signal);
    }
}

/// Starts a command, ends it when it has `count` children, and checks that they end too and that
/// its directory is removed.
pub(crate) fn ends_with_its_children(
    mut command: Command,
    count: usize,
    name: &str,
    signal: Signal,
) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let started = || Some(children(&child)).filter(|all| all.len() == count);
    let all = until(BOOT, started).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ended = Instant::now();
    let scratch = PathBuf::from(format!("/dev/shm/carina-bench-{name}-{}", child.id()));
    let output = child.wait_with_output().unwrap();
    let code = (signal == Signal::INT).then_some(130);
    assert_eq!(output.status.code(), code, "{}", told(&output));
    let gone = || (!all.iter().any(|pid| runs(*pid))).then_some(());
    assert!(
        until(SOON, gone).is_some(),
        "{all:?} after {:?}",
        ended.elapsed()
    );
    // A killed benchmark leaves its files to the next one, which may be one of another test.
    assert!(signal == Signal::KILL || !scratch.exists());
    let _ = fs::remove_dir_all(scratch);
}

/// Process ids of the children of a process.
fn children(of: &Child) -> Vec<u32> {
    let pid = of.id();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    state.is_some_and(|state| !matches!(state, b'Z' | b'X'))
}

#[test]
fn networks_of_one_and_of_three_providers_are_measured() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let cases = ["pip/clone/3/1", "vnp/clone/3/3"];
    let words = ["--cases", &cases.join(","), "--runs", "1"];
    let output = instantiate(directory.path(), &words).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    for case in cases {
        let of = |metric: &str| median(&results, case, "carina", metric);
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let phases = ["tunnels_s", "vm_s", "console_s", "probe_s", "discovery_s"];
        let used = ["vnp_cpu_s", "agent_cpu_s", "machines_cpu_s"];
        let phases = phases.map(|metric| (metric, of("total_s")));
        let used = used.map(|metric| (metric, of("total_s") * processors));
        for (metric, bound) in phases.into_iter().chain(used) {
            let value = of(metric);
            assert!(value > 0.0 && value < bound, "{case} {metric}: {value}");
        }
    }
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn killed_bench_of_providers_leaves_nothing() {
    if !is_root() {
        return;
    }
    for signal in [Signal::INT, Signal::KILL] {
        let directory = tempfile::tempdir().unwrap();
        let words = ["--cases", "pip/clone/3/1", "--runs", "1000"];
        let mut command = instantiate(directory.path(), &words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let networks = directory.path().join("vnet-bench/0/h1/vnet");
        let machines = || {
            let entries = fs::read_dir(&networks).ok()?.flatten();
            let all = entries.filter_map(|entry| carina_vm::list(&entry.path().join("vm")).ok());
            Some(all.flatten().collect::<Vec<_>>()).filter(|all| !all.is_empty())
        };
        let machines = until(BOOT, machines).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        let code = (signal == Signal::INT).then_some(130);
        assert_eq!(status.code(), code);
        let is_gone = || {
            let is_clear = !directory.path().join("vnet-bench/0").exists();
            let runs = machines.iter().any(|machine| machine.is_alive());
            (is_clear && !runs).then_some(())
        };
        assert!(until(SOON, is_gone).is_some(), "{machines:?}");
    }
}

/// A command `vnet bench instantiate` with a run directory of its own.
fn instantiate(run: &std::path::Path, words: &[&str]) -> Command {
    let mut command = Command::new(CARINA);
    command
        .arg("--run")
        .arg(run)
        .args(["--json", "vnet", "bench", "instantiate"]);
    command.args(words).stdin(Stdio::null());
    command
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIP: network namespaces are made by root");
    }
    is_root
}
