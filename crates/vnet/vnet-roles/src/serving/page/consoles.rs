//! Consoles that a page watches: all viewers of the page share one session per console.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::report::ConsoleOutput;

use crate::inside::{Answer, NodeRequest};
use crate::numbers::Numbers;

/// A function that sends a request and returns its answer or refusal.
type SendRequest<'a> = dyn Fn(NodeRequest) -> Result<Answer, ErrorBody> + 'a;

/// The sessions, by network and node.
#[derive(Debug, Default)]
pub(super) struct Consoles(Mutex<BTreeMap<[String; 2], Session>>);

#[derive(Clone, Copy, Debug)]
struct Session {
    number: u64,
    /// Number of bytes that the session has returned so far.
    known: u64,
    used: Instant,
}

impl Consoles {
    /// Returns the output of a node's console after byte `since`. If no such output exists yet,
    /// waits for some for up to `wait`; the result may then be empty.
    ///
    /// # Errors
    /// There is no such node, or its provider refuses access.
    pub(super) fn output(
        &self,
        place: [&str; 2],
        (since, wait): (u64, Duration),
        numbers: &Numbers,
        ask: &SendRequest<'_>,
    ) -> Result<ConsoleOutput, ErrorBody> {
        let key = place.map(str::to_owned);
        let session = {
            let mut all = self.lock();
            all.retain(|_, session| session.used.elapsed() < UNUSED);
            let new = || Session {
                number: numbers.next(),
                known: 0,
                used: Instant::now(),
            };
            let session = all.entry(key.clone()).or_insert_with(new);
            session.used = Instant::now() + wait;
            *session
        };
        // A viewer who comes back after a long time refers to a session that has ended.
        let since = if since > session.known { 0 } else { since };
        let answer = ask(NodeRequest::Watch {
            node: place[1].to_owned(),
            session: session.number,
            since,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        });
        match answer {
            Ok(Answer::ConsoleOutput {
                next,
                bytes,
                has_ended,
            }) => {
                let mut all = self.lock();
                match all.get_mut(&key) {
                    // The next viewer starts another session.
                    Some(_) if has_ended => drop(all.remove(&key)),
                    Some(session) => session.known = session.known.max(next),
                    None => {}
                }
                Ok(ConsoleOutput { next, bytes })
            }
            Ok(_) => {
                let what = "something else was answered";
                Err(ErrorBody::new(ErrorCode::Internal, what))
            }
            Err(refusal) => {
                self.lock().remove(&key);
                Err(refusal)
            }
        }
    }

    /// Types at the console of a node, in a session that watches it.
    ///
    /// # Errors
    /// The console is not being watched, or another viewer is the writer.
    pub(super) fn type_in(
        &self,
        place: [&str; 2],
        text: &str,
        ask: &SendRequest<'_>,
    ) -> Result<(), ErrorBody> {
        let session = self.lock().get(&place.map(str::to_owned)).copied();
        let session = session.ok_or_else(|| {
            let what = "the console is not watched: open it first";
            ErrorBody::new(ErrorCode::Conflict, what)
        })?;
        let typed = ask(NodeRequest::Type {
            node: place[1].to_owned(),
            session: session.number,
            bytes: text.as_bytes().to_vec(),
        });
        typed.map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<[String; 2], Session>> {
        // Every critical section leaves the map consistent, even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Idle time after which a session is not used again; the host forgets it after a minute.
const UNUSED: Duration = Duration::from_secs(45);
