//! Errors in the description of an interface in a capture file.

/// Why the settings of a DIF cannot be read from a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The dialect is unknown.
    #[error("dialect={0}: must be native, rlite or irati")]
    Dialect(String),
    /// The width of a field is not a number.
    #[error("{key}={value}: must be a number of bytes")]
    Width {
        /// Name of the field of the PCI whose width is not a number.
        key: String,
        /// The text that was given as the width of the field.
        value: String,
    },
    /// The kind of delimiting is unknown.
    #[error("delimiting={0}: must be standard or none")]
    Delimiting(String),
    /// A word is not of the form `KEY=VALUE`.
    #[error("{0}: must be KEY=VALUE")]
    NotAPair(String),
    /// The key is unknown.
    #[error(
        "{0}: unknown key; expected address, cep, qos, seq, ctrl_seq, length, rate, frame, \
         delimiting or dialect"
    )]
    UnknownKey(String),
    /// No DIF of the dialect has these widths.
    #[error("{0}")]
    Widths(&'static str),
}
