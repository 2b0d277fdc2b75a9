//! Files that a command follows while it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Notices that a file was written, by its time and length, once a second.
pub struct FileWatch {
    file: PathBuf,
    seen: Option<(SystemTime, u64)>,
    looked: Instant,
}

impl FileWatch {
    /// Looks at a file from here on.
    #[must_use]
    pub fn new(file: &Path) -> FileWatch {
        FileWatch {
            file: file.to_owned(),
            seen: stamp(file),
            looked: Instant::now(),
        }
    }

    /// Whether it was written since this was last asked, as far as has been looked.
    pub fn has_changed(&mut self) -> bool {
        if self.looked.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked = Instant::now();
        // While an editor replaces the file it is absent.
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
