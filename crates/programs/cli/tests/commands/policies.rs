//! Tests of `carina policy`, and of policies of a new DIF.

use std::process::Command;

use serde_json::Value;

use crate::commands::node::{CARINA, Node, both_in_one, one_in_each};

impl Node {
    /// Sets a policy at all members. Returns for each member its name, whether it accepted, and the
    /// reason, and the exit code.
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
    // This policy cannot change while the DIF exists, at any member.
    let (rows, code) = site.set_all("delimiting=none");
    assert_eq!(code, 3);
    let set = ["policy", "set", "delimiting=none", "--dif", "net"];
    for of in [&[][..], &["--member", "net.b"]] {
        let printed = site.fails(&[&set, of].concat(), 3);
        assert!(printed.contains("while the DIF runs"), "{printed}");
    }
    for (member, taken, reason) in rows {
        assert!(!taken, "{member}");
        assert!(reason.contains("while the DIF runs"), "{member}: {reason}");
    }
}

/// Invalid choices for a component, each with a part of the error.
const BAD: [(&str, &str); 5] = [
    ("rmt-que=red", "there are:"),
    ("rmt-queue=re", "there are: ecn-mark, tail-drop, red"),
    ("rmt-queue=red,leas=50", "no parameter \"leas\""),
    ("rmt-queue=red,least=x", "a whole number from 1 to 1000000"),
    ("routing=link-state,max_paths=x", "max_paths is \"x\""),
];

#[test]
fn every_wrong_policy_is_refused_with_one_exit_code() {
    let site = both_in_one();
    for (choice, words) in BAD {
        for of in [&[][..], &["--member", "net.b"], &["--all"]] {
            let set = ["policy", "set", choice, "--dif", "net"];
            let printed = site.fails(&[&set, of].concat(), 3);
            assert!(
                of == ["--all"] || printed.contains(words),
                "{choice}: {printed}"
            );
        }
        let make = ["dif", "create", "other", "--over", "local", "--policy"];
        let printed = site.fails(&[&make, &[choice][..]].concat(), 3);
        assert!(printed.contains(words), "{choice}: {printed}");
    }
    // This includes parameters that only a flow, or a neighbour, would use.
    for (choice, words) in [
        ("congestion-control=cubic,keep-percent=1000", "keep-percent"),
        ("sdu-protection=aead,cipher=rot13", "aes-256-gcm or"),
        ("authentication=ed25519,allowed=x", "allowed, key 1"),
        ("authentication=xor-password", "there are: none, password"),
    ] {
        let make = [
            "dif", "create", "other", "--over", "local", "--policy", choice,
        ];
        let printed = site.fails(&make, 3);
        assert!(printed.contains(words), "{choice}: {printed}");
    }
    for (option, value) in [("--max-pdu", "5"), ("--hop-limit", "0")] {
        let make = ["dif", "create", "other", "--over", "local", option, value];
        let printed = site.fails(&make, 3);
        assert!(printed.contains(&option[2..5]), "{option}: {printed}");
    }
    // None of the refused commands left anything behind.
    assert_eq!(site.done(&["ipcp", "list"]).as_array().unwrap().len(), 3);
}

#[test]
fn bad_configuration_is_refused_at_start_and_by_apply() {
    let site = Node::new();
    let file = site.directory.path().join("node.toml");
    let text = "[[dif]]\nname = \"net\"\nrole = \"create\"\nover = [\"local\"]\n\
                [dif.config.policies.rmt-queue]\nname = \"red\"\nparams = { least = \"x\" }\n";
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let printed = site.fails(&["apply", path], 3);
    assert!(printed.contains("a whole number from"), "{printed}");
    let other = site.directory.path().join("other");
    let mut command = Command::new(CARINA);
    command
        .arg("--run")
        .arg(other)
        .args(["node", "--config", path]);
    let judge = |command: &mut Command| {
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{printed}");
        printed
    };
    assert!(judge(&mut command).contains("a whole number from"));
    std::fs::write(
        &file,
        "[[dif]]\nname = \"n\"\nrole = \"create\"\nover = [\"x\"]\n",
    )
    .unwrap();
    let place = format!("configuration {path}: line 1: [[dif]] n: this system is in no DIF x");
    for printed in [judge(&mut command), judge(command.arg("--check"))] {
        assert!(printed.contains(&place), "{printed}");
    }
}

