//! Names and identifiers. A text is checked when it becomes a name.
//!
//! Application and DIF names are free text with few limits; names of IPCPs and VMs also become
//! parts of file names and URLs and are therefore limited to letters, digits, `.`, `_` and `-`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// The text is empty.
    #[error("a name of {kind} is empty; it must have 1 to {max} bytes")]
    Empty {
        /// What kind of object the name is for, with its article: `an application`.
        kind: &'static str,
        /// Longest length that such a name may have, in bytes.
        max: usize,
    },
    /// The text is longer than the limit.
    #[error("a name of {kind} has {bytes} bytes; at most {max} are allowed")]
    TooLong {
        /// What kind of object the name is for, with its article: `an application`.
        kind: &'static str,
        /// Length of the text in bytes.
        bytes: usize,
        /// Longest length that such a name may have, in bytes.
        max: usize,
    },
    /// The text holds a character that a name may not hold.
    #[error("a name of {kind} holds {found:?} at byte {at}; {allowed}")]
    BadChar {
        /// What kind of object the name is for, with its article: `an application`.
        kind: &'static str,
        /// The character that is not allowed.
        found: char,
        /// Byte offset of the character.
        at: usize,
        /// Which characters are allowed, as a part of a sentence.
        allowed: &'static str,
    },
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks `text` and makes it a name of this type.
            ///
            /// # Errors
            /// [`NameError`] says what is wrong with the text.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                $check($kind, &text)?;
                Ok(Self(text))
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// Name of an application: 1 to 255 bytes of UTF-8 without control characters. `|` separates
    /// the parts of a name that has several: `process|instance|entity|instance`. A name must not
    /// begin with `|`.
    AppName, "an application", check_app
);
name_type!(
    /// Name of a DIF: 1 to 255 bytes of UTF-8, without control characters and `|`.
    DifName, "a DIF", check_free
);
name_type!(
    /// Name of an IPCP or a VM, unique on its system: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting
    /// with `.` or `-`. It is safe in file names, URLs and command lines.
    LocalName, "a VM, an IPCP or a lab", check_local
);

/// Port-id: number of a flow on one system. Zero is never assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortId(pub u32);

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of an IPC process, unique on one system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IpcpId(pub u16);

impl fmt::Display for IpcpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

fn check_length(kind: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    match text.len() {
        0 => Err(NameError::Empty { kind, max }),
        bytes if bytes > max => Err(NameError::TooLong { kind, bytes, max }),
        _ => Ok(()),
    }
}

/// Refuses the text if `bad` is true for the byte offset and value of one of its characters.
fn check_chars(
    kind: &'static str,
    text: &str,
    allowed: &'static str,
    bad: impl Fn(usize, char) -> bool,
) -> Result<(), NameError> {
    match text.char_indices().find(|(at, c)| bad(*at, *c)) {
        Some((at, found)) => Err(NameError::BadChar {
            kind,
            found,
            at,
            allowed,
        }),
        None => Ok(()),
    }
}

fn check_free(kind: &'static str, text: &str) -> Result<(), NameError> {
    check_length(kind, text, NAME_BYTES_MAX)?;
    let allowed = "control characters and '|' are not allowed";
    check_chars(kind, text, allowed, |_, c| c.is_control() || c == '|')
}

fn check_app(kind: &'static str, text: &str) -> Result<(), NameError> {
    check_length(kind, text, NAME_BYTES_MAX)?;
    let allowed = "control characters are not allowed, nor '|' in front";
    let bad = |at, c: char| c.is_control() || (c == '|' && at == 0);
    check_chars(kind, text, allowed, bad)
}

fn check_local(kind: &'static str, text: &str) -> Result<(), NameError> {
    check_length(kind, text, LOCAL_NAME_BYTES_MAX)?;
    let allowed = "letters, digits, '.', '_' and '-' are allowed, '.' and '-' not in front";
    check_chars(kind, text, allowed, |at, c| match c {
        '.' | '-' => at == 0,
        c => !c.is_ascii_alphanumeric() && c != '_',
    })
}

/// Longest application or DIF name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest name of an IPCP or VM, in bytes.
pub const LOCAL_NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_accept_free_text_up_to_255_bytes() {
        assert_eq!(
            AppName::new("rina.apps/echo-1").unwrap().as_str(),
            "rina.apps/echo-1"
        );
        assert!(AppName::new("é".repeat(127)).is_ok());
        assert_eq!(
            AppName::new("é".repeat(128)),
            Err(NameError::TooLong {
                kind: "an application",
                bytes: 256,
                max: 255
            })
        );
    }

    #[test]
    fn names_refuse_empty_control_and_bar() {
        assert!(matches!(AppName::new(""), Err(NameError::Empty { .. })));
        for bad in ["a\nb", "a\0", "a|b", "\u{85}"] {
            assert!(
                matches!(DifName::new(bad), Err(NameError::BadChar { .. })),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn application_names_may_have_parts() {
        for good in ["a|1", "a||entity", "a|1|entity|2"] {
            assert!(AppName::new(good).is_ok(), "{good}");
        }
        for bad in ["|1", "a\n|1"] {
            assert!(AppName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn local_names_are_safe_in_paths() {
        for good in ["vm1", "a.b-c_d", "0"] {
            assert!(LocalName::new(good).is_ok(), "{good}");
        }
        for bad in ["..", ".x", "-x", "a/b", "a b", "é", "a\0"] {
            assert!(LocalName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_checked_while_decoding() {
        assert!(serde_json::from_str::<AppName>("\"ok\"").is_ok());
        let refusal = serde_json::from_str::<AppName>("\"|b\"")
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("'|' at byte 0"), "{refusal}");
    }
}
