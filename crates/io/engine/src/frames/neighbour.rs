//! Links between networks on two threads.
//!
//! ```text
//!   worker 0                                          worker 1
//!   app -> link (1024 frames) -> ring (1024 frames) -> link -> app
//! ```
//!
//! An app puts frames on a link of its own thread, as on any other, and there they are counted.
//! When the breath is over what is on the link goes to the ring, by one store of its index for the
//! whole burst; at the start of its breath the other side takes what its app can push on at once.
//! While the ring is full, frames wait on the link, and the app that puts too many there loses
//! them as on any other link.

use std::sync::Arc;

use carina_frame::Frame;
use carina_ring::between::{Receiver, Sender, queue};

use crate::frames::bell::Bell;
use crate::frames::link::{FRAME_BURST, FrameLink, LINK_FRAMES};

/// The near end of a link to another network.
pub(super) struct Outgoing {
    ring: Sender<Frame>,
    bell: Arc<Bell>,
}

/// The near end of a link from another network.
pub(super) struct Incoming {
    ring: Receiver<Frame>,
}

/// Both ends of a link; `bell` is that of the network to which it leads.
pub(super) fn between(bell: Arc<Bell>) -> (Outgoing, Incoming) {
    let (sender, receiver) = queue(LINK_FRAMES);
    let outgoing = Outgoing { ring: sender, bell };
    (outgoing, Incoming { ring: receiver })
}

impl Outgoing {
    /// Moves frames from the link to the ring; true when some moved.
    #[inline]
    pub(super) fn flush(&mut self, link: &mut FrameLink) -> bool {
        if link.queue.is_empty() {
            return false;
        }
        let moved = self.ring.send(|| link.queue.pop()) > 0;
        if moved {
            self.bell.ring();
        }
        moved
    }

    /// Ends the link; returns how many frames were on the ring and are lost.
    pub(super) fn close(self) -> usize {
        self.ring.close()
    }
}

impl Incoming {
    /// Moves frames from the ring to the link, no more than an app pushes on in a breath; true when
    /// some moved.
    #[inline]
    pub(super) fn fetch(&mut self, link: &mut FrameLink) -> bool {
        let room = TAKEN_MAX.saturating_sub(link.queue.len());
        let queue = &mut link.queue;
        let moved = self.ring.receive(room, |frame| {
            // There is room for all of them: no frame comes back.
            let _ = queue.push(frame);
        });
        moved > 0
    }

    /// True when frames wait on the ring.
    pub(super) fn has_frames(&mut self) -> bool {
        self.ring.waiting() > 0
    }

    /// As [`Outgoing::close`].
    pub(super) fn close(self) -> usize {
        self.ring.close()
    }
}

/// Frames that wait on a link from another network at most: a few bursts, for more than one
/// breath of the neighbour may have gone by.
const TAKEN_MAX: usize = 2 * FRAME_BURST;