#[test]
fn a_configuration_that_is_wrong_somewhere_is_not_done_in_part() {
    let site = Node::new();
    let file = site.directory.path().join("node.toml");
    let apply = |config: &str, code: i32| {
        let text =
            format!("[[dif]]\nname = \"net\"\nrole = \"create\"\nover = [\"local\"]\n{config}\n");
        std::fs::write(&file, text).unwrap();
        let output = site.run(&["apply", file.to_str().unwrap()]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{config}: {printed}");
        printed
    };
    apply("", 0);
    let made = || site.done(&["ipcp", "list"])[1].clone();
    let (id, before) = (made()["id"].clone(), made()["member"].clone());
    assert_eq!(before["state"], "enrolled");
    let cube = |name| format!("[[dif.config.cubes]]\nid = 1\nname = \"{name}\"\n");
    for (config, words) in [
        (
            "[dif.config.policies.rmt-queue]\nname = \"red\"\nparams = { least = \"0\" }".into(),
            "least",
        ),
        (
            "[dif.config.policies.rmt-queu]\nname = \"red\"".into(),
            "rmt-queu",
        ),
        ([cube("a"), cube("b")].concat(), "and unique"),
        (
            "[dif.config]\nmax_pdu = 70000".into(),
            "max-pdu must be 128",
        ),
        ("auth = \"password:/no/file\"".into(), "/no/file"),
    ] {
        let config: String = config;
        let printed = apply(&config, 3);
        let names_dif = printed.contains("DIF net") || printed.contains("[[dif]] net");
        assert!(names_dif && printed.contains(words), "{printed}");
        assert_eq!(
            (&made()["id"], &made()["member"]["state"]),
            (&id, &before["state"])
        );
    }
    // A valid combination is accepted: encryption, with authentication configured separately.
    let secret = site.directory.path().join("password");
    std::fs::write(&secret, "secret\n").unwrap();
    let protected = format!(
        "auth = \"password:{}\"\n[dif.config.policies.sdu-protection]\nname = \"aead\"",
        secret.display()
    );
    apply(&protected, 0);
    assert_ne!(made()["id"], id);
    // An address that is configured for the member's name is accepted too.
    let named = "[[dif]]\nname = \"i\"\nrole = \"create\"\nover = [\"local\"]\n\
                 ipcp = \"x.IPCP\"\ndialect = \"irati\"\n\
                 [dif.config.policies.address-assignment]\nname = \"known-addresses\"\n\
                 params = { addresses = \"x.IPCP=16\", prefixes = \"\" }";
    apply(named, 0);
}

#[test]
fn parameters_come_with_the_policy_that_they_are_of() {
    let site = both_in_one();
    let set = [
        "policy",
        "set",
        "rmt-queue=red,least=50,share=7",
        "--dif",
        "net",
    ];
    for of in [&[][..], &["--member", "net.b"]] {
        let fields = &site.done(&[&set, of].concat())[0]["fields"];
        let told = ["name", "least", "share", "most"].map(|field| fields[field].as_str());
        assert_eq!(told, ["red", "50", "7", "256"].map(Some), "{of:?}");
    }
}

#[test]
fn the_choices_that_a_member_shows_are_those_of_its_dialect() {
    let site = both_in_one();
    let known = site.done(&["policy", "list", "--dif", "net"]);
    let policies = known["policies"].as_array().unwrap();
    for member in ["net.a", "net.b"] {
        let of = ["--dif", "net", "--member", member, "--depth", "1"];
        let objects = site.done(&[&["rib", "list", "/policies"], &of[..]].concat());
        let objects = objects.as_array().unwrap();
        assert_eq!(objects.len(), 16);
        for object in &objects[1..] {
            let path = object["path"].as_str().unwrap();
            let component = path.strip_prefix("/policies/").unwrap();
            let named = policies
                .iter()
                .filter(|policy| policy["component"] == component);
            let names: Vec<_> = named.map(|policy| policy["name"].clone()).collect();
            assert_eq!(object["fields"]["choices"], Value::Array(names), "{path}");
        }
    }
}

#[test]
fn a_member_refuses_whom_its_access_control_does_not_let_write() {
    let [a, b] = one_in_each();
    // The operator of a system may change its own member without permission of other members.
    b.done(&["policy", "set", "access-control=list", "--dif", "net"]);
    let (rows, code) = a.set_all("rmt-scheduling=weighted-fair");
    assert_eq!(code, 1);
    assert_eq!(rows[0], ("net.a".to_owned(), true, String::new()));
    let (member, taken, reason) = &rows[1];
    assert_eq!((member.as_str(), *taken, rows.len()), ("net.b", false, 2));
    for word in ["net.b", "may not write", "access-control"] {
        assert!(reason.contains(word), "{reason}");
    }
    // The table for people and the summary also report it.
    let words = ["policy", "set", "rmt-scheduling=weighted-fair", "--dif"];
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(a.directory.path().join("run"));
    let output = command.args(words).args(["net", "--all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout).unwrap();
    let row = table.lines().find(|line| line.starts_with("net.b"));
    assert!(row.unwrap().contains(reason.as_str()), "{table}");
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("1 of 2 members"), "{printed}");
    assert_eq!(a.in_force("net.a", "rmt-scheduling"), "weighted-fair");
    assert_eq!(b.in_force("net.b", "rmt-scheduling"), "strict-priority");
    // A member in the list may change the policy.
    let list = "access-control=list,write=net.a";
    b.done(&["policy", "set", list, "--dif", "net"]);
    let (rows, code) = a.set_all("rmt-scheduling=weighted-fair");
    assert!(
        code == 0 && rows.iter().all(|(_, taken, _)| *taken),
        "{rows:?}"
    );
    assert_eq!(b.in_force("net.b", "rmt-scheduling"), "weighted-fair");
}
