//! How members prove who they are: what `auth` in a configuration means.
//!
//! `none`, `password:FILE`, or `ed25519:KEYFILE,ALLOWEDFILE` with this member's private key and the
//! public keys of those that it talks to.

use std::path::Path;
use std::sync::Arc;

use carina_ipcp::PolicySpec;
use carina_protect::{Credentials, Secret, key};

/// Reads the credentials that `auth` names; the policy is what all members share of it.
///
/// # Errors
/// The text is none of the above, or a file is no good.
pub(super) fn load(auth: Option<&str>) -> Result<(Option<PolicySpec>, Credentials), String> {
    let mut credentials = Credentials::default();
    let (kind, rest) = match auth {
        None => return Ok((None, credentials)),
        Some(text) => text.split_once(':').unwrap_or((text, "")),
    };
    match kind {
        "none" if rest.is_empty() => {}
        "password" if !rest.is_empty() => {
            let text = std::fs::read_to_string(rest)
                .map_err(|error| format!("password file {rest}: {error}"))?;
            let password = text.trim_end_matches(['\r', '\n']);
            if password.is_empty() {
                return Err(format!("password file {rest} is empty"));
            }
            credentials.password = Some(Secret::new(password));
        }
        "ed25519" if !rest.is_empty() => {
            let (own, allowed) = rest.split_once(',').unwrap_or((rest, ""));
            let identity = key::load(Path::new(own)).map_err(|error| error.to_string())?;
            credentials.identity = Some(Arc::new(identity));
            if !allowed.is_empty() {
                credentials.allowed =
                    key::Allowed::load(Path::new(allowed)).map_err(|error| error.to_string())?;
            }
        }
        _ => {
            return Err(format!(
                "auth = {:?}; it is none, password:FILE or ed25519:KEYFILE,ALLOWEDFILE",
                auth.unwrap_or_default()
            ));
        }
    }
    let policy = PolicySpec {
        name: kind.to_owned(),
        ..PolicySpec::default()
    };
    Ok((Some(policy), credentials))
}
