//! Links between networks on two threads.
//!
//! ```text
//!   worker 0                                          worker 1
//!   app -> link (1024 frames) -> ring (1024 frames) -> link -> app
//! ```
//!
//! An app puts frames on a link of its own thread, where they are counted as on any other link. At
//! the end of the breath the frames move from the link to the ring; one store of its index
//! publishes the whole burst. At the start of its breath the other side takes as many frames as its
//! app can push on at once. While the ring is full, frames wait on the link. If an app puts too
//! many there, they are dropped as on any other link.

use std::sync::Arc;

use carina_frame::Frame;
use carina_ring::between::{Receiver, Sender, queue};

use crate::doorbell::NetworkDoorbell;
use crate::link::{FRAME_BURST, FrameLink, LINK_FRAMES};

/// The sending end of a link to another network.
pub(super) struct Outgoing {
    ring: Sender<Frame>,
    doorbell: Arc<NetworkDoorbell>,
}

/// The receiving end of a link from another network.
pub(super) struct Incoming {
    ring: Receiver<Frame>,
}

/// Creates both ends of a link. `doorbell` is the doorbell of the network that the link leads to.
pub(super) fn between(doorbell: Arc<NetworkDoorbell>) -> (Outgoing, Incoming) {
    let (sender, receiver) = queue(LINK_FRAMES);
    let outgoing = Outgoing {
        ring: sender,
        doorbell,
    };
    (outgoing, Incoming { ring: receiver })
}

impl Outgoing {
    /// Moves frames from the link to the ring. Returns true if any moved.
    #[inline]
    pub(super) fn flush(&mut self, link: &mut FrameLink) -> bool {
        if link.queue.is_empty() {
            return false;
        }
        let moved = self.ring.send(|| link.queue.pop()) > 0;
        if moved {
            self.doorbell.ring();
        }
        moved
    }

    /// Closes the link. Returns how many frames on the ring are lost.
    pub(super) fn close(self) -> usize {
        self.ring.close()
    }
}

impl Incoming {
    /// Moves frames from the ring to the link, no more than an app pushes on in a breath. Returns
    /// true if any moved.
    #[inline]
    pub(super) fn fetch(&mut self, link: &mut FrameLink) -> bool {
        let room = TAKEN_MAX.saturating_sub(link.queue.len());
        let queue = &mut link.queue;
        let moved = self.ring.receive(room, |frame| {
            // All of them have room, so no frame is returned.
            let _ = queue.push(frame);
        });
        moved > 0
    }

    /// Whether frames wait on the ring.
    pub(super) fn has_frames(&mut self) -> bool {
        self.ring.waiting() > 0
    }

    /// Closes the link, like [`Outgoing::close`].
    pub(super) fn close(self) -> usize {
        self.ring.close()
    }
}

/// Largest number of frames that wait on a link from another network: a few bursts, because the
/// neighbour may have run several breaths.
const TAKEN_MAX: usize = 2 * FRAME_BURST;
