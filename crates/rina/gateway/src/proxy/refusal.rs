//! Why a connection that a client asks for is not made.

use carina_api::ErrorCode;
use carina_client::Error;
use rustix::io::Errno;

use crate::dial::words;
use crate::proxy::socks;

/// Why the proxy does not make a connection, for its answer to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub cause: Cause,
    pub text: String,
}

/// The kind of a refusal, which selects the code of the answer in SOCKS and in HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The rules of the proxy do not allow the destination.
    OutsideRules,
    /// The node's access rules or the operating system forbid the connection.
    Forbidden,
    /// The name is unknown, or the host cannot be reached.
    Unreachable,
    /// The network cannot be reached: no node runs, or a link is down.
    NetworkDown,
    /// No application is registered under the name, or the server refuses.
    Refused,
    /// The node or the server did not answer in time.
    TimedOut,
    /// There are too many connections, or the node's limit of flows is reached.
    Busy,
}

impl Refusal {
    pub(crate) fn new(cause: Cause, text: impl Into<String>) -> Refusal {
        let text = text.into();
        Refusal { cause, text }
    }

    /// Converts the error with which the node refused a flow.
    pub(crate) fn of_node(error: &Error) -> Refusal {
        let cause = match error {
            Error::Refused(body) => match body.code {
                ErrorCode::TimedOut => Cause::TimedOut,
                ErrorCode::LinkDown => Cause::NetworkDown,
                ErrorCode::AccessDenied => Cause::Forbidden,
                ErrorCode::NotFound | ErrorCode::SpecNotMet => Cause::Unreachable,
                ErrorCode::LimitReached => Cause::Busy,
                _ => Cause::Refused,
            },
            Error::NoNode { .. } | Error::NodeGone => Cause::NetworkDown,
            Error::NoAnswer { .. } => Cause::TimedOut,
            _ => Cause::Refused,
        };
        Refusal::new(cause, error.to_string())
    }

    /// Converts the error with which a TCP connection failed.
    pub(crate) fn of_system(error: Errno) -> Refusal {
        let cause = match error {
            Errno::NETUNREACH => Cause::NetworkDown,
            Errno::HOSTUNREACH => Cause::Unreachable,
            Errno::TIMEDOUT => Cause::TimedOut,
            Errno::ACCESS | Errno::PERM => Cause::Forbidden,
            Errno::MFILE | Errno::NFILE => Cause::Busy,
            _ => Cause::Refused,
        };
        Refusal::new(cause, words(error))
    }

    /// The code with which a SOCKS reply reports this refusal (RFC 1928 §6).
    pub(crate) fn socks_code(&self) -> u8 {
        match self.cause {
            Cause::OutsideRules | Cause::Forbidden => socks::NOT_ALLOWED,
            Cause::NetworkDown => socks::NETWORK_UNREACHABLE,
            Cause::Unreachable | Cause::TimedOut => socks::HOST_UNREACHABLE,
            Cause::Refused => socks::CONNECTION_REFUSED,
            Cause::Busy => socks::GENERAL_FAILURE,
        }
    }

    /// The HTTP status code that reports this refusal, and its reason phrase (RFC 9110 §15).
    pub(crate) fn http_status(&self) -> (u16, &'static str) {
        match self.cause {
            Cause::OutsideRules | Cause::Forbidden => (403, "Forbidden"),
            Cause::TimedOut => (504, "Gateway Timeout"),
            Cause::Busy => (503, "Service Unavailable"),
            Cause::NetworkDown | Cause::Unreachable | Cause::Refused => (502, "Bad Gateway"),
        }
    }
}
