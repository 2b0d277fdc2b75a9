//! The server of an AFTR's control socket.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use carina_sys::EventFd;
use serde_json::Value;

use super::{Answer, CONNECTIONS_MAX, LINE_MAX, Request, Status};

/// A request, and the connection that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    /// What the client asks for. [`Asked::answer`] sends the answer to the client.
    pub request: Request,
    answer: SyncSender<Answer>,
}

impl Asked {
    /// Sends the answer to the client: the value, or the reason why the AFTR refuses the request.
    pub fn answer<E: fmt::Display>(self, result: Result<String, E>) {
        let (status, value) = match result {
            Ok(value) => (Status::Ok, value),
            Err(reason) => (Status::Error, reason.to_string()),
        };
        let answer = Answer {
            id: self.request.id,
            status,
            value: (!value.is_empty()).then_some(value),
        };
        // The client may have closed the connection.
        let _ = self.answer.send(answer);
    }
}

/// The control socket of an AFTR, and the thread that accepts connections. Dropping this value ends
/// both.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    asked: Receiver<Asked>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    request_event: EventFd,
    has_ended: AtomicBool,
    connections: AtomicUsize,
}

impl Server {
    /// Listens at `path`, and replaces a socket that an earlier process left there.
    ///
    /// # Errors
    /// The system refuses to remove the old socket, to make the new one, or to start the thread.
    pub fn bind(path: &Path) -> io::Result<Server> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        let shared = Arc::new(Shared {
            request_event: EventFd::new()?,
            has_ended: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let (sender, asked) = channel();
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name("lwaftr-channel".to_owned())
            .spawn(move || accept(&listener, &theirs, &sender))?;
        Ok(Server {
            path: path.to_owned(),
            asked,
            shared,
        })
    }

    /// The event that is signalled when a request arrives. [`Server::poll`] resets it, so the
    /// caller must call that until it returns `None`.
    #[must_use]
    pub fn request_event(&self) -> &EventFd {
        &self.shared.request_event
    }

    /// Takes the next request that waits; returns `None` at once if none does.
    #[must_use]
    pub fn poll(&self) -> Option<Asked> {
        self.shared.request_event.drain();
        self.asked.try_recv().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        // Wakes the thread that accepts connections.
        let _ = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>, sender: &Sender<Asked>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if shared.has_ended.load(Ordering::Acquire) {
            return;
        }
        if shared.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            shared.connections.fetch_sub(1, Ordering::AcqRel);
            let reason = format!(
                "the AFTR already serves {CONNECTIONS_MAX} connections, which is the limit"
            );
            let _ = write(&stream, &refusal(Value::Null, reason));
            continue;
        }
        let (theirs, sender) = (Arc::clone(shared), sender.clone());
        let spawned = thread::Builder::new()
            .name("lwaftr-client".to_owned())
            .spawn(move || {
                // A client may disconnect at any time.
                let _ = serve(&stream, &theirs, &sender);
                theirs.connections.fetch_sub(1, Ordering::AcqRel);
            });
        if spawned.is_err() {
            shared.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn serve(stream: &UnixStream, shared: &Shared, sender: &Sender<Asked>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let mut limited = reader.by_ref().take(LINE_MAX + 1);
        let bytes = limited.read_until(b'\n', &mut line)?;
        if bytes == 0 {
            return Ok(());
        }
        if bytes as u64 > LINE_MAX {
            let reason = format!("the request has more than {LINE_MAX} bytes");
            return write(stream, &refusal(Value::Null, reason));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = match Request::read(&line) {
            Err(error) => refusal(id_of(&line), format!("not a valid request: {error}")),
            Ok(request) => match ask(request, shared, sender) {
                Some(answer) => answer,
                None => return Ok(()),
            },
        };
        write(stream, &answer)?;
    }
}

/// Passes a request to the main thread, and waits for the answer; `None` when the process ends.
fn ask(request: Request, shared: &Shared, sender: &Sender<Asked>) -> Option<Answer> {
    let (answer, answered) = sync_channel(1);
    sender.send(Asked { request, answer }).ok()?;
    shared.request_event.signal();
    answered.recv().ok()
}

/// The id in a line that is not a valid request, or null.
fn id_of(line: &[u8]) -> Value {
    let value: Option<Value> = serde_json::from_slice(line).ok();
    value
        .and_then(|mut value| value.get_mut("id").map(Value::take))
        .unwrap_or_default()
}

fn refusal(id: Value, reason: String) -> Answer {
    Answer {
        id,
        status: Status::Error,
        value: Some(reason),
    }
}

fn write(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}
