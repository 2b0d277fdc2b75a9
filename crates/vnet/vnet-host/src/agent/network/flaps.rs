//! The thread that takes links of a network down and up by their timetables.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::directory::Record;
use crate::error::{Attempt, Result};
use crate::progress::Progress;
use crate::vnet::Vnet;

/// Follows the timetables of a network's links until it is dropped.
#[derive(Debug)]
pub(super) struct Flaps {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Flaps {
    /// Begins to follow the timetables; `None` if no link has one.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn begin(
        vnet: &Arc<Vnet>,
        record: &Arc<Record>,
        progress: &Arc<Progress>,
    ) -> Result<Option<Flaps>> {
        let mut links = record.part.links.iter();
        if links.all(|link| link.timetable.is_empty()) {
            return Ok(None);
        }
        let (stop, stopped) = channel();
        let (vnet, record) = (Arc::clone(vnet), Arc::clone(record));
        let progress = Arc::clone(progress);
        let run = move || {
            loop {
                let wait = match vnet.follow_timetables(&record.part) {
                    Ok(None) => return,
                    Ok(Some(wait)) => wait,
                    Err(error) => {
                        progress.tell_frequent(format!("a timetable is not followed: {error}"));
                        AGAIN
                    }
                };
                if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("flaps".into());
        Ok(Some(Flaps {
            stop: Some(stop),
            thread: Some(thread.spawn(run).attempt("starting a thread")?),
        }))
    }
}

impl Drop for Flaps {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// How long to wait after ports could not be changed.
const AGAIN: Duration = Duration::from_secs(1);
