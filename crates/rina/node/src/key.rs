//! Key files of members.

use std::path::Path;

pub use carina_protect::key::KeyError;
use carina_protect::key::{generate as make, load, store};
use carina_protect::random::System;

/// Makes a private key, stores it in a new file, and returns the line with the public key.
///
/// # Errors
/// The name is not valid, the file exists already, or it cannot be written.
pub fn generate(file: &Path, name: &str) -> Result<String, KeyError> {
    let identity = make(name, &mut System)?;
    store(&identity, file)?;
    Ok(identity.public_line())
}

/// Returns the line with the public key for the private key in a file.
///
/// # Errors
/// The file cannot be read, other users may read it, or it contains no private key.
pub fn public_line(file: &Path) -> Result<String, KeyError> {
    Ok(load(file)?.public_line())
}
