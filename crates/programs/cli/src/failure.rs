//! Failures of commands, and the exit codes that report them.

use std::fmt;

use carina_api::ErrorBody;
use carina_api::control::ClientError;
use carina_client::Error;
use carina_gateway::GatewayError;
use carina_measure::figure::FigureError;
use carina_measure::transport::TransportError;
use carina_measure::trial::TrialError;
use carina_node::NodeError;
use carina_node::config::ConfigError;
#[cfg(feature = "vnet")]
use carina_vnet_roles::calling::connection::CallError;

/// Exit code of a command that was tried and failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// Exit code for a wrong command line; nothing was tried.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Exit code of a command that was refused for a lasting reason, so that a retry does not help. An
/// example is bad input that only the node, or the reader of a configuration, can recognise.
pub(crate) const EXIT_REFUSED: u8 = 3;
/// Exit code of a command that was interrupted, the same that a shell shows for a process ended by
/// SIGINT (2).
pub(crate) const EXIT_INTERRUPTED: u8 = 128 + 2;
/// Exit code of a command whose standard output was closed, the same that a shell shows for a
/// process ended by SIGPIPE (13).
pub(crate) const EXIT_UNREAD: u8 = 128 + 13;

/// Why a command failed: what was attempted, what is wrong, and what would be right.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong; nothing was tried.
    Usage(String),
    /// The command was tried and did not succeed.
    Failed(String),
    /// The command was refused for a lasting reason: a retry does not help.
    Refused(String),
    /// SIGINT or SIGTERM ended the command. What it began in other processes may continue.
    Interrupted(String),
    /// The reader of standard output closed it, as `head` does. No message is printed.
    Unread,
}

impl Failure {
    /// The exit code of the process for this failure.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Failed(_) => EXIT_FAILED,
            Self::Refused(_) => EXIT_REFUSED,
            Self::Interrupted(_) => EXIT_INTERRUPTED,
            Self::Unread => EXIT_UNREAD,
        }
    }

    /// The value of `code` in JSON output.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Failed(_) => "failed",
            Self::Refused(_) => "refused",
            Self::Interrupted(_) => "interrupted",
            Self::Unread => "unread",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::Failed(text)
            | Self::Refused(text)
            | Self::Interrupted(text) => f.write_str(text),
            Self::Unread => f.write_str("standard output was closed"),
        }
    }
}

/// A [`Failure::Failed`] with `text`: the command was tried and did not succeed.
pub(crate) fn failed(text: impl fmt::Display) -> Failure {
    Failure::Failed(text.to_string())
}

/// A [`Failure::Refused`] with `text`: the command was refused for a lasting reason, so that a
/// retry does not help.
pub(crate) fn refused(text: impl fmt::Display) -> Failure {
    Failure::Refused(text.to_string())
}

/// A [`Failure::Usage`] with `text`, which says what is wrong with the command line.
pub(crate) fn usage(text: impl fmt::Display) -> Failure {
    Failure::Usage(text.to_string())
}

/// Turns the error of a library into a [`Failure`] that says what the command attempted.
pub(crate) trait Attempt<T> {
    /// Turns an error into `Failure::Failed("{what}: {error chain}")`, or into [`Failure::Refused`]
    /// when the node reports a refusal for a lasting reason.
    fn attempt(self, what: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: std::error::Error + 'static> Attempt<T> for Result<T, E> {
    fn attempt(self, what: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::of(format!("{what}: {error}"), &error))
    }
}

