//! Waits of tests for commands, each with a deadline: a program that hangs fails its test, with a
//! message that says what its processes wait for.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Runs a command until it ends and has closed its output, and returns what it printed.
///
/// # Panics
/// The command cannot be started, or does not end in time; then it is killed.
pub(super) fn output_of(command: &mut Command) -> Output {
    let words = format!("{command:?}");
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    output_from(
        child.unwrap_or_else(|error| panic!("{words}: {error}")),
        &words,
    )
}

/// Waits until a command has ended and has closed its output, as far as that is piped, and returns
/// what it printed. `what` names the command in messages.
///
/// # Panics
/// The command does not end in time; then it is killed.
pub(super) fn output_from(mut child: Child, what: &str) -> Output {
    drop(child.stdin.take());
    let stdout = child.stdout.take().map(Printed::from);
    let stderr = child.stderr.take().map(Printed::from);
    let status = ended(&mut child, what);
    let rest = |stream: Option<Printed>| stream.map_or(Vec::new(), |stream| stream.bytes(what));
    Output {
        status,
        stdout: rest(stdout),
        stderr: rest(stderr),
    }
}

/// Waits until a child has ended.
///
/// # Panics
/// The child does not end in time; then it is killed.
pub(super) fn ended(child: &mut Child, what: &str) -> ExitStatus {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= end {
            let waits = waits_of(child.id());
            let _ = child.kill();
            let _ = child.wait();
            panic!("{what} does not end; it waits for:{waits}");
        }
        std::thread::sleep(PAUSE);
    }
}

/// What a program prints, which a thread reads as it comes, line by line.
pub(super) struct Printed(Receiver<Vec<u8>>);

impl Printed {
    /// What a child prints to its standard output, which is piped.
    pub(super) fn of(child: &mut Child) -> Printed {
        Printed::from(child.stdout.take().unwrap())
    }

    fn from(stream: impl Read + Send + 'static) -> Printed {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            // An error ends the output: a closed terminal, for example, reports one.
            while stream
                .read_until(b'\n', &mut line)
                .is_ok_and(|bytes| bytes > 0)
            {
                // A test that does not read on does not stop the program.
                let _ = sender.send(std::mem::take(&mut line));
            }
        });
        Printed(lines)
    }

    /// Returns the next line; an empty text at the end.
    ///
    /// # Panics
    /// Nothing is printed in time.
    pub(super) fn line(&self) -> String {
        match self.0.recv_timeout(LIMIT) {
            Ok(line) => String::from_utf8(line).unwrap(),
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => panic!("a program prints nothing"),
        }
    }

    /// Returns all lines up to the end.
    ///
    /// # Panics
    /// The end does not come in time.
    pub(super) fn rest(&self) -> String {
        String::from_utf8(self.bytes("a program")).unwrap()
    }

    fn bytes(&self, what: &str) -> Vec<u8> {
        let (mut all, end) = (Vec::new(), Instant::now() + LIMIT);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.0.recv_timeout(left) {
                Ok(line) => all.extend(line),
                Err(RecvTimeoutError::Disconnected) => return all,
                Err(RecvTimeoutError::Timeout) => {
                    let printed = String::from_utf8_lossy(&all);
                    panic!("the output of {what} stays open after: {printed}");
                }
            }
        }
    }
}

/// Returns the first line that a child prints to its standard output, which is piped.
///
/// # Panics
/// The child prints nothing in time; then it is killed.
pub(super) fn first_line(child: &mut Child) -> String {
    let printed = Printed::of(child);
    match printed.0.recv_timeout(LIMIT) {
        Ok(line) => String::from_utf8(line).unwrap(),
        Err(RecvTimeoutError::Disconnected) => String::new(),
        Err(RecvTimeoutError::Timeout) => {
            let waits = waits_of(child.id());
            let _ = child.kill();
            let _ = child.wait();
            panic!("a program prints no line; it waits for:{waits}");
        }
    }
}

/// Whether a process runs. One that has ended may wait for its parent to take its status; where the
/// first process of a container takes none, this wait has no end.
pub(super) fn is_running(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").map(|(_, rest)| &rest[..1]);
    !matches!(state, None | Some("Z" | "X"))
}

/// Describes what a process, and each process that it has started, waits for in the kernel: the
/// function of the kernel and the system call of each.
pub(super) fn waits_of(pid: u32) -> String {
    let (mut described, mut left) = (String::new(), vec![pid]);
    // A program under test may start processes without end.
    for _ in 0..PROCESSES_MAX {
        let Some(pid) = left.pop() else { break };
        let of = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let [name, wait, call] =
            ["comm", "wchan", "syscall"].map(|file| of(file).unwrap_or_default());
        let (name, call) = (name.trim(), call.trim());
        let _ = write!(described, "\n{pid} {name}: {wait}, system call {call}");
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            left.extend(children.split_whitespace().flat_map(str::parse::<u32>));
        }
    }
    described
}

/// Longest wait, for a very busy machine. `cargo xtask test` ends a test after 10 minutes, without
/// a message of the test's own.
pub(super) const LIMIT: Duration = Duration::from_secs(300);

/// Pause before looking again whether a child has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// Most processes that are described.
const PROCESSES_MAX: usize = 64;

/// The parent of a daemon may be a process that takes no status of its children.
#[test]
fn process_has_ended_before_its_parent_takes_its_status() {
    let mut child = Command::new("true").spawn().unwrap();
    let end = Instant::now() + LIMIT;
    while is_running(child.id()) {
        assert!(Instant::now() < end);
        std::thread::sleep(PAUSE);
    }
    let pid = rustix::process::Pid::from_child(&child);
    assert!(
        rustix::process::test_kill_process(pid).is_ok(),
        "its number is still taken"
    );
    assert!(child.wait().unwrap().success());
}

/// The output of a program may outlive the program, and a message names what a program waits for.
#[test]
fn output_is_complete_when_the_last_of_its_writers_has_ended() {
    let mut shell = Command::new("sh");
    let output = output_of(shell.args(["-c", "(sleep 0.1; echo late) & echo early >&2"]));
    assert_eq!(
        (output.stdout, output.stderr),
        (b"late\n".to_vec(), b"early\n".to_vec())
    );
    let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let waits = waits_of(cat.id());
    assert!(waits.starts_with(&format!("\n{} ", cat.id())), "{waits}");
    drop(cat.stdin.take());
    assert!(ended(&mut cat, "cat").success());
}
