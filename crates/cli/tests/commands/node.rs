//! Nodes of a test, and commands to them.

use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The program under test.
pub const CARINA: &str = env!("CARGO_BIN_EXE_carina");

/// A node that ends with its test.
pub struct Node {
    pub directory: tempfile::TempDir,
    process: Child,
}

impl Node {
    pub fn new() -> Node {
        let directory = tempfile::tempdir().unwrap();
        let process = Command::new(CARINA)
            .arg("--run")
            .arg(directory.path().join("run"))
            .arg("node")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Node { directory, process }
    }

    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(self.directory.path().join("run"));
        command.args(["--wait", "60s", "--json"]).args(words);
        command.output().unwrap()
    }

    pub fn done(&self, words: &[&str]) -> Value {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A command that fails with this exit code, and what it says.
    pub fn fails(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A node in which DIF `net` has the members `net.a` and `net.b`.
pub fn both_in_one() -> Node {
    let node = Node::new();
    node.done(&["dif", "create", "net", "--over", "local", "--ipcp", "net.a"]);
    node.done(&[
        "dif", "join", "net", "--over", "local", "--ipcp", "net.b", "--via", "net.a",
    ]);
    // A way between them is known a little later.
    node.done(&["dif", "map", "net"]);
    node
}

/// Two nodes with a member of DIF `net` each, `net.a` and `net.b`, over a DIF of UDP.
pub fn one_in_each() -> [Node; 2] {
    // Both at once, so that they differ.
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let addresses = sockets.map(|socket| socket.local_addr().unwrap().to_string());
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
