//! Apps: the parts of the data plane that the engine visits.

use std::os::fd::BorrowedFd;

use carina_sys::Interest;
use carina_time::Instant;

use crate::link::Links;

/// A part of the data plane: a device, the end of a flow, a filter, an IPC process.
///
/// In one breath the engine calls, for every app that is awake, `prepare`, then `pull`; then `push`
/// for every app with packets on its input links; then `release_burst`. An app that was idle for a
/// while is asked to `arm`. After that, the engine does not visit it until one of its doorbells
/// rings, its deadline passes, or one of its links changes.
///
/// Only the name is required. The default of each other method suits an app that does not need the
/// method. Apps of frames have a simpler form: [`FrameApp`](carina_frame_engine::FrameApp).
pub trait App {
    /// Returns the app's name in counters and in the log.
    fn name(&self) -> &str;

    /// Prepares the app for the breath: a sink announces how much room it has, and an app handles
    /// commands that wait for it and reads its clock.
    fn prepare(&mut self, now: Instant, links: &mut Links) {
        let _ = (now, links);
    }

    /// As a source: puts packets onto the app's output links, at most one burst. Returns true if
    /// any packet moved.
    fn pull(&mut self, now: Instant, links: &mut Links) -> bool {
        let _ = (now, links);
        false
    }

    /// As a sink: takes packets from the app's input links. Returns true if any packet moved.
    fn push(&mut self, now: Instant, links: &mut Links) -> bool {
        let _ = (now, links);
        false
    }

    /// Ends the breath for the app: the app publishes the records that it wrote, releases those
    /// that it read, and rings doorbells.
    fn release_burst(&mut self, now: Instant, links: &mut Links) {
        let _ = (now, links);
    }

    /// Prepares the app for sleep: asks its peers to ring from now on. Returns true if the app may
    /// sleep, false if there is work already; the next breath then does it.
    fn arm(&mut self, now: Instant, links: &mut Links) -> bool {
        let _ = (now, links);
        true
    }

    /// Cancels [`App::arm`] after something woke the app. The app may be awake and not armed; the
    /// call is then cheap.
    fn disarm(&mut self) {}

    /// Returns when the engine must visit the app even if no doorbell rings, on the monotonic
    /// clock; `None` for never. It may change with any call above.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Returns the descriptors that wake the app, each with the readiness that counts,
    /// edge-triggered. They must not change during the app's life.
    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        Vec::new()
    }
}

/// Largest number of packets that an app moves in one visit.
pub const BURST: usize = 64;

/// Largest number of bytes of one packet that an app takes from a ring in one visit. A longer
/// packet takes several visits: other processes see what a visit moved only when the breath ends,
/// and a small limit lets them start early.
pub const BURST_BYTES: usize = 65_536;
