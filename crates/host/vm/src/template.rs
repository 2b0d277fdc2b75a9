//! Templates: guests that were saved after booting, from which clones start in a fraction of the
//! time.
//!
//! A template is a directory with three files: the guest's `memory`, which clones map privately and
//! which is never written again; the `state` of its devices; and `template.json`, which is written
//! last. A template without it is incomplete and is created again. The directory is on a file
//! system in memory, so a restart of the host removes all templates.

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

/// The directory in which the templates of a user are kept, with a bound for their total size.
#[derive(Debug, Clone)]
pub struct Templates {
    root: PathBuf,
    room_mib: Option<u64>,
}

/// A template in use. It is not removed before this value is dropped.
#[derive(Debug)]
pub struct Template {
    info: TemplateInfo,
    entry: Entry,
    state: Vec<u8>,
    _lock: Lock,
}

impl Template {
    /// Properties of the template.
    pub fn info(&self) -> &TemplateInfo {
        &self.info
    }

    pub(crate) fn memory(&self) -> PathBuf {
        self.entry.memory()
    }

    pub(crate) fn state(&self) -> &[u8] {
        &self.state
    }

    /// Whether the template's whole memory file is unchanged. Reads all of it, which takes a while.
    pub(crate) fn is_whole(&self) -> bool {
        self.entry.memory_is_whole()
    }
}

impl Templates {
    /// Opens the templates under `root`, and creates the directory if it is missing. Only its owner
    /// may have access: a user who can write a template's memory controls its clones.
    ///
    /// # Errors
    ///
    /// The directory cannot be created, belongs to another user, or is accessible to others.
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

    /// Opens `$CARINA_TEMPLATES`, otherwise `/dev/shm/carina-templates-UID`.
    ///
    /// # Errors
    ///
    /// As for [`Templates::new`].
    pub fn default_location() -> Result<Templates> {
        Templates::new(Templates::default_path())
    }

    /// The directory that [`Templates::default_location`] opens for this user.
    #[must_use]
    pub fn default_path() -> PathBuf {
        let set = std::env::var_os("CARINA_TEMPLATES").filter(|value| !value.is_empty());
        set.map_or_else(
            || {
                let user = rustix::process::geteuid().as_raw();
                PathBuf::from(format!("/dev/shm/carina-templates-{user}"))
            },
            PathBuf::from,
        )
    }

    /// Sets how much memory all templates together may take, in MiB (default: a quarter of the file
    /// system). Templates that were not used for the longest time are removed first.
    #[must_use]
    pub fn room_mib(mut self, room_mib: u64) -> Templates {
        self.room_mib = Some(room_mib);
        self
    }

    /// The directory of the templates.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the template for machines like this one. If it does not exist, creates it: boots
    /// such a machine until it accepts commands, and saves it. Other callers that need the same
    /// template wait for it.
    ///
    /// # Errors
    ///
    /// Machines like this one cannot be cloned (see [`Machine::start_clone`]), there is too little
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
            // Another process may have created it in the meantime.
            if entry.open().is_none() {
                entry.remove()?;
                self.make_room(machine.memory())?;
                making::make(&entry, key.clone(), machine, accel)?;
            }
        }
    }

    /// The key of the template for machines like this one.
    ///
    /// # Errors
    ///
    /// Machines like this one cannot be cloned.
    pub(crate) fn key_of(&self, cache: &Cache, machine: &Machine) -> Result<String> {
        key::key(machine, machine.accel_in(cache)?, cache)
    }

    /// Lists the complete templates, sorted by key.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<TemplateInfo>> {
        let mut list: Vec<TemplateInfo> = self
            .entries()?
            .into_iter()
            .filter_map(|(_, entry)| entry.info())
            .collect();
        list.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(list)
    }

    /// Removes the templates whose keys begin with `prefix`, including incomplete ones. Returns how
    /// many. Running clones are not affected.
    ///
    /// # Errors
    ///
    /// One of them is being created or cloned for a whole minute, or cannot be removed.
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

    /// Removes a template if it is not in use. Returns whether it did.
    fn try_remove(&self, key: &str) -> Result<bool> {
        let path = self.lock_path(key);
        let Some(_lock) = Lock::try_take(&path, Mode::Exclusive)? else {
            return Ok(false);
        };
        self.entry(key).remove()?;
        fs::remove_file(&path).context("remove", &path)?;
        Ok(true)
    }

    /// Removes a template that was found damaged, so that it is not used again.
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

/// How long a guest may take to boot for its template on a slow machine.
const MAKING_LIMIT: Duration = Duration::from_secs(600);
/// How long to wait for a clone that is being created from the template.
const REMOVING_LIMIT: Duration = Duration::from_secs(60);
