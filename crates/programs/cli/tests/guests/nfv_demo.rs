//! `carina nfv demo`: what it shows, and what is left when it is ended.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::benches::ends_with_its_children;
use crate::house::{CARINA, told};

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
    let mut output = demo(&directory).output().unwrap();
    // It fails where pings are lost, as a machine that is too busy for its guests loses some.
    let mut tries = 0..4;
    while told(&output).contains("were lost") && tries.next().is_some() {
        output = demo(&directory).output().unwrap();
    }
    assert!(output.status.success(), "{}", told(&output));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &printed["report"];
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
        let rows = printed["hops"]["rows"].as_array().unwrap().iter();
        let rows = rows.filter(|row| row["system"] == system && row["metric"] == "mpps");
        assert!(rows.clone().all(|row| row["median"].as_f64() > Some(0.0)));
        assert_eq!(rows.count(), 5, "{system}");
    }
    let figure = fs::read_to_string(directory.path().join("fig4.svg")).unwrap();
    assert!(figure.contains("<svg") && figure.contains("carina-in-guest: 100 %"));
    let rates: Value =
        serde_json::from_slice(&fs::read(directory.path().join("fig4.json")).unwrap()).unwrap();
    assert_eq!(rates, printed["hops"]);
}

#[test]
fn demo_that_is_ended_takes_its_guests_along() {
    for signal in [Signal::INT, Signal::KILL] {
        let directory = tempfile::tempdir().unwrap();
        // The ports, and two guests.
        ends_with_its_children(demo(&directory), 3, "nfv", signal);
    }
}
