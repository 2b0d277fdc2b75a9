//! Directories of benches and tests, which hold run directories and shared memory.
//!
//! Each has a file that its process has locked. The kernel gives the lock up however the process
//! ends, so that the next one finds what a killed one has left, and removes it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Attempt, Result};

/// A directory that is removed when this value is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    // Locked for as long as it is open.
    _lock: File,
}

impl Scratch {
    /// Makes a directory of this name on a file system in memory, where there is one, after those
    /// of processes that have ended are removed.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(name: &str) -> Result<Self> {
        let base = base();
        remove_abandoned(&base);
        // Under its name it is locked from the first moment.
        let new = base.join(format!(".{PREFIX}{name}"));
        let path = base.join(format!("{PREFIX}{name}"));
        fs::create_dir_all(&new).attempt(format!("making {}", new.display()))?;
        let file = File::create(new.join(LOCK)).attempt(format!("locking {}", new.display()))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .attempt(format!("locking {}", new.display()))?;
        fs::rename(&new, &path).attempt(format!("making {}", path.display()))?;
        lock_registry().insert(path.clone());
        Ok(Self { path, _lock: file })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        lock_registry().remove(&self.path);
        remove(&self.path);
    }
}

/// Removes the directories of this process, which is about to end without dropping anything.
pub fn remove_all() {
    for path in std::mem::take(&mut *lock_registry()) {
        remove(&path);
    }
}

/// Removes a directory in which a process that this one has started may still make files: it ends
/// when this one does. Under its new name the directory is not found any more.
fn remove(path: &Path) {
    let ended = path.with_extension("ended");
    let now = match fs::rename(path, &ended) {
        Ok(()) => &ended,
        Err(_) => path,
    };
    // Only temporary files can be left behind.
    let _ = fs::remove_dir_all(now);
}

/// Memory of rings and regions lies in these directories: they belong on a tmpfs.
fn base() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() {
        shared
    } else {
        std::env::temp_dir()
    }
}

/// Removes the directories whose processes have ended. Those of other users stay.
fn remove_abandoned(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let locked = File::open(entry.path().join(LOCK));
        if let (true, Ok(file)) = (is_ours, locked)
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn lock_registry() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    // A set of paths is whole after every step, also after a panic elsewhere.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directories of this process.
static REGISTRY: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
const PREFIX: &str = "carina-bench-";
/// Not `lock`, which is that of a node.
const LOCK: &str = "owner";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_a_process_that_has_ended_is_removed() {
        let base = std::env::temp_dir().join(format!("carina-scratch-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let of = |name: &str| base.join(format!("{PREFIX}{name}"));
        for name in ["ended", "lives", "unlocked"] {
            fs::create_dir(of(name)).unwrap();
        }
        fs::create_dir(base.join("other")).unwrap();
        fs::write(base.join("other").join(LOCK), "").unwrap();
        fs::write(of("ended").join(LOCK), "").unwrap();
        let lock = File::create(of("lives").join(LOCK)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        remove_abandoned(&base);
        assert!(!of("ended").exists());
        // One is in use, of one it is not known, one is not of a bench.
        assert!(of("lives").exists() && of("unlocked").exists());
        assert!(base.join("other").exists());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn directory_is_locked_and_goes_with_its_value() {
        let scratch = Scratch::new(&format!("test-{}", std::process::id())).unwrap();
        let path = scratch.path().to_owned();
        let again = File::open(path.join(LOCK)).unwrap();
        assert!(flock(&again, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn directory_goes_while_something_is_still_made_in_it() {
        let scratch = Scratch::new(&format!("busy-{}", std::process::id())).unwrap();
        let path = scratch.path().to_owned();
        let writer = std::thread::spawn({
            let path = path.clone();
            move || {
                let made = |number: u32| fs::write(path.join(number.to_string()), "").is_ok();
                (0..).take_while(|number| made(*number)).count()
            }
        });
        while !path.join("99").exists() {
            std::thread::yield_now();
        }
        drop(scratch);
        assert!(writer.join().unwrap() >= 100);
        assert!(!path.exists() && !path.with_extension("ended").exists());
    }
}
