//! Captures that are looked at from elsewhere: for each, a thread that reads what the engine
//! copies, and so much of it as has not arrived yet. While that is much, the thread waits; frames
//! that pass meanwhile are missed, and the file says how many.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_vnet::document::{is_interface, is_name};
use carina_vnet_host::Agent;
use carina_vnet_web::FrameSource;

use carina_vnet_roles::inside::tenants::{Place, Places};
use carina_vnet_roles::inside::{Answer, Ask, WATCH_MS_MAX, Wanted};

use crate::error::Error;

/// On whose behalf, the network's name here, the node, and a number that the one who looks has
/// drawn.
type Key = (Vec<String>, String, String, u64);

/// All captures.
#[derive(Debug)]
pub(super) struct Copies {
    all: Mutex<BTreeMap<Key, Taken>>,
    places: Places,
}

/// A capture and its place.
type Taken = (Arc<Copy>, Place);

#[derive(Debug)]
struct Copy {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Bytes of the file that have arrived.
    first: u64,
    /// Those after them.
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
    /// Answers [`Ask::Copy`] and [`Ask::Enough`].
    ///
    /// # Errors
    /// There is no such interface, there are too many captures, or the engine does not run.
    pub(super) fn answer(
        &self,
        agent: &Agent,
        name: &str,
        wanted: &Wanted,
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
            Ask::Copy {
                node,
                interface,
                far,
                snap,
                session,
                since,
                wait_ms,
            } => {
                // With these two it is noted who begins.
                let may_begin = *since == 0 && *wait_ms == 0;
                let copy = self.of(key(node, *session), may_begin, || {
                    let far = if is_end(far) { far } else { "the other end" };
                    agent.copy_end(name, [node, interface], far, *snap)
                })?;
                Ok(copy.after(*since, Duration::from_millis((*wait_ms).min(WATCH_MS_MAX))))
            }
            Ask::Enough { node, session } => {
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
        // Every critical section leaves the map whole.
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
        // When the file must have come to its end.
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

    /// What comes after so many bytes, when there is something, at the latest after `wait`.
    fn after(&self, since: u64, wait: Duration) -> Answer {
        let mut state = self.lock();
        state.used_at = Instant::now() + wait;
        // What has arrived is not needed any more.
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
        // Every critical section leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_used(&self) -> bool {
        self.used_at.elapsed() < UNUSED
    }
}

/// Whether a text can be the end of a link at a node.
fn is_end(text: &str) -> bool {
    let end = text.split_once(':');
    end.is_some_and(|(node, interface)| is_name(node) && is_interface(interface))
}

/// Captures on a host that go on at a time.
const COPIES_MAX: usize = 32;
/// Bytes of a file that wait for one who is slow.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// A capture ends that was not asked for so long: the one who looks has gone.
const UNUSED: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 1 << 16;
/// How often it is looked at whether a capture is to end.
const TURN: Duration = Duration::from_millis(100);
/// How long what is on its way may take when a capture is to end.
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
