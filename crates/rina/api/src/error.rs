//! The error that crosses both sockets: a code for programs, a sentence for people.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A refusal as it crosses `ipc.sock` and `control.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct ErrorBody {
    /// The kind of refusal.
    pub code: ErrorCode,
    /// What happened, where, and what would be right.
    pub message: String,
    /// The same request fails again until its cause is corrected.
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
}

impl ErrorBody {
    /// Makes an error from its code and its sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            is_final: code.is_final(),
        }
    }

    /// The same, and asking again is of no use.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self {
            is_final: true,
            ..self
        }
    }
}

/// Kinds of refusal. In JSON a kebab-case string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The message could not be understood.
    BadRequest,
    /// The peer speaks another version of the protocol.
    BadVersion,
    /// A name, a DIF, an IPCP, a VM, a flow or a path that does not exist.
    NotFound,
    /// The name of the remote application is registered nowhere that can be reached.
    UnknownName,
    /// The name is taken.
    DuplicateName,
    /// An access rule forbids it.
    AccessDenied,
    /// No DIF can meet the flow specification.
    SpecNotMet,
    /// The remote application, or its system, said no.
    FlowDenied,
    /// The remote did not answer in time.
    TimedOut,
    /// The link or DIF needed is down.
    LinkDown,
    /// A limit of the node is reached.
    LimitReached,
    /// The thing is in use or in a state that does not allow it.
    Conflict,
    /// The configuration is wrong.
    BadConfig,
    /// The request is understood but this system cannot do it.
    Unsupported,
    /// The node failed; its log says more.
    Internal,
    /// A code that this version does not know.
    #[serde(other)]
    Unknown,
}

impl ErrorCode {
    /// Whether a refusal of this kind stays however often one asks.
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

    /// The code as it stands in JSON.
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
