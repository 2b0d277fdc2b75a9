//! The error codes with which the server answers errors of an agent.

use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::host_part::LimitError;
use carina_vnet_access::register::RegisterError;
use carina_vnet_images::ImageError;

use crate::error::Error;

impl From<Error> for ErrorBody {
    fn from(error: Error) -> ErrorBody {
        let code = match &error {
            Error::NoVnet { .. }
            | Error::NoNode { .. }
            | Error::NoLink { .. }
            | Error::NoInterface { .. }
            | Error::Image(ImageError::Unknown { .. }) => ErrorCode::NotFound,
            Error::Access(RegisterError::NoUser { .. }) | Error::NoAccess { .. } => {
                ErrorCode::NotFound
            }
            Error::Access(RegisterError::Lease(_) | RegisterError::Addresses(_))
            | Error::NoAddress
            | Error::Impairment(_)
            | Error::Saved(_) => ErrorCode::BadRequest,
            Error::Exists(_) => ErrorCode::DuplicateName,
            Error::Limit(LimitError::NoImage { .. }) => ErrorCode::NotFound,
            Error::Limit(LimitError::MemberMemory { .. } | LimitError::Interfaces { .. })
            | Error::NotAdmitted { .. } => ErrorCode::LimitReached,
            Error::Limit(_) => ErrorCode::Unsupported,
            Error::Ending
            | Error::NotMade(_)
            | Error::NodeStopped(_)
            | Error::Cancelled
            | Error::OfProvider(_)
            | Error::Taken(_) => ErrorCode::Conflict,
            Error::Unsupported { .. } | Error::Access(RegisterError::NoDif { .. }) => {
                ErrorCode::Unsupported
            }
            Error::Timeout { .. } | Error::Image(ImageError::Locked { .. }) => ErrorCode::TimedOut,
            _ => ErrorCode::Internal,
        };
        let body = ErrorBody::new(code, error.to_string());
        match error {
            // If repeated, the request fails again until something else is removed.
            Error::NotAdmitted { .. } | Error::Saved(_) => body.for_good(),
            error if error.is_final() => body.for_good(),
            _ => body,
        }
    }
}

#[cfg(test)]
mod tests {
    use carina_vnet_web::answers::refusal;

    use super::*;

    #[test]
    fn what_fails_again_until_something_else_changes_is_final() {
        let is_final = |error: Error| ErrorBody::from(error).is_final;
        let (name, known) = ("x".to_owned(), "carina".to_owned());
        assert!(is_final(ImageError::Unknown { name, known }.into()));
        let exists = crate::saved::SavedError::Exists("/x".into());
        assert!(is_final(exists.into()));
        assert!(!is_final(Error::NotMade("x".to_owned())) && !is_final(Error::Ending));
    }

    #[test]
    fn refusals_that_stay_are_final() {
        let body = ErrorBody::from(Error::NotAdmitted {
            vnet: "x".into(),
            reason: "no room".into(),
        });
        assert!(body.is_final);
        assert_eq!(
            refusal(&body).status(),
            axum::http::StatusCode::UNPROCESSABLE_ENTITY
        );
        let image = LimitError::NoImage {
            node: "a".into(),
            image: "x".into(),
            known: "carina".into(),
        };
        let body = ErrorBody::from(Error::from(image));
        assert!(body.is_final && body.code == ErrorCode::NotFound);
        let body = ErrorBody::from(Error::NotMade("x".into()));
        assert!(!body.is_final);
    }
}
