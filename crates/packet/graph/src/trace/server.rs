//! The server of traces, in the process of a graph.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_frame_engine::tap::Tap;
use carina_frame_engine::tap_file::TapFile;
use carina_frame_engine::{ConfigureError, Workers};
use carina_sys::{Epoll, EventFd, Interest};
use carina_wire::pcapng::{Interface, LinkType};

use super::request::{RequestError, TraceRequest};
use super::{NO, OK, socket_of};

/// Listens for readers until it is dropped. One thread accepts connections, and a further thread
/// per reader sends it the file. The owner of the graph attaches readers to links in
/// [`TraceServer::serve_for`].
pub(crate) struct TraceServer {
    path: PathBuf,
    wanted: Receiver<WaitingRequest>,
    /// Signalled when a request waits.
    called: Arc<EventFd>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

struct Stop {
    is_set: AtomicBool,
    event: EventFd,
}

/// A request that waits for the owner of the graph.
struct WaitingRequest {
    request: TraceRequest,
    reply: Sender<Result<TapFile, Refusal>>,
}

impl WaitingRequest {
    fn answer(self, workers: &Workers) {
        // The reader may have disconnected.
        let _ = self.reply.send(taps(workers, &self.request));
    }
}

/// The channel by which the threads of readers pass requests to the owner of the graph, and the
/// event by which they wake the owner.
#[derive(Clone)]
struct Owner {
    wanted: Sender<WaitingRequest>,
    called: Arc<EventFd>,
}

/// Why a trace is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Worker(#[from] ConfigureError),
    #[error("the request must end with an empty line within {REQUEST_BYTES_MAX} bytes and 10 s")]
    Endless,
    #[error("the request is not text (UTF-8)")]
    NotText,
    #[error("{TRACES_MAX} traces are running, which is the limit; end one first")]
    TooMany,
    #[error("the process that runs the graph does not respond: it is busy or about to end")]
    NoAnswer,
}

impl TraceServer {
    /// Listens on a socket in the directory of this counter file. Replaces a socket that an ended
    /// process left there.
    pub(crate) fn new(counters: &Path) -> io::Result<TraceServer> {
        let path = socket_of(counters);
        let at =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(at(error));
        }
        let listener = UnixListener::bind(&path).map_err(at)?;
        // Only the user of the graph may see its frames.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(at)?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(Stop {
            is_set: AtomicBool::new(false),
            event: EventFd::new()?,
        });
        let epoll = Epoll::new()?;
        epoll.add(&listener, 0, Interest::Read)?;
        epoll.add(stop.event.as_fd(), 1, Interest::Read)?;
        let (sender, wanted) = mpsc::channel();
        let called = Arc::new(EventFd::new()?);
        let owner = Owner {
            wanted: sender,
            called: Arc::clone(&called),
        };
        let acceptor = Acceptor {
            listener,
            epoll,
            stop: Arc::clone(&stop),
            owner,
        };
        let thread = std::thread::Builder::new().name("traces".into());
        Ok(TraceServer {
            path,
            wanted,
            called,
            stop,
            thread: Some(thread.spawn(move || acceptor.run())?),
        })
    }

    /// Attaches readers to links of the graph that `workers` run, for the duration `time`.
    pub(crate) fn serve_for(&self, workers: &Workers, time: Duration) {
        let begin = Instant::now();
        loop {
            let left = time.saturating_sub(begin.elapsed());
            match self.wanted.recv_timeout(left) {
                Ok(wanted) => wanted.answer(workers),
                Err(RecvTimeoutError::Timeout) => return,
                // The thread ends only when this value is dropped. If it ends early, the graph
                // keeps running.
                Err(RecvTimeoutError::Disconnected) => return std::thread::sleep(left),
            }
        }
    }

    /// Like [`TraceServer::serve_for`], but returns early when `event` is signalled. Fails if the
    /// system refuses to wait for the event.
    pub(crate) fn serve_until(
        &self,
        workers: &Workers,
        event: &EventFd,
        time: Duration,
    ) -> io::Result<()> {
        let begin = Instant::now();
        let epoll = Epoll::new()?;
        epoll.add(event, EVENT, Interest::Read)?;
        epoll.add(&*self.called, CALLED, Interest::Read)?;
        let mut ready = Vec::new();
        loop {
            let left = time.saturating_sub(begin.elapsed());
            epoll.wait(&mut ready, u64::try_from(left.as_nanos()).ok())?;
            self.called.drain();
            for request in self.wanted.try_iter() {
                request.answer(workers);
            }
            if left.is_zero() || ready.iter().any(|candidate| candidate.token == EVENT) {
                return Ok(());
            }
        }
    }
}

