//! Tests of commands that wait for something that never happens: each ends in time, and says what
//! it waited for.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::commands::node::{CARINA, Node, one_in_each};

/// The least time that a node has to answer, as the help of `--wait` says, and an allowance for a
/// busy machine.
const LIMIT: Duration = Duration::from_secs(5);
const ROOM: Duration = Duration::from_secs(60);

fn command(node: &Node, words: &[&str]) -> Command {
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.args(["--wait", "5s"]).args(words);
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end, and returns its output. A command that does not end in time is
/// killed.
fn ended(mut command: Command) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT + ROOM {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// The exit code and the error output of a command.
fn failed(output: &Output) -> (Option<i32>, String) {
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), printed)
}

#[test]
fn no_command_waits_for_ever_for_a_node_that_is_stopped() {
    let node = Node::new();
    node.done(&["ipcp", "list"]);
    let file = node.directory.path().join("empty.toml");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    // Each command, with what it says that it waited for.
    let commands: [(&[&str], &str); 18] = [
        (&["ipcp", "list"], "GET /v1/ipcps"),
        (&["ipcp", "destroy", "x"], "DELETE /v1/ipcps/x"),
        (&["app", "list"], "GET /v1/apps"),
        (&["flow", "list"], "GET /v1/flows"),
        (&["dif", "list"], "GET /v1/difs"),
        (&["dif", "show", "net"], "GET /v1/"),
        (&["dif", "leave", "net"], "/v1/difs/net"),
        (&["rib", "list"], "/v1/rib"),
        (&["policy", "list", "--dif", "net"], "/v1/"),
        (&["vm", "list"], "GET /v1/vms"),
        (&["vm", "args", "a"], "GET /v1/vms/a"),
        (&["apply", file], "POST /v1/apply"),
        (&["capture", "loopback", "--for", "1s"], "POST /v1/captures"),
        (&["ping", "a", "-c", "1"], "the request for a flow"),
        (&["ping", "--listen", "a"], "the registration"),
        (&["perf", "-t", "1s"], "the request for a flow"),
        (&["cat", "a"], "the request for a flow"),
        (&["register", "a", "--for", "1s"], "the registration"),
    ];
    node.signal(Signal::STOP);
    std::thread::scope(|scope| {
        for (words, awaited) in commands {
            let node = &node;
            scope.spawn(move || {
                let start = Instant::now();
                let output = ended(command(node, words));
                let (code, printed) = failed(&output);
                assert_eq!(code, Some(1), "{words:?}: {printed}");
                assert!(printed.contains("has not answered"), "{words:?}: {printed}");
                assert!(printed.contains(awaited), "{words:?}: {printed}");
                assert!(printed.contains("within 5 s"), "{words:?}: {printed}");
                let elapsed = start.elapsed();
                assert!(
                    elapsed >= LIMIT && elapsed < LIMIT + ROOM,
                    "{words:?}: {elapsed:?}"
                );
            });
        }
    });
    // The node was only stopped, not overloaded, so it works again.
    node.signal(Signal::CONT);
    node.done(&["ipcp", "list"]);
}

#[test]
fn ping_ends_when_the_node_is_stopped_on_the_way() {
    let [a, b] = one_in_each();
    let mut server = command(&b, &["ping", "--listen", "echo.b", "--dif", "net"]);
    let mut server = server
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    a.done(&["ping", "echo.b", "-c", "1"]);
    b.signal(Signal::STOP);
    let words = [
        "ping",
        "echo.b",
        "-c",
        "1",
        "--spec",
        "unreliable",
        "--timeout",
        "1s",
    ];
    let start = Instant::now();
    let output = ended(command(&a, &words));
    b.signal(Signal::CONT);
    let (code, printed) = failed(&output);
    let elapsed = start.elapsed();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("has not answered") || printed.contains("did not answer"),
        "{printed}"
    );
    assert!(elapsed < LIMIT + ROOM, "{elapsed:?}");
}

#[test]
fn perf_ends_when_the_node_is_stopped_on_the_way() {
    let [a, b] = one_in_each();
    let mut server = command(&b, &["perf", "--listen", "perf.b", "--dif", "net"]);
    let mut server = server
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    a.done(&["perf", "perf.b", "-c", "1"]);
    let start = Instant::now();
    let client = command(
        &a,
        &[
            "--json",
            "perf",
            "perf.b",
            "-t",
            "6s",
            "--interval",
            "100ms",
        ],
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    // Whether or not the job has begun, the client must end.
    std::thread::sleep(Duration::from_secs(2));
    b.signal(Signal::STOP);
    let output = client.wait_with_output().unwrap();
    b.signal(Signal::CONT);
    let elapsed = start.elapsed();
    server.kill().unwrap();
    server.wait().unwrap();
    let (code, printed) = failed(&output);
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("stalled")
            || printed.contains("has not answered")
            || printed.contains("nothing"),
        "{printed}"
    );
    assert!(elapsed < Duration::from_secs(60) + ROOM, "{elapsed:?}");
}
