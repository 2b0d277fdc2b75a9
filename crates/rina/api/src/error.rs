//! The error that the node sends on both sockets: a code for programs, and a sentence for people.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A refusal of a request, as the node sends it on `ipc.sock` and `control.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct ErrorBody {
    /// The kind of refusal, for programs.
    pub code: ErrorCode,
    /// Text for people: what failed, on which object, and what to do about it.
    pub message: String,
    /// True when the same request will fail again until someone corrects the cause.
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
}

impl ErrorBody {
    /// Makes a refusal. It is marked as final if `code` is of a kind that a retry does not cure.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            is_final: code.is_final(),
        }
    }

    /// Returns this error marked as final: the same request will fail again.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self {
            is_final: true,
            ..self
        }
    }
}

/// Kinds of refusal. In JSON, each is a string in kebab-case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The message or request is malformed.
    BadRequest,
    /// The client speaks another version of the protocol.
    BadVersion,
    /// A DIF, an IPCP, a VM, a flow, a path or another named object does not exist.
    NotFound,
    /// No reachable system has registered the name of the remote application.
    UnknownName,
    /// The name is already in use.
    DuplicateName,
    /// An access rule forbids the request.
    AccessDenied,
    /// No DIF can meet the flow specification.
    SpecNotMet,
    /// The remote application, or its node, refused the flow.
    FlowDenied,
    /// The remote application or member did not answer in time.
    TimedOut,
    /// A link or DIF that the request needs is down.
    LinkDown,
    /// The request would exceed a limit of the node.
    LimitReached,
    /// The object is in use, or its state does not allow the request.
    Conflict,
    /// The configuration is invalid.
    BadConfig,
    /// The request is valid, but this system cannot fulfil it.
    Unsupported,
    /// The node failed; its log has the details.
    Internal,
    /// A refusal of a kind that this version of the crate does not know.
    #[serde(other)]
    Unknown,
}

impl ErrorCode {
    /// Whether a refusal of this kind will recur however often the request is repeated.
    const fn is_final(self) -> bool {
        matches!(
            self,
            Self::BadRequest
                | Self::BadVersion
                | Self::DuplicateName
                | Self::AccessDenied
                | Self::BadConfig
                | Self::Unsupported
        )
    }

    /// Returns the code as JSON writes it, in kebab-case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad-request",
            Self::BadVersion => "bad-version",
            Self::NotFound => "not-found",
            Self::UnknownName => "unknown-name",
            Self::DuplicateName => "duplicate-name",
            Self::AccessDenied => "access-denied",
            Self::SpecNotMet => "spec-not-met",
            Self::FlowDenied => "flow-denied",
            Self::TimedOut => "timed-out",
            Self::LinkDown => "link-down",
            Self::LimitReached => "limit-reached",
            Self::Conflict => "conflict",
            Self::BadConfig => "bad-config",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_text_is_the_json_text() {
        for code in [
            ErrorCode::BadRequest,
            ErrorCode::SpecNotMet,
            ErrorCode::Internal,
        ] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn refusals_that_stay_say_so() {
        let denied = ErrorBody::new(ErrorCode::AccessDenied, "m");
        assert_eq!(serde_json::to_value(&denied).unwrap()["final"], true);
        let down = ErrorBody::new(ErrorCode::LinkDown, "m");
        assert_eq!(serde_json::to_value(&down).unwrap().get("final"), None);
        let body: ErrorBody =
            serde_json::from_value(serde_json::to_value(down.for_good()).unwrap()).unwrap();
        assert!(body.is_final);
    }

    #[test]
    fn codes_of_a_later_version_are_still_errors() {
        let body: ErrorBody =
            serde_json::from_str(r#"{"code":"from-the-future","message":"m"}"#).unwrap();
        assert_eq!(body.code, ErrorCode::Unknown);
    }
}