impl Drop for TraceServer {
    fn drop(&mut self) {
        self.stop.is_set.store(true, Ordering::Release);
        self.stop.event.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Attaches taps to the requested links, and makes the file of the frames that they copy.
fn taps(workers: &Workers, request: &TraceRequest) -> Result<TapFile, Refusal> {
    let links = request.links_of(workers.graph())?;
    let snap = request
        .snap_bytes
        .map_or(usize::MAX, |bytes| bytes as usize);
    let mut taps = Vec::with_capacity(links.len());
    for (link, name) in links {
        let (tap, reader) = Tap::new(snap);
        let interface = Interface {
            link: LinkType::ETHERNET,
            name,
            description: String::new(),
            snap_bytes: request.snap_bytes.unwrap_or(0),
        };
        workers.trace(&link, tap)?;
        taps.push((reader, interface));
    }
    Ok(TapFile::new(taps))
}

/// Accepts connections.
struct Acceptor {
    listener: UnixListener,
    epoll: Epoll,
    stop: Arc<Stop>,
    owner: Owner,
}

impl Acceptor {
    fn run(self) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let mut ready = Vec::new();
        while self.epoll.wait(&mut ready, None).is_ok() && !self.stop.is_set() {
            ready.clear();
            threads.retain(|thread| !thread.is_finished());
            match self.listener.accept() {
                Ok((socket, _)) => {
                    let reader = Reader {
                        socket,
                        stop: Arc::clone(&self.stop),
                        stopped: None,
                        has_place: threads.len() < TRACES_MAX,
                    };
                    let owner = self.owner.clone();
                    let thread = std::thread::Builder::new().name("trace".into());
                    threads.extend(thread.spawn(move || reader.serve(&owner)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // For example too many open files; this may pass.
                Err(_) => std::thread::sleep(TURN),
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Stop {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

/// The connection of one reader.
struct Reader {
    socket: UnixStream,
    stop: Arc<Stop>,
    /// When the reader's thread noticed that the graph has ended; `None` while the graph runs.
    stopped: Option<Instant>,
    has_place: bool,
}

impl Reader {
    /// Serves the reader until the trace ends or the reader disconnects.
    fn serve(mut self, owner: &Owner) {
        let _ = self.try_serve(owner);
    }

    fn try_serve(&mut self, owner: &Owner) -> io::Result<()> {
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(TURN))?;
        self.socket.set_write_timeout(Some(TURN))?;
        let Some(text) = self.request()? else {
            return Ok(());
        };
        match text.and_then(|text| self.begin(&text, owner)) {
            Ok(file) => self.give(file),
            Err(refusal) => {
                let line = refusal.to_string().replace('\n', " ");
                self.send(format!("{NO}{line}\n").as_bytes())
            }
        }
    }

    /// The reader's request, up to the empty line; `None` if the reader disconnects without one,
    /// which only tests whether a process listens.
    fn request(&mut self) -> io::Result<Option<Result<String, Refusal>>> {
        let begin = Instant::now();
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        while text != b"\n" && !text.ends_with(b"\n\n") {
            match self.socket.read(&mut piece) {
                Ok(0) if text.is_empty() => return Ok(None),
                Ok(0) => return Ok(Some(Err(Refusal::Endless))),
                Ok(bytes) => text.extend_from_slice(&piece[..bytes]),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            let is_late = begin.elapsed() > REQUEST_TIME || self.stop.is_set();
            if is_late || text.len() > REQUEST_BYTES_MAX {
                return Ok(Some(Err(Refusal::Endless)));
            }
        }
        text.pop();
        let text = String::from_utf8(text).map_err(|_| Refusal::NotText);
        Ok(Some(text))
    }

    fn begin(&self, text: &str, owner: &Owner) -> Result<TapFile, Refusal> {
        if !self.has_place {
            return Err(Refusal::TooMany);
        }
        let request: TraceRequest = text.parse()?;
        let (reply, answer) = mpsc::channel();
        // If the owner has ended, no answer comes either.
        let _ = owner.wanted.send(WaitingRequest { request, reply });
        owner.called.signal();
        let begin = Instant::now();
        while begin.elapsed() < ANSWER_TIME && !self.stop.is_set() {
            match answer.recv_timeout(TURN) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(Refusal::NoAnswer)
    }

    /// Sends the file until the reader ends its stream, or the traced links are removed.
    fn give(&mut self, mut file: TapFile) -> io::Result<()> {
        self.send(OK)?;
        loop {
            // Reads the state first, so that frames that passed before the end are still sent.
            let is_over = file.is_over() || self.stop.is_set();
            self.send(&file.portion())?;
            if is_over || self.has_enough()? {
                break;
            }
        }
        self.send(&file.portion())?;
        self.send(&file.end())
    }

    /// Whether the reader has ended its stream; waits for that briefly.
    fn has_enough(&mut self) -> io::Result<bool> {
        match self.socket.read(&mut [0]) {
            // Any byte behind the request is a violation of the protocol, and also ends the trace.
            Ok(_) => Ok(true),
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends bytes, however slow the reader is; frames that pass meanwhile are missed. When the
    /// graph ends, the reader gets a little more time before its file is truncated.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
            match self.socket.write(piece) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            if self.stop.is_set() {
                let stopped = *self.stopped.get_or_insert_with(Instant::now);
                if stopped.elapsed() > LAST_TIME {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        Ok(())
    }
}

/// Whether a call must be repeated, because it was interrupted or timed out.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Events that the owner waits for.
const EVENT: u64 = 0;
const CALLED: u64 = 1;
/// Largest number of traces of a graph at the same time.
const TRACES_MAX: usize = 8;
/// Length of the longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 256 * 1024;
/// How long a reader may take to send its request.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How long the owner of the graph may take to answer; it may be making apps with large tables.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// How often a trace sends the frames that have passed, and checks whether it must end.
const TURN: Duration = Duration::from_millis(20);
/// How long a reader may take to receive the rest after the graph has ended.
const LAST_TIME: Duration = Duration::from_millis(500);
/// Largest number of bytes of one write, after which the trace checks whether the graph has ended.
const PIECE_BYTES: usize = 64 * 1024;
