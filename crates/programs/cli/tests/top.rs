//! Tests of commands that take over a terminal: they restore it, however they end.

// Helper functions of tests may panic, as tests may.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The program under test.
const CARINA: &str = env!("CARGO_BIN_EXE_carina");

/// Time limit for a very busy machine. It only ends a test that hangs; no result depends on it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Text that is on the screen once it has been drawn.
const FOOT: &[u8] = b"q ends";

/// A node that ends with the test.
struct Node(Child);

impl Node {
    fn new(run: &Path) -> Node {
        let mut node = Command::new(CARINA);
        node.arg("--run").arg(run).arg("node");
        node.stdout(Stdio::null()).stderr(Stdio::null());
        let node = Node(node.spawn().unwrap());
        let mut list = Command::new(CARINA);
        list.arg("--run").arg(run).args(["--wait", "600s"]);
        let output = list.args(["ipcp", "list"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        node
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A terminal: the side of the person, and the side of programs.
struct Terminal {
    person: File,
    programs: OwnedFd,
    /// Everything that programs write to the terminal.
    written: Receiver<Vec<u8>>,
}

impl Terminal {
    fn new() -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let person = openpt(flags).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let programs = ioctl_tiocgptpeer(&person, flags).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&programs, size).unwrap();
        let person = File::from(person);
        let mut reads = person.try_clone().unwrap();
        let (sender, written) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // Reading fails when no program has the terminal open any more.
            while let Ok(length @ 1..) = reads.read(&mut piece) {
                let _ = sender.send(piece[..length].to_vec());
            }
        });
        Terminal {
            person,
            programs,
            written,
        }
    }

    fn side(&self) -> Stdio {
        self.programs.try_clone().unwrap().into()
    }
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    last(text, part).is_some()
}

/// Offset of the last occurrence of `part` in `text`.
fn last(text: &[u8], part: &[u8]) -> Option<usize> {
    let mut places = text.windows(part.len());
    places.rposition(|place| place == part)
}

/// Runs `carina top` on a terminal, ends it with `end` once it has drawn, and checks the state of
/// the terminal.
fn leaves_the_terminal_as_it_was(run: &Path, how: &str, end: impl FnOnce(&Child, &mut File)) {
    let mut terminal = Terminal::new();
    let before = tcgetattr(&terminal.programs).unwrap();
    let mut top = {
        // The command object has the terminal open too, so it must be dropped.
        let mut top = Command::new(CARINA);
        top.arg("--run").arg(run).arg("top").env("TERM", "xterm");
        top.stdin(terminal.side()).stdout(terminal.side());
        top.stderr(terminal.side()).spawn().unwrap()
    };
    let mut written = Vec::new();
    while !holds(&written, FOOT) {
        written.extend(terminal.written.recv_timeout(PATIENCE).unwrap());
    }
    let during = tcgetattr(&terminal.programs).unwrap();
    assert!(!during.local_modes.contains(LocalModes::ICANON), "{how}");
    end(&top, &mut terminal.person);
    let status = top.wait().unwrap();
    assert!(status.success(), "{how}: {status}");
    let after = tcgetattr(&terminal.programs).unwrap();
    assert_eq!(after.local_modes, before.local_modes, "{how}");
    assert_eq!(after.input_modes, before.input_modes, "{how}");
    assert_eq!(after.output_modes, before.output_modes, "{how}");
    drop(terminal.programs);
    written.extend(terminal.written.iter().flatten());
    let text = String::from_utf8_lossy(&written);
    for (on, off) in [("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")] {
        let [on, off] = [on, off].map(|code| last(&written, code.as_bytes()));
        assert!(on.is_some() && on < off, "{how}: {text:?}");
    }
}

#[test]
fn signals_and_keys_leave_the_terminal_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let _node = Node::new(&run);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        leaves_the_terminal_as_it_was(&run, &format!("{signal:?}"), |top, _| {
            kill_process(Pid::from_child(top), signal).unwrap();
        });
    }
    for key in ["q", "\x03"] {
        leaves_the_terminal_as_it_was(&run, &format!("key {key:?}"), |_, person| {
            person.write_all(key.as_bytes()).unwrap();
        });
    }
}

/// Writes the record of a VM whose process is this one, and whose console is a socket of this test.
fn machine_with_console(run: &Path) -> UnixListener {
    let directory = run.join("vm");
    std::fs::create_dir_all(&directory).unwrap();
    let console = directory.join("a.console");
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    // Field 22 of proc(5), counted from the third.
    let started: u64 = fields.split(' ').nth(19).unwrap().parse().unwrap();
    let record = serde_json::json!({
        "name": "a", "pid": std::process::id(), "started_ticks": started, "accel": "tcg",
        "memory_mib": 1, "cpus": 1, "qmp": "none", "console": console, "agent": "none",
        "log": "none", "qemu_log": "none", "files": [],
    });
    std::fs::write(directory.join("a.machine"), record.to_string()).unwrap();
    UnixListener::bind(console).unwrap()
}

#[test]
fn signals_leave_the_terminal_of_a_console_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let machine = machine_with_console(&run);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let terminal = Terminal::new();
        let before = tcgetattr(&terminal.programs).unwrap();
        let mut console = Command::new(CARINA);
        console.arg("--run").arg(&run).args(["vm", "console", "a"]);
        console.stdin(terminal.side()).stdout(terminal.side());
        let mut console = console.stderr(terminal.side()).spawn().unwrap();
        let (mut guest, _) = machine.accept().unwrap();
        guest.write_all(b"login: ").unwrap();
        let mut written = Vec::new();
        while !holds(&written, b"login: ") {
            written.extend(terminal.written.recv_timeout(PATIENCE).unwrap());
        }
        let during = tcgetattr(&terminal.programs).unwrap();
        assert!(
            !during.local_modes.contains(LocalModes::ICANON),
            "{signal:?}"
        );
        kill_process(Pid::from_child(&console), signal).unwrap();
        let status = console.wait().unwrap();
        assert!(status.success(), "{signal:?}: {status}");
        let after = tcgetattr(&terminal.programs).unwrap();
        assert_eq!(after.local_modes, before.local_modes, "{signal:?}");
        assert_eq!(after.input_modes, before.input_modes, "{signal:?}");
    }
}
