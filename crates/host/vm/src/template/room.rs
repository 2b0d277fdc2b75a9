//! Room for templates. They are kept in memory, so their total size is bounded.

use std::path::Path;

use rustix::fs::statvfs;

use super::Templates;
use crate::error::{Context, Error, Result};

impl Templates {
    /// Removes templates until one with `memory_mib` has room. It removes those that were not used
    /// for the longest time first, and none in use.
    ///
    /// # Errors
    ///
    /// There is too little room even then.
    pub(super) fn make_room(&self, memory_mib: u32) -> Result<()> {
        let wanted = u64::from(memory_mib) << 20;
        let bound = self.room_bytes()?;
        let mut entries = self.entries()?;
        entries.sort_by_key(|(_, entry)| entry.used());
        let mut taken: u64 = entries.iter().map(|(_, entry)| entry.taken_bytes()).sum();
        for (key, entry) in entries {
            if taken + wanted <= bound && free_bytes(&self.root)? >= wanted {
                break;
            }
            let bytes = entry.taken_bytes();
            if self.try_remove(&key)? {
                taken -= bytes;
            }
        }
        let free = free_bytes(&self.root)?;
        if taken + wanted <= bound && free >= wanted {
            return Ok(());
        }
        Err(Error::Invalid {
            what: format!("a template of {memory_mib} MiB in {}", self.root.display()),
            reason: format!(
                "does not fit: templates may use {} MiB, of which {} MiB are in use, and the \
                 directory has {} MiB free; set CARINA_TEMPLATES to another directory in memory",
                bound >> 20,
                taken >> 20,
                free >> 20
            ),
        })
    }

    /// The bound in force: the one that was set, or a quarter of the file system.
    fn room_bytes(&self) -> Result<u64> {
        if let Some(mib) = self.room_mib {
            return Ok(mib << 20);
        }
        let space = space(&self.root)?;
        Ok(space.f_blocks.saturating_mul(space.f_frsize) / 4)
    }
}

fn free_bytes(path: &Path) -> Result<u64> {
    let space = space(path)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

fn space(path: &Path) -> Result<rustix::fs::StatVfs> {
    statvfs(path)
        .map_err(std::io::Error::from)
        .context("find the free space of", path)
}
