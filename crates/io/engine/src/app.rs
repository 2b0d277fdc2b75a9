//! What an app is: a part of the data plane that the engine visits.

use std::os::fd::BorrowedFd;

use carina_sys::Interest;

use crate::link::Links;

/// A part of the data plane: a device, the end of a flow, a filter, an IPC process.
///
/// In one breath the engine calls, for every app that is awake, `prepare`, then `pull`; then `push`
/// for every app with packets on its input links; then `release_burst`. An app that has done
/// nothing for a while is asked to `arm` and is not visited again until one of its doorbells rings,
/// its deadline passes, or a link of it changes.
///
/// Only the name is required; what a method does by default stands there for an app without need of
/// it. Apps of frames have a simpler form: [`FrameApp`](crate::frames::FrameApp).
pub trait App {
    /// The name that the counters and the log use.
    fn name(&self) -> &str;

    /// Sinks state their room, apps read their command boxes and clocks.
    fn prepare(&mut self, now: u64, links: &mut Links) {
        let _ = (now, links);
    }

    /// Sources put what they have onto their output links, at most a burst. True when anything
    /// was moved.
    fn pull(&mut self, now: u64, links: &mut Links) -> bool {
        let _ = (now, links);
        false
    }

    /// Sinks take what is on their input links. True when anything was moved.
    fn push(&mut self, now: u64, links: &mut Links) -> bool {
        let _ = (now, links);
        false
    }

    /// Ends the breath: publishes what was written, releases what was read, rings doorbells.
    fn release_burst(&mut self, now: u64, links: &mut Links) {
        let _ = (now, links);
    }

    /// Asks the peers to ring from here on. True when the app may sleep; false when there is
    /// something to do, which the next breath will find.
    fn arm(&mut self, now: u64, links: &mut Links) -> bool {
        let _ = (now, links);
        true
    }

    /// Something woke the app, which may have been awake: takes back what `arm` asked for. Cheap
    /// when nothing is armed.
    fn disarm(&mut self) {}

    /// When the app must be visited even if no doorbell rings, in ns of the monotonic clock. May
    /// change after any call above.
    fn next_deadline(&self) -> Option<u64> {
        None
    }

    /// The descriptors whose readiness wakes the app and the readiness meant, edge-triggered.
    /// Constant over the app's life.
    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        Vec::new()
    }
}

/// How many packets an app moves per visit at most.
pub const BURST: usize = 64;

/// How many bytes an app takes from a ring per visit, within one packet: what one visit brought is
/// published at the end of the breath, and the next system should not wait long for it.
pub const BURST_BYTES: usize = 65_536;
