//! Tests of `carina perf` over a flow whose other end is stopped.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::node::{CARINA, Node};

/// A server that ends with its test, even if it is stopped.
struct Server {
    process: Child,
    /// Standard output of the server.
    printed: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn new(node: &Node) -> Server {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(node.directory.path().join("run"));
        command.args(["--wait", "600s", "perf", "--listen"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let printed = BufReader::new(process.stdout.take().unwrap());
        let mut server = Server { process, printed };
        server.says("waits for clients");
        server
    }

    fn says(&mut self, expected: &str) {
        let mut line = String::new();
        while !line.contains(expected) {
            line.clear();
            assert!(self.printed.read_line(&mut line).unwrap() > 0, "{expected}");
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a client whose server is stopped as soon as the job begins. Returns how the client ends,
/// and its output.
fn stands_still(words: &[&str]) -> (Output, Vec<Value>) {
    let node = Node::new();
    let mut server = Server::new(&node);
    let output = std::thread::scope(|scope| {
        let client = scope.spawn(|| node.run(words));
        server.says("job:");
        server.signal(Signal::STOP);
        client.join().unwrap()
    });
    let told = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let told = told.collect::<Result<_, _>>().unwrap();
    (output, told)
}

/// Runs a client whose server is stopped as soon as the job begins, and that must end with
/// `ending`. Returns its only result.
///
/// On a busy machine the job may end before the server is stopped, or before the flow stalls. That
/// shows nothing, so the test tries again with a longer job.
fn stalled(words: &[&str], ending: &str) -> Value {
    for duration in ["3s", "12s", "60s", "200s"] {
        let words = [&["perf", "-t", duration], words].concat();
        let (output, told) = stands_still(&words);
        let printed = String::from_utf8_lossy(&output.stderr);
        let result = told.first().map(|told| told["results"][0].clone());
        let is_shown = |result: &Value| {
            result["client"]["ending"] == ending && printed.contains("the server sent no report")
        };
        let Some(result) = result.filter(is_shown) else {
            eprintln!("{words:?} shows nothing: {told:?} {printed}");
            continue;
        };
        // Standard output has the results, and then the failure of the command.
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        assert!(printed.contains("the flow stalled"), "{words:?}: {printed}");
        return result;
    }
    panic!("the client never ends as {ending}");
}

#[test]
fn perf_ends_when_the_server_does_not_receive() {
    let told = stalled(&[], "held-back");
    assert!(told["client"]["sent"].as_u64().unwrap() > 0, "{told}");
    // Values that the server would report are unknown.
    assert!(told["server"].is_null() && told["lost"].is_null(), "{told}");
    assert!(told["goodput_mbps"].is_null(), "{told}");
}

#[test]
fn perf_ends_when_the_server_does_not_send() {
    let told = stalled(&["--reverse"], "stalled");
    assert!(told["goodput_mbps"].is_number(), "{told}");
}

#[test]
fn perf_ends_when_the_server_does_not_answer() {
    let told = stalled(&["--echo"], "stalled");
    let rounds = told["client"]["received"].as_u64().unwrap();
    let asked = told["client"]["sent"].as_u64().unwrap();
    assert_eq!(asked, rounds + 1, "{told}");
}
