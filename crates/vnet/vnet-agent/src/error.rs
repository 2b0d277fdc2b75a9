//! Why an ask is not carried out.

use carina_vnet_roles::inside::tenants::Full;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The host.
    #[error(transparent)]
    Host(#[from] carina_vnet_host::Error),
    /// Someone has as much of something at a time as they may have.
    #[error(transparent)]
    Full(#[from] Full),
}

impl Error {
    /// Something has ended that is asked for.
    pub(crate) fn ended(what: &'static str) -> Error {
        Error::Host(carina_vnet_host::Error::Ended(what))
    }

    /// The system refused `what`.
    pub(crate) fn system(what: &str, source: std::io::Error) -> Error {
        let what = what.to_owned();
        Error::Host(carina_vnet_host::Error::System { what, source })
    }
}
