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
//! [`Shell::stream`] hands over output of any length as it comes (module `streaming`).
//!
//! The guest is not trusted: lines have a bounded length, outputs a bounded size, and an answer
//! that no call waits for is dropped.

pub(crate) mod base64;
mod call;
mod decoder;
mod escape;
mod streaming;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use call::Call;
pub use decoder::{Decoder, Message, OUTPUT_BYTES_MAX};
use escape::escape;
pub use streaming::WINDOW_BYTES;

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
    port: Arc<Port>,
    next: AtomicU64,
    /// Whether the guest's agent has reported that it can stream output.
    streams: AtomicBool,
}

/// What calls share with the thread that reads the port.
#[derive(Debug)]
struct Port {
    writer: Mutex<UnixStream>,
    waiting: Mutex<Option<Waiting>>,
}

/// Calls that wait for an answer, by identifier; `None` once the port is closed.
type Waiting = BTreeMap<String, Arc<Call>>;

/// Why a request got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// The time limit has passed.
    Timeout,
    /// The guest has sent no answer for [`SILENCE`] while a command was running.
    Silent,
    /// The port is closed: QEMU has ended, or another process has taken the port.
    Closed,
    /// The guest has sent more output than the host had granted.
    Overrun,
    /// The guest's agent is of an earlier version, and has cut the output at
    /// [`OUTPUT_BYTES_MAX`].
    Cut,
}

