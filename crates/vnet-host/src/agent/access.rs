//! End users of an agent's networks.

use super::Agent;
use crate::access::{AccessReport, Revoked, TokenReport, TokenWanted};
use crate::error::Result;

impl Agent {
    /// Makes a token for a user of an access point.
    ///
    /// # Errors
    /// There is no such network, access point or user, or no such lease or address is possible.
    pub fn token(&self, name: &str, access: &str, wanted: &TokenWanted) -> Result<TokenReport> {
        self.network(name)?.vnet()?.access().token(access, wanted)
    }

    /// Takes back all tokens of a user of an access point, and cuts their system off.
    ///
    /// # Errors
    /// There is no such network, access point or user, or it cannot be kept.
    pub fn revoke(&self, name: &str, access: &str, user: &str) -> Result<Revoked> {
        self.network(name)?.vnet()?.access().revoke(access, user)
    }

    /// The access points of a network, with their users.
    ///
    /// # Errors
    /// There is no such network, or nothing of it is made yet.
    pub fn access(&self, name: &str) -> Result<Vec<AccessReport>> {
        Ok(self.network(name)?.vnet()?.access().reports())
    }
}
