//! What each user of this system uses of the node, checked against the limits of the configuration.

use std::collections::BTreeMap;

use carina_api::{ErrorBody, ErrorCode};
use thiserror::Error;

use crate::config::Limits;

/// Connections, flows and ring memory by user.
#[derive(Debug, Default)]
pub(crate) struct Users {
    usage: BTreeMap<u32, Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    connections: u32,
    flows: u32,
    ring_bytes: u64,
}

/// A limit of the configuration that a user has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LimitError {
    #[error("user {uid} has {connections} connections; that is the limit")]
    Connections { uid: u32, connections: u32 },
    #[error("user {uid} has {flows} flows; that is the limit")]
    Flows { uid: u32, flows: u32 },
    #[error("the rings of user {uid} would have {bytes} bytes; {limit} is the limit")]
    RingBytes { uid: u32, bytes: u64, limit: u64 },
}

impl From<LimitError> for ErrorBody {
    fn from(error: LimitError) -> ErrorBody {
        ErrorBody::new(ErrorCode::LimitReached, error.to_string())
    }
}

impl Users {
    /// Checks that the user may open one more connection.
    ///
    /// # Errors
    /// [`LimitError::Connections`].
    pub(crate) fn check_connections(&self, uid: u32, limits: &Limits) -> Result<(), LimitError> {
        let connections = self.usage.get(&uid).map_or(0, |usage| usage.connections);
        if connections >= limits.connections_per_uid {
            return Err(LimitError::Connections { uid, connections });
        }
        Ok(())
    }

    /// Counts a connection of the user.
    pub(crate) fn connect(&mut self, uid: u32) {
        self.usage.entry(uid).or_default().connections += 1;
    }

    /// Removes a connection from the user's count.
    pub(crate) fn disconnect(&mut self, uid: u32) {
        if let Some(usage) = self.usage.get_mut(&uid) {
            usage.connections = usage.connections.saturating_sub(1);
            self.forget_idle(uid);
        }
    }

    /// Charges a user for a flow and its rings.
    ///
    /// # Errors
    /// The limit that is reached; then nothing is charged.
    pub(crate) fn charge(
        &mut self,
        uid: u32,
        ring_bytes: u64,
        limits: &Limits,
    ) -> Result<(), LimitError> {
        let flows = self.usage.get(&uid).map_or(0, |usage| usage.flows);
        if flows >= limits.flows_per_uid {
            return Err(LimitError::Flows { uid, flows });
        }
        self.charge_bytes(uid, ring_bytes, limits)?;
        self.usage.entry(uid).or_default().flows += 1;
        Ok(())
    }

    /// Charges a user for the rings of a flow that is already counted.
    ///
    /// # Errors
    /// [`LimitError::RingBytes`]; then nothing is charged.
    pub(crate) fn charge_bytes(
        &mut self,
        uid: u32,
        ring_bytes: u64,
        limits: &Limits,
    ) -> Result<(), LimitError> {
        let limit = limits.ring_bytes_per_uid;
        let usage = self.usage.entry(uid).or_default();
        let bytes = usage.ring_bytes.saturating_add(ring_bytes);
        if bytes > limit {
            return Err(LimitError::RingBytes { uid, bytes, limit });
        }
        usage.ring_bytes = bytes;
        Ok(())
    }

    /// Releases what a user was charged for a flow and its rings.
    pub(crate) fn discharge(&mut self, uid: u32, ring_bytes: u64) {
        if let Some(usage) = self.usage.get_mut(&uid) {
            usage.flows = usage.flows.saturating_sub(1);
            usage.ring_bytes = usage.ring_bytes.saturating_sub(ring_bytes);
            self.forget_idle(uid);
        }
    }

    fn forget_idle(&mut self, uid: u32) {
        let is_idle = |usage: &Usage| usage.connections == 0 && usage.flows == 0;
        if self.usage.get(&uid).is_some_and(is_idle) {
            self.usage.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_charge_changes_nothing() {
        let limits = Limits {
            flows_per_uid: 1,
            ring_bytes_per_uid: 100,
            ..Limits::default()
        };
        let mut users = Users::default();
        let refused = users.charge(7, 101, &limits).unwrap_err();
        assert!(matches!(refused, LimitError::RingBytes { bytes: 101, .. }));
        users.charge(7, 100, &limits).unwrap();
        let refused = users.charge(7, 0, &limits).unwrap_err();
        assert_eq!(refused, LimitError::Flows { uid: 7, flows: 1 });
        users.discharge(7, 100);
        assert!(users.usage.is_empty());
    }
}
