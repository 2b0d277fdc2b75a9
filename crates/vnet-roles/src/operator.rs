//! A client of a VNO, for its operators.

use std::time::Duration;

use carina_vnet::document::{Document, Form};
use carina_vnet::vno::Seen;
use carina_vnet_host::progress::Event;
use serde::de::DeserializeOwned;

use crate::calling::address::Address;
use crate::calling::connection::{CallError, Callee, Request};
use crate::identity::{Identity, Role};
use crate::keys::{KeyDir, KeyError, Tls};

/// A client of one VNO.
#[derive(Debug)]
pub struct Client {
    callee: Callee,
}

/// A result of a request.
pub type Answer<T> = Result<T, CallError>;

impl Client {
    /// A client with the only operator's certificate in a directory, of the VNO of its name.
    ///
    /// # Errors
    /// There is no such certificate, or several.
    pub fn new(keys: &KeyDir, address: Address) -> Result<Client, KeyError> {
        let operator = keys.only(Role::Operator)?;
        let tls = Tls::of(keys, &operator)?;
        Ok(Client {
            callee: Callee {
                party: Identity {
                    role: Role::Vno,
                    name: operator.name,
                },
                address,
                tls,
            },
        })
    }

    /// All networks, by name.
    ///
    /// # Errors
    /// [`CallError`], as of every call below.
    pub fn list(&self) -> Answer<Vec<Seen>> {
        self.get("/v1/vnets", Duration::ZERO)
    }

    /// Wants a new network.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn create(&self, document: &Document) -> Answer<Seen> {
        self.send("POST", "/v1/vnets", &document.write(Form::Json))
    }

    /// Wants a network to change.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn apply(&self, document: &Document) -> Answer<Seen> {
        self.send("PUT", "/v1/vnets", &document.write(Form::Json))
    }

    /// One network.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn seen(&self, name: &str) -> Answer<Seen> {
        self.get(&path_of(name, ""), Duration::ZERO)
    }

    /// What is wanted of a network.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn document(&self, name: &str) -> Answer<Document> {
        self.get(&path_of(name, "/document"), Duration::ZERO)
    }

    /// What happened to a network after an event, at the latest after `wait`.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn events(&self, name: &str, since: u64, wait: Duration) -> Answer<Vec<Event>> {
        let query = format!("/events?since={since}&wait_ms={}", wait.as_millis());
        self.get(&path_of(name, &query), wait)
    }

    /// Wants a network no longer. It is gone when [`Client::seen`] does not find it.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn remove(&self, name: &str) -> Answer<()> {
        self.send("DELETE", &path_of(name, ""), "")
    }

    fn get<T: DeserializeOwned>(&self, target: &str, wait: Duration) -> Answer<T> {
        self.call(&Request {
            method: "GET",
            target,
            body: "",
            wait,
        })
    }

    fn send<T: DeserializeOwned>(&self, method: &str, target: &str, body: &str) -> Answer<T> {
        self.call(&Request {
            method,
            target,
            body,
            wait: Duration::ZERO,
        })
    }

    fn call<T: DeserializeOwned>(&self, request: &Request<'_>) -> Answer<T> {
        let mut connection = self.callee.connect()?;
        let body = self.callee.request(&mut connection, request)?;
        serde_json::from_slice(&body).map_err(|error| CallError::Answer {
            callee: self.callee.party.clone(),
            what: error.to_string(),
        })
    }
}

fn path_of(name: &str, rest: &str) -> String {
    format!("/v1/vnets/{}{rest}", carina_api::control::escape(name))
}
