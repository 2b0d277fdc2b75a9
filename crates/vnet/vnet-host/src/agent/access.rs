//! Access points of an agent's networks.

use std::sync::PoisonError;

use super::Agent;
use crate::error::Result;
use carina_vnet::access::{AccessReport, AtAddress, Revoked, TokenReport, TokenWanted};

impl Agent {
    /// Sets the addresses at which end users reach this host. Tokens that name no addresses get
    /// these, or the host's own if the list is empty.
    pub fn meet_users_at(&self, addresses: &[AtAddress]) {
        let mut users_at = self.users_at.lock().unwrap_or_else(PoisonError::into_inner);
        *users_at = addresses.to_vec();
    }

    /// Makes a token for a user of an access point.
    ///
    /// # Errors
    /// There is no such network, access point or user, or the lease or address is invalid.
    pub fn token(&self, name: &str, access: &str, wanted: &TokenWanted) -> Result<TokenReport> {
        let vnet = self.network(name)?.vnet()?;
        if !wanted.at.is_empty() {
            return vnet.access().token(access, wanted);
        }
        let users_at = self.users_at.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = TokenWanted {
            at: users_at.clone(),
            ..wanted.clone()
        };
        drop(users_at);
        vnet.access().token(access, &wanted)
    }

    /// Revokes all tokens of a user of an access point, and disconnects the user's system.
    ///
    /// # Errors
    /// There is no such network, access point or user, or the register cannot be written.
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
