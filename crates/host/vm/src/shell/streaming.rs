//! Commands whose output comes as the guest produces it.
//!
//! ```text
//!   host                          guest
//!   ABLE id        ───────────▶
//!                  ◀───────────   ABLE id stream   (agents of earlier versions do not answer)
//!   TEXT id TEXT   ───────────▶
//!   STREAM id 65536 ──────────▶
//!                  ◀───────────   OUT id BASE64, ERR id BASE64, ...   (65536 bytes at most)
//!   MORE id 20000  ───────────▶   (so much was taken)
//!                  ◀───────────   DONE id status
//! ```
//!
//! Pieces wait on the host, within the number of bytes that the host has granted. If the guest
//! sends more, the call ends with [`NoAnswer::Overrun`]. `KILL id` ends the command. The guest also
//! ends a command about which the host has sent nothing for a minute; therefore the host sends
//! `PING id` while the reader reads nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::call::{Call, Heard};
use super::{
    NoAnswer, OUTPUT_BYTES_MAX, PING_PAUSE_MAX, PING_PAUSE_MIN, SILENCE, Shell, shell_words,
};
use crate::command::{CommandLimits, Finish, PIECE_BYTES, Sink, Stream};

/// The next thing that a call learns about a command that streams.
enum Next {
    Piece(Stream, Vec<u8>),
    Done(i32),
    Lost,
    Overrun,
    Closed,
}

