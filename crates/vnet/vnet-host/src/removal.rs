//! Removes files and directories; one that does not exist counts as removed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::error::{Attempt, Result};

/// Removes a file, if it exists.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    is_gone(fs::remove_file(path), path)
}

/// Removes a directory with its content, if it exists.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    is_gone(fs::remove_dir_all(path), path)
}

fn is_gone(removed: io::Result<()>, path: &Path) -> Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.attempt(format!("removing {}", path.display())),
    }
}
