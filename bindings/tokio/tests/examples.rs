//! Runs the examples of this crate with a real node.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::{Killed, TestNode};

/// `cargo test` has built the examples beside the tests.
fn example(node: &TestNode, name: &str, arguments: &[&str]) -> Command {
    let tests = std::env::current_exe().unwrap();
    let built: PathBuf = tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples")
        .join(name);
    let mut command = Command::new(built);
    command
        .env("CARINA_RUN", node.directory.path())
        .args(arguments);
    command
}

/// Starts a server and waits until its name is registered.
fn server(node: &TestNode, name: &str, arguments: &[&str]) -> Killed {
    let mut command = example(node, name, arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let child = Killed(child);
    assert_eq!(lines.next().unwrap().unwrap(), "registered as the.server");
    // The server would be killed by SIGPIPE if its standard output were closed.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

fn client(node: &TestNode, name: &str, arguments: &[&str]) -> String {
    let output = example(node, name, arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn example_server_answers_the_example_client() {
    let Some(node) = TestNode::start() else {
        return;
    };
    node.client().await;
    let _server = server(&node, "server", &["the.server"]);
    let output = client(&node, "client", &["the.server", "hello", "two words"]);
    assert!(output.ends_with("\nhello\ntwo words\n"), "{output}");
}

#[tokio::test]
async fn http2_runs_over_flows() {
    let Some(node) = TestNode::start() else {
        return;
    };
    node.client().await;
    let _server = server(&node, "http2", &["server", "the.server"]);
    let output = client(&node, "http2", &["client", "the.server", "/page"]);
    assert_eq!(output, "200 OK: /page for browser.example\n");
}

#[tokio::test]
async fn grpc_runs_over_flows() {
    let Some(node) = TestNode::start() else {
        return;
    };
    node.client().await;
    let _server = server(&node, "grpc", &["server", "the.server"]);
    let output = client(&node, "grpc", &["client", "the.server", "world"]);
    assert_eq!(output, "hello world, from the server of caller.example\n");
}
