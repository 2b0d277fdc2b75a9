//! Captures for remote viewers. Each has a thread that reads captured frames from the engine, and a
//! buffer of what the viewer has not fetched yet. While the buffer is full, the thread waits;
//! frames that pass meanwhile are missed, and the file says how many.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_vnet::document::{is_interface, is_name};
use carina_vnet_host::Agent;
use carina_vnet_web::FrameSource;

use carina_vnet_roles::inside::tenants::{Place, Places};
use carina_vnet_roles::inside::{Answer, NetworkRequest, NodeRequest, WATCH_MS_MAX};

use crate::error::Error;

/// On whose behalf, name of the network on this host, name of the node, and the viewer's session
/// number.
type Key = (Vec<String>, String, String, u64);

/// All captures of this host for remote viewers.
#[derive(Debug)]
pub(super) struct Copies {
    all: Mutex<BTreeMap<Key, Taken>>,
    places: Places,
}

/// A capture, and the place that it takes.
type Taken = (Arc<Copy>, Place);

#[derive(Debug)]
struct Copy {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Number of bytes of the file that the viewer has fetched.
    first: u64,
    /// Captured bytes that follow the ones that the viewer has fetched.
    waiting: Vec<u8>,
    is_enough: bool,
    has_ended: bool,
    used_at: Instant,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies {
            all: Mutex::default(),
            places: Places::new("captures", COPIES_MAX),
        }
    }
}

impl Copies {
    /// Answers [`NodeRequest::Copy`] and [`NodeRequest::StopCapture`].
    ///
    /// # Errors
    /// There is no such interface, there are too many captures, or the engine does not run.
    pub(super) fn answer(
        &self,
        agent: &Agent,
        name: &str,
        wanted: &NetworkRequest,
    ) -> Result<Answer, Error> {
        let key = |node: &str, session: u64| {
            (
                wanted.who.clone(),
                name.to_owned(),
                node.to_owned(),
                session,
            )
        };
        match &wanted.ask {
            NodeRequest::Copy {
                node,
                interface,
                far,
                snap,
                session,
                since,
                wait_ms,
            } => {
                // A request with these two values is logged, and therefore may start a capture.
                let may_begin = *since == 0 && *wait_ms == 0;
                let copy = self.of(key(node, *session), may_begin, || {
                    let far = if is_end(far) { far } else { "the other end" };
                    agent.copy_end(name, [node, interface], far, *snap)
                })?;
                Ok(copy.after(*since, Duration::from_millis((*wait_ms).min(WATCH_MS_MAX))))
            }
            NodeRequest::StopCapture { node, session } => {
                if let Some((copy, _)) = self.lock().get(&key(node, *session)) {
                    copy.lock().is_enough = true;
                    copy.changed.notify_all();
                }
                Ok(Answer::Done {})
            }
            _ => Ok(Answer::Done {}),
        }
    }

    fn of(
        &self,
        key: Key,
        may_begin: bool,
        open: impl FnOnce() -> Result<Box<dyn FrameSource>, carina_vnet_host::Error>,
    ) -> Result<Arc<Copy>, Error> {
        let mut all = self.lock();
        all.retain(|_, (copy, _)| copy.is_used());
        if let Some((copy, _)) = all.get(&key) {
            return Ok(Arc::clone(copy));
        }
        if !may_begin {
            return Err(Error::ended("the capture"));
        }
        let place = self.places.take(&key.0)?;
        let copy = Copy::begin(open()?)?;
        all.insert(key, (Arc::clone(&copy), place));
        Ok(copy)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Taken>> {
        // Every critical section leaves the map consistent, even after a panic.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        for (copy, _) in self.lock().values() {
            copy.lock().has_ended = true;
            copy.changed.notify_all();
        }
    }
}

impl Copy {
    fn begin(stream: Box<dyn FrameSource>) -> Result<Arc<Copy>, Error> {
        let copy = Arc::new(Copy {
            state: Mutex::new(State {
                first: 0,
                waiting: Vec::new(),
                is_enough: false,
                has_ended: false,
                used_at: Instant::now(),
            }),
            changed: Condvar::new(),
        });
        let copies = Arc::clone(&copy);
        let thread = std::thread::Builder::new().name("copies".to_owned());
        let started = thread.spawn(move || copies.run(stream));
        started.map_err(|source| Error::system("copying frames", source))?;
        Ok(copy)
    }

    fn run(&self, mut stream: Box<dyn FrameSource>) {
        let mut bytes = vec![0; READ_BYTES];
        // The deadline for the end of the file.
        let mut end: Option<Instant> = None;
        loop {
            let state = self.lock();
            let is_full =
                |state: &mut State| state.waiting.len() >= WAITING_BYTES_MAX && !state.has_ended;
            let waited = self.changed.wait_timeout_while(state, TURN, is_full);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if is_full(&mut state) && state.is_used() {
                continue;
            }
            if state.has_ended || !state.is_used() {
                break;
            }
            let is_enough = state.is_enough;
            drop(state);
            if is_enough && end.is_none() {
                if stream.finish().is_err() {
                    break;
                }
                end = Some(Instant::now() + LAST);
            }
            if end.is_some_and(|end| Instant::now() > end) {
                break;
            }
            match stream.read(&mut bytes, TURN) {
                Ok(Some(0)) => {}
                Ok(Some(count)) => {
                    self.lock().waiting.extend_from_slice(&bytes[..count]);
                    self.changed.notify_all();
                }
                Ok(None) | Err(_) => break,
            }
        }
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Returns the bytes of the file after byte `since`. If no such bytes exist yet, waits for some
    /// for up to `wait`; the result may then be empty.
    fn after(&self, since: u64, wait: Duration) -> Answer {
        let mut state = self.lock();
        state.used_at = Instant::now() + wait;
        // Bytes that the viewer has fetched are not needed any more.
        let arrived = since.saturating_sub(state.first);
        let arrived = usize::try_from(arrived).unwrap_or(usize::MAX);
        let arrived = arrived.min(state.waiting.len());
        state.waiting.drain(..arrived);
        state.first += arrived as u64;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, wait, |state| {
            state.waiting.is_empty() && !state.has_ended
        });
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.used_at = Instant::now();
        let count = state.waiting.len().min(ANSWER_BYTES_MAX);
        Answer::Copied {
            next: state.first + count as u64,
            bytes: state.waiting[..count].to_vec(),
            has_ended: state.has_ended && count == state.waiting.len(),
        }
    }

    fn is_used(&self) -> bool {
        self.lock().is_used()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent, even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_used(&self) -> bool {
        self.used_at.elapsed() < UNUSED
    }
}

/// Whether a text can name a link end at a node.
fn is_end(text: &str) -> bool {
    let end = text.split_once(':');
    end.is_some_and(|(node, interface)| is_name(node) && is_interface(interface))
}

/// Largest number of captures on a host at a time.
const COPIES_MAX: usize = 32;
/// Largest number of bytes of a file that wait for a slow viewer.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Largest number of bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Time without a request after which a capture ends, because its viewer counts as disconnected.
const UNUSED: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 1 << 16;
/// Time between two checks whether a capture must end.
const TURN: Duration = Duration::from_millis(100);
/// How long the agent waits for frames in flight when a capture ends.
const LAST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_the_far_end_is_an_end_and_nothing_else() {
        assert!(is_end("b:eth0"));
        for text in [
            "",
            "b",
            "b:",
            ":eth0",
            "b:eth0 as x",
            "b:eth0\nlink x",
            "host h1",
        ] {
            assert!(!is_end(text), "{text}");
        }
    }
}
