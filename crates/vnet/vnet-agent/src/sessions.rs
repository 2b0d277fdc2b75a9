//! Consoles that are watched from elsewhere: for each who watches, a connection to the node's
//! console as any other has one, and what came over it.

use carina_vnet_roles::inside::tenants::{Place, Places};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// Who watches what: on whose behalf, the network's name here, the node, and a number that the one
/// who watches has drawn.
pub(super) type Key = (Vec<String>, String, String, u64);

/// All who watch.
#[derive(Debug)]
pub(super) struct Sessions {
    all: Mutex<BTreeMap<Key, Taken>>,
    places: Places,
}

/// A session and its place.
type Taken = (Arc<Session>, Place);

/// One who watches.
#[derive(Debug)]
pub(super) struct Session {
    stream: UnixStream,
    said: Mutex<Said>,
    came: Condvar,
}

#[derive(Debug)]
struct Said {
    /// Bytes so far.
    count: u64,
    /// The last of them.
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
    /// The session of one who watches; a new one where it is missing and `socket` is given.
    ///
    /// # Errors
    /// There are too many, or the console is not reached.
    pub(super) fn of(
        &self,
        key: &Key,
        socket: Option<&Path>,
    ) -> Result<Option<Arc<Session>>, Error> {
        let mut all = self.lock();
        // They leave the console, where one of them may be the one who writes.
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

    /// Ends a session, if it is there.
    pub(super) fn end(&self, key: &Key) {
        if let Some((session, _)) = self.lock().remove(key) {
            session.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Taken>> {
        // Every critical section leaves the map whole.
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
            said: Mutex::new(Said {
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
        let mut said = self.lock();
        said.count += bytes.len() as u64;
        said.last.extend(bytes);
        let surplus = said.last.len().saturating_sub(LAST_BYTES);
        said.last.drain(..surplus);
        drop(said);
        self.came.notify_all();
    }

    /// What was said after so many bytes, when there is something, at the latest after `wait`: how
    /// many bytes there are in all, the last of them, and whether the console has ended.
    pub(super) fn said_since(&self, since: u64, wait: Duration) -> (u64, Vec<u8>, bool) {
        let mut said = self.lock();
        said.used_at = Instant::now() + wait;
        let waited = self
            .came
            .wait_timeout_while(said, wait, |said| said.count <= since && !said.has_ended);
        let mut said = waited.unwrap_or_else(PoisonError::into_inner).0;
        said.used_at = Instant::now();
        let kept = said.last.len() as u64;
        let first = said.count - kept;
        let skip = since.saturating_sub(first).min(kept);
        let bytes = said.last[skip as usize..].to_vec();
        (said.count, bytes, said.has_ended)
    }

    /// Types, if this is the one who writes.
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
        // It may have ended.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        // Every critical section leaves it whole.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::system("the console", source)
}

/// Consoles of nodes on a host that are watched at a time.
const SESSIONS_MAX: usize = 64;
/// What is kept for one who is slow.
const LAST_BYTES: usize = 1 << 16;
const WRITE: Duration = Duration::from_secs(5);
/// One who has not asked for so long has gone.
const UNUSED: Duration = Duration::from_secs(60);
