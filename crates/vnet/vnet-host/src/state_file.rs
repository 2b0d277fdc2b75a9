//! Files in which an agent keeps what the next agent must know, as JSON.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Attempt, Result};

/// Reads the value of a file; `None` if the file does not exist.
///
/// # Errors
/// The file cannot be read or parsed.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let what = || format!("reading {}", path.display());
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => serde_json::from_slice(&text.attempt(what())?)
            .attempt(what())
            .map(Some),
    }
}

/// Writes a value: a reader sees either the old or the new value.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let part = path.with_extension("json.part");
    let text = serde_json::to_vec(value).attempt(what())?;
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, path))
        .attempt(what())
}
