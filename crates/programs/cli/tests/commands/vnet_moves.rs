//! Test of a VM that moves while its agent is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::commands::node::CARINA;
use crate::commands::providers::{is_root, namespaces_of};

const LIMIT: Duration = Duration::from_secs(300);

/// An agent in a process of its own, and commands for it.
struct Site {
    directory: tempfile::TempDir,
    agent: Option<Child>,
}

impl Site {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(self.directory.path());
        command.args(["--json", "vnet"]).args(words);
        command.stdin(Stdio::null());
        command
    }

    fn done(&self, words: &[&str]) -> Output {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        output
    }

    fn begin(&mut self) {
        let mut command = self.command(&["agent"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.agent = Some(command.spawn().unwrap());
    }

    /// Kills the agent as `kill -9` does.
    fn kill(&mut self) {
        let mut agent = self.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(begin.elapsed() < LIMIT, "{what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The agent's report of the network; `None` if it does not answer.
    fn status(&self) -> Option<Value> {
        let output = self.command(&["status"]).output().unwrap();
        serde_json::from_slice(&output.stdout).ok()
    }

    fn wait_until_ready(&self) {
        self.wait("ready", || {
            let status = self.status()?;
            (status["state"] == "ready").then_some(())
        });
    }

    fn network(&self) -> PathBuf {
        self.directory.path().join("vnet/moves")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.agent.is_some() {
            self.kill();
        }
        // Removes what a failed test has left, without an agent.
        let _ = self.command(&["down", "--all"]).output();
    }
}

/// The QEMU processes that have a file in a directory open.
fn machines(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let records = paths.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "machine")
    });
    let pid = |path: PathBuf| {
        let record: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        Some(record["pid"].to_string())
    };
    let alive = |pid: &String| Path::new("/proc").join(pid).exists();
    records.filter_map(pid).filter(alive).collect()
}

#[test]
fn machine_is_on_one_side_after_its_agent_was_killed() {
    if !is_root() {
        return;
    }
    let mut site = Site {
        directory: tempfile::tempdir().unwrap(),
        agent: None,
    };
    let file = site.directory.path().join("moves.toml");
    let text = "[vnet]\nname = \"moves\"\n[node.a]\nmemory = 128\n[node.b]\nkind = \"namespace\"\n\
                [[link]]\nends = [\"b\", \"a\"]\nrate = \"10Mbps\"\n";
    std::fs::write(&file, text).unwrap();
    site.begin();
    site.wait("the agent", || {
        let output = site.command(&["list"]).output().unwrap();
        (site.directory.path().join("vnet.sock").exists() && output.status.success()).then_some(())
    });
    site.done(&["up", file.to_str().unwrap()]);
    let uid = site.status().unwrap()["vnet"].as_str().unwrap().to_owned();
    site.done(&["exec", "a", "sh", "-c", "echo here >/tmp/mark"]);
    for wait in [200, 600, 1200, 2000] {
        let mut moves = site.command(&["migrate", "a"]);
        moves.stdout(Stdio::null()).stderr(Stdio::null());
        let mut moves = moves.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let under_way = machines(&site.network().join("to")).len();
        site.kill();
        moves.wait().unwrap();
        site.begin();
        site.wait_until_ready();
        println!("killed after {wait} ms, {under_way} under way");
        // The VM was not restarted, and exists only once.
        let output = site.done(&["exec", "a", "cat", "/tmp/mark"]);
        assert_eq!(output.stdout, b"here\n");
        assert!(!site.network().join("to").exists());
        assert_eq!(machines(&site.network().join("vm")).len(), 1);
        let inside = format!("cv-{uid}");
        let ports = Command::new("ip")
            .args(["-n", &inside, "-br", "link"])
            .output();
        let ports = String::from_utf8(ports.unwrap().stdout).unwrap();
        assert_eq!(
            ports.lines().filter(|line| line.starts_with('l')).count(),
            3,
            "{ports}"
        );
        site.done(&["test"]);
    }
    site.done(&["down"]);
    assert_eq!(namespaces_of(&[uid]), Vec::<String>::new());
    assert!(!site.network().exists());
}
