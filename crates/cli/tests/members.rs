//! Commands about members of a DIF: what is in their RIBs, who may be one, who has to go.

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

    /// A command that fails with this exit code, and what it says.
    fn fails(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    fn paths(&self, words: &[&str]) -> Vec<String> {
        let objects = self.done(&[&["rib", "list"], words].concat());
        let objects = objects.as_array().unwrap().iter();
        objects
            .map(|object| object["path"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

#[test]
fn objects_are_chosen_by_depth_and_by_conditions() {
    let site = Site::new();
    let top = site.paths(&["/", "--depth", "1"]);
    assert!(top.contains(&"/members".to_owned()), "{top:?}");
    assert!(
        top.iter().all(|path| path.matches('/').count() == 1),
        "{top:?}"
    );
    let of_b = ["--member", "net.b"];
    for whose in [&[][..], &of_b] {
        let words = ["--where", "class=qos_cube", "--where", "name=reliable"];
        assert_eq!(site.paths(&[&words, whose].concat()), ["/dif/cubes/3"]);
    }
    assert!(site.paths(&["--where", "class=nothing"]).is_empty());
    let said = site.fails(&["rib", "list", "--where", "reliable"], 2);
    assert!(said.contains("FIELD=VALUE"), "{said}");
}

#[test]
fn a_system_that_is_a_member_already_says_so() {
    let site = Site::new();
    for verb in ["join", "create"] {
        let said = site.fails(&["dif", verb, "net", "--over", "local"], 3);
        for word in ["already, as net.", "carina dif extend", "--ipcp"] {
            assert!(said.contains(word), "{verb}: {word}: {said}");
        }
    }
    assert_eq!(site.done(&["ipcp", "list"]).as_array().unwrap().len(), 3);
}

#[test]
fn a_member_is_told_to_leave() {
    let site = Site::new();
    let said = site.fails(&["dif", "expel", "net", "net.c"], 1);
    assert!(said.contains("net.c"), "{said}");
    assert_eq!(
        site.done(&["dif", "expel", "net", "net.b"])["expelled"],
        "net.b"
    );
    // Half a second for its last words, and it is gone.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let ipcps = site.done(&["ipcp", "list"]);
        let mut ipcps = ipcps.as_array().unwrap().iter();
        let member = ipcps.find(|ipcp| ipcp["name"] == "net.b").unwrap();
        if member["member"]["state"] == "left" {
            break;
        }
        assert!(std::time::Instant::now() < until, "{member}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let members = site.paths(&["/members", "--depth", "1"]);
    assert_eq!(members, ["/members", "/members/net.a"]);
}
