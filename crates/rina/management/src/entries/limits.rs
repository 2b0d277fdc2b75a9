//! Limits of the number of replicated entries.

use core::fmt;

use super::TOMBSTONE_TIME;

/// Largest number of live entries of one kind that one member may have.
pub(in super::super) const PER_ORIGIN_MAX: usize = 4096;

/// Largest number of entries of all members, tombstones included.
pub(in super::super) const ENTRIES_MAX: usize = 65_536;

/// The limit that prevents a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum StoreFull {
    /// [`PER_ORIGIN_MAX`] is reached.
    Member,
    /// [`ENTRIES_MAX`] is reached.
    Dif,
}

impl fmt::Display for StoreFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreFull::Member => write!(
                f,
                "this member has {PER_ORIGIN_MAX} replicated entries, the maximum for one \
                 member; end some registrations, or register at another member"
            ),
            StoreFull::Dif => write!(
                f,
                "the DIF has {ENTRIES_MAX} replicated entries, the maximum, including those \
                 that ended in the last {} s; end registrations that are not in use, and wait \
                 that long",
                TOMBSTONE_TIME.as_secs()
            ),
        }
    }
}
