//! Tests that a node continues when its log cannot be written.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::node::CARINA;

/// A node whose standard error the test chooses. It ends with its test.
struct Logging {
    directory: tempfile::TempDir,
    process: Child,
}

impl Logging {
    fn new(stderr: impl Into<Stdio>) -> Logging {
        let directory = tempfile::tempdir().unwrap();
        let process = Command::new(CARINA)
            .arg("--run")
            .arg(directory.path())
            .arg("node")
            // This level writes lines for every request.
            .env("CARINA_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Logging { directory, process }
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(CARINA);
        command.args(["--wait", "60s", "--run"]);
        command.arg(self.directory.path()).args(words);
        command.output().unwrap()
    }

    /// Makes the node log, and checks that it works.
    fn works(&mut self, why: &str) {
        for number in 0..20 {
            let name = format!("lo{number}");
            for words in [
                &["ipcp", "create", &name, "--type", "loopback", "--dif", "x"][..],
                &["ipcp", "destroy", &name],
            ] {
                let output = self.run(words);
                let printed = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{why}: {words:?}: {printed}");
            }
        }
        assert!(self.process.try_wait().unwrap().is_none(), "{why}");
    }

    /// Ends the node as a service manager does, and checks that it ends in order.
    fn ends_in_order(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
        assert!(!self.directory.path().join("control.sock").exists());
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn node_goes_on_when_its_log_finds_no_space() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut node = Logging::new(full);
    node.works("/dev/full");
    node.ends_in_order();
}

#[test]
fn node_goes_on_when_the_reader_of_its_log_has_ended() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut node = Logging::new(writer);
    let mut line = String::new();
    let mut reader = BufReader::new(File::from(reader));
    // The reader reads a line before it ends.
    node.run(&["ipcp", "list"]);
    reader.read_line(&mut line).unwrap();
    assert!(!line.is_empty());
    drop(reader);
    node.works("a closed pipe");
    node.ends_in_order();
}

#[test]
fn node_goes_on_when_the_reader_of_its_log_stands_still() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    // The pipe is full before the node starts.
    let twin = writer.try_clone().unwrap();
    rustix::io::ioctl_fionbio(&twin, true).unwrap();
    while rustix::io::write(&twin, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&twin, false).unwrap();
    drop(twin);
    let mut node = Logging::new(writer);
    node.works("a full pipe");
    node.ends_in_order();
    drop(reader);
}

/// The two ends of a terminal: the one of its window, and the one of programs in it.
fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
    let window = rustix::pty::openpt(flags).unwrap();
    rustix::pty::grantpt(&window).unwrap();
    rustix::pty::unlockpt(&window).unwrap();
    let name = rustix::pty::ptsname(&window, Vec::new()).unwrap();
    let options = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let inside = rustix::fs::open(&name, options, rustix::fs::Mode::empty()).unwrap();
    (window, inside)
}

#[test]
fn node_goes_on_when_its_terminal_is_closed() {
    let (window, inside) = terminal();
    let mut node = Logging::new(inside);
    assert!(node.run(&["ipcp", "list"]).status.success());
    // From here on, writing to the terminal fails.
    drop(window);
    // A shell then sends this signal to its jobs.
    kill_process(Pid::from_child(&node.process), Signal::HUP).unwrap();
    node.works("a closed terminal");
    node.ends_in_order();
}

#[test]
fn last_lines_of_the_log_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let node = Logging::new(File::create(&log).unwrap());
    assert!(node.run(&["ipcp", "list"]).status.success());
    node.ends_in_order();
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(
        text.contains("loopback") && text.contains("node is stopping"),
        "{text}"
    );
}