impl Failure {
    /// A failure with `text`, which must already contain the text of `error`. The texts of the
    /// error's sources are appended, except those that `text` contains. The failure is
    /// [`Failure::Refused`] if `error` or one of its sources is a refusal for a lasting reason,
    /// otherwise [`Failure::Failed`].
    pub fn of(mut text: String, error: &(dyn std::error::Error + 'static)) -> Failure {
        let mut is_final = is_final_error(error);
        let mut source = error.source();
        while let Some(inner) = source {
            let inner_text = inner.to_string();
            // Many errors already print their source.
            if !text.contains(&inner_text) {
                text.push_str(": ");
                text.push_str(&inner_text);
            }
            is_final |= is_final_error(inner);
            source = inner.source();
        }
        if is_final {
            Failure::Refused(text)
        } else {
            Failure::Failed(text)
        }
    }
}

/// Implements `From` into [`Failure`] for errors of libraries whose own text says what was
/// attempted.
macro_rules! failures {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::of(error.to_string(), &error)
            }
        }
    )*};
}

failures!(
    TransportError,
    TrialError,
    FigureError,
    GatewayError,
    carina_ip::IpError,
    carina_vm::Error
);

/// Whether an error is a refusal of a node for a lasting reason, or a configuration that no node
/// can carry out.
fn is_final_error(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(ClientError::Refused { body, .. }) = error.downcast_ref() {
        return body.is_final;
    }
    #[cfg(feature = "vnet")]
    if let Some(error) = error.downcast_ref::<CallError>() {
        return error.is_final();
    }
    if let Some(body) = error.downcast_ref::<ErrorBody>() {
        return body.is_final;
    }
    if let Some(Error::Refused(body)) = error.downcast_ref() {
        return body.is_final;
    }
    if let Some(NodeError::Config { error: body, .. }) = error.downcast_ref() {
        return body.is_final;
    }
    matches!(
        error.downcast_ref(),
        Some(ConfigError::Parse { .. } | ConfigError::Meaning { .. })
    )
}

/// The result of every command.
pub(crate) type Outcome = Result<(), Failure>;

#[cfg(test)]
mod tests {
    use carina_api::ErrorCode;

    use super::*;

    #[test]
    fn source_that_an_error_prints_is_not_printed_twice() {
        #[derive(Debug, thiserror::Error)]
        #[error("no node answers: {source}; start one")]
        struct Silent {
            source: std::io::Error,
        }
        let source = std::io::Error::other("gone");
        let silent: Result<(), Silent> = Err(Silent { source });
        let message = silent.attempt("listing DIFs").unwrap_err().to_string();
        assert_eq!(message, "listing DIFs: no node answers: gone; start one");
    }

    #[test]
    fn final_refusals_have_an_exit_code_of_their_own() {
        let refusal =
            |code| -> Result<(), Error> { Err(Error::Refused(ErrorBody::new(code, "m"))) };
        let code = |code| refusal(code).attempt("x").unwrap_err().code();
        assert_eq!(code(ErrorCode::LinkDown), EXIT_FAILED);
        assert_eq!(code(ErrorCode::AccessDenied), EXIT_REFUSED);
        let wrapped = ErrorBody::new(ErrorCode::LinkDown, "m").for_good();
        let wrapped: Result<(), Error> = Err(Error::Refused(wrapped));
        assert_eq!(wrapped.attempt("x").unwrap_err().code(), EXIT_REFUSED);
    }

    #[test]
    fn wrong_configuration_is_refused_unreadable_one_fails() {
        let code = |error: ConfigError| Err::<(), _>(error).attempt("x").unwrap_err().code();
        let wrong = |text| carina_node::config::Config::parse(text, None).unwrap_err();
        assert_eq!(code(wrong("hop = 1")), EXIT_REFUSED);
        let unread = carina_node::config::Config::load("/nonexistent/c.toml".as_ref());
        assert_eq!(code(unread.unwrap_err()), EXIT_FAILED);
        let config = |code| NodeError::Config {
            path: None,
            error: ErrorBody::new(code, "m"),
        };
        let code = |error: NodeError| Err::<(), _>(error).attempt("x").unwrap_err().code();
        assert_eq!(code(config(ErrorCode::BadRequest)), EXIT_REFUSED);
        assert_eq!(code(config(ErrorCode::LimitReached)), EXIT_FAILED);
    }
}
