//! Test of the scheduling priority of a node.

use std::fs;
use std::process::Command;

use crate::commands::node::{CARINA, Node};

/// The nice values of all threads of a process (proc(5), field 19 of `stat`).
fn nice_values(pid: u32) -> Vec<i32> {
    let mut all = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        // A thread that has just ended has no such file.
        let Ok(text) = fs::read_to_string(task.unwrap().path().join("stat")) else {
            continue;
        };
        // The program's name, in parentheses, may contain blanks.
        let (_, fields) = text.rsplit_once(')').unwrap();
        all.push(fields.split_whitespace().nth(16).unwrap().parse().unwrap());
    }
    all
}

#[test]
fn all_threads_of_a_node_take_its_precedence() {
    let node = Node::with_options(&["--nice", "7"]);
    node.done(&["ipcp", "list"]);
    let all = nice_values(node.pid());
    assert!(
        all.len() > 1 && all.iter().all(|nice| *nice == 7),
        "{all:?}"
    );
}

#[test]
fn precedence_out_of_range_is_refused() {
    let output = Command::new(CARINA).args(["node", "--nice", "20"]).output();
    let output = output.unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains("--nice") && printed.contains("19"),
        "{printed}"
    );
}
