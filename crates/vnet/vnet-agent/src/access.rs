//! Carries out operators' requests to access points on this host.

use carina_vnet::access::TokenWanted;
use carina_vnet_host::Agent;
use carina_vnet_roles::inside::Answer;
use carina_vnet_roles::inside::access::AtAccess;

use crate::error::Error;

/// Carries out a request to an access point on this host.
pub(crate) fn carry_out(
    agent: &Agent,
    name: &str,
    (access, user): (&str, &str),
    what: &AtAccess,
) -> Result<Answer, Error> {
    Ok(match what {
        AtAccess::Token { lease_s, rights } => {
            let wanted = TokenWanted {
                user: user.to_owned(),
                lease_s: *lease_s,
                at: Vec::new(),
                rights: rights.clone(),
            };
            Answer::Token(agent.token(name, access, &wanted)?)
        }
        AtAccess::Revoke {} => Answer::Revoked(agent.revoke(name, access, user)?),
    })
}
