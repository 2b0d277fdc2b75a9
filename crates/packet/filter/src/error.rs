//! Why a text is no filter.

/// Why a text is no filter. Positions are characters of the text, from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The text is longer than [`TEXT_MAX`](crate::TEXT_MAX).
    #[error(
        "the filter has {bytes} bytes: at most {} are possible",
        crate::TEXT_MAX
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A character that begins no word.
    #[error("character {at}: {found:?} is no part of the language")]
    Character {
        /// Where.
        at: usize,
        /// What is there.
        found: char,
    },
    /// A number that is malformed or too large.
    #[error("character {at}: {text}: a number is 0 to 4294967295, decimal, 0x… or octal 0…")]
    Number {
        /// Where.
        at: usize,
        /// What is there.
        text: String,
    },
    /// An IPv4 address with a part above 255.
    #[error("character {at}: {text}: each part of an IPv4 address is 0 to 255")]
    Address {
        /// Where.
        at: usize,
        /// What is there.
        text: String,
    },
    /// Another word was needed.
    #[error("character {at}: {found} where {wanted} would be right")]
    Unexpected {
        /// Where.
        at: usize,
        /// What is there.
        found: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// A part of the language that is not implemented.
    #[error("character {at}: {word} is not implemented; {instead}")]
    NotImplemented {
        /// Where.
        at: usize,
        /// The word.
        word: String,
        /// What to write.
        instead: &'static str,
    },
    /// Words that do not go together, or a value out of range.
    #[error("character {at}: {reason}")]
    Meaning {
        /// Where.
        at: usize,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Parentheses, or operands that wait for an operator, are too deep.
    #[error("character {at}: nested more than {max} deep")]
    Depth {
        /// Where.
        at: usize,
        /// How deep they may be.
        max: usize,
    },
    /// The program has more instructions than a jump reaches.
    #[error("the filter needs {instructions} instructions: at most 65535 are possible")]
    Program {
        /// How many.
        instructions: usize,
    },
}
