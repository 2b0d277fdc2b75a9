//! A template on disk: its properties, and checks that its files are unchanged.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cache::write_whole;
use crate::error::{Context, Result};
use crate::hash::{Hash, hash_of_file};

/// Properties of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInfo {
    /// Identifies the machines that the template is for: a hash of everything that they have in
    /// common.
    pub key: String,
    /// QEMU's version, as QEMU prints it.
    pub qemu: String,
    /// The accelerator: `kvm` or `tcg`.
    pub accel: String,
    /// Memory of the guest in MiB.
    pub memory_mib: u32,
    /// Number of processors of the guest.
    pub cpus: u32,
    /// Number of network cards of the guest.
    pub cards: usize,
    /// When the template was created, in seconds since 1970 by the host's clock.
    pub made_s: u64,
    /// How long its guest took to boot, in milliseconds.
    pub boot_ms: u64,
    /// Size of the saved state in bytes, without the memory.
    pub state_bytes: u64,
    /// Bytes of the host's memory that the memory file takes.
    pub memory_bytes: u64,
    state_hash: String,
    memory_hash: String,
    memory_changed_ns: i64,
    /// Length of the memory file in bytes.
    memory_len: u64,
}

/// The properties in [`TemplateInfo`] that the creator of a template supplies.
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

    /// Completes a template whose memory file exists. Before this call the template counts as
    /// incomplete.
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

    /// The template's properties; `None` if it is incomplete.
    pub(super) fn info(&self) -> Option<TemplateInfo> {
        serde_json::from_slice(&fs::read(self.directory.join(INFO)).ok()?).ok()
    }

    /// Reads a template for use. `None` if it is incomplete, or if its files have changed, as far
    /// as that can be seen without reading all of its memory.
    pub(super) fn open(&self) -> Option<(TemplateInfo, Vec<u8>)> {
        let info = self.info()?;
        let metadata = self.memory().metadata().ok()?;
        let memory_is_whole =
            metadata.len() == info.memory_len && changed_ns(&metadata) == info.memory_changed_ns;
        let state = File::open(self.state()).ok()?;
        let mut bytes = Vec::with_capacity(usize::try_from(state.metadata().ok()?.len()).ok()?);
        // Reads at most one byte more than was saved, to detect a longer file.
        (&state)
            .take(info.state_bytes.saturating_add(1))
            .read_to_end(&mut bytes)
            .ok()?;
        if !memory_is_whole || hash_of(&bytes) != info.state_hash {
            return None;
        }
        // The time shows which template was used last. If it cannot be set, the template is only
        // removed earlier.
        let _ = state.set_modified(std::time::SystemTime::now());
        Some((info, bytes))
    }

    /// Whether the template's whole memory file is unchanged. Reads all of it.
    pub(super) fn memory_is_whole(&self) -> bool {
        self.info()
            .is_some_and(|info| hash_of_file(&self.memory()).ok() == Some(info.memory_hash))
    }

    /// When the template was last used.
    pub(super) fn used(&self) -> std::time::SystemTime {
        let modified = self.state().metadata().and_then(|state| state.modified());
        modified.unwrap_or(std::time::UNIX_EPOCH)
    }

    /// Bytes of the host's memory that its files take, whether or not it is complete.
    pub(super) fn taken_bytes(&self) -> u64 {
        let files = fs::read_dir(&self.directory).into_iter().flatten();
        let metadata = files.filter_map(|file| file.ok()?.metadata().ok());
        metadata.map(|file| file.blocks() * 512).sum()
    }

    /// Removes the template. Running clones keep the memory as long as they need it.
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
