//! `carina policy set --all`, with a node of its own.

// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The program under test.
const CARINA: &str = env!("CARGO_BIN_EXE_carina");

/// A node in which DIF `net` has the members `net.a` and `net.b`.
struct Site {
    directory: tempfile::TempDir,
    node: Child,
}

impl Site {
    fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let node = Command::new(CARINA)
            .arg("--run")
            .arg(directory.path().join("run"))
            .arg("node")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let site = Site { directory, node };
        site.done(&["dif", "create", "net", "--over", "local", "--ipcp", "net.a"]);
        site.done(&[
            "dif", "join", "net", "--over", "local", "--ipcp", "net.b", "--via", "net.a",
        ]);
        // A way between them is known a little later.
        site.done(&["dif", "map", "net"]);
        site
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(self.directory.path().join("run"));
        command.args(["--wait", "60s", "--json"]).args(words);
        command.output().unwrap()
    }

    fn done(&self, words: &[&str]) -> Value {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Who took a policy, and the exit code.
    fn set_all(&self, choice: &str) -> (Vec<(String, bool, String)>, i32) {
        let output = self.run(&["policy", "set", choice, "--dif", "net", "--all"]);
        let mut values = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let table = values.next().unwrap().unwrap();
        let rows = table["members"].as_array().unwrap().iter().map(|row| {
            let reason = row["reason"].as_str().unwrap_or_default();
            let member = row["member"].as_str().unwrap();
            let taken = row["taken"].as_bool().unwrap();
            (member.to_owned(), taken, reason.to_owned())
        });
        (rows.collect(), output.status.code().unwrap())
    }

    fn in_force(&self, member: &str, component: &str) -> Value {
        let path = format!("/policies/{component}");
        let objects = self.done(&["rib", "read", &path, "--dif", "net", "--member", member]);
        objects[0]["fields"]["name"].clone()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

#[test]
fn a_policy_is_written_to_every_member_and_each_decides() {
    let site = Site::new();
    let (rows, code) = site.set_all("rmt-scheduling=strict-priority");
    let taken = |member: &str| (member.to_owned(), true, String::new());
    assert_eq!(rows, [taken("net.a"), taken("net.b")]);
    assert_eq!(code, 0);
    for member in ["net.a", "net.b"] {
        assert_eq!(site.in_force(member, "rmt-scheduling"), "strict-priority");
    }
    let (rows, code) = site.set_all("delimiting=none");
    assert_eq!(code, 1);
    for (member, taken, reason) in rows {
        assert!(!taken, "{member}");
        assert!(reason.contains("while the DIF runs"), "{member}: {reason}");
    }
}
