//! Counts with strace the system calls of busy graphs: none for frames on rings in memory, and at
//! most one for each burst on sockets.

use std::process::Command;

use serde_json::Value;

use crate::commands::node::CARINA;
use crate::room::Room;

/// Runs a graph under strace in a namespace, for a second. Returns the number of system calls, and
/// the number of frames that arrived at the sink.
fn calls_and_frames(room: &Room, graph: &str) -> (u64, u64) {
    let place = tempfile::tempdir().unwrap();
    let (file, log) = (place.path().join("graph.toml"), place.path().join("calls"));
    std::fs::write(&file, graph).unwrap();
    let mut command = Command::new("strace");
    command.args(["--follow-forks", "--summary-only", "--trace"]);
    command.arg(
        "sendto,sendmsg,sendmmsg,recvfrom,recvmsg,recvmmsg,poll,ppoll,epoll_wait,\
                 epoll_pwait,epoll_pwait2,read,write,io_uring_enter,futex,sched_yield",
    );
    command.arg("--output").arg(&log).arg(CARINA);
    command.arg("--run").arg(place.path().join("run"));
    command
        .args(["--json", "graph", "run"])
        .arg(&file)
        .args(["--for", "1s"]);
    let output = room.run(move || command.output().unwrap());
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    let summary = std::fs::read_to_string(&log).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let links = report["links"].as_array().unwrap().iter();
    let mut to_sink = links.filter(|link| link["link"].as_str().unwrap().ends_with("sink.input"));
    let frames = to_sink.next().unwrap()["packets"].as_u64().unwrap();
    println!("{frames} frames:\n{summary}");
    // The last line: % time, seconds, usecs/call, calls, errors if any, "total".
    let total = summary.lines().rev().find(|line| line.ends_with("total"));
    let calls = total.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    (calls.expect("a sum of calls"), frames)
}

fn has_strace() -> bool {
    let has = Command::new("strace").arg("--version").output().is_ok();
    if !has {
        println!("SKIP: the program strace (package strace)");
    }
    has
}

/// Upper limit for system calls of the start, the end, and the 10 checks per second of the waiting
/// thread.
const AROUND: u64 = 2_000;

#[test]
fn frames_on_rings_between_workers_cost_no_system_call() {
    let Some(room) = Room::new().filter(|_| has_strace()) else {
        return;
    };
    let (calls, frames) = calls_and_frames(
        &room,
        "links = [\"source.output -> hop.input\", \"hop.output -> sink.input\"]\n\
         [apps.source]\nkind = \"source\"\n[apps.hop]\nkind = \"hop\"\n\
         [apps.sink]\nkind = \"sink\"\nworker = 1\n",
    );
    assert!(frames > 100_000, "{frames}");
    // If both workers share a processor, each sleeps while the other runs.
    assert!(
        calls < AROUND + frames / 64,
        "{calls} calls, {frames} frames"
    );
}

#[test]
fn bursts_on_sockets_cost_one_system_call() {
    let Some(room) = Room::new().filter(|_| has_strace()) else {
        return;
    };
    room.ip("link add near type veth peer name far");
    room.ip("link set near up");
    room.ip("link set far up");
    for kind in ["af_packet", "af_xdp"] {
        let (calls, frames) = calls_and_frames(
            &room,
            &format!(
                "links = [\"source.output -> near.input\", \"far.output -> sink.input\"]\n\
                 [apps.source]\nkind = \"source\"\n[apps.sink]\nkind = \"sink\"\n\
                 [apps.near]\nkind = \"{kind}\"\ninterface = \"near\"\n\
                 [apps.far]\nkind = \"{kind}\"\ninterface = \"far\"\n"
            ),
        );
        assert!(frames > 1_000, "{kind}: {frames}");
        // A burst has up to 128 frames. The limit of 32 allows for bursts that are cut short.
        assert!(
            calls < AROUND + frames / 32,
            "{kind}: {calls} calls, {frames} frames"
        );
    }
}
