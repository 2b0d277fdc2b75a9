//! Links that an earlier life of this member reported under another address.
//!
//! A member that dies withdraws nothing. When it comes back under its old address, it disputes
//! what is left of its old objects. Under another address it is not the owner of these, so each
//! member withdraws what comes under its own name and another address.
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
    /// A version of an object is believed. `is_former`: it reports a link as up, with this
    /// member's name and another address.
    pub(crate) fn note(&mut self, now: Instant, key: (Address, Address), is_former: bool) {
        if is_former {
            self.keys.insert(key);
            self.due.get_or_insert(now + WITHDRAWN_AFTER);
        } else if !self.keys.is_empty() {
            self.keys.remove(&key);
        }
    }

    /// When [`FormerLinks::take_due`] has something.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The objects to withdraw at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<(Address, Address)> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        core::mem::take(&mut self.keys).into_iter().collect()
    }
}

/// Two living members may have one name until one of them gives way, and each disputes what the
/// other withdraws; so they do it seldom.
const WITHDRAWN_AFTER: Duration = Duration::from_secs(5);
