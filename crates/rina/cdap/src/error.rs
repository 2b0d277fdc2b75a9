//! Errors of messages: why they are not valid CDAP of a dialect.

use core::fmt;

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CdapError {
    /// The message is longer than [`Rules::bytes_max`](crate::Rules::bytes_max).
    TooLong,
    /// The bytes are not protobuf of the schema, or a text is not UTF-8.
    Malformed,
    /// The opcode is missing or unknown.
    Opcode,
    /// The flag is unknown.
    Flag,
    /// A text, a filter or a list is longer than allowed.
    TextTooLong,
    /// The object value has values of several types; exactly one is allowed.
    Value,
    /// The message violates a rule of the dialect.
    Rule(RuleError),
}

impl CdapError {
    /// Returns the name under which counters show the error.
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

/// The rule that a message violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// Abstract syntax or version: M_CONNECT has another one, or a message that must not have one
    /// does.
    Version,
    /// M_CONNECT has no name of a party, or another message has one.
    Party,
    /// The class or name of the object is missing, or present in a message without object.
    Object,
    /// The value is missing, or present in an operation without value.
    Value,
    /// The invoke id is missing or negative.
    InvokeId,
    /// The flag is not allowed with the opcode.
    Flag,
    /// A request has a result.
    Result,
    /// There is a scope or filter where there is nothing to select, or the scope is negative.
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
