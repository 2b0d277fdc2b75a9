//! Tests of `carina vnet` commands that need no node.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::node::CARINA;

fn bench_embed(words: &[&str]) -> Command {
    let mut command = Command::new(CARINA);
    command
        .args(["--json", "vnet", "bench", "embed"])
        .args(words);
    command.stdin(Stdio::null());
    command
}

#[test]
fn embed_bench_measures_each_system_on_the_same_cases() {
    let words = ["--topology", "geant", "--seeds", "2", "--requests", "120"];
    let output = bench_embed(&words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = results["rows"].as_array().unwrap();
    let mean = |system: &str, metric: &str| {
        let is_it = |row: &&Value| {
            row["case"] == "geant/0.016" && row["system"] == system && row["metric"] == metric
        };
        let row = rows.iter().find(is_it);
        let row = row.unwrap_or_else(|| panic!("no {metric} of {system}: {results}"));
        assert_eq!(row["runs"], 2);
        row["mean"].as_f64().unwrap()
    };
    for system in ["carina", "grc", "nrm", "rw"] {
        assert!(mean(system, "solve_ms") > 0.0);
        assert!(mean(system, "solve_p99_ms") > 0.0);
        let ratio = mean(system, "revenue_to_cost");
        assert!(ratio > 0.0 && ratio <= 1.0, "{system}: {ratio}");
        let ours = mean("carina", "acceptance_percent");
        let theirs = mean(system, "acceptance_percent");
        assert!(
            system == "carina" || theirs < ours,
            "{system}: {theirs}, {ours}"
        );
    }
}

#[test]
fn embed_bench_ends_with_ctrl_c() {
    let mut child = bench_embed(&["--seeds", "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert!(line.contains("seed 1 of 1000"), "{line}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn embed_bench_names_what_is_wrong_on_its_command_line() {
    for (words, expected) in [
        (["--topology", "mars"], "there are: wx100, geant, brain"),
        (["--eta", "0"], "0.0001 to 1000"),
        (["--systems", "best"], "there are: carina, grc, nrm, rw"),
    ] {
        let output = bench_embed(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains(expected), "{printed}");
    }
}