impl NoAnswer {
    /// What is wrong with the guest's answer, as text; `None` if the guest is only silent.
    pub(crate) fn fault(self) -> Option<String> {
        match self {
            NoAnswer::Overrun => Some("sends more output than the host has granted".to_owned()),
            NoAnswer::Cut => Some(format!(
                "was booted by an earlier version of Carina, which sends at most {} MiB of output; \
                 boot it again, or write the output to a file in it",
                OUTPUT_BYTES_MAX >> 20
            )),
            NoAnswer::Timeout | NoAnswer::Silent | NoAnswer::Closed => None,
        }
    }
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
        let limit = reader.set_read_timeout(Some(KEEP_LOOK));
        limit.context("set up", path)?;
        let port = Arc::new(Port {
            writer: Mutex::new(stream),
            waiting: Mutex::new(Some(Waiting::new())),
        });
        let dispatched = Arc::clone(&port);
        std::thread::Builder::new()
            .name("guest-shell".into())
            .spawn(move || dispatched.dispatch(reader))
            .context("start the reader of", path)?;
        Ok(Shell {
            port,
            next: AtomicU64::new(0),
            streams: AtomicBool::new(false),
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
        let (id, call) = self.expect(0).ok_or(NoAnswer::Closed)?;
        let mut pause = PING_PAUSE_MIN;
        let outcome = loop {
            // A request that arrives before the guest has set up its port is lost, so the request
            // is repeated. If the guest does not read, there is no room for another request.
            if self.send(&format!("\nPING {id}\n"), deadline) == Err(NoAnswer::Closed) {
                break Err(NoAnswer::Closed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = call.wait(pause.min(left), |heard| {
                let closed = || heard.is_closed.then_some(Err(NoAnswer::Closed));
                heard.has_pong.then_some(Ok(())).or_else(closed)
            });
            match answer {
                Some(answer) => break answer,
                None if Instant::now() >= deadline || is_vain() => break Err(NoAnswer::Timeout),
                // A slow guest that gets requests faster than it answers them would never catch up.
                None => pause = (pause * 3 / 2).min(PING_PAUSE_MAX),
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
        let (id, call) = self.expect(0).ok_or(NoAnswer::Closed)?;
        let sent = self
            .send_text(&id, command, deadline)
            .and_then(|()| self.send(&format!("RUN {id}\n"), deadline));
        let outcome = loop {
            if let Err(why) = sent {
                break Err(why);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = call.wait(left.min(PING_WHILE_RUNNING), |heard| {
                let closed = || heard.is_closed.then_some(Err(NoAnswer::Closed));
                heard.ended.take().map(Ok).or_else(closed)
            });
            match answer {
                Some(answer) => break answer,
                None if Instant::now() >= deadline => break Err(NoAnswer::Timeout),
                None if call.time_since_output() >= SILENCE => break Err(NoAnswer::Silent),
                // The agent also answers while commands run.
                None => {
                    let ping = format!("\nPING {id}\n");
                    if self.send(&ping, Instant::now()) == Err(NoAnswer::Closed) {
                        break Err(NoAnswer::Closed);
                    }
                }
            }
        };
        self.forget(&id);
        outcome
    }

    /// Sends the text of a command in parts.
    fn send_text(
        &self,
        id: &str,
        command: &str,
        deadline: Instant,
    ) -> std::result::Result<(), NoAnswer> {
        // The guest takes a command without any part for one whose text was lost.
        if command.is_empty() {
            return self.send(&format!("\nTEXT {id} \n"), deadline);
        }
        let mut parts = command.as_bytes().chunks(PART_BYTES);
        parts.try_for_each(|part| {
            // An earlier connection, or a request in vain, may have left a line without its end.
            self.send(&format!("\nTEXT {id} {}\n", escape(part)), deadline)
        })
    }

    /// Creates a call with an identifier that no other connection uses, and with room for `room`
    /// bytes of pieces. `None` if the port is closed.
    fn expect(&self, room: usize) -> Option<(String, Arc<Call>)> {
        let (id, call) = (self.number(), Arc::new(Call::new(room)));
        let mut waiting = lock(&self.port.waiting);
        waiting.as_mut()?.insert(id.clone(), Arc::clone(&call));
        Some((id, call))
    }

    fn number(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let unique = SHELLS.fetch_add(1, Ordering::Relaxed);
        format!("{:x}-{unique:x}-{number:x}", std::process::id())
    }

    fn forget(&self, id: &str) {
        if let Some(waiting) = lock(&self.port.waiting).as_mut() {
            waiting.remove(id);
        }
    }

    fn send(&self, line: &str, deadline: Instant) -> std::result::Result<(), NoAnswer> {
        self.port.send(line, deadline)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Ends the reader thread; the socket is gone anyway when this fails.
        let _ = lock(&self.port.writer).shutdown(Shutdown::Both);
    }
}

impl Port {
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

    /// Reads the port to its end, and passes each message to the call that waits for it. Never
    /// waits for a call, so that no call delays another.
    fn dispatch(&self, mut reader: UnixStream) {
        let mut decoder = Decoder::new();
        let mut buffer = vec![0; 16 * 1024];
        let mut looked = Instant::now();
        loop {
            match reader.read(&mut buffer) {
                Ok(length @ 1..) => decoder
                    .feed(&buffer[..length])
                    .into_iter()
                    .for_each(|message| self.hear(message)),
                Err(error) if is_passing(&error) => {}
                Ok(_) | Err(_) => break,
            }
            if looked.elapsed() >= KEEP_LOOK {
                looked = Instant::now();
                self.keep();
            }
        }
        let calls = lock(&self.waiting).take();
        calls
            .into_iter()
            .flatten()
            .for_each(|(_, call)| call.close());
    }

    fn hear(&self, message: Message) {
        let call = {
            let waiting = lock(&self.waiting);
            let call = waiting.as_ref().and_then(|all| all.get(message.id()));
            call.cloned()
        };
        if let Some(call) = call {
            call.hear(message);
        }
    }

    /// Sends a `PING` for each call that streams and still waits, so that the guest does not end
    /// its command.
    fn keep(&self) {
        let due: Vec<String> = {
            let waiting = lock(&self.waiting);
            let all = waiting.iter().flatten();
            let due = all.filter(|(_, call)| call.is_ping_due(PING_WHILE_RUNNING));
            due.map(|(id, _)| id.clone()).collect()
        };
        for id in due {
            // A call may write for long, to a guest that does not read before it is read.
            let Ok(mut writer) = self.writer.try_lock() else {
                return;
            };
            // A port that is closed ends the reading, too.
            let _ = writer.write(format!("\nPING {id}\n").as_bytes());
        }
    }
}

/// Whether a read may succeed when it is tried again.
fn is_passing(error: &std::io::Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
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
/// How often the reader checks whether a call that streams has to send a ping.
const KEEP_LOOK: Duration = Duration::from_secs(2);
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
