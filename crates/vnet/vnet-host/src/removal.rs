//! Removes files and directories; one that does not exist counts as removed.

use std::fs;
use std::path::Path;

use carina_vnet_images::absent_is_done;

use crate::error::{Attempt, Result};

/// Removes a file, if it exists.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    absent_is_done(fs::remove_file(path)).attempt(removing(path))
}

/// Removes a directory with its content, if it exists.
pub(crate) fn remove_directory(path: &Path) -> Result<()> {
    absent_is_done(fs::remove_dir_all(path)).attempt(removing(path))
}

fn removing(path: &Path) -> String {
    format!("removing {}", path.display())
}
