//! Locks between processes, by flock(2) on a file that may be removed.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Context, Error, Result};

/// A lock that is held until it is dropped. The kernel releases it when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Whether others may hold the lock at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Several processes may hold the lock in this mode at the same time.
    Shared,
    /// No other process may hold the lock.
    Exclusive,
}

impl Lock {
    /// Takes the lock at `path`, and creates its file if it is missing.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or another process holds the lock for the whole of `limit`.
    pub(crate) fn take(path: &Path, mode: Mode, limit: Duration) -> Result<Lock> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(lock) = Lock::try_take(path, mode)? {
                return Ok(lock);
            }
            if Instant::now() >= deadline {
                return Err(Error::Invalid {
                    what: format!("lock {}", path.display()),
                    reason: format!("another process has held it for {} s", limit.as_secs()),
                });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Like [`Lock::take`], without waiting. `None` if another process holds the lock.
    pub(crate) fn try_take(path: &Path, mode: Mode) -> Result<Option<Lock>> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .context("open", path)?;
        let operation = match mode {
            Mode::Shared => FlockOperation::NonBlockingLockShared,
            Mode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&file, operation) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) => return Err(std::io::Error::from(error)).context("lock", path),
        }
        // The previous holder may have removed the file; a lock on a removed file does not
        // exclude other processes.
        let locked = file.metadata().context("look at", path)?;
        let is_same = |now: fs::Metadata| (now.dev(), now.ino()) == (locked.dev(), locked.ino());
        Ok(fs::metadata(path)
            .is_ok_and(is_same)
            .then_some(Lock { _file: file }))
    }
}

const POLL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_lock_waits_for_shared_ones_as_long_as_asked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let one = Lock::take(&path, Mode::Shared, Duration::ZERO).unwrap();
        let two = Lock::take(&path, Mode::Shared, Duration::ZERO).unwrap();
        let error = Lock::take(&path, Mode::Exclusive, Duration::from_millis(30));
        assert!(error.unwrap_err().to_string().contains("lock"));
        drop((one, two));
        assert!(Lock::take(&path, Mode::Exclusive, Duration::ZERO).is_ok());
    }

    #[test]
    fn removed_file_locks_no_one_out_and_no_two_in() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let old = Lock::take(&path, Mode::Exclusive, Duration::ZERO).unwrap();
        fs::remove_file(&path).unwrap();
        let new = Lock::try_take(&path, Mode::Exclusive).unwrap();
        assert!(new.is_some());
        drop(old);
        assert!(Lock::try_take(&path, Mode::Shared).unwrap().is_none());
    }
}
