//! Consoles of nodes: streams that many clients can watch and one can write to.
//!
//! A hub holds the only connection to a node's console, keeps the recent output, and serves a Unix
//! socket. A viewer that connects gets the last 4 KiB, and from then on all output. The first
//! viewer who types becomes the writer, until that viewer disconnects, or has typed nothing for a
//! minute while another one types. A viewer who only watches does not block the keyboard.

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_sys::{Epoll, EventFd, Interest};

use crate::error::{Attempt, Error, Result};

/// The hub of a node's console. Dropping it disconnects all viewers, and removes the socket.
#[derive(Debug)]
pub(crate) struct Console {
    path: PathBuf,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    /// The connection to the node's console; replaced when the node continues in another QEMU.
    node: Mutex<Arc<UnixStream>>,
    state: Mutex<State>,
    written: Condvar,
    ending: EventFd,
}

#[derive(Debug, Default)]
struct State {
    /// Number of bytes that the node has written so far.
    written: u64,
    last: VecDeque<u8>,
    viewers: Vec<Viewer>,
    /// The number of the viewer who holds the keyboard, and the time of the last input; `None`
    /// while no viewer does.
    writer: Option<(u64, Instant)>,
    /// Bytes typed by other viewers, which were discarded.
    ignored: u64,
    next: u64,
    /// Number of times that the connection to the console was replaced.
    moves: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Viewer {
    number: u64,
    stream: UnixStream,
}

impl Console {
    /// Serves the console at the other end of `node` on a socket at `path`.
    pub(crate) fn serve(path: &Path, node: UnixStream) -> Result<Console> {
        let what = || format!("serving the console {}", path.display());
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).attempt(what())?,
            _ => {}
        }
        let listener = UnixListener::bind(path).attempt(what())?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).attempt(what())?;
        listener.set_nonblocking(true).attempt(what())?;
        let reader = node.try_clone().attempt(what())?;
        node.set_write_timeout(Some(WRITE)).attempt(what())?;
        let shared = Arc::new(Shared {
            node: Mutex::new(Arc::new(node)),
            state: Mutex::default(),
            written: Condvar::new(),
            ending: EventFd::new().attempt(what())?,
        });
        let epoll = Epoll::new().attempt(what())?;
        epoll.add(&listener, 0, Interest::Read).attempt(what())?;
        epoll
            .add(&shared.ending, 1, Interest::Read)
            .attempt(what())?;
        let console = Console {
            path: path.to_owned(),
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
        };
        let listens = Arc::clone(&shared);
        for (name, run) in [
            ("console-said", thread(move || shared.pass_on(reader, 0))),
            (
                "console-door",
                thread(move || listens.welcome(&listener, &epoll)),
            ),
        ] {
            console.begin(name, run)?;
        }
        Ok(console)
    }

    fn begin(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> Result<()> {
        let builder = std::thread::Builder::new().name(name.into());
        let begun = builder.spawn(run);
        let begun = begun.attempt(format!("serving the console {}", self.path.display()))?;
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(begun);
        Ok(())
    }

    /// Replaces the connection after the node has continued in another QEMU, whose console is at
    /// the other end of `node`. Viewers stay connected.
    pub(crate) fn rejoin(&self, node: UnixStream) -> Result<()> {
        let what = || format!("joining the console {} anew", self.path.display());
        node.set_write_timeout(Some(WRITE)).attempt(what())?;
        let reader = node.try_clone().attempt(what())?;
        let moves = {
            let mut state = self.shared.lock();
            state.moves += 1;
            state.is_closed = false;
            state.moves
        };
        let before = {
            let mut current = lock(&self.shared.node);
            std::mem::replace(&mut *current, Arc::new(node))
        };
        // The reading thread of the old connection ends; it has already forwarded all output from
        // there.
        let _ = before.shutdown(Shutdown::Both);
        let shared = Arc::clone(&self.shared);
        self.begin(
            "console-said",
            thread(move || shared.pass_on(reader, moves)),
        )
    }

    /// Sends empty lines until the node writes something.
    pub(crate) fn wait_for_answer(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let before = self.shared.lock().written;
        loop {
            // A node that has just started to listen may have missed the previous line.
            let _ = self.shared.write(b"\n");
            let again = deadline.min(Instant::now() + ASK_AGAIN);
            let mut state = self.shared.lock();
            loop {
                if state.written > before {
                    return Ok(());
                }
                if state.is_closed {
                    return Err(Error::Ended("the console"));
                }
                let left = again.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = self.shared.written.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(state);
            if Instant::now() >= deadline {
                let what = "the console has not answered".to_owned();
                return Err(Error::Timeout { what, limit });
            }
        }
    }
}

impl Console {
    /// The number of bytes that the node has written, and the recent ones among those after byte
    /// `since`. Returns as soon as there are any, or after `wait` without any.
    pub(crate) fn output_since(&self, since: u64, wait: Duration) -> (u64, Vec<u8>) {
        let state = self.shared.lock();
        let waited = self
            .shared
            .written
            .wait_timeout_while(state, wait, |state| {
                state.written <= since && !state.is_closed
            });
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let kept = state.last.len() as u64;
        let skip = since
            .saturating_sub(state.written.saturating_sub(kept))
            .min(kept);
        let bytes = state.last.iter().skip(skip as usize);
        (state.written, bytes.copied().collect())
    }

    /// Types on behalf of a client without a connection.
    ///
    /// # Errors
    /// A viewer is the writer, or the node does not accept the input.
    pub(crate) fn type_in(&self, bytes: &[u8]) -> Result<()> {
        if self.shared.lock().has_writer(Instant::now()) {
            return Err(Error::Taken("the console"));
        }
        self.shared.write(bytes).attempt("typing at a console")
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.shared.ending.signal();
        // The other end may be closed already.
        let _ = lock(&self.shared.node).shutdown(Shutdown::Both);
        for viewer in self.shared.lock().viewers.drain(..) {
            let _ = viewer.stream.shutdown(Shutdown::Both);
        }
        for thread in lock(&self.threads).drain(..) {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent, even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends input to the node, over the current connection.
    fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        let node = Arc::clone(&lock(&self.node));
        (&*node).write_all(bytes)
    }

    /// Forwards the node's output to the viewers, until the connection ends or is replaced.
    fn pass_on(&self, mut node: UnixStream, moves: u64) {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = node.read(&mut buffer) {
            let written = &buffer[..length];
            let mut state = self.lock();
            state.written += length as u64;
            state.last.extend(written);
            let surplus = state.last.len().saturating_sub(LAST_BYTES);
            state.last.drain(..surplus);
            // Disconnects a viewer who does not read, so that the others do not wait.
            state.viewers.retain(|viewer| {
                let is_well = (&viewer.stream).write_all(written).is_ok();
                if !is_well {
                    let _ = viewer.stream.shutdown(Shutdown::Both);
                }
                is_well
            });
            self.written.notify_all();
        }
        let mut state = self.lock();
        if state.moves == moves {
            state.is_closed = true;
        }
        drop(state);
        self.written.notify_all();
    }

    fn welcome(self: &Arc<Shared>, listener: &UnixListener, epoll: &Epoll) {
        let mut ready = Vec::new();
        while epoll.wait(&mut ready, None).is_ok() && !self.is_ending() {
            match listener.accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // For instance too many open files; that may pass.
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }

    fn is_ending(&self) -> bool {
        // The event stays set.
        self.ending.wait(Some(0)).unwrap_or(true)
    }

    fn admit(self: &Arc<Shared>, stream: UnixStream) {
        let Ok(reader) = stream.try_clone() else {
            return;
        };
        let mut state = self.lock();
        if state.viewers.len() >= VIEWERS_MAX {
            return;
        }
        let last: Vec<u8> = state.last.iter().copied().collect();
        let is_ready = stream.set_nonblocking(false).is_ok()
            && stream.set_write_timeout(Some(VIEWER_WRITE)).is_ok()
            && (&stream).write_all(&last).is_ok();
        if !is_ready {
            return;
        }
        let number = state.next;
        state.next += 1;
        state.viewers.push(Viewer { number, stream });
        drop(state);
        let shared = Arc::clone(self);
        let builder = std::thread::Builder::new().name("console-typed".into());
        if builder
            .spawn(move || shared.listen_to(reader, number))
            .is_err()
        {
            self.send_away(number);
        }
    }

    /// Forwards what a viewer types while that viewer is the writer or becomes it.
    fn listen_to(&self, mut reader: UnixStream, number: u64) {
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            if !self.lock().may_write(number, Instant::now()) {
                self.lock().ignored += length as u64;
                continue;
            }
            if self.write(&buffer[..length]).is_err() {
                break;
            }
        }
        self.send_away(number);
    }

    fn send_away(&self, number: u64) {
        let mut state = self.lock();
        state.viewers.retain(|viewer| viewer.number != number);
        state.writer.take_if(|(writer, _)| *writer == number);
    }
}

impl State {
    /// Whether the console has a writer, and this writer has typed within [`WRITER_IDLE`].
    fn has_writer(&self, now: Instant) -> bool {
        let typed = self.writer.map(|(_, typed)| typed);
        typed.is_some_and(|typed| now.saturating_duration_since(typed) < WRITER_IDLE)
    }

    /// Whether a viewer who types now may write. The viewer becomes the writer if no other one is.
    fn may_write(&mut self, number: u64, now: Instant) -> bool {
        let is_writer = self.writer.is_some_and(|(writer, _)| writer == number);
        let may = is_writer || !self.has_writer(now);
        if may {
            self.writer = Some((number, now));
        }
        may
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the value consistent, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn thread(run: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce() + Send> {
    Box::new(run)
}

/// Bytes of recent output that a new viewer gets.
const LAST_BYTES: usize = 4096;
const VIEWERS_MAX: usize = 32;
/// Time without input after which the writer loses the keyboard to another viewer.
const WRITER_IDLE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// Longest time for the node's console to accept input.
const WRITE: Duration = Duration::from_secs(5);
/// Longest time that a viewer may delay the others.
const VIEWER_WRITE: Duration = Duration::from_millis(20);
const ASK_AGAIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &UnixStream, bytes: usize) -> String {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut buffer = vec![0; bytes];
        let mut stream = stream;
        stream.read_exact(&mut buffer).unwrap();
        String::from_utf8(buffer).unwrap()
    }

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn all_viewers_see_what_is_said_and_one_writes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.console");
        let (mut node, end) = UnixStream::pair().unwrap();
        let console = Console::serve(&path, end).unwrap();
        node.write_all(b"before;").unwrap();
        assert_eq!(console.output_since(0, LIMIT), (7, b"before;".to_vec()));
        assert_eq!(console.output_since(4, LIMIT), (7, b"re;".to_vec()));
        assert_eq!(console.output_since(7, Duration::ZERO), (7, Vec::new()));
        console.type_in(b"typed").unwrap();
        assert_eq!(read(&node, 5), "typed");
        let first = UnixStream::connect(&path).unwrap();
        assert_eq!(read(&first, 7), "before;");
        let second = UnixStream::connect(&path).unwrap();
        assert_eq!(read(&second, 7), "before;");
        node.write_all(b"now").unwrap();
        assert_eq!(
            (read(&first, 3), read(&second, 3)),
            ("now".into(), "now".into())
        );
        (&first).write_all(b"typed").unwrap();
        assert_eq!(read(&node, 5), "typed");
        assert!(console.type_in(b"lost").is_err());
        (&second).write_all(b"lost").unwrap();
        while console.shared.lock().ignored < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(first);
        while console.shared.lock().viewers.len() > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        (&second).write_all(b"mine").unwrap();
        assert_eq!(read(&node, 4), "mine");
        drop(console);
        assert!(!path.exists());
        assert_eq!((&second).read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn watcher_who_came_first_keeps_no_one_from_typing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.console");
        let (mut node, end) = UnixStream::pair().unwrap();
        let console = Console::serve(&path, end).unwrap();
        let watcher = UnixStream::connect(&path).unwrap();
        node.write_all(b"login:").unwrap();
        assert_eq!(read(&watcher, 6), "login:");
        // A viewer who only watches is not a writer: `type_in` is accepted, and then another
        // viewer's input.
        console.type_in(b"asked").unwrap();
        assert_eq!(read(&node, 5), "asked");
        let writer = UnixStream::connect(&path).unwrap();
        (&writer).write_all(b"root").unwrap();
        assert_eq!(read(&node, 4), "root");
    }

    #[test]
    fn place_of_one_who_types_no_longer_goes_to_another() {
        let (mut state, began) = (State::default(), Instant::now());
        assert!(state.may_write(1, began));
        assert!(!state.may_write(2, began + WRITER_IDLE / 2));
        assert!(state.may_write(1, began + WRITER_IDLE / 2));
        assert!(!state.may_write(2, began + WRITER_IDLE));
        assert!(state.may_write(2, began + WRITER_IDLE * 2));
        assert!(!state.may_write(1, began + WRITER_IDLE * 2));
    }

    #[test]
    fn silent_console_is_a_timeout_and_a_closed_one_an_end() {
        let directory = tempfile::tempdir().unwrap();
        let (node, end) = UnixStream::pair().unwrap();
        let console = Console::serve(&directory.path().join("a.console"), end).unwrap();
        let error = console
            .wait_for_answer(Duration::from_millis(50))
            .unwrap_err();
        assert!(error.to_string().contains("has not answered"), "{error}");
        drop(node);
        let error = console.wait_for_answer(LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "the console has ended");
    }
}
