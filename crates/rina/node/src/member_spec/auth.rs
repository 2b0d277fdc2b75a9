//! Authentication of members: the key `auth` of a configuration.
//!
//! Its value is `none`, `password:FILE`, or `ed25519:KEYFILE,ALLOWEDFILE`: the private key of this
//! member, and the public keys of the members that it accepts.

use std::path::Path;
use std::sync::Arc;

use carina_ipcp::PolicySpec;
use carina_protect::{Credentials, Secret, key};

use super::error::MemberSpecError;

/// The authentication policy that `auth` selects, without this member's credentials.
///
/// # Errors
/// The text has none of the valid forms.
pub(super) fn policy(auth: Option<&str>) -> Result<Option<PolicySpec>, MemberSpecError> {
    let Some(text) = auth else { return Ok(None) };
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let is_right = match kind {
        "none" => rest.is_empty(),
        "password" | "ed25519" => !rest.is_empty(),
        _ => false,
    };
    if !is_right {
        return Err(MemberSpecError::Auth(text.to_owned()));
    }
    Ok(Some(PolicySpec {
        name: kind.to_owned(),
        ..PolicySpec::default()
    }))
}

/// Reads the credentials that `auth` names. Also returns the policy.
///
/// # Errors
/// The text has none of the valid forms, or a file cannot be used.
pub(crate) fn load(
    auth: Option<&str>,
) -> Result<(Option<PolicySpec>, Credentials), MemberSpecError> {
    let policy = policy(auth)?;
    let mut credentials = Credentials::default();
    let (kind, rest) = auth
        .and_then(|text| text.split_once(':'))
        .unwrap_or_default();
    match kind {
        "password" => {
            let text = std::fs::read_to_string(rest).map_err(|error| {
                let file = rest.to_owned();
                MemberSpecError::PasswordFile { file, error }
            })?;
            let password = text.trim_end_matches(['\r', '\n']);
            if password.is_empty() {
                return Err(MemberSpecError::EmptyPassword(rest.to_owned()));
            }
            credentials.password = Some(Secret::new(password));
        }
        "ed25519" => {
            let (own, allowed) = rest.split_once(',').unwrap_or((rest, ""));
            let identity = key::load(Path::new(own))?;
            credentials.identity = Some(Arc::new(identity));
            if !allowed.is_empty() {
                credentials.allowed = key::Allowed::load(Path::new(allowed))?;
            }
        }
        _ => {}
    }
    Ok((policy, credentials))
}
