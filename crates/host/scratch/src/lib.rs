//! Temporary directories of benchmarks and test nodes, for run directories and shared memory.
//!
//! Each directory has a file that its process has locked. The kernel releases the lock however the
//! process ends. So the next process recognises the directories of killed ones, and removes them.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

/// Why a directory could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct ScratchError {
    what: String,
    source: io::Error,
}

impl ScratchError {
    /// The error of making or locking (`action`) a directory.
    fn of<E: Into<io::Error>>(action: &str, path: &Path) -> impl FnOnce(E) -> ScratchError {
        let what = format!("{action} {}", path.display());
        move |source| ScratchError {
            what,
            source: source.into(),
        }
    }
}

/// A temporary directory. Dropping the value removes it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    // The lock lasts as long as this file is open.
    _lock: File,
}

impl Scratch {
    /// Makes a directory with this name, on an in-memory file system if this system has one. First
    /// removes the directories of processes that have ended.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(name: &str) -> Result<Self, ScratchError> {
        let base = base();
        remove_abandoned(&base);
        // The directory gets its final name only after it is locked.
        let new = base.join(format!(".{PREFIX}{name}"));
        let path = base.join(format!("{PREFIX}{name}"));
        fs::create_dir_all(&new).map_err(ScratchError::of("making", &new))?;
        let file = File::create(new.join(LOCK)).map_err(ScratchError::of("locking", &new))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(ScratchError::of("locking", &new))?;
        fs::rename(&new, &path).map_err(ScratchError::of("making", &path))?;
        lock_registry().insert(path.clone());
        Ok(Self { path, _lock: file })
    }

    /// Path of this scratch directory.
    #[must_use]
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

/// Removes all scratch directories of this process. For a process that is about to exit without
/// dropping its values.
pub fn remove_all() {
    for path in std::mem::take(&mut *lock_registry()) {
        remove(&path);
    }
}

/// Removes a directory. A child process may still create files in it until this process ends, so
/// the directory is first renamed: the child does not find it any more.
fn remove(path: &Path) {
    let ended = path.with_extension("ended");
    let now = match fs::rename(path, &ended) {
        Ok(()) => &ended,
        Err(_) => path,
    };
    // Only temporary files can remain.
    let _ = fs::remove_dir_all(now);
}

/// The directory for temporary directories. They contain memory of rings and regions, so it should
/// be on tmpfs.
fn base() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() {
        shared
    } else {
        std::env::temp_dir()
    }
}

/// Removes the directories of processes that have ended, but not those of other users.
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
    // The set of paths is consistent after every step, also if another thread panicked.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directories of this process.
static REGISTRY: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
const PREFIX: &str = "carina-bench-";
/// The name `lock` is used by nodes.
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
        // These stay: one in use, one without a lock file, and one that is not of a benchmark.
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
