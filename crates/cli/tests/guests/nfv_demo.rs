//! `carina nfv demo`: what it shows, and what is left when it is ended.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::house::{BOOT, CARINA, SOON, told, until};

fn demo(directory: &tempfile::TempDir) -> Command {
    let mut command = Command::new(CARINA);
    command.args(["--json", "nfv", "demo", "--runs", "1", "--time", "20ms"]);
    command.arg("--out").arg(directory.path());
    command.stdin(Stdio::null());
    command
}

#[test]
fn two_guests_are_filtered_limited_and_measured() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(&directory).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &said["report"];
    assert_eq!(report["ping"]["sent"], 50);
    assert_eq!(report["ping"]["received"], 50);
    let block = &report["block"];
    assert_eq!(block["served_before"], true);
    assert_eq!(block["served_meanwhile"], false);
    assert_eq!(block["served_after"], true);
    // Pings went on through all changes, and none was lost.
    let others = &block["other_ports"];
    assert!(others["sent"].as_u64() >= Some(100), "{others}");
    assert_eq!(others["sent"], others["received"]);
    let limited = report["rate"]["limited_mbps"].as_f64().unwrap();
    assert!(limited > 0.0 && limited < 22.0, "{limited}");
    let server = &report["ports"]["ports"][2];
    assert_eq!(server["port"], "red-server");
    assert!(
        server["drops"]["ingress_filter"].as_u64() > Some(0),
        "{server}"
    );
    for system in ["carina", "carina-in-guest"] {
        let rows = said["hops"]["rows"].as_array().unwrap().iter();
        let rows = rows.filter(|row| row["system"] == system && row["metric"] == "mpps");
        assert!(rows.clone().all(|row| row["median"].as_f64() > Some(0.0)));
        assert_eq!(rows.count(), 5, "{system}");
    }
    let figure = fs::read_to_string(directory.path().join("fig4.svg")).unwrap();
    assert!(figure.contains("<svg") && figure.contains("carina-in-guest: 100 %"));
    let rates: Value =
        serde_json::from_slice(&fs::read(directory.path().join("fig4.json")).unwrap()).unwrap();
    assert_eq!(rates, said["hops"]);
}

/// The processes that another has started.
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
fn demo_that_is_ended_takes_its_guests_along() {
    for signal in [Signal::INT, Signal::KILL] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = demo(&directory);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        // The ports, and two guests.
        let started = || Some(children(&child)).filter(|all| all.len() == 3);
        let all = until(BOOT, started).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let scratch = PathBuf::from(format!("/dev/shm/carina-bench-nfv-{}", child.id()));
        let output = child.wait_with_output().unwrap();
        let code = (signal == Signal::INT).then_some(130);
        assert_eq!(output.status.code(), code, "{}", told(&output));
        let gone = || (!all.iter().any(|pid| runs(*pid))).then_some(());
        assert!(until(SOON, gone).is_some(), "{all:?}");
        // One that was killed leaves its files to the next.
        assert_eq!(scratch.exists(), signal == Signal::KILL);
        let _ = fs::remove_dir_all(scratch);
    }
}
