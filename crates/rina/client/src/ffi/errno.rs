//! Maps errors of this library to `errno` values.

use carina_api::ErrorCode;
use rustix::io::Errno;

use crate::error::Error;

/// The value for an error of a registration, of an accepted request, or of the connection to the
/// node.
pub(super) fn of_error(error: &Error) -> Errno {
    match error {
        Error::NoNode { .. } => Errno::NXIO,
        Error::Refused(body) => match body.code {
            ErrorCode::DuplicateName | ErrorCode::Conflict => Errno::BUSY,
            ErrorCode::NotFound | ErrorCode::LinkDown => Errno::NXIO,
            ErrorCode::BadRequest | ErrorCode::BadVersion => Errno::INVAL,
            ErrorCode::LimitReached => Errno::NOSPC,
            _ => Errno::PERM,
        },
        Error::NodeGone | Error::Closed | Error::FlowFailed { .. } => Errno::CONNRESET,
        Error::NoAnswer { .. } => Errno::TIMEDOUT,
        Error::SduTooLarge { .. } => Errno::MSGSIZE,
        Error::Unfinished { .. } => Errno::INVAL,
        Error::Protocol(_) => Errno::PROTO,
        Error::System { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
    }
}

/// The value for an error of an allocation. Every refusal is `EPERM`.
pub(super) fn of_allocation(error: &Error) -> Errno {
    match error {
        Error::Refused(_) => Errno::PERM,
        other => of_error(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carina_api::ErrorBody;

    #[test]
    fn taken_name_is_busy_and_refused_flow_is_not_permitted() {
        let taken = Error::Refused(ErrorBody::new(ErrorCode::DuplicateName, "taken"));
        assert_eq!(of_error(&taken), Errno::BUSY);
        let unknown = Error::Refused(ErrorBody::new(ErrorCode::UnknownName, "nobody"));
        assert_eq!(of_allocation(&unknown), Errno::PERM);
        assert_eq!(of_allocation(&Error::NodeGone), Errno::CONNRESET);
    }
}
