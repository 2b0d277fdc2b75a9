//! Streams of echo requests that a PIP has started on this host, to measure the loss of a move.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_vnet_host::{EchoStream, Echoes};

use crate::error::Error;

/// The streams, by session number of the PIP. Only the PIP starts streams; when nodes of several
/// networks move, there is one for each.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<BTreeMap<u64, (Instant, EchoStream)>>);

impl Watches {
    /// Starts a stream. Ends streams that were forgotten.
    ///
    /// # Errors
    /// There are too many streams, or this one cannot start.
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
            // The result of a forgotten stream is not needed.
            let _ = stream.end(Duration::ZERO);
        }
        let stream = begin()?;
        self.lock().insert(session, (Instant::now(), stream));
        Ok(())
    }

    /// Ends a stream, and returns its result.
    ///
    /// # Errors
    /// There is no such stream.
    pub(super) fn end(&self, session: u64) -> Result<Echoes, Error> {
        let stream = self.lock().remove(&session);
        let (_, stream) = stream.ok_or(Error::ended("the stream of echos"))?;
        Ok(stream.end(LAST_ANSWERS)?)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (Instant, EchoStream)>> {
        // Every critical section leaves the value consistent, even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long after a move late replies are accepted.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// A stream sends for two minutes; one that was started longer ago than this was forgotten.
const STREAM: Duration = Duration::from_secs(300);
const STREAMS_MAX: usize = 16;
