//! Guests saved after they have booted, from which clones start in a fraction of the time.
//!
//! A template is a directory with three files: the guest's `memory`, which clones map privately and
//! no one writes again, the `state` of its devices, and `template.json`, which is written last:
//! without it the template counts as half made, and is made anew. They lie on a file system in
//! memory, so a restart of the host ends them.

mod entry;
mod key;
mod making;
mod room;

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use entry::TemplateInfo;

use crate::cache::Cache;
use crate::error::{Context, Error, Result};
use crate::lock::{Lock, Mode};
use crate::machine::Machine;
use entry::Entry;

/// Where templates are kept.
#[derive(Debug, Clone)]
pub struct Templates {
    root: PathBuf,
    room_mib: Option<u64>,
}

/// A template in use: it is not removed before this is dropped.
#[derive(Debug)]
pub struct Template {
    info: TemplateInfo,
    entry: Entry,
    state: Vec<u8>,
    _lock: Lock,
}

impl Template {
    /// What is known of it.
    pub fn info(&self) -> &TemplateInfo {
        &self.info
    }

    pub(crate) fn memory(&self) -> PathBuf {
        self.entry.memory()
    }

    pub(crate) fn state(&self) -> &[u8] {
        &self.state
    }

    /// Whether all of its memory is what was saved, which takes a while to find out.
    pub(crate) fn is_whole(&self) -> bool {
        self.entry.memory_is_whole()
    }
}

impl Templates {
    /// Opens, and makes where missing, the templates under `root`, which only their owner may
    /// enter: who can write a template's memory decides what its clones do.
    ///
    /// # Errors
    ///
    /// When the directory cannot be made, or belongs to someone else, or others may enter it.
    pub fn new(root: impl Into<PathBuf>) -> Result<Templates> {
        let root = root.into();
        match DirBuilder::new().mode(0o700).create(&root) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).context("create", &root);
            }
            _ => {}
        }
        let metadata = root.symlink_metadata().context("look at", &root)?;
        let own = rustix::process::geteuid().as_raw();
        if !metadata.is_dir() || metadata.uid() != own || metadata.mode() & 0o077 != 0 {
            return Err(Error::Invalid {
                what: format!("{} for templates", root.display()),
                reason: format!("must be a directory of user {own} that no one else may enter"),
            });
        }
        Ok(Templates {
            root,
            room_mib: None,
        })
    }

    /// Opens `$CARINA_TEMPLATES`, else `/dev/shm/carina-templates-UID`.
    ///
    /// # Errors
    ///
    /// As [`Templates::new`].
    pub fn default_location() -> Result<Templates> {
        let set = std::env::var_os("CARINA_TEMPLATES").filter(|value| !value.is_empty());
        Templates::new(set.map_or_else(
            || {
                let user = rustix::process::geteuid().as_raw();
                PathBuf::from(format!("/dev/shm/carina-templates-{user}"))
            },
            PathBuf::from,
        ))
    }

    /// Sets how much room all templates together may take, in MiB; else it is a quarter of the
    /// file system. What was not used for the longest time goes first.
    #[must_use]
    pub fn room_mib(mut self, room_mib: u64) -> Templates {
        self.room_mib = Some(room_mib);
        self
    }

    /// Where they are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Takes the template of machines like this one, or makes it: boots one of them until it takes
    /// commands, and saves it. Who wants the same one meanwhile waits for it.
    ///
    /// # Errors
    ///
    /// When machines like this one cannot be cloned (see [`Machine::start_clone`]), there is no
    /// room, or the guest does not boot.
    pub fn obtain(&self, cache: &Cache, machine: &Machine) -> Result<Template> {
        let accel = machine.accel_in(cache)?;
        let key = key::key(machine, accel, cache)?;
        loop {
            let lock = Lock::take(&self.lock_path(&key), Mode::Shared, MAKING_LIMIT)?;
            let entry = self.entry(&key);
            if let Some((info, state)) = entry.open() {
                return Ok(Template {
                    info,
                    entry,
                    state,
                    _lock: lock,
                });
            }
            drop(lock);
            let _lock = Lock::take(&self.lock_path(&key), Mode::Exclusive, MAKING_LIMIT)?;
            // Another may have made it meanwhile.
            if entry.open().is_none() {
                entry.remove()?;
                self.make_room(machine.memory())?;
                making::make(&entry, key.clone(), machine, accel)?;
            }
        }
    }

    /// The key of the template of machines like this one.
    ///
    /// # Errors
    ///
    /// When machines like this one cannot be cloned.
    pub(crate) fn key_of(&self, cache: &Cache, machine: &Machine) -> Result<String> {
        key::key(machine, machine.accel_in(cache)?, cache)
    }

    /// Lists the templates that are complete, by key.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn list(&self) -> Result<Vec<TemplateInfo>> {
        let mut list: Vec<TemplateInfo> = self
            .entries()?
            .into_iter()
            .filter_map(|(_, entry)| entry.info())
            .collect();
        list.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(list)
    }

    /// Removes the templates whose keys begin with `prefix`, half-made ones too, and returns how
    /// many those were. Clones that run are not touched.
    ///
    /// # Errors
    ///
    /// When one of them is being made or cloned for all of a minute, or cannot be removed.
    pub fn remove(&self, prefix: &str) -> Result<usize> {
        let mut removed = 0;
        for (key, entry) in self.entries()? {
            if key.starts_with(prefix) {
                let path = self.lock_path(&key);
                let _lock = Lock::take(&path, Mode::Exclusive, REMOVING_LIMIT)?;
                entry.remove()?;
                fs::remove_file(&path).context("remove", &path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes a template that no one uses; tells whether it did.
    fn try_remove(&self, key: &str) -> Result<bool> {
        let path = self.lock_path(key);
        let Some(_lock) = Lock::try_take(&path, Mode::Exclusive)? else {
            return Ok(false);
        };
        self.entry(key).remove()?;
        fs::remove_file(&path).context("remove", &path)?;
        Ok(true)
    }

    /// What was found damaged is not used again.
    pub(crate) fn discard(&self, template: Template) -> Result<()> {
        let key = template.info.key.clone();
        drop(template);
        self.remove(&key).map(drop)
    }

    fn entry(&self, key: &str) -> Entry {
        Entry {
            directory: self.root.join(key),
        }
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.root.join(format!("{key}.lock"))
    }

    fn entries(&self) -> Result<Vec<(String, Entry)>> {
        let mut entries = Vec::new();
        for item in fs::read_dir(&self.root).context("read", &self.root)? {
            let item = item.context("read", &self.root)?;
            if let Ok(key) = item.file_name().into_string()
                && item.path().is_dir()
            {
                let entry = self.entry(&key);
                entries.push((key, entry));
            }
        }
        Ok(entries)
    }
}

/// A guest may take so long to boot on a slow machine.
const MAKING_LIMIT: Duration = Duration::from_secs(600);
/// A clone that is being made needs its template no longer than this.
const REMOVING_LIMIT: Duration = Duration::from_secs(60);
