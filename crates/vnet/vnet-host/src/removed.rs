//! Remembers which networks were removed, so that late orders do not make them again.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use carina_vnet::host_part::VnetId;
use serde::{Deserialize, Serialize};

use crate::directory::Vnets;
use crate::error::{Attempt, Result};
use crate::state_file;

/// Provider networks that were removed, remembered in a file for [`KEPT`].
#[derive(Debug)]
pub(crate) struct Removed {
    path: PathBuf,
    notes: Mutex<BTreeMap<VnetId, Note>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// The last generation that was removed.
    through: u64,
    /// When it was removed, in seconds since 1970.
    at_s: u64,
}

impl Removed {
    /// Reads what an earlier agent has recorded.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(vnets: &Vnets) -> Result<Removed> {
        let path = vnets.path().join("removed.json");
        let notes = state_file::read(&path)?.unwrap_or_default();
        let notes = Mutex::new(notes);
        Ok(Removed { path, notes })
    }

    /// Records that a network was removed up to a generation. The file is written to the disk
    /// before this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn note(&self, vnet: VnetId, through: u64) -> Result<()> {
        let now = now_s();
        let mut notes = self.lock();
        notes.retain(|_, note| is_kept(*note, now));
        let known = notes.get(&vnet).map_or(0, |note| note.through);
        let through = through.max(known);
        notes.insert(vnet, Note { through, at_s: now });
        let parent = self.path.parent().map_or(Ok(()), fs::create_dir_all);
        parent.attempt(format!("writing {}", self.path.display()))?;
        state_file::write(&self.path, &*notes)
    }

    /// The last generation of a network that was removed; `None` if none was removed recently.
    pub(crate) fn through(&self, vnet: VnetId) -> Option<u64> {
        let now = now_s();
        let notes = self.lock();
        let note = notes.get(&vnet).filter(|note| is_kept(**note, now));
        note.map(|note| note.through)
    }

    /// All recently removed networks, each with the last removed generation.
    pub(crate) fn all(&self) -> BTreeMap<VnetId, u64> {
        let now = now_s();
        let notes = self.lock();
        let kept = notes.iter().filter(|(_, note)| is_kept(**note, now));
        kept.map(|(vnet, note)| (*vnet, note.through)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<VnetId, Note>> {
        // Every critical section leaves the map consistent, even after a panic.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_kept(note: Note, now_s: u64) -> bool {
    // After the clock was set back, an entry is kept for longer, which is harmless.
    now_s.saturating_sub(note.at_s) < KEPT.as_secs()
}

fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Longest delay of an order.
const KEPT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use carina_api::paths::RunDir;

    use super::*;

    #[test]
    fn notes_outlive_the_agent_and_end_in_time() {
        let directory = tempfile::tempdir().unwrap();
        let vnets = Vnets::of(&RunDir::new(directory.path()));
        let removed = Removed::read(&vnets).unwrap();
        removed.note(VnetId::new(1), 5).unwrap();
        removed.note(VnetId::new(1), 3).unwrap();
        let removed = Removed::read(&vnets).unwrap();
        assert_eq!(removed.through(VnetId::new(1)), Some(5));
        assert_eq!(removed.through(VnetId::new(2)), None);
        let old = Note {
            through: 9,
            at_s: now_s() - KEPT.as_secs() - 1,
        };
        removed.lock().insert(VnetId::new(2), old);
        assert_eq!(removed.through(VnetId::new(2)), None);
        assert_eq!(removed.all(), BTreeMap::from([(VnetId::new(1), 5)]));
        removed.note(VnetId::new(3), 1).unwrap();
        assert!(!removed.lock().contains_key(&VnetId::new(2)));
    }

    #[test]
    fn file_that_is_damaged_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let vnets = Vnets::of(&RunDir::new(directory.path()));
        fs::create_dir_all(vnets.path()).unwrap();
        fs::write(vnets.path().join("removed.json"), "{").unwrap();
        let error = Removed::read(&vnets).unwrap_err().to_string();
        assert!(error.contains("removed.json"), "{error}");
    }
}
