//! A client of a VNO, for its operators.

use std::time::Duration;

use carina_vnet::document::{Document, Form};
use carina_vnet::vno::Seen;
use carina_vnet_host::progress::Event;
use carina_vnet_host::report::{Exec, ExecReply, MigrationReport, TestReport};
use serde::de::DeserializeOwned;

use crate::calling::address::Address;
use crate::calling::connection::{CallError, Callee, Request};
use crate::identity::{Identity, Role};
use crate::inside::{self, Ask, Look};
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

    /// Asks the nodes of a network something.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn ask(&self, name: &str, ask: &Ask) -> Answer<inside::Answer> {
        let body = serde_json::to_string(ask).expect("asks have no keys but texts and numbers");
        self.call(&Request {
            method: "POST",
            target: &path_of(name, "/asks"),
            body: &body,
            wait: ask.limit(),
        })
    }

    /// How nodes and links of a network are.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn look(&self, name: &str) -> Answer<Look> {
        match self.ask(name, &Ask::Look {})? {
            inside::Answer::Looked(look) => Ok(look),
            other => Err(self.wrong(&other)),
        }
    }

    /// Runs a command in a node.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn exec(&self, name: &str, exec: &Exec) -> Answer<ExecReply> {
        let ask = Ask::Exec {
            node: exec.node.clone(),
            command: exec.command.clone(),
            limit_ms: exec.limit_ms,
        };
        match self.ask(name, &ask)? {
            inside::Answer::Ran(reply) => Ok(reply),
            other => Err(self.wrong(&other)),
        }
    }

    /// Has a machine move to another QEMU while it runs.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn migrate(&self, name: &str, node: &str) -> Answer<MigrationReport> {
        let node = node.to_owned();
        match self.ask(name, &Ask::Migrate { node })? {
            inside::Answer::Moved(report) => Ok(report),
            other => Err(self.wrong(&other)),
        }
    }

    /// Probes all links of a network, and tries the tests of its document.
    ///
    /// # Errors
    /// [`CallError`]; that a test does not hold is no error.
    pub fn test(&self, name: &str) -> Answer<Vec<TestReport>> {
        let (document, look) = (self.document(name)?, self.look(name)?);
        let ask = |ask: Ask| self.ask(name, &ask).map_err(|error| error.to_string());
        Ok(inside::test::run(&document, &look, &ask))
    }

    /// What is said of an answer to another question.
    fn wrong(&self, answer: &inside::Answer) -> CallError {
        CallError::Answer {
            callee: self.callee.party.clone(),
            what: format!("{answer:.200?}"),
        }
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
