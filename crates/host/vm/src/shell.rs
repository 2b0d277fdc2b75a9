//! Commands inside a guest over its second serial port.
//!
//! The guest's agent (crate `guest`) executes one request per line; this module is the other end.
//! The port is separate from the console, so that kernel messages cannot interfere. The output is
//! base64 between marker lines with the command's identifier. Output of any bytes therefore arrives
//! unchanged, and several commands may run at the same time.
//!
//! ```text
//!   host                          guest
//!   PING id        ───────────▶
//!                  ◀───────────   PONG id
//!   TEXT id TEXT   ───────────▶   (a part of the command's text; as many as it takes)
//!   RUN id         ───────────▶
//!                  ◀───────────   BEGIN id status, BASE64 lines, ERROR id, BASE64 lines, END id
//! ```
//!
//! In place of a line of BASE64, `=TEXT` is a line of output as plain text. A command is a shell
//! script. If it begins with `carina_…` lines, the agent executes these lines itself, because
//! starting a shell takes an emulated guest much longer. `guest/src/order.rs` lists them.
//!
//! The guest is not trusted: lines have a bounded length, outputs a bounded size, and an answer
//! that no call waits for is dropped.

pub(crate) mod base64;
mod decoder;
mod escape;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use decoder::{Decoder, Message, OUTPUT_BYTES_MAX};
use escape::escape;

use crate::error::{Context, Result};

