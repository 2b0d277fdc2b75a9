//! Streams the output of commands to the host while they run.
//!
//! The host grants each command a number of bytes, and further bytes when the reader at the host
//! has taken the earlier ones. Without a grant the agent does not read the command's outputs. The
//! command then waits when the two pipes of its outputs are full, so it occupies no more memory of
//! the guest than these pipes. While the host waits for the command, it sends `PING` with the
//! command's id. If the host is silent about a command for [`LEASE`], the process at the host that
//! waited for the command has been killed, and the agent kills the command.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::port::{PIECE_BYTES, piece};
use crate::shell::{Shell, status_of};
use crate::system;

/// All commands whose output is streamed, by their ids.
#[derive(Default)]
pub(crate) struct Streams(Mutex<BTreeMap<String, Arc<Stream>>>);

/// What the host has granted and requested for one command.
pub(crate) struct Stream {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Number of bytes of output that may still be sent.
    credit: u64,
    heard_at: Instant,
    is_killed: bool,
}

impl Streams {
    /// Adds a command that may send `credit` bytes. Returns `None` if a command has this id
    /// already.
    pub(crate) fn begin(&self, id: &str, credit: u64) -> Option<Arc<Stream>> {
        let mut all = lock(&self.0);
        if all.contains_key(id) {
            return None;
        }
        let stream = Arc::new(Stream {
            state: Mutex::new(State {
                credit: credit.min(CREDIT_MAX),
                heard_at: Instant::now(),
                is_killed: false,
            }),
            changed: Condvar::new(),
        });
        all.insert(id.to_owned(), Arc::clone(&stream));
        Some(stream)
    }

    /// Notes that the host still waits for a command.
    pub(crate) fn hear(&self, id: &str) {
        self.change(id, |_| {});
    }

    /// Lets a command send `bytes` further bytes, up to [`CREDIT_MAX`] in total.
    pub(crate) fn allow(&self, id: &str, bytes: u64) {
        self.change(id, |state| {
            state.credit = state.credit.saturating_add(bytes).min(CREDIT_MAX);
        });
    }

    /// Requests the end of a command: it is killed.
    pub(crate) fn end(&self, id: &str) {
        self.change(id, |state| state.is_killed = true);
    }

    /// Removes a command that has ended.
    pub(crate) fn forget(&self, id: &str) {
        lock(&self.0).remove(id);
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut State)) {
        let stream = lock(&self.0).get(id).cloned();
        if let Some(stream) = stream {
            let mut state = lock(&stream.state);
            state.heard_at = Instant::now();
            change(&mut state);
            stream.changed.notify_all();
        }
    }
}

impl Stream {
    /// Whether the command must end: the host has killed it, or has not been heard from for
    /// [`LEASE`].
    fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.is_killed || state.heard_at.elapsed() > LEASE
    }

    /// Returns how many bytes may be sent now. If none, waits up to [`LOOK`] for a grant.
    fn credit(&self) -> u64 {
        let has_none = |state: &mut State| state.credit == 0 && !state.is_killed;
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, LOOK, has_none);
        waited.unwrap_or_else(PoisonError::into_inner).0.credit
    }

    fn spend(&self, bytes: usize) {
        lock(&self.state).credit -= bytes as u64;
    }
}

/// Runs a shell to its end and passes its output to `say` in pieces. Returns its exit status.
pub(crate) fn run(
    id: &str,
    shell: std::io::Result<Shell>,
    stream: &Stream,
    say: impl Fn(&str),
) -> i32 {
    let done = shell.and_then(|mut shell| {
        let child = shell
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        relay(id, child, stream, &say)
    });
    done.unwrap_or_else(|error| {
        say(&piece(
            "ERR",
            id,
            format!("running sh: {error}\n").as_bytes(),
        ));
        1
    })
}

fn relay(id: &str, mut child: Child, stream: &Stream, say: &impl Fn(&str)) -> std::io::Result<i32> {
    let pipes = [
        child.stdout.take().map(OwnedFd::from),
        child.stderr.take().map(OwnedFd::from),
    ];
    let mut files = pipes.map(|pipe| pipe.map(File::from));
    let mut buffer = [0; PIECE_BYTES];
    let mut pause = PAUSE_MIN;
    // After the command has ended: bytes that it had written and that were not sent yet. What a
    // background process writes later is not sent.
    let mut left: Option<[usize; 2]> = None;
    let status = loop {
        let ended = child.try_wait()?;
        match ended {
            Some(status) if stream.is_over() => break status,
            None if stream.is_over() => {
                system::kill_group(child.id());
                break child.wait()?;
            }
            _ => {}
        }
        if let [None, None] = files {
            if let Some(status) = ended {
                break status;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK);
            continue;
        }
        if let Some(status) = ended {
            let unread =
                |file: &Option<File>| file.as_ref().map_or(0, |file| system::unread(file.as_fd()));
            if *left.get_or_insert_with(|| files.each_ref().map(unread)) == [0, 0] {
                break status;
            }
        }
        let mut credit = stream.credit();
        if credit == 0 {
            continue;
        }
        let timeout = if ended.is_some() { 0 } else { LOOK_MS };
        let polled = [0, 1].map(|at| files[at].as_ref().map(AsFd::as_fd));
        let ready = system::readable(polled, timeout)?;
        for (at, verb) in [(0, "OUT"), (1, "ERR")] {
            let bytes_max = left.map_or(PIECE_BYTES, |left| left[at].min(PIECE_BYTES));
            let room = credit.min(bytes_max as u64) as usize;
            let Some(file) = files[at].as_mut().filter(|_| ready[at] && room > 0) else {
                continue;
            };
            match file.read(&mut buffer[..room]) {
                Ok(length @ 1..) => {
                    credit -= length as u64;
                    if let Some(left) = &mut left {
                        left[at] -= length;
                    }
                    stream.spend(length);
                    say(&piece(verb, id, &buffer[..length]));
                }
                _ => {
                    files[at] = None;
                    if let Some(left) = &mut left {
                        left[at] = 0;
                    }
                }
            }
        }
    };
    // The pipes are still read, so that background processes of the command can write.
    files.into_iter().flatten().for_each(discard);
    Ok(status_of(status))
}

