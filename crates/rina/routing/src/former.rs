//! Withdraws links that this member reported under another address before a restart.
//!
//! A member that crashes withdraws nothing. If it restarts with its old address, it disputes its
//! old objects. With another address it does not own them. So each member withdraws objects that
//! have its own name and another address.
//!
//! ```text
//!   object of this name,      WITHDRAWN_AFTER
//!   another address, up  ---------------------> tombstone, with a higher sequence number
//!        ^     |
//!        |     +--- another name, or withdrawn meanwhile: nothing to do
//!        +--- a newer version
//! ```

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use carina_time::{Duration, Instant};

use crate::message::Address;

/// Objects to withdraw, and when.
#[derive(Debug, Default)]
pub(crate) struct FormerLinks {
    keys: BTreeSet<(Address, Address)>,
    due: Option<Instant>,
}

impl FormerLinks {
    /// Notes that a version of an object was accepted. `is_former` is true if it reports a link as
    /// up, with this member's name and another address.
    pub(crate) fn note(&mut self, now: Instant, key: (Address, Address), is_former: bool) {
        if is_former {
            self.keys.insert(key);
            self.due.get_or_insert(now + WITHDRAWN_AFTER);
        } else if !self.keys.is_empty() {
            self.keys.remove(&key);
        }
    }

    /// When [`FormerLinks::take_due`] will return objects.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Removes and returns the objects to withdraw at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<(Address, Address)> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        core::mem::take(&mut self.keys).into_iter().collect()
    }
}

/// Delay before a withdrawal. Two running members may have the same name until one of them gives it
/// up. Each disputes what the other withdraws, so withdrawals must be rare.
const WITHDRAWN_AFTER: Duration = Duration::from_secs(5);
