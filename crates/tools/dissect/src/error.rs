//! Why what a capture file says of an interface cannot be read.

/// Why a text says nothing sound of a DIF.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A dialect of another name.
    #[error("dialect={0}: should be native, rlite or irati")]
    Dialect(String),
    /// A width that is not a number.
    #[error("{key}={value}: not a number of bytes")]
    Width {
        /// The field.
        key: String,
        /// What was given.
        value: String,
    },
    /// Delimiting of another name.
    #[error("delimiting={0}: neither standard nor none")]
    Delimiting(String),
    /// A word without `=`.
    #[error("{0}: should be KEY=VALUE")]
    NotAPair(String),
    /// A key of no meaning.
    #[error(
        "{0}: should be address, cep, qos, seq, ctrl_seq, length, rate, frame, delimiting or \
         dialect"
    )]
    UnknownKey(String),
    /// Widths that no DIF of the dialect has.
    #[error("{0}")]
    Widths(&'static str),
}
