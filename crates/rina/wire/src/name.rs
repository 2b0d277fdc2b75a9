//! Names of applications, DIFs and systems: what is allowed in one.

use core::fmt;

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Checks a name: 1 to 255 bytes, no control character, not beginning with `|`, which separates
/// the parts of a name that has an instance or an entity: `process|instance|entity|instance`.
///
/// # Errors
/// Says which rule was broken.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    match name
        .char_indices()
        .find(|(at, c)| c.is_control() || (*c == '|' && *at == 0))
    {
        Some((at, _)) => Err(NameError::Character { at }),
        None => Ok(()),
    }
}

/// Why a string is not a well-formed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// No byte at all.
    Empty,
    /// More than [`NAME_BYTES_MAX`] bytes.
    TooLong {
        /// The length found.
        bytes: usize,
    },
    /// A control character, or `|` in front.
    Character {
        /// Its offset in bytes.
        at: usize,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Empty => write!(f, "a name needs at least one byte"),
            NameError::TooLong { bytes } => {
                write!(
                    f,
                    "a name has at most {NAME_BYTES_MAX} bytes, this one has {bytes}"
                )
            }
            NameError::Character { at } => {
                write!(
                    f,
                    "a name has no control character and no '|' in front, byte {at} is one"
                )
            }
        }
    }
}

impl core::error::Error for NameError {}
