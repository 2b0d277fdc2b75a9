//! Detects changes of a file that a command follows while it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::failure::{Failure, refused};

/// Detects changes of a file by its modification time and length. The caller polls
/// [`FileWatch::has_changed`], which looks at the file at most once a second.
pub(crate) struct FileWatch {
    file: PathBuf,
    seen: Option<(SystemTime, u64)>,
    look_at: Instant,
}

impl FileWatch {
    /// Starts to watch a file; changes count from now.
    #[must_use]
    pub(crate) fn new(file: &Path) -> FileWatch {
        FileWatch {
            file: file.to_owned(),
            seen: stamp(file),
            look_at: Instant::now() + LOOK_EVERY,
        }
    }

    /// Whether the file has changed since the last check. Checks at most once a second, and returns
    /// false in between. A file that was written less than [`AT_REST`] ago has not changed yet: its
    /// writer may not have finished.
    pub(crate) fn has_changed(&mut self) -> bool {
        let now = Instant::now();
        if now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK_EVERY;
        // An editor that replaces the file removes it for a moment.
        let Some(stamp) = stamp(&self.file).filter(|stamp| self.seen != Some(*stamp)) else {
            return false;
        };
        if is_recent(stamp.0) {
            self.look_at = now + AT_REST;
            return false;
        }
        self.seen = Some(stamp);
        true
    }

    /// Whether the file was not written within [`AT_REST`], or does not exist.
    pub(crate) fn is_at_rest(&self) -> bool {
        stamp(&self.file).is_none_or(|(written, _)| !is_recent(written))
    }

    /// Whether the caller is to read the file: because it has changed, or because someone asks for
    /// it (`is_asked`), such as by SIGHUP. In the latter case its present state is no change.
    pub(crate) fn is_due(&mut self, is_asked: bool) -> bool {
        if is_asked {
            self.seen = stamp(&self.file);
        }
        is_asked || self.has_changed()
    }
}

/// Checks that a configuration has a text at all: a full disk or an interrupted editor leaves an
/// empty file, which must not remove all apps or ports. A comment alone is a text.
///
/// # Errors
/// The text is empty.
pub(crate) fn check_not_empty(file: &Path, text: &str) -> Result<(), Failure> {
    if text.trim().is_empty() {
        return Err(refused(format!("{}: the file is empty", file.display())));
    }
    Ok(())
}

fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Whether a time is less than [`AT_REST`] ago. A time in the future, of another clock, is not.
fn is_recent(written: SystemTime) -> bool {
    written.elapsed().is_ok_and(|age| age < AT_REST)
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time without a write after which a file counts as complete. An editor that does not replace the
/// file truncates it first, and a part of a configuration may be a valid configuration.
const AT_REST: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_counts_when_the_file_is_at_rest() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.toml");
        fs::write(&path, "first").unwrap();
        let mut watch = FileWatch::new(&path);
        let mut has_changed = || {
            watch.look_at = Instant::now();
            watch.has_changed()
        };
        assert!(!has_changed());
        let write = |age: Duration| {
            let file = fs::File::create(&path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        write(Duration::from_millis(1));
        assert!(!has_changed());
        write(AT_REST);
        assert!(has_changed());
        assert!(!has_changed());
        fs::remove_file(&path).unwrap();
        assert!(!has_changed());
        fs::write(&path, "last").unwrap();
        assert!(watch.is_due(true));
        std::thread::sleep(AT_REST);
        watch.look_at = Instant::now();
        assert!(!watch.has_changed());
    }
}
