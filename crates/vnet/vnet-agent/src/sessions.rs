//! Consoles with remote viewers: for each viewer, a connection to the node's console, and the
//! recent output from it.

use carina_vnet_roles::inside::tenants::{Place, Places};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// On whose behalf, name of the network on this host, name of the node, and the viewer's session
/// number.
pub(super) type Key = (Vec<String>, String, String, u64);

/// The sessions of all viewers.
#[derive(Debug)]
pub(super) struct Sessions {
    all: Mutex<BTreeMap<Key, Taken>>,
    places: Places,
}

/// A session, and the place that it takes.
type Taken = (Arc<Session>, Place);

/// The session of one viewer.
#[derive(Debug)]
pub(super) struct Session {
    stream: UnixStream,
    output: Mutex<Output>,
    came: Condvar,
}

#[derive(Debug)]
struct Output {
    /// Number of bytes that the console has sent since the session began.
    count: u64,
    /// The last bytes of the console's output, for a slow viewer.
    last: Vec<u8>,
    has_ended: bool,
    used_at: Instant,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            all: Mutex::default(),
            places: Places::new("consoles", SESSIONS_MAX),
        }
    }
}

impl Sessions {
    /// The session of a viewer. A missing session is created if `socket` is given; otherwise the
    /// result is `None`.
    ///
    /// # Errors
    /// There are too many sessions, or the console cannot be reached.
    pub(super) fn of(
        &self,
        key: &Key,
        socket: Option<&Path>,
    ) -> Result<Option<Arc<Session>>, Error> {
        let mut all = self.lock();
        // Unused sessions are closed, because one of them may block the keyboard as the writer.
        let unused = all.extract_if(.., |_, (session, _)| !session.is_used());
        unused.for_each(|(_, (session, _))| session.end());
        if let Some((session, _)) = all.get(key) {
            return Ok(Some(Arc::clone(session)));
        }
        let Some(socket) = socket else {
            return Ok(None);
        };
        let place = self.places.take(&key.0)?;
        let session = Session::begin(socket).map_err(failed)?;
        all.insert(key.clone(), (Arc::clone(&session), place));
        Ok(Some(session))
    }

    /// Ends a session, if it exists.
    pub(super) fn end(&self, key: &Key) {
        if let Some((session, _)) = self.lock().remove(key) {
            session.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Taken>> {
        // Every critical section leaves the map consistent, even after a panic.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.lock().values().for_each(|(session, _)| session.end());
    }
}

impl Session {
    fn begin(socket: &Path) -> std::io::Result<Arc<Session>> {
        let stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(WRITE))?;
        let mut reader = stream.try_clone()?;
        let session = Arc::new(Session {
            stream,
            output: Mutex::new(Output {
                count: 0,
                last: Vec::new(),
                has_ended: false,
                used_at: Instant::now(),
            }),
            came: Condvar::new(),
        });
        let hears = Arc::clone(&session);
        let thread = std::thread::Builder::new().name("watcher".to_owned());
        thread.spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                hears.add(&buffer[..length]);
                if !hears.is_used() {
                    hears.end();
                }
            }
            hears.lock().has_ended = true;
            hears.came.notify_all();
        })?;
        Ok(session)
    }

    fn add(&self, bytes: &[u8]) {
        let mut output = self.lock();
        output.count += bytes.len() as u64;
        output.last.extend(bytes);
        let surplus = output.last.len().saturating_sub(LAST_BYTES);
        output.last.drain(..surplus);
        drop(output);
        self.came.notify_all();
    }

    /// Returns the number of all bytes of output so far, the bytes after byte `since`, and whether
    /// the console has ended. If there are no such bytes yet, waits for some for up to `wait`; the
    /// result may then have none.
    pub(super) fn output_since(&self, since: u64, wait: Duration) -> (u64, Vec<u8>, bool) {
        let mut output = self.lock();
        output.used_at = Instant::now() + wait;
        let waited = self.came.wait_timeout_while(output, wait, |output| {
            output.count <= since && !output.has_ended
        });
        let mut output = waited.unwrap_or_else(PoisonError::into_inner).0;
        output.used_at = Instant::now();
        let kept = output.last.len() as u64;
        let first = output.count - kept;
        let skip = since.saturating_sub(first).min(kept);
        let bytes = output.last[skip as usize..].to_vec();
        (output.count, bytes, output.has_ended)
    }

    /// Sends input to the console, which accepts it if this viewer is or becomes the writer.
    ///
    /// # Errors
    /// The console has ended.
    pub(super) fn type_in(&self, bytes: &[u8]) -> Result<(), Error> {
        self.lock().used_at = Instant::now();
        (&self.stream).write_all(bytes).map_err(failed)
    }

    fn is_used(&self) -> bool {
        self.lock().used_at.elapsed() < UNUSED
    }

    fn end(&self) {
        // The connection may already have ended.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn lock(&self) -> MutexGuard<'_, Output> {
        // Every critical section leaves the value consistent, even after a panic.
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::system("the console", source)
}

/// Largest number of sessions on a host at a time.
const SESSIONS_MAX: usize = 64;
/// Largest number of bytes that are kept for a slow viewer.
const LAST_BYTES: usize = 1 << 16;
const WRITE: Duration = Duration::from_secs(5);
/// Time without a request after which a viewer counts as disconnected.
const UNUSED: Duration = Duration::from_secs(60);
