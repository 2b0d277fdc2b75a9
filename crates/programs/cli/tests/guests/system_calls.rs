//! Counts with strace the system calls of a busy process for the frames of a guest's card: less
//! than one for each burst.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::house::{BOOT, CARINA, until};
use crate::vhost_user::guest;

/// A graph that runs under strace, which counts its system calls. Both end with the test.
struct Counted {
    strace: Option<Child>,
}

impl Counted {
    fn start(directory: &Path, graph: &str) -> Counted {
        let file = directory.join("graph.toml");
        std::fs::write(&file, graph).unwrap();
        let dies = ["--pdeathsig", "KILL"];
        let mut command = Command::new("setpriv");
        command
            .args(dies)
            .args(["strace", "--follow-forks", "--summary-only"]);
        command.arg("--output").arg(directory.join("calls"));
        command.arg("setpriv").args(dies).arg(CARINA);
        command.arg("--run").arg(directory.join("run"));
        command.args(["--json", "graph", "run"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Counted {
            strace: Some(command.spawn().unwrap()),
        }
    }

    /// Ends the graph as Ctrl-C does, and returns its final report.
    fn end(mut self) -> Value {
        let strace = self.strace.take().unwrap();
        let id = strace.id();
        let children = format!("/proc/{id}/task/{id}/children");
        let children = std::fs::read_to_string(children).unwrap();
        let graph = children.split_whitespace().next().unwrap();
        let done = Command::new("kill").args(["-INT", graph]).status().unwrap();
        assert!(done.success());
        let output = strace.wait_with_output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(mut strace) = self.strace.take() {
            let _ = strace.kill();
            let _ = strace.wait();
        }
    }
}

/// Number of packets of a link in the graph's final report.
fn packets(report: &Value, link: &str) -> u64 {
    let links = report["links"].as_array().unwrap();
    let of = links.iter().find(|found| found["link"] == link);
    of.unwrap_or_else(|| panic!("no {link} in {report}"))["packets"]
        .as_u64()
        .unwrap()
}

#[test]
fn frames_of_a_guest_cost_a_busy_process_no_call_each() {
    if Command::new("strace").arg("--version").output().is_err() {
        println!("SKIP: the program strace (package strace)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("card");
    // A source without a rate sends the guest more than it takes, so the guest does not rest and
    // requests no notification. A second source keeps the worker busy while the guest's ring is
    // full, because a sleeping worker would be woken by a system call.
    let graph = format!(
        "links = [\"card.output -> sink.input\", \"source.output -> card.input\", \
         \"busy.output -> idle.input\"]\n\
         [apps.card]\nkind = \"vhost_user\"\nsocket = {socket:?}\n\
         [apps.source]\nkind = \"source\"\n[apps.sink]\nkind = \"sink\"\n\
         [apps.busy]\nkind = \"source\"\n[apps.idle]\nkind = \"sink\"\n"
    );
    let graph = Counted::start(directory.path(), &graph);
    let vm = guest(directory.path(), 1, false);
    let up = "ip address add 10.0.0.2/24 dev eth0 && ip link set eth0 up && \
              arp -s 10.0.0.1 02:00:00:00:00:01";
    let done = vm.run(up).unwrap();
    assert!(done.is_success(), "{}", done.error_text());
    let received = || {
        // The fragments of a ping; nothing answers.
        let ping = "ping -q -c 200 -i 0.01 -W 1 -s 60000 10.0.0.1";
        vm.run_within(ping, BOOT).unwrap();
        let count = vm.run("cat /sys/class/net/eth0/statistics/rx_packets");
        let count: u64 = count.unwrap().text().trim().parse().unwrap();
        (count > 50_000).then_some(count)
    };
    let to = until(BOOT, received).expect("the guest receives little");
    let report = graph.end();
    let from = packets(&report, "card.output -> sink.input");
    let others = packets(&report, "busy.output -> idle.input");
    let summary = std::fs::read_to_string(directory.path().join("calls")).unwrap();
    println!("{from} frames from the guest, {to} to it, {others} others:\n{summary}");
    assert!(from > 3_000, "{from} from it");
    // In some breaths, each of which has moved up to a burst, the worker checks its descriptors.
    let looks: u64 = calls(&summary, &["epoll_pwait", "epoll_wait", "epoll_pwait2"]);
    assert!(looks < AROUND + others / 64, "{looks} looks");
    let calls = calls(&summary, &["total"]) - looks;
    assert!(
        calls < AROUND + (from + to) / 32,
        "{calls} calls, {from} frames from the guest, {to} to it"
    );
}

/// Upper limit for system calls of the start, the end, and occasional checks of files and signals.
const AROUND: u64 = 5_000;

/// Number of calls with these names in a summary of strace. Its lines are: % time, seconds,
/// usecs/call, calls, errors if any, name.
fn calls(summary: &str, names: &[&str]) -> u64 {
    let words = summary
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of = words.filter(|words| words.last().is_some_and(|name| names.contains(name)));
    of.map(|words| words[3].parse::<u64>().unwrap()).sum()
}