/// Quotes words for a shell.
pub fn shell_words(words: &[impl AsRef<str>]) -> String {
    let quoted = words
        .iter()
        .map(|word| format!("'{}'", word.as_ref().replace('\'', "'\\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

/// A connection to the command port of a guest. Several threads may use it at the same time.
#[derive(Debug)]
pub struct Shell {
    writer: Mutex<UnixStream>,
    waiting: Arc<Mutex<Option<Waiting>>>,
    next: AtomicU64,
}

/// Calls that wait for an answer, by identifier; `None` once the port is closed.
type Waiting = BTreeMap<String, Sender<Message>>;

/// Why a request got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// The time limit has passed.
    Timeout,
    /// The guest has sent no answer for [`SILENCE`] while a command was running.
    Silent,
    /// The port is closed: QEMU has ended, or another process has taken the port.
    Closed,
}

impl Shell {
    /// Connects to QEMU's socket for the second serial port.
    ///
    /// # Errors
    ///
    /// The connection fails.
    pub fn connect(path: &Path) -> Result<Shell> {
        let stream = carina_sys::connect_stream(path, WRITE_LOOK).context("connect to", path)?;
        let reader = stream.try_clone().context("duplicate", path)?;
        let waiting = Arc::new(Mutex::new(Some(Waiting::new())));
        let dispatched = Arc::clone(&waiting);
        std::thread::Builder::new()
            .name("guest-shell".into())
            .spawn(move || dispatch(reader, &dispatched))
            .context("start the reader of", path)?;
        Ok(Shell {
            writer: Mutex::new(stream),
            waiting,
            next: AtomicU64::new(0),
        })
    }

    /// Waits until the guest's agent answers, or `is_vain` returns true because it never will.
    ///
    /// # Errors
    ///
    /// [`NoAnswer`], as for [`Shell::run`].
    pub fn wait_ready(
        &self,
        limit: Duration,
        is_vain: impl Fn() -> bool,
    ) -> std::result::Result<(), NoAnswer> {
        let deadline = Instant::now() + limit;
        let (id, answers) = self.expect().ok_or(NoAnswer::Closed)?;
        let mut pause = PING_PAUSE_MIN;
        let outcome = loop {
            // A request that arrives before the guest has set up its port is lost, so the request
            // is repeated.
            match self.send(&format!("\nPING {id}\n"), deadline) {
                Err(NoAnswer::Closed) => break Err(NoAnswer::Closed),
                // If the guest does not read, there is no room for another request.
                Ok(()) | Err(NoAnswer::Timeout | NoAnswer::Silent) => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match answers.recv_timeout(pause.min(left)) {
                Ok(_) => break Ok(()),
                Err(RecvTimeoutError::Disconnected) => break Err(NoAnswer::Closed),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline || is_vain() => {
                    break Err(NoAnswer::Timeout);
                }
                // A slow guest that gets requests faster than it answers them would never catch up.
                Err(RecvTimeoutError::Timeout) => pause = (pause * 3 / 2).min(PING_PAUSE_MAX),
            }
        };
        self.forget(&id);
        outcome
    }

    /// Runs a shell command in the guest and waits until it ends. Returns status, standard output
    /// and standard error. The command's standard input is empty.
    ///
    /// # Errors
    ///
    /// [`NoAnswer`]; after a timeout the command may still be running in the guest.
    pub fn run(
        &self,
        command: &str,
        limit: Duration,
    ) -> std::result::Result<(i32, Vec<u8>, Vec<u8>), NoAnswer> {
        let deadline = Instant::now() + limit;
        let (id, answers) = self.expect().ok_or(NoAnswer::Closed)?;
        let sent = command
            .as_bytes()
            .chunks(PART_BYTES)
            .enumerate()
            .try_for_each(|(number, part)| {
                // An earlier connection may have left an incomplete line.
                let before = if number == 0 { "\n" } else { "" };
                let line = format!("{before}TEXT {id} {}\n", escape(part));
                self.send(&line, deadline)
            })
            .and_then(|()| self.send(&format!("RUN {id}\n"), deadline));
        let mut heard = Instant::now();
        let outcome = loop {
            if let Err(why) = sent {
                break Err(why);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match answers.recv_timeout(left.min(PING_WHILE_RUNNING)) {
                Ok(Message::Ended {
                    status,
                    output,
                    error,
                    ..
                }) => {
                    break Ok((status, output, error));
                }
                Ok(Message::Pong { .. }) => heard = Instant::now(),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    break Err(NoAnswer::Timeout);
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() >= SILENCE => {
                    break Err(NoAnswer::Silent);
                }
                // The agent also answers while commands run.
                Err(RecvTimeoutError::Timeout) => {
                    let ping = format!("\nPING {id}\n");
                    if self.send(&ping, Instant::now()) == Err(NoAnswer::Closed) {
                        break Err(NoAnswer::Closed);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break Err(NoAnswer::Closed),
            }
        };
        self.forget(&id);
        outcome
    }

    /// Creates an identifier that no other connection uses, and a channel for its answer. `None` if
    /// the port is closed.
    fn expect(&self) -> Option<(String, Receiver<Message>)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let unique = SHELLS.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:x}-{unique:x}-{number:x}", std::process::id());
        let (sender, receiver) = channel();
        lock(&self.waiting).as_mut()?.insert(id.clone(), sender);
        Some((id, receiver))
    }

    fn forget(&self, id: &str) {
        if let Some(waiting) = lock(&self.waiting).as_mut() {
            waiting.remove(id);
        }
    }

    /// Writes a whole line. A guest that does not read leaves no room; after [`NoAnswer::Timeout`]
    /// a part of the line may have been written.
    fn send(&self, line: &str, deadline: Instant) -> std::result::Result<(), NoAnswer> {
        let mut writer = lock(&self.writer);
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match writer.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Err(NoAnswer::Timeout);
                    }
                }
                Err(_) => return Err(NoAnswer::Closed),
            }
        }
        Ok(())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // This ends the reader thread. If it fails, the socket is closed already.
        let _ = lock(&self.writer).shutdown(Shutdown::Both);
    }
}

/// Reads the port to its end, and passes each message to the call that waits for it.
fn dispatch(mut reader: UnixStream, waiting: &Mutex<Option<Waiting>>) {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        for message in decoder.feed(&buffer[..length]) {
            if let Some(sender) = lock(waiting).as_ref().and_then(|map| map.get(message.id())) {
                // The call may have given up in the meantime.
                let _ = sender.send(message);
            }
        }
    }
    // Dropping the senders ends every call that still waits.
    *lock(waiting) = None;
}

