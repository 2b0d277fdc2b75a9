//! Commands in nodes whose output is larger than any buffer.

use std::io::{BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::node::CARINA;
use crate::commands::providers::is_root;

/// An agent of its own run directory, started by `up`; what it has made ends with this value.
struct Here(tempfile::TempDir);

impl Here {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(CARINA);
        command
            .args(words)
            .env("CARINA_RUN", self.0.path().join("run"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// A command in a node, whose outputs are read while it runs.
    fn exec(&self, node: &str, script: &str) -> Child {
        let words = ["vnet", "exec", node, "sh", "-c", script];
        let mut command = self.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = self.run(&["vnet", "down", "--all"]);
    }
}

/// How long anything may take on a slow machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The most memory that a process has had, bytes; `None` once it has ended.
fn peak_of(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib: u64 = line
        .and_then(|line| line.split_whitespace().nth(1))
        .map(|word| word.parse().unwrap())?;
    Some(kib << 10)
}

/// Runs a command that writes `yes` lines and checks each byte, standard error, the exit code, and
/// that `exec` does not grow.
fn takes_all(here: &Here, node: &str, bytes: usize) {
    let script = format!("yes 0123456789 | head -c {bytes}; echo err >&2; exit 7");
    let began = Instant::now();
    let mut child = here.exec(node, &script);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let (mut at, mut buffer, mut first) = (0, vec![0; 64 << 10], None);
    let mut peak = 0;
    while let length @ 1.. = output.read(&mut buffer).unwrap() {
        let expected = |at: usize| b"0123456789\n"[at % 11];
        assert!((0..length).all(|offset| buffer[offset] == expected(at + offset)));
        at += length;
        // The command may end while the pipe still has some of its output.
        if let Some(now) = peak_of(&child) {
            peak = now;
            first.get_or_insert(peak);
        }
    }
    let mut errors = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut errors).unwrap();
    assert_eq!((at, errors.as_str()), (bytes, "err\n"));
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let grown = peak - first.unwrap();
    eprintln!(
        "{bytes} bytes of {node} in {:?}; exec grew by {grown} bytes",
        began.elapsed()
    );
    assert!(grown < 8 << 20, "exec grew by {grown} bytes");
}

/// Waits until a file with a process number is there, and returns the number.
fn pid_in(here: &Here, node: &str, file: &str) -> String {
    let begin = Instant::now();
    loop {
        let output = here.run(&["vnet", "exec", node, "cat", file]);
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() && !text.is_empty() {
            return text;
        }
        assert!(begin.elapsed() < LIMIT, "{output:?}");
    }
}

/// Waits until a process of a node has ended, whether or not its parent has noticed.
fn ends(here: &Here, node: &str, pid: &str) {
    let begin = Instant::now();
    let runs = format!("grep -q '^State:.[^Z]' /proc/{pid}/status");
    while here
        .run(&["vnet", "exec", node, "sh", "-c", &runs])
        .status
        .success()
    {
        assert!(begin.elapsed() < LIMIT, "{pid} of {node} runs on");
    }
}

#[test]
fn large_output_of_nodes_of_either_kind_comes_whole() {
    if !is_root() {
        return;
    }
    let here = Here(tempfile::tempdir().unwrap());
    let file = here.0.path().join("large.toml");
    let text = "[vnet]\nname = \"large\"\n[node.a]\nkind = \"namespace\"\n[node.m]\nmemory = 128\n\
        [[link]]\nends = [\"a\", \"m\"]\nrate = \"10Mbps\"\n";
    std::fs::write(&file, text).unwrap();
    let up = here.run(&["vnet", "up", file.to_str().unwrap()]);
    assert!(up.status.success(), "{up:?}");
    takes_all(&here, "a", 64 << 20);
    // An emulated port carries some 100 kB a second.
    takes_all(&here, "m", 8 << 20);
    for (node, directory) in [("a", here.0.path().to_str().unwrap()), ("m", "/tmp")] {
        // A reader that closes its end.
        let note = format!("{directory}/reader");
        let mut child = here.exec(node, &format!("echo $$ >{note}; exec yes"));
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0; 1000]).unwrap();
        drop(output);
        assert_eq!(child.wait().unwrap().code(), Some(141));
        ends(&here, node, &pid_in(&here, node, &note));
        // Ctrl-C.
        let note = format!("{directory}/interrupted");
        let mut child = here.exec(node, &format!("echo $$ >{note}; exec sleep 1234"));
        let pid = pid_in(&here, node, &note);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        ends(&here, node, &pid);
    }
    // `--json` leaves output as it is, and makes errors of `exec` JSON.
    let json = here.run(&["--json", "vnet", "exec", "a", "echo", "as it is"]);
    assert_eq!(json.stdout, b"as it is\n");
    let json = here.run(&["--json", "vnet", "exec", "z", "true"]);
    let error: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let words = error["error"]["message"].as_str().unwrap();
    assert!(words.contains("it has: a, m"), "{words}");
}
