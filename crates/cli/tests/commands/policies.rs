//! `carina policy set --all`, with nodes of its own.

use std::process::Command;

use serde_json::Value;

use crate::node::{CARINA, Node, both_in_one, one_in_each};

impl Node {
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

#[test]
fn a_policy_is_written_to_every_member_and_each_decides() {
    let site = both_in_one();
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

#[test]
fn a_member_refuses_whom_its_access_control_does_not_let_write() {
    let [a, b] = one_in_each();
    // What the operator of a system does to its own member is nobody else's to allow.
    b.done(&["policy", "set", "access-control=list", "--dif", "net"]);
    let (rows, code) = a.set_all("rmt-scheduling=weighted-fair");
    assert_eq!(code, 1);
    assert_eq!(rows[0], ("net.a".to_owned(), true, String::new()));
    let (member, taken, reason) = &rows[1];
    assert_eq!((member.as_str(), *taken, rows.len()), ("net.b", false, 2));
    for word in ["net.b", "may not write", "access-control"] {
        assert!(reason.contains(word), "{reason}");
    }
    // So does the table for people, and what is said of the whole.
    let words = ["policy", "set", "rmt-scheduling=weighted-fair", "--dif"];
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(a.directory.path().join("run"));
    let output = command.args(words).args(["net", "--all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout).unwrap();
    let row = table.lines().find(|line| line.starts_with("net.b"));
    assert!(row.unwrap().contains(reason.as_str()), "{table}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("1 of 2 members"), "{said}");
    assert_eq!(a.in_force("net.a", "rmt-scheduling"), "weighted-fair");
    assert_eq!(b.in_force("net.b", "rmt-scheduling"), "strict-priority");
    // Whom the list has may.
    let list = "access-control=list,write=net.a";
    b.done(&["policy", "set", list, "--dif", "net"]);
    let (rows, code) = a.set_all("rmt-scheduling=weighted-fair");
    assert!(
        code == 0 && rows.iter().all(|(_, taken, _)| *taken),
        "{rows:?}"
    );
    assert_eq!(b.in_force("net.b", "rmt-scheduling"), "weighted-fair");
}
