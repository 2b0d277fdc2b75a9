//! A client of a PIP, for its operator.

use std::time::Duration;

use carina_api::control::escape;
use carina_vnet::report::MigrationReport;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Answer;
use crate::calling::address::Address;
use crate::calling::connection::{CallError, Callee, Request};
use crate::identity::{Identity, Role};
use crate::keys::{KeyDir, KeyError, Tls};
use crate::serving::drains::{DrainReport, DrainRequest};
use crate::serving::moves::MoveRequest;

/// A client of a PIP, for its operator.
#[derive(Debug)]
pub struct PipClient {
    callee: Callee,
}

impl PipClient {
    /// A client with the only operator's certificate in a directory, for the PIP of the same name.
    ///
    /// # Errors
    /// There is no such certificate, or there are several.
    pub fn new(keys: &KeyDir, address: Address) -> Result<PipClient, KeyError> {
        let operator = keys.only(Role::Operator)?;
        let tls = Tls::of(keys, &operator)?;
        let party = Identity {
            role: Role::Pip,
            name: operator.name,
        };
        let callee = Callee {
            party,
            address,
            tls,
        };
        Ok(PipClient { callee })
    }

    /// Moves a node to another host of the PIP, and waits until it has moved.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn migrate(&self, request: &MoveRequest) -> Answer<MigrationReport> {
        let body = text_of(request);
        let body = self.ask("POST", "/v1/moves", &body, request.limit_ms)?;
        self.read(&body)
    }

    /// Drains a host: it gets no new nodes, and all its nodes move to other hosts. Waits until they
    /// have moved or cannot.
    ///
    /// # Errors
    /// [`CallError`]; also if a node cannot leave, in which case none is moved.
    pub fn drain(&self, host: &str, request: &DrainRequest) -> Answer<DrainReport> {
        let body = text_of(request);
        let body = self.ask("PUT", &drain_of(host), &body, request.limit_ms)?;
        self.read(&body)
    }

    /// Ends the draining of a host, so that it gets nodes again.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn undrain(&self, host: &str) -> Answer<()> {
        self.ask("DELETE", &drain_of(host), "", 0).map(drop)
    }

    fn ask(&self, method: &str, target: &str, body: &str, limit_ms: u64) -> Answer<Vec<u8>> {
        let mut connection = self.callee.connect()?;
        let wait = Duration::from_millis(limit_ms.saturating_mul(2)) + MARGIN;
        let request = Request {
            method,
            target,
            body,
            wait,
        };
        self.callee.request(&mut connection, &request)
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Answer<T> {
        serde_json::from_slice(body).map_err(|error| CallError::Answer {
            callee: self.callee.party.clone(),
            what: error.to_string(),
        })
    }
}

fn text_of(request: &impl Serialize) -> String {
    serde_json::to_string(request).expect("it has no keys but texts and numbers")
}

fn drain_of(host: &str) -> String {
    format!("/v1/hosts/{}/drain", escape(host))
}

/// Time that a move may take in addition to the transfer of the guest.
const MARGIN: Duration = Duration::from_secs(90);
