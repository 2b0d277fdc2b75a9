//! A machine that is sent to another host.
//!
//! Once it is sent, it stays paused here until its provider has decided where it runs. The file
//! `NODE.away` in the directory of moves records that, for an agent that restarts meanwhile.

use std::fs;
use std::io::ErrorKind;

use super::resuming::go_on;
use crate::directory::VnetDir;
use crate::error::{Attempt, Result};
use crate::removal::remove_file;

/// Records that a node is being sent in the move of this number.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn note_away(dir: &VnetDir, node: &str, number: u64) -> Result<()> {
    let directory = dir.destination();
    let path = directory.join(format!("{node}.{AWAY}"));
    let written =
        fs::create_dir_all(&directory).and_then(|()| fs::write(&path, number.to_string()));
    written.attempt(format!("writing {}", path.display()))
}

/// The nodes that are being sent or were sent, with the numbers of their moves.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn away(dir: &VnetDir) -> Result<Vec<(String, u64)>> {
    let directory = dir.destination();
    let what = || format!("reading {}", directory.display());
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.attempt(what())?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.attempt(what())?.path();
        if path.extension().is_some_and(|extension| extension == AWAY)
            && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
            // An incomplete file belongs to a node that was not sent.
            && let Ok(number) = fs::read_to_string(&path).attempt(what())?.parse()
        {
            all.push((name.to_owned(), number));
        }
    }
    Ok(all)
}

/// Whether the directory has a record that this host is sending the node to another host.
pub(super) fn is_away(dir: &VnetDir, node: &str) -> bool {
    dir.destination().join(format!("{node}.{AWAY}")).exists()
}

/// Resumes a node that was to be sent, if it is still here.
///
/// # Errors
/// Its QEMU refuses.
pub(crate) fn stay(dir: &VnetDir, node: &str) -> Result<()> {
    let all = carina_vm::list(&dir.machines()).attempt("listing machines")?;
    if let Some(record) = all.iter().find(|candidate| candidate.name == node) {
        go_on(record)?;
    }
    forget_away(dir, node)
}

/// Removes the record that a node is being sent.
///
/// # Errors
/// The file cannot be removed.
pub(crate) fn forget_away(dir: &VnetDir, node: &str) -> Result<()> {
    let path = dir.destination().join(format!("{node}.{AWAY}"));
    remove_file(&path)?;
    // The directory may be in use by other moves.
    let _ = fs::remove_dir(dir.destination());
    Ok(())
}

const AWAY: &str = "away";
