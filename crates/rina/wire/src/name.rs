//! Rules for names of applications, DIFs and systems.

use core::fmt;

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Checks a name: 1 to 255 bytes, no control characters, and no `|` at the start. `|` separates the
/// parts of a name that has an instance or an entity: `process|instance|entity|instance`.
///
/// # Errors
/// The rule that the name violates.
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

/// Why a text is not a valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// The text is empty.
    Empty,
    /// The text has more than [`NAME_BYTES_MAX`] bytes.
    TooLong {
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// The text contains a control character, or starts with `|`.
    Character {
        /// Offset of the character in bytes.
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
