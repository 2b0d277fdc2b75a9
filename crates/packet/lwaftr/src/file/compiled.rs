//! Compiled files: the configuration as text, and its binding table in compiled form.
//!
//! ```text
//!   "CarLwC01" | text's bytes 4 | CRC-32 of the text 4 | text | table
//! ```

use super::{Loaded, ReadError, read, write};
use crate::table::{CompiledError, Table};

/// Why a file is not a valid compiled file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompiledFileError {
    /// The file does not begin with the magic number of this version.
    #[error("not a configuration that this version of carina compiled: compile the text again")]
    Magic,
    /// The file is truncated, or its text does not match the checksum.
    #[error("the compiled configuration is truncated or damaged: compile the text again")]
    Damaged,
    /// The text in the file is not a valid configuration.
    #[error(transparent)]
    Text(#[from] ReadError),
    /// The binding table in the file is invalid.
    #[error(transparent)]
    Table(#[from] CompiledError),
}

const MAGIC: &[u8; 8] = b"CarLwC01";

/// Whether a file is a compiled one: whether it begins with the magic number.
#[must_use]
pub fn is_compiled(file: &[u8]) -> bool {
    file.starts_with(MAGIC)
}

/// Writes a configuration and its table in compiled form.
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

/// Reads a compiled file. `as_snabb`: see [`read`](super::read).
///
/// # Errors
/// The file is not a valid compiled file.
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
