//! Files and directories that go: one that is not there is as good as removed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::error::{Attempt, Result};

/// Removes a file.
pub fn remove_file(path: &Path) -> Result<()> {
    is_gone(fs::remove_file(path), path)
}

/// Removes a directory with all that is in it.
pub fn remove_directory(path: &Path) -> Result<()> {
    is_gone(fs::remove_dir_all(path), path)
}

fn is_gone(removed: io::Result<()>, path: &Path) -> Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.attempt(format!("removing {}", path.display())),
    }
}
