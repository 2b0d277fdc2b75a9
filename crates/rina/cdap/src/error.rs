//! Why bytes or a message are not CDAP of a dialect.

use core::fmt;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CdapError {
    /// Longer than [`Rules::bytes_max`](crate::Rules::bytes_max).
    TooLong,
    /// No protobuf of the schema, or text that is not UTF-8.
    Malformed,
    /// The opcode is missing or unknown.
    Opcode,
    /// The flag is unknown.
    Flag,
    /// A text, a filter or a list is longer than allowed.
    TextTooLong,
    /// The object value is of several kinds at once.
    Value,
    /// It breaks a rule of the dialect.
    Rule(RuleError),
}

impl CdapError {
    /// A word for counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CdapError::TooLong => "too-long",
            CdapError::Malformed => "malformed",
            CdapError::Opcode => "opcode",
            CdapError::Flag => "flag",
            CdapError::TextTooLong => "text-too-long",
            CdapError::Value => "value",
            CdapError::Rule(_) => "rule",
        }
    }
}

impl fmt::Display for CdapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CdapError::TooLong => f.write_str("the CDAP message is too long"),
            CdapError::Malformed => f.write_str("the CDAP message is malformed"),
            CdapError::Opcode => f.write_str("the CDAP opcode is missing or unknown"),
            CdapError::Flag => f.write_str("the CDAP flag is unknown"),
            CdapError::TextTooLong => f.write_str("a field of the CDAP message is too long"),
            CdapError::Value => f.write_str("the CDAP object value is of several kinds"),
            CdapError::Rule(rule) => rule.fmt(f),
        }
    }
}

impl core::error::Error for CdapError {}

/// The rule that a message breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// Abstract syntax or version: another one in M_CONNECT, or any elsewhere.
    Version,
    /// A party's name is missing in M_CONNECT, or is there elsewhere.
    Party,
    /// The object's class or name is missing, or is there where there is no object.
    Object,
    /// The value is missing, or is present where the operation has none.
    Value,
    /// The invoke id is missing or negative.
    InvokeId,
    /// The flag does not go with the opcode.
    Flag,
    /// A request has a result.
    Result,
    /// Scope or filter where there is nothing to select, or a negative scope.
    Scope,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleError::Version => "wrong abstract syntax or version in a CDAP message",
            RuleError::Party => "wrong presence of names in a CDAP message",
            RuleError::Object => "wrong presence of class or object name in a CDAP message",
            RuleError::Value => "wrong presence of a value in a CDAP message",
            RuleError::InvokeId => "missing or negative invoke id in a CDAP message",
            RuleError::Flag => "wrong flag in a CDAP message",
            RuleError::Result => "result in a CDAP request",
            RuleError::Scope => "wrong scope or filter in a CDAP message",
        })
    }
}

impl core::error::Error for RuleError {}
