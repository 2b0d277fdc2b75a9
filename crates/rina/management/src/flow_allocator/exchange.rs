//! A request that is repeated until it is answered.

use alloc::vec::Vec;

use carina_cdap::Message;
use carina_time::Instant;

use super::super::flow_table::Exchange;
use super::{REPEAT_AFTER, REPEAT_MAX, SILENCE_MAX};

impl Exchange {
    /// Returns the message and its destination when a repetition is due.
    pub(super) fn repeat(&mut self, now: Instant) -> Option<(u64, Vec<u8>)> {
        if self.repeat_at > now {
            return None;
        }
        self.repeat_after = (self.repeat_after * 2).min(REPEAT_MAX);
        self.repeat_at = now + self.repeat_after;
        Some((self.address, self.message.encode()))
    }
}

/// A request that is first sent at `now` to the member at `address`.
pub(super) fn exchange(now: Instant, address: u64, message: Message) -> Exchange {
    Exchange {
        address,
        message,
        repeat_at: now + REPEAT_AFTER,
        repeat_after: REPEAT_AFTER,
        give_up_at: now + SILENCE_MAX,
        is_pending: false,
    }
}
