//! Keys of members, as files.

use std::path::Path;

pub use carina_protect::key::KeyError;
use carina_protect::key::{generate as make, load, store};
use carina_protect::random::System;

/// Makes a private key in a new file and returns its public line.
///
/// # Errors
/// The name is no good, or the file is there already or cannot be written.
pub fn generate(file: &Path, name: &str) -> Result<String, KeyError> {
    let identity = make(name, &mut System)?;
    store(&identity, file)?;
    Ok(identity.public_line())
}

/// The public line of the private key in a file.
///
/// # Errors
/// The file cannot be read, others may read it, or it holds no private key.
pub fn public_line(file: &Path) -> Result<String, KeyError> {
    Ok(load(file)?.public_line())
}
