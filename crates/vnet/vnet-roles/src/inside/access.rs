//! Requests to access points, where end users join.
//!
//! An answer contains what a user needs to reach the access point, and nothing else of the host:
//! addresses that its provider has configured (`carina vnet agent --users-at`), a port and a key.

use std::collections::BTreeSet;

use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::access::Right;
use carina_vnet::document::{Attach, Document};
use serde::{Deserialize, Serialize};

use super::NodeRequest;

/// A request to an access point that concerns one user: make a token, or revoke the user's tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum AtAccess {
    /// Make a token for the user.
    Token {
        /// Seconds from now for which the token is valid.
        lease_s: u64,
        /// The rights that the token grants; the right to IP if the set is empty.
        #[serde(default)]
        rights: BTreeSet<Right>,
    },
    /// Revoke all tokens, and disconnect the user's system.
    Revoke {},
}

impl AtAccess {
    pub(super) fn deed(&self, access: &str, user: &str) -> String {
        let [access, user] =
            [access, user].map(|name| name.chars().take(NOTED).collect::<String>());
        match self {
            AtAccess::Token { lease_s, .. } => {
                format!("lets {user} in at access point {access} for {lease_s} s")
            }
            AtAccess::Revoke {} => format!("cuts {user} off at access point {access}"),
        }
    }
}

impl NodeRequest {
    /// Fills in the node of the access point from the network's document. Does nothing to other
    /// requests.
    ///
    /// # Errors
    /// The document has no such access point, or its users join without tokens.
    pub fn find_access(&mut self, document: &Document) -> Result<(), ErrorBody> {
        let NodeRequest::Access { node, access, .. } = self else {
            return Ok(());
        };
        let refusal = |code, what: String| Err(ErrorBody::new(code, what));
        match document.access.get(access) {
            Some(point) if point.attach == Attach::Tunnel => {
                node.clone_from(&point.node);
                Ok(())
            }
            Some(_) => {
                let what = format!(
                    "the network is extended to the users of access point {access}: each is a node \
                     of it, and needs no token"
                );
                refusal(ErrorCode::Conflict, what)
            }
            None => {
                let known: Vec<&str> = document.access.keys().map(String::as_str).collect();
                let known = if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                };
                let access: String = access.chars().take(NOTED).collect();
                let what = format!("the network has no access point {access}; it has: {known}");
                refusal(ErrorCode::NotFound, what)
            }
        }
    }
}

/// Largest number of characters of a name in an error.
const NOTED: usize = 64;

#[cfg(test)]
mod tests {
    use carina_vnet::document::Form;

    use super::*;

    #[test]
    fn access_point_is_found_in_the_document() {
        let text = "[vnet]\nname = \"x\"\n[node.r1]\n[access.home]\nnode = \"r1\"\n\
                    users = [\"alice\"]\n[access.far]\nnode = \"r1\"\nattach = \"extend\"\n\
                    users = [\"carol\"]\nrate = \"1Mbps\"\n";
        let document = Document::read(text, Form::Toml).unwrap();
        let find = |access: &str| {
            let mut ask = NodeRequest::Access {
                node: "elsewhere".to_owned(),
                access: access.to_owned(),
                user: "alice".to_owned(),
                what: AtAccess::Revoke {},
            };
            ask.find_access(&document).map(|()| ask)
        };
        assert_eq!(find("home").unwrap().node(), Some("r1"));
        for (access, words) in [("far", "needs no token"), ("z", "it has: far, home")] {
            let refusal = find(access).unwrap_err().to_string();
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