/// Quotes any text as one word of a shell command.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic leaves the data consistent, so a poisoned lock is usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static SHELLS: AtomicU64 = AtomicU64::new(0);
/// A guest that sends no answer for this long, while a command runs, has stopped.
pub const SILENCE: Duration = Duration::from_secs(180);
/// Interval at which the guest gets a PING while a command runs.
const PING_WHILE_RUNNING: Duration = Duration::from_secs(10);
/// How long a write waits for room before it checks its deadline.
const WRITE_LOOK: Duration = Duration::from_millis(200);
const PING_PAUSE_MIN: Duration = Duration::from_millis(50);
const PING_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Length of a part of a command's text. With escapes (up to five bytes for one) and its verb, a
/// line stays below the 4096 bytes that a Linux terminal buffers.
const PART_BYTES: usize = 750;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// An agent that answers each command with its own text on both outputs, in reverse order.
    fn agent(listener: UnixListener, commands: usize) {
        let (stream, _) = listener.accept().unwrap();
        let mut texts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut order = Vec::new();
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["PING", id] => (&stream)
                    .write_all(format!("~~\nPONG {id}\n").as_bytes())
                    .unwrap(),
                ["TEXT", id, ..] => {
                    texts
                        .entry(id.into())
                        .or_default()
                        .extend(escape::unescape(line.splitn(3, ' ').last().unwrap()));
                }
                ["RUN", id] => order.push(id.to_owned()),
                _ => {}
            }
            if order.len() == commands {
                for (status, id) in order.drain(..).rev().enumerate() {
                    let lines: Vec<String> = texts[&id].chunks(57).map(base64::encode).collect();
                    let text = lines.join("\n");
                    let answer =
                        format!("BEGIN {id} {status}\n{text}\nERROR {id}\n{text}\nEND {id}\n");
                    (&stream).write_all(answer.as_bytes()).unwrap();
                }
                return;
            }
        }
    }

    #[test]
    fn concurrent_commands_get_their_answers_and_then_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let commands = [("a".repeat(5000), 1), ("b b".to_owned(), 0)];
        let count = commands.len();
        let guest = std::thread::spawn(move || agent(listener, count));
        let shell = Shell::connect(&path).unwrap();
        shell.wait_ready(Duration::from_secs(10), || false).unwrap();
        std::thread::scope(|scope| {
            for (text, _) in &commands {
                let shell = &shell;
                scope.spawn(move || {
                    let (status, output, error) = shell.run(text, Duration::from_secs(10)).unwrap();
                    assert!(output == text.as_bytes(), "{} bytes", output.len());
                    assert!(error == output);
                    assert!((0..2).contains(&status));
                });
            }
        });
        guest.join().unwrap();
        assert_eq!(
            shell.run("late", Duration::from_secs(10)),
            Err(NoAnswer::Closed)
        );
    }

    #[test]
    fn a_slow_guest_becomes_ready() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let guest = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let line = line.unwrap_or_default();
                let Some(id) = line.strip_prefix("PING ") else {
                    continue;
                };
                // By the time of the first answer, many requests have been sent.
                std::thread::sleep(Duration::from_millis(400));
                if (&stream)
                    .write_all(format!("PONG {id}\n").as_bytes())
                    .is_err()
                {
                    return;
                }
            }
        });
        let shell = Shell::connect(&path).unwrap();
        shell.wait_ready(Duration::from_secs(20), || false).unwrap();
        drop(shell);
        guest.join().unwrap();
    }

    #[test]
    fn guest_that_never_reads_is_a_timeout() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let shell = Shell::connect(&path).unwrap();
        let (_unread, _) = listener.accept().unwrap();
        let limit = Duration::from_millis(300);
        // More than a socket holds; without a deadline the write would never return.
        let command = "x".repeat(4 << 20);
        assert_eq!(shell.run(&command, limit), Err(NoAnswer::Timeout));
        assert_eq!(shell.wait_ready(limit, || false), Err(NoAnswer::Timeout));
    }

    #[test]
    fn silent_guest_is_a_timeout() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        let _listener = UnixListener::bind(&path).unwrap();
        let shell = Shell::connect(&path).unwrap();
        assert_eq!(
            shell.wait_ready(Duration::from_millis(60), || false),
            Err(NoAnswer::Timeout)
        );
        assert_eq!(
            shell.run("x", Duration::from_millis(10)),
            Err(NoAnswer::Timeout)
        );
    }
}
