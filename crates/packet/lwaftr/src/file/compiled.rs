//! Compiled files: a configuration as text, and its binding table in compiled form.
//!
//! ```text
//!   "CarLwC01" | text's bytes 4 | CRC-32 of the text 4 | text | table
//! ```

use super::{Loaded, ReadError, read, write};
use crate::table::{CompiledError, Table};

/// Why bytes are no compiled file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompiledFileError {
    /// It begins otherwise.
    #[error("no compiled configuration of this version of carina: compile the text again")]
    Magic,
    /// It ends too early, or its text was changed.
    #[error("the compiled configuration is cut or damaged: compile the text again")]
    Damaged,
    /// Its text is no configuration.
    #[error(transparent)]
    Text(#[from] ReadError),
    /// Its table is invalid.
    #[error(transparent)]
    Table(#[from] CompiledError),
}

const MAGIC: &[u8; 8] = b"CarLwC01";

/// Whether a file is a compiled one.
#[must_use]
pub fn is_compiled(file: &[u8]) -> bool {
    file.starts_with(MAGIC)
}

/// The compiled form.
#[must_use]
pub fn compile(loaded: &Loaded) -> Vec<u8> {
    let text = write(&loaded.config);
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(text.as_bytes()).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(&loaded.table.compile());
    out
}

/// Reads a compiled form. `as_snabb`: see [`read`](super::read).
///
/// # Errors
/// The bytes are invalid.
pub fn read_compiled(file: &[u8], as_snabb: bool) -> Result<Loaded, CompiledFileError> {
    let rest = file.strip_prefix(MAGIC).ok_or(CompiledFileError::Magic)?;
    let (length, rest) = rest.split_first_chunk().ok_or(CompiledFileError::Damaged)?;
    let (sum, rest) = rest.split_first_chunk().ok_or(CompiledFileError::Damaged)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (text, table) = rest
        .split_at_checked(length)
        .ok_or(CompiledFileError::Damaged)?;
    if crc32fast::hash(text) != u32::from_le_bytes(*sum) {
        return Err(CompiledFileError::Damaged);
    }
    let text = std::str::from_utf8(text).map_err(|_| CompiledFileError::Damaged)?;
    let loaded = read(text, as_snabb)?;
    Ok(Loaded {
        table: Table::from_compiled(table, as_snabb)?,
        ..loaded
    })
}
