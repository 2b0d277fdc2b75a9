//! Tests of commands whose reader closes the pipe, as `head` does.

use std::process::{Command, Output, Stdio};

use crate::commands::node::{CARINA, Node, both_in_one};

/// Runs a command whose standard output is closed.
fn unread(node: &Node, words: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.args(words).stdout(writer).stdin(Stdio::piped());
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    // Standard input stays open until the command has ended.
    let _input = process.stdin.take();
    process.wait_with_output().unwrap()
}

#[test]
fn a_command_with_a_closed_output_ends_quietly() {
    let node = both_in_one();
    let capture = node.directory.path().join("net.pcapng");
    let capture = capture.to_str().unwrap();
    node.run(&["capture", "net.a", "--count", "1", "--write", capture]);
    for words in [
        &["--help"][..],
        &["ipcp", "list"],
        &["--json", "ipcp", "list"],
        &["dif", "map", "net"],
        &["policy", "list"],
        &["top", "--once"],
        &["dissect", capture],
        &["capture", "net.a"],
        &["capture", "net.a", "--write", "-"],
    ] {
        let output = unread(&node, words);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(141), "{words:?}: {printed}");
        assert_eq!(printed, "", "{words:?}");
    }
}

#[test]
fn a_reader_that_goes_away_does_not_wait_for_input() {
    let node = Node::new();
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    let mut listener = command
        .args(["--wait", "60s", "cat", "--listen", "files"])
        .stdout(Stdio::null())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(listener.stdin.as_mut().unwrap(), b"a line\n").unwrap();
    let output = unread(&node, &["--wait", "60s", "cat", "files"]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*printed), (Some(141), ""));
    let _ = listener.kill();
    let _ = listener.wait();
}
