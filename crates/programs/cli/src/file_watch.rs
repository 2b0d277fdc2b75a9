//! Detects changes of a file that a command follows while it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Detects changes of a file by its modification time and length. The caller polls
/// [`FileWatch::has_changed`], which looks at the file at most once a second.
pub(crate) struct FileWatch {
    file: PathBuf,
    seen: Option<(SystemTime, u64)>,
    looked: Instant,
}

impl FileWatch {
    /// Starts to watch a file; changes count from now.
    #[must_use]
    pub(crate) fn new(file: &Path) -> FileWatch {
        FileWatch {
            file: file.to_owned(),
            seen: stamp(file),
            looked: Instant::now(),
        }
    }

    /// Whether the file has changed since the last check. Checks at most once a second, and returns
    /// false in between.
    pub(crate) fn has_changed(&mut self) -> bool {
        if self.looked.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked = Instant::now();
        // An editor that replaces the file removes it for a moment.
        let Some(stamp) = stamp(&self.file) else {
            return false;
        };
        self.seen.replace(stamp) != Some(stamp)
    }
}

fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