/// Reads and discards a file to its end, in a thread of its own.
fn discard(mut file: File) {
    let thread = std::thread::Builder::new().stack_size(DISCARD_STACK_BYTES);
    // Without a thread the file is closed, and a process that writes to it ends.
    let _ = thread.spawn(move || std::io::copy(&mut file, &mut std::io::sink()));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panics leaves no change half done, and its panic ends the agent anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Longest time for which the host may be silent about a command. The host sends a ping every ten
/// seconds.
const LEASE: Duration = Duration::from_secs(60);
/// Largest number of bytes that a command may be allowed to send.
const CREDIT_MAX: u64 = 1 << 20;
/// Time between two checks whether a command has ended or must end.
const LOOK: Duration = Duration::from_millis(LOOK_MS as u64);
const LOOK_MS: i32 = 100;
const PAUSE_MIN: Duration = Duration::from_millis(1);
const DISCARD_STACK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::shell::shell_of;

    /// The lines of a command that has ended, with its status.
    fn lines_of(script: &str, credit: u64) -> (Vec<String>, i32) {
        let streams = Streams::default();
        let stream = streams.begin("1", credit).unwrap();
        let lines = Mutex::new(Vec::new());
        let status = run("1", shell_of("1", script), &stream, |line| {
            // The host takes each piece at once.
            streams.allow("1", PIECE_BYTES as u64);
            lock(&lines).push(line.to_owned());
        });
        (lines.into_inner().unwrap(), status)
    }

    fn bytes_of(lines: &[String], verb: &str) -> Vec<u8> {
        let parts = lines.iter().filter_map(|line| {
            let text = line.strip_prefix(verb)?.strip_prefix(" 1 ")?;
            crate::base64::decode(text.trim_end())
        });
        parts.flatten().collect()
    }

    #[test]
    fn outputs_come_whole_and_apart_with_the_status() {
        let (lines, status) = lines_of(
            "head -c 3000000 /dev/zero; sleep 1000 >/dev/null 2>&1 & echo $! >&2; exit 7",
            10_000,
        );
        assert_eq!(status, 7);
        assert_eq!(bytes_of(&lines, "OUT"), vec![0; 3_000_000]);
        let pid = String::from_utf8(bytes_of(&lines, "ERR")).unwrap();
        let ended = Command::new("kill").args(["-9", pid.trim()]).status();
        assert!(ended.unwrap().success(), "it runs on in the background");
        let killed = lines_of("kill -9 $$", 10_000).1;
        assert_eq!(killed, 128 + 9);
    }

    #[test]
    fn background_keeps_no_one_waiting_and_runs_on() {
        let (lines, status) = lines_of("sleep 1000 & echo $!", 10_000);
        assert_eq!(status, 0);
        let pid = String::from_utf8(bytes_of(&lines, "OUT")).unwrap();
        let killed = Command::new("kill").args(["-9", pid.trim()]).status();
        assert!(killed.unwrap().success(), "it runs on in the background");
    }

    #[test]
    fn background_that_writes_without_end_keeps_no_one_waiting() {
        let (lines, status) = lines_of("yes 2>/dev/null & echo $! >&2", 10_000);
        assert_eq!(status, 0);
        let pid = String::from_utf8(bytes_of(&lines, "ERR")).unwrap();
        let killed = Command::new("kill").args(["-9", pid.trim()]).status();
        assert!(killed.unwrap().success(), "it runs on in the background");
    }

    #[test]
    fn command_waits_without_a_grant_until_it_is_killed() {
        let streams = Streams::default();
        let stream = streams.begin("1", 5000).unwrap();
        assert!(streams.begin("1", 5000).is_none());
        let sent = Mutex::new(0);
        std::thread::scope(|scope| {
            let runs = scope.spawn(|| {
                run("1", shell_of("1", "yes"), &stream, |line| {
                    *lock(&sent) += bytes_of(&[line.to_owned()], "OUT").len();
                })
            });
            while *lock(&sent) < 5000 {
                std::thread::sleep(PAUSE_MIN);
            }
            std::thread::sleep(3 * LOOK);
            assert_eq!(*lock(&sent), 5000);
            streams.allow("1", 7000);
            while *lock(&sent) < 12_000 {
                std::thread::sleep(PAUSE_MIN);
            }
            streams.end("1");
            assert_eq!(runs.join().unwrap(), 128 + 9);
        });
        assert_eq!(*lock(&sent), 12_000);
    }

    #[test]
    fn command_of_which_the_host_says_nothing_is_over() {
        let streams = Streams::default();
        let stream = streams.begin("1", 1).unwrap();
        assert!(!stream.is_over());
        let Some(past) = Instant::now().checked_sub(2 * LEASE) else {
            return;
        };
        lock(&stream.state).heard_at = past;
        assert!(stream.is_over());
        streams.hear("1");
        assert!(!stream.is_over());
    }
}
