//! Where connections come from that are not admitted yet: one source cannot take the places of
//! the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// The sources that there are now, by address, or by application where flows are asked for.
#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<BTreeMap<String, (usize, Arc<Semaphore>)>>);

/// A connection of a source. It is over when this is dropped.
#[derive(Debug)]
pub(super) struct Pending {
    sources: Arc<Sources>,
    source: String,
    /// Handshakes of the source at a time.
    pub(super) turns: Arc<Semaphore>,
}

impl Sources {
    /// Notes a connection; none if its source has too many.
    pub(super) fn take(self: &Arc<Sources>, from: &str) -> Option<Pending> {
        let source = source_of(from);
        let mut all = self.lock();
        let entry = all.entry(source.clone());
        let (count, turns) = entry.or_insert_with(|| (0, Arc::new(Semaphore::new(TURNS))));
        if *count >= PENDING_MAX {
            return None;
        }
        *count += 1;
        Some(Pending {
            sources: Arc::clone(self),
            source,
            turns: Arc::clone(turns),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (usize, Arc<Semaphore>)>> {
        // Every critical section leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut all = self.sources.lock();
        if let Some((count, _)) = all.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.source);
            }
        }
    }
}

/// An address without its port.
fn source_of(from: &str) -> String {
    match from.parse::<std::net::SocketAddr>() {
        Ok(address) => address.ip().to_string(),
        Err(_) => from.to_owned(),
    }
}

/// Handshakes of one source at a time.
const TURNS: usize = 16;
/// Connections of one source that are not admitted yet, at a time.
const PENDING_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_that_begins_too_much_keeps_no_other_out() {
        let sources = Arc::new(Sources::default());
        let mut pending: Vec<Pending> = (0..PENDING_MAX)
            .map(|port| sources.take(&format!("192.0.2.1:{}", 1000 + port)).unwrap())
            .collect();
        assert!(sources.take("192.0.2.1:99").is_none());
        assert!(sources.take("192.0.2.2:99").is_some());
        assert!(sources.take("vnp.net|1").is_some());
        pending.pop();
        assert!(sources.take("192.0.2.1:99").is_some());
        drop(pending);
        assert!(sources.lock().is_empty());
    }
}
