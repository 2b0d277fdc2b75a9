//! Room of a device that is reserved for links that send little.
//!
//! Links that always have more to send use up the room of a device whenever it appears, and all of
//! them send before a link that has just begun. A sink may therefore reserve a part of its room for
//! links that have sent less than [`LITTLE_BYTES`] of the last [`PERIOD_BYTES`] or so.

use super::{Links, Side};

/// What one link has sent of all that its sink took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    /// The sink's total when the count began.
    since: u64,
    bytes: u64,
}

impl Share {
    /// Counts `cost` bytes of the link, with which the sink's total is `total`.
    pub(super) fn add(&mut self, cost: u64, total: u64) {
        if total - self.since > PERIOD_BYTES {
            *self = Share {
                since: total,
                bytes: 0,
            };
        }
        self.bytes += cost;
    }

    fn is_little(&self, total: u64) -> bool {
        self.bytes < LITTLE_BYTES || total - self.since > PERIOD_BYTES
    }
}

impl Links {
    /// For the sink: keeps the last `bytes` bytes of its room ([`Links::set_room`]) for links that
    /// send little; 0 for none (default).
    pub fn set_reserve(&mut self, app: crate::AppId, bytes: u64) {
        if let Some(side) = self.side_mut(app) {
            side.reserve = bytes;
        }
    }
}

impl Side {
    /// The room that a link with this share may use, in bytes.
    pub(super) fn room_for(&self, share: Share) -> u64 {
        if self.reserve == 0 || share.is_little(self.total) {
            self.room
        } else {
            self.room.saturating_sub(self.reserve)
        }
    }
}

/// A link sends little if it has sent fewer bytes than this in a period.
const LITTLE_BYTES: u64 = 2 << 10;

/// Length of a period in bytes of the sink, so that no clock is needed. All links of a busy device
/// together use at most a small part of it from the reserve.
const PERIOD_BYTES: u64 = 4 << 20;
