//! Tests of commands that wait for a member, and are ended by Ctrl-C.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::node::{CARINA, Node, addresses};

/// Starts a command that waits.
fn waiting(node: &Node, words: &[&str]) -> Child {
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.args(["--wait", "60s", "--json"]).args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until the node's IPCPs are as wanted, and ends the command with SIGINT. Returns its
/// output.
fn interrupted(node: &Node, mut child: Child, wanted: impl Fn(&[Value]) -> bool) -> String {
    let until = Instant::now() + Duration::from_secs(30);
    while !wanted(node.done(&["ipcp", "list"]).as_array().unwrap()) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut answer = String::new();
    let mut output = child.stdout.take().unwrap();
    output.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"interrupted\""), "{answer}");
    let mut printed = String::new();
    let mut errors = child.stderr.take().unwrap();
    errors.read_to_string(&mut printed).unwrap();
    printed
}

fn named(name: &str) -> impl Fn(&Value) -> bool {
    move |ipcp| ipcp["name"] == name
}

#[test]
fn stopped_join_says_that_it_goes_on_and_how_to_end_it() {
    let node = Node::new();
    let join = [
        "dif", "join", "net", "--over", "local", "--ipcp", "net.b", "--via", "nobody",
    ];
    let child = waiting(&node, &join);
    let printed = interrupted(&node, child, |ipcps| ipcps.iter().any(named("net.b")));
    let leave = "dif leave net --ipcp net.b";
    for words in ["net.b keeps trying", leave] {
        assert!(printed.contains(words), "{printed}");
    }
    let left = |node: &Node| node.done(&["ipcp", "list"]).as_array().unwrap().len();
    assert_eq!(left(&node), 2);
    node.done(&leave.split(' ').collect::<Vec<_>>());
    assert_eq!(left(&node), 1);
}

#[test]
fn stopped_extend_says_how_to_take_the_dif_back() {
    let node = Node::new();
    let [listen] = addresses();
    node.done(&[
        "ipcp", "create", "u", "--type", "udp", "--dif", "inet", "--listen", &listen,
    ]);
    node.done(&["dif", "create", "net", "--over", "inet", "--ipcp", "net.a"]);
    let extend = ["dif", "extend", "net", "--over", "local", "--via", "nobody"];
    let over = |ipcps: &[Value], count| {
        let member = ipcps.iter().find(|ipcp| named("net.a")(ipcp)).unwrap();
        member["member"]["over"].as_array().unwrap().len() == count
    };
    let child = waiting(&node, &extend);
    let printed = interrupted(&node, child, |ipcps| over(ipcps, 2));
    let retract = "dif retract net --over local --ipcp net.a";
    assert!(printed.contains(retract), "{printed}");
    node.done(&retract.split(' ').collect::<Vec<_>>());
    assert!(over(node.done(&["ipcp", "list"]).as_array().unwrap(), 1));
}
