//! `carina perf` over a flow whose other end stands still.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::node::{CARINA, Node};

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
        command.args(["--wait", "60s", "perf", "--listen"]);
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

/// The one result of a client whose server stands still as soon as the job has begun.
fn stalled(words: &[&str]) -> Value {
    let node = Node::new();
    let mut server = Server::new(&node);
    let (output, ()) = std::thread::scope(|scope| {
        let client = scope.spawn(|| node.run(words));
        server.says("job:");
        server.signal(Signal::STOP);
        (client.join().unwrap(), ())
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
    assert!(said.contains("the flow stalled"), "{words:?}: {said}");
    assert!(said.contains("the server reported nothing"), "{said}");
    // The results, and then how the command failed.
    let told = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let told: Vec<Value> = told.collect::<Result<_, _>>().unwrap();
    told[0]["results"][0].clone()
}

#[test]
fn perf_ends_when_nobody_receives() {
    let told = stalled(&["perf", "-t", "3s"]);
    assert_eq!(told["client"]["ending"], "held-back", "{told}");
    assert!(told["client"]["sent"].as_u64().unwrap() > 0, "{told}");
    // What the server does not say is not known.
    assert!(told["server"].is_null() && told["lost"].is_null(), "{told}");
    assert!(told["goodput_mbps"].is_null(), "{told}");
}

#[test]
fn perf_ends_when_nobody_sends() {
    let told = stalled(&["perf", "-t", "2s", "--reverse"]);
    assert_eq!(told["client"]["ending"], "stalled", "{told}");
    assert!(told["goodput_mbps"].is_number(), "{told}");
}

#[test]
fn perf_ends_when_nobody_answers() {
    let told = stalled(&["perf", "-t", "2s", "--echo"]);
    assert_eq!(told["client"]["ending"], "stalled", "{told}");
    let rounds = told["client"]["received"].as_u64().unwrap();
    let asked = told["client"]["sent"].as_u64().unwrap();
    assert_eq!(asked, rounds + 1, "{told}");
}
