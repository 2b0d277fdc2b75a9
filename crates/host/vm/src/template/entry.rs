//! A template on disk: what is known of it, and whether that still holds.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cache::write_whole;
use crate::error::{Context, Result};
use crate::hash::{Hash, hash_of_file};

/// What is known of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInfo {
    /// Which machines it is for: a hash of all that makes them alike.
    pub key: String,
    /// QEMU's version, in its words.
    pub qemu: String,
    /// `kvm` or `tcg`.
    pub accel: String,
    /// Memory of the guest in MiB.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u32,
    /// Network cards.
    pub cards: usize,
    /// When it was made, in seconds since 1970 by the host's clock.
    pub made_s: u64,
    /// How long its guest took to boot, in milliseconds.
    pub boot_ms: u64,
    /// Bytes of the saved state, without the memory.
    pub state_bytes: u64,
    /// Bytes that its memory file takes of the machine's memory.
    pub memory_bytes: u64,
    state_hash: String,
    memory_hash: String,
    memory_changed_ns: i64,
    /// Length of the memory file.
    memory_len: u64,
}

/// The facts of [`TemplateInfo`] that its maker knows.
#[derive(Debug)]
pub(super) struct Made {
    pub key: String,
    pub qemu: String,
    pub accel: String,
    pub memory_mib: u32,
    pub cpus: u32,
    pub cards: usize,
    pub made_s: u64,
    pub boot_ms: u64,
}

/// The directory of a template.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub directory: PathBuf,
}

impl Entry {
    pub(super) fn memory(&self) -> PathBuf {
        self.directory.join("memory")
    }

    fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// Completes a template whose memory file is there. Before this it counts as half made.
    pub(super) fn complete(&self, made: Made, state: &[u8]) -> Result<TemplateInfo> {
        write_whole(&self.state(), state)?;
        let memory = self.memory();
        let metadata = memory.metadata().context("look at", &memory)?;
        let info = TemplateInfo {
            key: made.key,
            qemu: made.qemu,
            accel: made.accel,
            memory_mib: made.memory_mib,
            cpus: made.cpus,
            cards: made.cards,
            made_s: made.made_s,
            boot_ms: made.boot_ms,
            state_bytes: state.len() as u64,
            memory_bytes: metadata.blocks() * 512,
            state_hash: hash_of(state),
            memory_hash: hash_of_file(&memory)?,
            memory_changed_ns: changed_ns(&metadata),
            memory_len: metadata.len(),
        };
        let text = serde_json::to_vec_pretty(&info).expect("it has only plain fields");
        write_whole(&self.directory.join(INFO), &text)?;
        Ok(info)
    }

    /// What is known of it; `None` when it was never completed.
    pub(super) fn info(&self) -> Option<TemplateInfo> {
        serde_json::from_slice(&fs::read(self.directory.join(INFO)).ok()?).ok()
    }

    /// Reads a template for use: `None` when it is half made or no longer what was saved, as far
    /// as that shows without reading all of its memory.
    pub(super) fn open(&self) -> Option<(TemplateInfo, Vec<u8>)> {
        let info = self.info()?;
        let metadata = self.memory().metadata().ok()?;
        let memory_is_whole =
            metadata.len() == info.memory_len && changed_ns(&metadata) == info.memory_changed_ns;
        let state = File::open(self.state()).ok()?;
        let mut bytes = Vec::with_capacity(usize::try_from(state.metadata().ok()?.len()).ok()?);
        // No more than was saved, and one to see that there is more.
        (&state)
            .take(info.state_bytes.saturating_add(1))
            .read_to_end(&mut bytes)
            .ok()?;
        if !memory_is_whole || hash_of(&bytes) != info.state_hash {
            return None;
        }
        // Tells which template was used last. One that cannot be marked only goes earlier.
        let _ = state.set_modified(std::time::SystemTime::now());
        Some((info, bytes))
    }

    /// Whether all of its memory is what was saved.
    pub(super) fn memory_is_whole(&self) -> bool {
        self.info()
            .is_some_and(|info| hash_of_file(&self.memory()).ok() == Some(info.memory_hash))
    }

    /// When it was used last.
    pub(super) fn used(&self) -> std::time::SystemTime {
        let modified = self.state().metadata().and_then(|state| state.modified());
        modified.unwrap_or(std::time::UNIX_EPOCH)
    }

    /// Bytes of the machine's memory that its files take, whatever their state.
    pub(super) fn taken_bytes(&self) -> u64 {
        let files = fs::read_dir(&self.directory).into_iter().flatten();
        let metadata = files.filter_map(|file| file.ok()?.metadata().ok());
        metadata.map(|file| file.blocks() * 512).sum()
    }

    /// Removes it. Clones that run keep the memory for as long as they need it.
    pub(super) fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("remove", &self.directory)
            }
            _ => Ok(()),
        }
    }
}

fn changed_ns(metadata: &fs::Metadata) -> i64 {
    let seconds_ns = metadata.mtime().wrapping_mul(1_000_000_000);
    seconds_ns.wrapping_add(metadata.mtime_nsec())
}

fn hash_of(bytes: &[u8]) -> String {
    let mut hash = Hash::new();
    hash.field(bytes);
    hash.to_string()
}

const INFO: &str = "template.json";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn complete(directory: &Path) -> Entry {
        let entry = Entry {
            directory: directory.to_owned(),
        };
        fs::write(entry.memory(), vec![7; 1 << 20]).unwrap();
        let made = Made {
            key: "k".into(),
            qemu: "QEMU 7".into(),
            accel: "tcg".into(),
            memory_mib: 1,
            cpus: 1,
            cards: 0,
            made_s: 1,
            boot_ms: 2,
        };
        entry.complete(made, b"state").unwrap();
        entry
    }

    #[test]
    fn whole_template_is_opened_and_says_what_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let entry = complete(directory.path());
        let (info, state) = entry.open().unwrap();
        assert_eq!((info.key.as_str(), info.memory_mib), ("k", 1));
        assert_eq!(state, b"state");
        assert!(entry.memory_is_whole());
        assert!(entry.taken_bytes() >= 1 << 20);
        entry.remove().unwrap();
        entry.remove().unwrap();
        assert!(entry.open().is_none() && !entry.memory_is_whole());
    }

    #[test]
    fn damage_of_every_file_is_found() {
        type Damage = fn(&Entry);
        let damages: [Damage; 6] = [
            |entry| fs::write(entry.state(), b"stats").unwrap(),
            |entry| fs::write(entry.state(), b"state and more").unwrap(),
            |entry| fs::remove_file(entry.state()).unwrap(),
            |entry| fs::write(entry.memory(), vec![7; 5]).unwrap(),
            |entry| fs::write(entry.memory(), vec![8; 1 << 20]).unwrap(),
            |entry| fs::write(entry.directory.join(INFO), b"{").unwrap(),
        ];
        for (number, damage) in damages.iter().enumerate() {
            let directory = tempfile::tempdir().unwrap();
            let entry = complete(directory.path());
            damage(&entry);
            assert!(entry.open().is_none(), "damage {number}");
        }
    }

    #[test]
    fn changed_memory_is_found_even_when_its_time_is_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let entry = complete(directory.path());
        let before = entry.memory().metadata().unwrap().modified().unwrap();
        fs::write(entry.memory(), vec![8; 1 << 20]).unwrap();
        let file = File::options().write(true).open(entry.memory()).unwrap();
        file.set_modified(before).unwrap();
        assert!(!entry.memory_is_whole());
    }
}
