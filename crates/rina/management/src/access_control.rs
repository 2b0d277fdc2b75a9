//! Access control: who may join, allocate flows, write to the RIB, and expel members.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use carina_ipcp::Cause;
use carina_ipcp::policy::{Params, PolicyError};

/// An operation that an access control policy allows or denies to another IPCP or application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Join the DIF, or become a neighbour of this member.
    Join,
    /// Allocate a flow to this application.
    Flow {
        /// Name of the called application.
        to: &'a str,
    },
    /// Write a policy of this member.
    Write,
    /// Expel a member from the DIF. The policy is asked at the member that sends the request, and
    /// at the member that is to leave.
    Expel,
}

/// A policy of component `access-control`: decides who may do what in the DIF.
pub trait AccessControl: Send {
    /// Whether `subject` may perform `operation`. `subject` is the name of an IPCP or, for
    /// [`Operation::Flow`], of the calling application.
    fn allows(&self, subject: &str, operation: Operation<'_>) -> bool;
}

/// Allows every operation.
#[derive(Debug)]
pub(crate) struct AllowAll;

/// Policy `list`: for each operation, patterns of the names that may perform it. In a pattern, `*`
/// matches any characters.
#[derive(Debug)]
pub(crate) struct List {
    join: Vec<String>,
    flows: Vec<(String, String)>,
    write: Vec<String>,
    expel: Vec<String>,
}

impl AccessControl for AllowAll {
    fn allows(&self, _subject: &str, _operation: Operation<'_>) -> bool {
        true
    }
}

impl AccessControl for List {
    fn allows(&self, subject: &str, operation: Operation<'_>) -> bool {
        let any = |list: &[String]| list.iter().any(|pattern| matches(pattern, subject));
        match operation {
            Operation::Join => any(&self.join),
            Operation::Write => any(&self.write),
            Operation::Expel => any(&self.expel),
            Operation::Flow { to } => self
                .flows
                .iter()
                .any(|(from, target)| matches(from, subject) && matches(target, to)),
        }
    }
}

impl List {
    /// Reads the parameters `join`, `flows`, `write` and `expel`.
    ///
    /// # Errors
    /// An element of `flows` is not `FROM>TO`.
    pub(crate) fn new(params: &Params) -> Result<List, RuleError> {
        let list = |name: &str| {
            let words = params.text(name).split(',').map(str::trim);
            words
                .filter(|word| !word.is_empty())
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        let pair = |word: String| match word.split_once('>') {
            Some((from, to)) => Ok((from.trim().to_string(), to.trim().to_string())),
            None => Err(RuleError { rule: word }),
        };
        Ok(List {
            join: list("join"),
            flows: list("flows")
                .into_iter()
                .map(pair)
                .collect::<Result<_, _>>()?,
            write: list("write"),
            expel: list("expel"),
        })
    }
}

/// Error: the proved identity of an IPCP differs from the name that it claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IdentityMismatch {
    name: String,
    identity: String,
}

impl IdentityMismatch {
    /// The error of an IPCP that claims `name` and has proved `identity`.
    pub(super) fn new(name: &str, identity: &str) -> IdentityMismatch {
        IdentityMismatch {
            name: name.to_string(),
            identity: identity.to_string(),
        }
    }
}

impl fmt::Display for IdentityMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IdentityMismatch { name, identity } = self;
        write!(
            f,
            "{name} authenticated with the key of {identity:?}; the list of allowed keys must \
             have the key under the name of its IPCP, {name:?}"
        )
    }
}

impl core::error::Error for IdentityMismatch {}

/// Error: an element of parameter `flows` of policy `list` is not of the form `FROM>TO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The element of the parameter, as it was given.
    pub rule: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "access-control: policy list: parameter flows has {:?}; \
             its elements are FROM>TO, separated by commas",
            self.rule
        )
    }
}

impl core::error::Error for RuleError {}

impl From<RuleError> for PolicyError {
    fn from(error: RuleError) -> PolicyError {
        PolicyError::Refused(Cause::new(error))
    }
}

/// Matches a name against a pattern in which `*` matches any characters. Takes at most time
/// proportional to the product of both lengths, which are bounded by the length of names.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    let mut rest = rest;
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The type that the catalogue makes for component `access-control`.
pub(super) type BoxedAccess = Box<dyn AccessControl>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_with_stars_match_names() {
        for (pattern, name, expected) in [
            ("*", "anything", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcd", false),
            ("a*a", "a", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
