//! Streams of echos that a PIP has begun on a host, to see what a move loses.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_vnet_host::{EchoStream, Echoes};

use crate::error::Error;

/// The streams, by the numbers that the PIP has drawn. Only the PIP begins some: moves of nodes of
/// several networks have one at each neighbour.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<BTreeMap<u64, (Instant, EchoStream)>>);

impl Watches {
    /// Begins one. Those that were forgotten end.
    ///
    /// # Errors
    /// There are too many, or it cannot be begun.
    pub(super) fn begin(
        &self,
        session: u64,
        begin: impl FnOnce() -> Result<EchoStream, carina_vnet_host::Error>,
    ) -> Result<(), Error> {
        let forgotten: Vec<_> = {
            let mut all = self.lock();
            let old = all.extract_if(.., |_, (began, _)| began.elapsed() > STREAM);
            let old = old.collect();
            if all.len() >= STREAMS_MAX {
                return Err(Error::ended("room for more streams of echos"));
            }
            old
        };
        for (_, (_, stream)) in forgotten {
            // What came of it is asked by no one.
            let _ = stream.end(Duration::ZERO);
        }
        let stream = begin()?;
        self.lock().insert(session, (Instant::now(), stream));
        Ok(())
    }

    /// Ends one, and says what came of it.
    ///
    /// # Errors
    /// There is no such stream.
    pub(super) fn end(&self, session: u64) -> Result<Echoes, Error> {
        let stream = self.lock().remove(&session);
        let (_, stream) = stream.ok_or(Error::ended("the stream of echos"))?;
        Ok(stream.end(LAST_ANSWERS)?)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (Instant, EchoStream)>> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long after a move the last echos may be answered.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// A stream sends for two minutes; one that was begun longer ago was forgotten.
const STREAM: Duration = Duration::from_secs(300);
const STREAMS_MAX: usize = 16;
