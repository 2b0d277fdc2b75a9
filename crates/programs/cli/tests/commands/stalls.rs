//! `carina perf` over a flow whose other end stands still.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::node::{CARINA, Node};

/// A server that ends with its test, also while it stands still.
struct Server {
    process: Child,
    /// What it says.
    said: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn new(node: &Node) -> Server {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(node.directory.path().join("run"));
        command.args(["--wait", "600s", "perf", "--listen"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let mut server = Server { process, said };
        server.says("waits for clients");
        server
    }

    fn says(&mut self, expected: &str) {
        let mut line = String::new();
        while !line.contains(expected) {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "{expected}");
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

/// How a client ends whose server stands still as soon as the job has begun, and all that it says.
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

/// The one result of a client whose server stands still as soon as the job has begun, and that ends
/// as `ending`.
///
/// On a busy machine the job may be over before the server stands still, or before nothing moves
/// any more. Then nothing has been shown, and the next job lasts longer.
fn stalled(words: &[&str], ending: &str) -> Value {
    for duration in ["3s", "12s", "60s", "200s"] {
        let words = [&["perf", "-t", duration], words].concat();
        let (output, told) = stands_still(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        let result = told.first().map(|told| told["results"][0].clone());
        let is_shown = |result: &Value| {
            result["client"]["ending"] == ending && said.contains("the server reported nothing")
        };
        let Some(result) = result.filter(is_shown) else {
            eprintln!("{words:?} shows nothing: {told:?} {said}");
            continue;
        };
        // The results, and then how the command failed.
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("the flow stalled"), "{words:?}: {said}");
        return result;
    }
    panic!("the client never ends as {ending}");
}

#[test]
fn perf_ends_when_the_server_does_not_receive() {
    let told = stalled(&[], "held-back");
    assert!(told["client"]["sent"].as_u64().unwrap() > 0, "{told}");
    // What the server does not say is not known.
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