impl Shell {
    /// Runs a shell command in the guest, and hands the output to `sink` while the command runs.
    /// Kills the command at the end of `until`, or when the sink refuses output. A guest whose
    /// agent is of an earlier version sends all output at the end.
    ///
    /// # Errors
    ///
    /// [`NoAnswer`]. A command that was killed at its time limit is not an error; the result is
    /// [`Finish::TimedOut`].
    pub fn stream(
        &self,
        command: &str,
        until: CommandLimits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Finish, NoAnswer> {
        let begin = Instant::now();
        match self.can_stream(until, begin)? {
            None => Ok(until.finish(begin).unwrap_or(Finish::TimedOut)),
            Some(false) => self.run_whole(command, until, sink),
            Some(true) => {
                let (id, call) = self.expect(WINDOW_BYTES).ok_or(NoAnswer::Closed)?;
                let finish = self.relay((&id, &call), command, (until, begin), sink);
                if !matches!(finish, Ok(Finish::Exited(_)) | Err(NoAnswer::Closed)) {
                    self.kill(&id, &call);
                }
                self.forget(&id);
                finish
            }
        }
    }

    /// Whether the guest's agent can stream output; `None` if the command must be killed before the
    /// agent has answered.
    fn can_stream(
        &self,
        until: CommandLimits<'_>,
        begin: Instant,
    ) -> Result<Option<bool>, NoAnswer> {
        if self.streams.load(Ordering::Relaxed) {
            return Ok(Some(true));
        }
        let (id, call) = self.expect(0).ok_or(NoAnswer::Closed)?;
        let mut pause = PING_PAUSE_MIN;
        let outcome = loop {
            if until.finish(begin).is_some() {
                break Ok(None);
            }
            // In this order, so that an agent that streams says so first.
            let asked = self.send(&format!("\nABLE {id}\nPING {id}\n"), Instant::now());
            let answer = call.wait(pause, |heard| match heard {
                Heard {
                    can_stream: true, ..
                } => Some(Ok(true)),
                Heard { has_pong: true, .. } => Some(Ok(false)),
                Heard { is_closed, .. } => is_closed.then_some(Err(NoAnswer::Closed)),
            });
            match answer {
                Some(answer) => break answer.map(Some),
                None if asked == Err(NoAnswer::Closed) => break Err(NoAnswer::Closed),
                None if call.time_since_output() >= SILENCE => break Err(NoAnswer::Silent),
                None => pause = (pause * 3 / 2).min(PING_PAUSE_MAX),
            }
        };
        self.forget(&id);
        if outcome == Ok(Some(true)) {
            self.streams.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn relay(
        &self,
        (id, call): (&str, &Arc<Call>),
        command: &str,
        (until, begin): (CommandLimits<'_>, Instant),
        sink: &mut dyn Sink,
    ) -> Result<Finish, NoAnswer> {
        let is_over = || until.finish(begin).is_some();
        let deadline = begin + until.limit;
        let begins = || {
            self.send_text(id, command, deadline)?;
            self.send(&format!("\nSTREAM {id} {WINDOW_BYTES}\n"), deadline)
        };
        let (mut begun, mut attempts) = (begins(), 1);
        let mut taken = 0;
        loop {
            match begun {
                Err(NoAnswer::Timeout) => return Ok(Finish::TimedOut),
                Err(why) => return Err(why),
                Ok(()) => {}
            }
            if let Some(finish) = until.finish(begin) {
                return Ok(finish);
            }
            match call.wait(LOOK, next) {
                Some(Next::Piece(stream, bytes)) => {
                    if sink.take(stream, &bytes, &is_over).is_break() {
                        return Ok(until.finish(begin).unwrap_or(Finish::Cancelled));
                    }
                    taken += bytes.len();
                    if taken >= WINDOW_BYTES / 4 {
                        begun = self.send(&format!("\nMORE {id} {taken}\n"), deadline);
                        taken = 0;
                    }
                }
                Some(Next::Done(status)) => return Ok(Finish::Exited(status)),
                Some(Next::Lost) if attempts == ATTEMPTS => return Err(NoAnswer::Silent),
                // The serial port has lost the text; nothing was run.
                Some(Next::Lost) => {
                    attempts += 1;
                    begun = begins();
                }
                Some(Next::Overrun) => return Err(NoAnswer::Overrun),
                Some(Next::Closed) => return Err(NoAnswer::Closed),
                None if call.time_since_output() >= SILENCE => return Err(NoAnswer::Silent),
                None => {}
            }
        }
    }

    /// Makes the guest kill a command that streams, and waits for at most [`KILL`] until it has
    /// ended.
    fn kill(&self, id: &str, call: &Call) {
        call.discard();
        let deadline = Instant::now() + KILL;
        // A guest that does not get this line ends the command when the host sends nothing more
        // about it.
        if self.send(&format!("\nKILL {id}\n"), deadline).is_ok() {
            call.wait(KILL, |heard| {
                (heard.done.is_some() || heard.is_closed).then_some(())
            });
        }
    }

    /// Runs a command through an agent of an earlier version, which sends all output at the end.
    /// The command runs in a session of its own, so that it can be killed.
    fn run_whole(
        &self,
        command: &str,
        until: CommandLimits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Finish, NoAnswer> {
        let begin = Instant::now();
        let note = format!("/run/exec.{}", self.number());
        let body = format!("echo $$ >{note}; sh -c \"$0\"; s=$?; rm -f {note}; exit $s");
        let script = format!(
            "exec {}",
            shell_words(&["setsid", "sh", "-c", &body, command])
        );
        let kill = format!("read p <{note} && kill -9 -$p; rm -f {note}");
        let (status, output, error) = std::thread::scope(|scope| {
            let runs = scope.spawn(|| self.run(&script, until.limit.saturating_add(KILL)));
            while !runs.is_finished() {
                if until.finish(begin).is_some() {
                    // The command may have ended or not begun yet; then the next round tries again.
                    let _ = self.run(&kill, KILL);
                }
                std::thread::sleep(RUN_LOOK);
            }
            runs.join().unwrap_or(Err(NoAnswer::Closed))
        })?;
        if let Some(finish) = until.finish(begin) {
            return Ok(finish);
        }
        let is_over = || until.finish(begin).is_some();
        for (stream, bytes) in [(Stream::Stdout, &output), (Stream::Stderr, &error)] {
            for piece in bytes.chunks(PIECE_BYTES) {
                if sink.take(stream, piece, &is_over).is_break() {
                    return Ok(until.finish(begin).unwrap_or(Finish::Cancelled));
                }
            }
        }
        if output.len().max(error.len()) >= OUTPUT_BYTES_MAX {
            return Err(NoAnswer::Cut);
        }
        Ok(Finish::Exited(status))
    }
}

/// The next piece of the command's output or, once all pieces are read, its end; `None` if nothing
/// has arrived.
fn next(heard: &mut Heard) -> Option<Next> {
    if heard.is_overrun {
        return Some(Next::Overrun);
    }
    if let Some((stream, bytes)) = heard.pop() {
        return Some(Next::Piece(stream, bytes));
    }
    if let Some(status) = heard.done {
        return Some(Next::Done(status));
    }
    if std::mem::take(&mut heard.is_lost) {
        return Some(Next::Lost);
    }
    heard.is_closed.then_some(Next::Closed)
}

/// Largest number of bytes of a command's output that are in transit or wait on the host.
pub const WINDOW_BYTES: usize = 64 << 10;
/// How often the text of a command is sent if the port loses it.
const ATTEMPTS: u32 = 5;
/// Time between two checks whether a command must be killed.
const LOOK: Duration = Duration::from_millis(50);
const RUN_LOOK: Duration = Duration::from_millis(20);
/// How long a killed command may take to end.
const KILL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::ops::ControlFlow;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use super::super::base64;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);
    static NEVER: AtomicBool = AtomicBool::new(false);
    const UNTIL: CommandLimits<'static> = CommandLimits {
        limit: LIMIT,
        is_cancelled: &NEVER,
    };

    /// The lines that the host has sent about a command.
    #[derive(Default)]
    struct CommandState {
        granted: usize,
        is_killed: bool,
    }

    /// A guest that answers requests; `act` carries each `STREAM` out on a thread, by its id.
    fn guest(
        act: impl Fn(&UnixStream, &str, &Mutex<CommandState>) + Send + Sync + 'static,
    ) -> (tempfile::TempDir, Shell) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let state = &Mutex::new(CommandState::default());
            let act = &act;
            std::thread::scope(|scope| {
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let Ok(line) = line else { return };
                    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    let answer = match words[..] {
                        ["ABLE", id] => format!("ABLE {id} stream\n"),
                        ["PING", id] => format!("PONG {id}\n"),
                        ["STREAM", id, bytes] => {
                            state.lock().unwrap().granted = bytes.parse().unwrap();
                            let (id, stream) = (id.to_owned(), stream.try_clone().unwrap());
                            scope.spawn(move || act(&stream, &id, state));
                            continue;
                        }
                        ["MORE", _, bytes] => {
                            state.lock().unwrap().granted += bytes.parse::<usize>().unwrap();
                            continue;
                        }
                        ["KILL", id] => {
                            state.lock().unwrap().is_killed = true;
                            format!("DONE {id} 137\n")
                        }
                        _ => continue,
                    };
                    let _ = (&stream).write_all(answer.as_bytes());
                }
            });
        });
        let shell = Shell::connect(&path).unwrap();
        (directory, shell)
    }

    fn says(stream: &UnixStream, verb: &str, id: &str, bytes: &[u8]) -> bool {
        let line = format!("{verb} {id} {}\n", base64::encode(bytes));
        { stream }.write_all(line.as_bytes()).is_ok()
    }

    #[test]
    fn output_without_end_waits_for_its_reader() {
        const ALL: usize = 4 << 20;
        let (_directory, shell) = guest(|stream, id, state| {
            let mut sent = 0;
            while sent < ALL {
                let length = 2400.min(ALL - sent);
                if state.lock().unwrap().granted < sent + length {
                    std::thread::yield_now();
                    continue;
                }
                assert!(says(stream, "OUT", id, &vec![7; length]));
                sent += length;
            }
            assert!(says(stream, "ERR", id, b"err\n"));
            { stream }
                .write_all(format!("DONE {id} 7\n").as_bytes())
                .unwrap();
        });
        let (mut bytes, mut longest, mut errors) = (0, 0, Vec::new());
        let mut sink = |stream: Stream, piece: &[u8]| {
            longest = longest.max(piece.len());
            match stream {
                Stream::Stdout => {
                    assert!(piece.iter().all(|byte| *byte == 7));
                    bytes += piece.len();
                }
                Stream::Stderr => errors.extend_from_slice(piece),
            }
            ControlFlow::Continue(())
        };
        let finish = shell.stream("x", UNTIL, &mut sink).unwrap();
        assert_eq!((finish, bytes), (Finish::Exited(7), ALL));
        assert!(longest <= WINDOW_BYTES && errors == b"err\n");
    }

    #[test]
    fn guest_that_sends_more_than_it_may_is_not_followed() {
        let (_directory, shell) = guest(|stream, id, state| {
            // Whatever it was granted.
            while !state.lock().unwrap().is_killed && says(stream, "OUT", id, &[0; 2400]) {}
        });
        let mut sink = |_: Stream, _: &[u8]| {
            std::thread::sleep(Duration::from_millis(200));
            ControlFlow::Continue(())
        };
        let refused = shell.stream("x", UNTIL, &mut sink);
        assert_eq!(refused, Err(NoAnswer::Overrun));
        // Another command is not concerned.
        assert!(shell.wait_ready(LIMIT, || false).is_ok());
    }

    #[test]
    fn reader_that_goes_and_one_that_cancels_end_the_command() {
        let (_directory, shell) = guest(|stream, id, _| {
            says(stream, "OUT", id, b"one");
        });
        let mut gone = |_: Stream, _: &[u8]| ControlFlow::Break(());
        let finish = shell.stream("x", UNTIL, &mut gone).unwrap();
        assert_eq!(finish, Finish::Cancelled);
        let is_cancelled = AtomicBool::new(false);
        let until = CommandLimits {
            limit: LIMIT,
            is_cancelled: &is_cancelled,
        };
        let mut cancels = |_: Stream, _: &[u8]| {
            is_cancelled.store(true, Ordering::Release);
            ControlFlow::Continue(())
        };
        let finish = shell.stream("x", until, &mut cancels).unwrap();
        assert_eq!(finish, Finish::Cancelled);
        let until = CommandLimits {
            limit: Duration::from_millis(100),
            ..UNTIL
        };
        let mut takes = |_: Stream, _: &[u8]| ControlFlow::Continue(());
        let finish = shell.stream("x", until, &mut takes).unwrap();
        assert_eq!(finish, Finish::TimedOut);
    }

    #[test]
    fn agent_of_an_earlier_version_says_all_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let line = line.unwrap_or_default();
                let answer = match line.split(' ').collect::<Vec<_>>()[..] {
                    ["PING", id] => format!("PONG {id}\n"),
                    ["RUN", id] => format!("BEGIN {id} 3\nZm9v\nERROR {id}\nZg==\nEND {id}\n"),
                    _ => continue,
                };
                let _ = (&stream).write_all(answer.as_bytes());
            }
        });
        let shell = Shell::connect(&path).unwrap();
        let mut all = Vec::new();
        let mut sink = |stream: Stream, piece: &[u8]| {
            all.push((stream, piece.to_vec()));
            ControlFlow::Continue(())
        };
        let finish = shell.stream("x", UNTIL, &mut sink).unwrap();
        assert_eq!(finish, Finish::Exited(3));
        let expected = [
            (Stream::Stdout, b"foo".to_vec()),
            (Stream::Stderr, b"f".to_vec()),
        ];
        assert_eq!(all, expected);
    }
}
