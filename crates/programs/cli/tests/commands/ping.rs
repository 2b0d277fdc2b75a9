//! Test of `carina ping` that a signal ends.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::node::{CARINA, Node};

#[test]
fn endless_ping_prints_its_results_when_stopped() {
    let node = Node::new();
    let ping = |words: &[&str]| {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(node.directory.path().join("run"));
        command.args(["--wait", "600s"]).args(words);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut server = ping(&["ping", "--listen"]);
    for signal in [Signal::INT, Signal::TERM] {
        // The signal arrives long before the next SDU is due.
        let mut client = ping(&["ping", "-c", "0", "-i", "60m"]);
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        next();
        assert!(next().contains("seq=0"));
        kill_process(Pid::from_child(&client), signal).unwrap();
        assert!(next().starts_with("1 SDUs sent, 1 answered"));
        assert!(next().starts_with("rtt min/avg/max"));
        assert!(client.wait().unwrap().success());
    }
    let _ = server.kill();
    let _ = server.wait();
}
