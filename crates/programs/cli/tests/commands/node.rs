//! Nodes of a test, and commands to them.

use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;

use super::within::output_of;

/// The program under test.
pub(crate) const CARINA: &str = env!("CARGO_BIN_EXE_carina");

/// Time limit for a very busy machine. It only ends a test that hangs; no result depends on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// A node that ends with its test.
pub(crate) struct Node {
    pub directory: tempfile::TempDir,
    process: Child,
}

impl Node {
    pub(crate) fn new() -> Node {
        Node::with_options(&[])
    }

    /// Starts a node with options of `carina node`.
    pub(crate) fn with_options(options: &[&str]) -> Node {
        let directory = tempfile::tempdir().unwrap();
        let process = Command::new(CARINA)
            .arg("--run")
            .arg(directory.path().join("run"))
            .arg("node")
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Node { directory, process }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(self.directory.path().join("run"));
        command.args(["--wait", "600s", "--json"]).args(words);
        output_of(&mut command)
    }

    /// Sends a signal to the node's process. For `STOP`, also waits until the process has stopped.
    pub(crate) fn signal(&self, signal: Signal) {
        let process = Pid::from_child(&self.process);
        kill_process(process, signal).unwrap();
        if signal == Signal::STOP {
            // Until each thread has handled the signal, the other threads would still answer.
            waitid(WaitId::Pid(process), WaitIdOptions::STOPPED).unwrap();
        }
    }

    pub(crate) fn done(&self, words: &[&str]) -> Value {
        let output = self.run(words);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {printed}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs a command that must fail with this exit code, and returns its error output.
    pub(crate) fn fails(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
        printed
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A node in which DIF `net` has the members `net.a` and `net.b`.
pub(crate) fn both_in_one() -> Node {
    let node = Node::new();
    node.done(&["dif", "create", "net", "--over", "local", "--ipcp", "net.a"]);
    node.done(&[
        "dif", "join", "net", "--over", "local", "--ipcp", "net.b", "--via", "net.a",
    ]);
    // This waits until the two members have routes to each other.
    node.done(&["dif", "map", "net"]);
    node
}

/// Addresses on which processes may listen. Each is in a loopback network of its own, so that no
/// other process gets the same port before.
pub(crate) fn addresses<const N: usize>() -> [String; N] {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    [(); N].map(|()| {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let [_, b, c, d] = (std::process::id() << 9 | count).to_be_bytes();
        format!("127.{}.{c}.{d}:7000", b | 0x80)
    })
}

/// Two nodes, each with a member of DIF `net` (`net.a` and `net.b`), over a UDP DIF.
pub(crate) fn one_in_each() -> [Node; 2] {
    let addresses = addresses::<2>();
    let nodes = [Node::new(), Node::new()];
    for (own, other) in [(0, 1), (1, 0)] {
        let peer = format!("{}={}", ["net.a", "net.b"][other], addresses[other]);
        nodes[own].done(&[
            "ipcp",
            "create",
            "u",
            "--type",
            "udp",
            "--dif",
            "inet",
            "--listen",
            &addresses[own],
            "--peer",
            &peer,
        ]);
    }
    nodes[0].done(&["dif", "create", "net", "--over", "inet", "--ipcp", "net.a"]);
    nodes[1].done(&[
        "dif", "join", "net", "--over", "inet", "--ipcp", "net.b", "--via", "net.a",
    ]);
    nodes[0].done(&["dif", "map", "net"]);
    nodes
}
