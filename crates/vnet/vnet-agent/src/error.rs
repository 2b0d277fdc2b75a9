//! Why a request is not carried out.

use carina_vnet_roles::inside::tenants::Full;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The host cannot carry out the request.
    #[error(transparent)]
    Host(#[from] carina_vnet_host::Error),
    /// A party already has as many of something as it may have.
    #[error(transparent)]
    Full(#[from] Full),
}

impl Error {
    /// The error for a request to a thing that has ended.
    pub(crate) fn ended(what: &'static str) -> Error {
        Error::Host(carina_vnet_host::Error::Ended(what))
    }

    /// The system refused `what`.
    pub(crate) fn system(what: &str, source: std::io::Error) -> Error {
        let what = what.to_owned();
        Error::Host(carina_vnet_host::Error::System { what, source })
    }
}
