//! Errors of the compiler.

/// Why a text is not a valid filter. Positions count characters of the text, from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The text is longer than [`TEXT_MAX`](crate::TEXT_MAX).
    #[error(
        "the filter has {bytes} bytes: at most {} are possible",
        crate::TEXT_MAX
    )]
    TooLong {
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// A character that cannot begin a word.
    #[error("character {at}: {found:?} has no meaning in a filter")]
    Character {
        /// Position of the character.
        at: usize,
        /// The character.
        found: char,
    },
    /// A number is malformed or too large.
    #[error(
        "character {at}: {text}: a number must be 0 to 4294967295, in decimal, hexadecimal (0x…) \
         or octal (0…)"
    )]
    Number {
        /// Position of the number.
        at: usize,
        /// The number as written.
        text: String,
    },
    /// An IPv4 address has a part above 255.
    #[error("character {at}: {text}: each part of an IPv4 address must be 0 to 255")]
    Address {
        /// Position of the address.
        at: usize,
        /// The address as written.
        text: String,
    },
    /// The expression has a word that cannot stand at this place.
    #[error("character {at}: found {found}, expected {wanted}")]
    Unexpected {
        /// Position of the unexpected word, in characters from 1.
        at: usize,
        /// The unexpected word of the expression.
        found: String,
        /// What the expression must have at this place.
        wanted: &'static str,
    },
    /// A word of the language that is not implemented.
    #[error("character {at}: {word} is not implemented; {instead}")]
    NotImplemented {
        /// Position of the word that is not implemented, in characters from 1.
        at: usize,
        /// The word that is not implemented.
        word: String,
        /// What to write instead.
        instead: &'static str,
    },
    /// Words that cannot be combined, or a value out of range.
    #[error("character {at}: {reason}")]
    Meaning {
        /// Position of the fault.
        at: usize,
        /// The fault, and what would be right.
        reason: String,
    },
    /// Parentheses, or operands that wait for an operator, are nested too deep.
    #[error("character {at}: the nesting is deeper than {max} levels")]
    Depth {
        /// Position where the limit is exceeded.
        at: usize,
        /// The deepest nesting allowed.
        max: usize,
    },
    /// The program has more instructions than a jump can cross.
    #[error("the filter needs {instructions} instructions: at most 65535 are possible")]
    Program {
        /// Number of instructions.
        instructions: usize,
    },
}
