//! Errors as operators see them: without anything of the host, whose details only its log has.

use carina_api::{ErrorBody, ErrorCode};
use carina_vnet_access::register::RegisterError;
use carina_vnet_host::Error as HostError;

use crate::error::Error;

/// The part of an error that operators may see, without anything of the host.
pub(crate) fn safe(error: &Error) -> ErrorBody {
    match error {
        Error::Host(error) => safe_of_host(error),
        Error::Full(full) => ErrorBody::new(ErrorCode::LimitReached, full.to_string()),
    }
}

fn safe_of_host(error: &HostError) -> ErrorBody {
    let (code, what) = match error {
        HostError::NoNode { node, .. } => (
            ErrorCode::NotFound,
            format!("the network has no node {node}, or the node is not created yet"),
        ),
        HostError::NoInterface { .. } => (ErrorCode::NotFound, error.to_string()),
        HostError::NoLink { link, .. } => (
            ErrorCode::NotFound,
            format!("the network has no link {link}"),
        ),
        HostError::Impairment(_) => (ErrorCode::BadRequest, error.to_string()),
        HostError::NoVnet { .. } | HostError::NotMade(_) => (
            ErrorCode::Conflict,
            "the node is not created yet".to_owned(),
        ),
        HostError::NodeStopped(node) => (
            ErrorCode::Conflict,
            format!("node {node} is stopped; `carina vnet start {node}` starts it"),
        ),
        HostError::Cancelled => (
            ErrorCode::Conflict,
            "the network is being removed".to_owned(),
        ),
        HostError::Timeout { limit, .. } => (
            ErrorCode::TimedOut,
            format!("the node did not answer within {} s", limit.as_secs_f32()),
        ),
        HostError::Unsupported { instead, .. } => (
            ErrorCode::Unsupported,
            format!("the request is not possible here: {instead}"),
        ),
        HostError::NoAccess { access, .. } => (
            ErrorCode::NotFound,
            format!("access point {access} is not created yet"),
        ),
        HostError::Access(error @ (RegisterError::NoUser { .. } | RegisterError::Lease(_))) => {
            (ErrorCode::NotFound, error.to_string())
        }
        HostError::Access(error @ RegisterError::NoDif { .. }) => {
            (ErrorCode::Unsupported, error.to_string())
        }
        HostError::NoAddress => (
            ErrorCode::Unsupported,
            "the provider has configured no address at which users reach the access point"
                .to_owned(),
        ),
        HostError::Ended(what) => (ErrorCode::Conflict, format!("{what} has ended")),
        _ => (
            ErrorCode::Internal,
            "the request failed; the provider's log has the reason".to_owned(),
        ),
    };
    ErrorBody::new(code, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_host_stay_with_it() {
        let error = HostError::System {
            what: "opening /run/netns/cv-1-a at 10.9.0.1".into(),
            source: std::io::Error::other("on host h1"),
        };
        let message = safe_of_host(&error).message;
        assert!(
            !message.contains("cv-") && !message.contains("h1"),
            "{message}"
        );
        let error = HostError::NoNode {
            vnet: "@12".into(),
            node: "a".into(),
            known: "b".into(),
        };
        assert!(safe_of_host(&error).message.contains("no node a"));
    }
}
