//! A client of a VNO, for its operator and for delegates.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carina_api::control::escape;
use carina_api::output::Sink;
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::access::{AccessReport, Revoked, Right, TokenReport};
use carina_vnet::document::{Document, Form};
use carina_vnet::exec_lines::{ExecLines, StreamError};
use carina_vnet::grant::Grant;
use carina_vnet::impairment::LinkImpairment;
use carina_vnet::progress::Event;
use carina_vnet::report::NodeSwitch;
use carina_vnet::report::{Exec, ExecReply, LinkReport, MigrationReport, TestReport, VnetReport};
use carina_vnet::trace::{Trace, TraceQuery};
use carina_vnet::vno::Seen;
use serde::de::DeserializeOwned;

use crate::calling::address::Address;
use crate::calling::connection::{CallError, Callee, Request};
use crate::identity::{Identity, Role};
use crate::inside::access::AtAccess;
use crate::inside::{self, Look, NodeRequest};
use crate::keys::{KeyDir, KeyError, Tls};

pub use self::of_pip::PipClient;
pub use crate::inside::copied::{Copied, Portion};

mod of_pip;

/// Sends requests of an operator or a delegate to a VNO, and waits for the answers.
#[derive(Debug)]
pub struct Client {
    callee: Callee,
}

/// The VNO's answer, or why the call failed.
pub type Answer<T> = Result<T, CallError>;

impl Client {
    /// A client with the only operator's certificate in a directory, for the VNO of the same name.
    ///
    /// # Errors
    /// There is no such certificate, or there are several.
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

    /// A client of the VNO with this name: as its operator if the directory has that certificate,
    /// else as the only delegate with a certificate there.
    ///
    /// # Errors
    /// There is no such certificate, or there are several delegates.
    pub fn of(keys: &KeyDir, vno: &str, address: Address) -> Result<Client, KeyError> {
        let operator = Identity::new(Role::Operator, vno)?;
        let party = if keys.has(&operator) {
            operator
        } else {
            keys.only(Role::Delegate)?
        };
        let tls = Tls::of(keys, &party)?;
        Ok(Client {
            callee: Callee {
                party: Identity::new(Role::Vno, vno)?,
                address,
                tls,
            },
        })
    }

    /// All networks, sorted by name.
    ///
    /// # Errors
    /// [`CallError`]; this holds for every method below.
    pub fn list(&self) -> Answer<Vec<Seen>> {
        self.get("/v1/vnets", Duration::ZERO)
    }

    /// Requests a new network. Returns its state when the VNO has stored the request; the network
    /// is made afterwards.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn create(&self, document: &Document) -> Answer<Seen> {
        self.send("POST", "/v1/vnets", &document.write(Form::Json))
    }

    /// Requests a change of a network to match the document.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn apply(&self, document: &Document) -> Answer<Seen> {
        self.send("PUT", "/v1/vnets", &document.write(Form::Json))
    }

    /// The state of a network.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn seen(&self, name: &str) -> Answer<Seen> {
        self.get(&path_of(name, ""), Duration::ZERO)
    }

    /// The document of a network.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn document(&self, name: &str) -> Answer<Document> {
        self.get(&path_of(name, "/document"), Duration::ZERO)
    }

    /// Returns the events of a network after event number `since`. If no such event exists yet, the
    /// VNO waits for one for up to `wait`; the result may then be empty.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn events(&self, name: &str, since: u64, wait: Duration) -> Answer<Vec<Event>> {
        let query = format!("/events?since={since}&wait_ms={}", wait.as_millis());
        self.get(&path_of(name, &query), wait)
    }

    /// Requests the removal of a network. It is complete when [`Client::seen`] does not find the
    /// network.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn remove(&self, name: &str) -> Answer<()> {
        self.send("DELETE", &path_of(name, ""), "")
    }

    /// Sends a request to the nodes of a network.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn ask(&self, name: &str, ask: &NodeRequest) -> Answer<inside::Answer> {
        let body = serde_json::to_string(ask).expect("asks have no keys but texts and numbers");
        self.call(&Request {
            method: "POST",
            target: &path_of(name, "/asks"),
            body: &body,
            wait: ask.limit(),
        })
    }

    /// The state of nodes and links of a network.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn look(&self, name: &str) -> Answer<Look> {
        match self.ask(name, &NodeRequest::Look {})? {
            inside::Answer::Looked(look) => Ok(look),
            other => Err(self.wrong(&other)),
        }
    }

    /// Runs a command in a node, and hands its output to `sink` while the command runs. Returns the
    /// exit status; `None` if the sink refused output, which ends the command.
    ///
    /// # Errors
    /// [`CallError`] if the request fails before output arrives; [`StreamError`] if the command was
    /// killed or its output breaks off.
    pub fn stream(
        &self,
        name: &str,
        exec: &Exec,
        sink: &mut dyn Sink,
    ) -> Answer<Result<Option<i32>, StreamError>> {
        let ask = ask_of(exec);
        let body = serde_json::to_string(&ask).expect("asks have no keys but texts and numbers");
        let request = Request {
            method: "POST",
            target: &path_of(name, "/asks?stream=true"),
            body: &body,
            wait: ask.limit(),
        };
        let mut lines = ExecLines::new(sink);
        let whole = self.callee.stream(&request, &mut |line| lines.take(line))?;
        let Some(whole) = whole else {
            return Ok(lines.end());
        };
        // A VNO of an earlier version.
        match serde_json::from_slice(&whole) {
            Ok(inside::Answer::Ran(reply)) => Ok(lines.whole(reply)),
            Ok(other) => Err(self.wrong(&other)),
            Err(error) => Err(CallError::Answer {
                callee: self.callee.party.clone(),
                what: error.to_string(),
            }),
        }
    }

    /// Runs a command in a node, waits until it ends, and returns its exit status and the beginning
    /// of its output (see [`ExecReply`]).
    ///
    /// # Errors
    /// [`CallError`].
    pub fn exec(&self, name: &str, exec: &Exec) -> Answer<ExecReply> {
        match self.ask(name, &ask_of(exec))? {
            inside::Answer::Ran(reply) => Ok(reply),
            other => Err(self.wrong(&other)),
        }
    }

    /// Makes a token for a user of an access point, valid for `lease_s` seconds from now. Without
    /// rights it grants the right to IP.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn token(
        &self,
        name: &str,
        access: &str,
        user: &str,
        (lease_s, rights): (u64, BTreeSet<Right>),
    ) -> Answer<TokenReport> {
        match self.at_access(name, access, user, AtAccess::Token { lease_s, rights })? {
            inside::Answer::Token(made) => Ok(made),
            other => Err(self.wrong(&other)),
        }
    }

    /// Revokes all tokens of a user of an access point, and disconnects the user's system.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn revoke(&self, name: &str, access: &str, user: &str) -> Answer<Revoked> {
        match self.at_access(name, access, user, AtAccess::Revoke {})? {
            inside::Answer::Revoked(revoked) => Ok(revoked),
            other => Err(self.wrong(&other)),
        }
    }

    fn at_access(
        &self,
        name: &str,
        access: &str,
        user: &str,
        what: AtAccess,
    ) -> Answer<inside::Answer> {
        let [access, user] = [access, user].map(str::to_owned);
        // The VNO fills in the node of the access point.
        let node = String::new();
        let ask = NodeRequest::Access {
            node,
            access,
            user,
            what,
        };
        self.ask(name, &ask)
    }

    /// The access points of a network, with their users.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn users(&self, name: &str) -> Answer<Vec<AccessReport>> {
        match self.ask(name, &NodeRequest::Users {})? {
            inside::Answer::Users(points) => Ok(points),
            other => Err(self.wrong(&other)),
        }
    }

    /// The grants for a network, by delegate.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn grants(&self, name: &str) -> Answer<BTreeMap<String, Grant>> {
        self.get(&path_of(name, "/grants"), Duration::ZERO)
    }

    /// Gives a delegate a grant for a network, replacing an earlier one; `None` withdraws the
    /// delegate's grant.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn grant(&self, name: &str, to: &str, grant: Option<&Grant>) -> Answer<()> {
        let target = path_of(name, &format!("/grants/{}", escape(to)));
        match grant {
            Some(grant) => {
                let body = serde_json::to_string(grant).expect("grants have only plain fields");
                self.send("PUT", &target, &body)
            }
            None => self.send("DELETE", &target, ""),
        }
    }

    /// Migrates a running machine to another QEMU of its host.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn migrate(&self, name: &str, node: &str) -> Answer<MigrationReport> {
        let node = node.to_owned();
        match self.ask(name, &NodeRequest::Migrate { node })? {
            inside::Answer::Moved(report) => Ok(report),
            other => Err(self.wrong(&other)),
        }
    }

    /// Stops a node, or starts or restarts it and waits until it runs.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn switch_node(&self, name: &str, node: &str, what: NodeSwitch) -> Answer<()> {
        let node = node.to_owned();
        self.ask(name, &NodeRequest::SwitchNode { node, what })
            .map(drop)
    }

    /// Takes a link down or up, at its ends at the same time: a host whose end goes up probes the
    /// link, and no probe passes before the other end is up.
    ///
    /// # Errors
    /// [`CallError`], of the first end that has one.
    pub fn switch_link(&self, name: &str, link: &LinkReport, is_up: bool) -> Answer<()> {
        let asks = inside::link_switches(link, is_up);
        std::thread::scope(|scope| {
            let ends = asks.iter().map(|ask| scope.spawn(|| self.ask(name, ask)));
            let ends: Vec<_> = ends.collect();
            let mut outcomes = ends.into_iter().map(|end| end.join());
            outcomes.try_for_each(|outcome| outcome.expect("a request does not panic").map(drop))
        })
    }

    /// Probes all links of a network, and runs the tests of its document.
    ///
    /// # Errors
    /// [`CallError`]. A test that does not pass is not an error.
    pub fn test(&self, name: &str) -> Answer<Vec<TestReport>> {
        let (document, look) = (self.document(name)?, self.look(name)?);
        Ok(inside::test::run(&document, &look, &|ask| {
            self.asking(name, &ask)
        }))
    }

    /// The report of a network with its nodes and links, as its hosts report them.
    ///
    /// # Errors
    /// [`CallError`]; also if the network is not made.
    pub fn report(&self, name: &str) -> Answer<VnetReport> {
        let (seen, document) = (self.seen(name)?, self.document(name)?);
        let look = self.look(name)?;
        Ok(inside::network_report::report(
            &seen,
            &document,
            Some(&look),
        ))
    }

    /// Traces the path from one node to another, and finds where echo requests are dropped.
    /// `session` is a random number.
    ///
    /// # Errors
    /// [`CallError`]; also if no route leads there.
    pub fn trace(&self, name: &str, query: &TraceQuery, session: u64) -> Answer<Trace> {
        let (seen, document) = (self.seen(name)?, self.document(name)?);
        let look = self.look(name)?;
        let ask = |ask: NodeRequest| self.asking(name, &ask);
        inside::trace::run((seen.vnet, &document), &look, query, session, &ask)
            .map_err(CallError::Refused)
    }

    /// Sets or removes the impairments of a link, separately for each end, at the host that has it.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn impair(&self, name: &str, link: &LinkReport, wanted: &LinkImpairment) -> Answer<()> {
        for ask in inside::impairments(link, wanted) {
            self.ask(name, &ask)?;
        }
        Ok(())
    }

    /// Fetches the bytes of a capture file from position `since` on. If no such bytes exist yet,
    /// the host waits for some for up to `wait` (at most 10 s); the result may then be empty. The
    /// first call of a session has 0 for both, and starts the capture.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn copy(&self, name: &str, wanted: &Copied, since: u64, wait: Duration) -> Answer<Portion> {
        match self.ask(name, &wanted.ask(since, wait))? {
            inside::Answer::Copied {
                next,
                bytes,
                has_ended,
            } => Ok(Portion {
                next,
                bytes,
                has_ended,
            }),
            other => Err(self.wrong(&other)),
        }
    }

    /// Stops a capture. What was captured so far, and the end of the file, can still be fetched.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn stop_capture(&self, name: &str, wanted: &Copied) -> Answer<()> {
        self.ask(name, &wanted.stop_capture()).map(drop)
    }

    fn asking(&self, name: &str, ask: &NodeRequest) -> Result<inside::Answer, ErrorBody> {
        self.ask(name, ask).map_err(|error| match error {
            CallError::Refused(refusal) => refusal,
            error => ErrorBody::new(ErrorCode::Internal, error.to_string()),
        })
    }

    /// The error for an answer that belongs to another kind of request.
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

fn ask_of(exec: &Exec) -> NodeRequest {
    NodeRequest::Exec {
        node: exec.node.clone(),
        command: exec.command.clone(),
        limit_ms: exec.limit_ms,
        session: None,
    }
}

fn path_of(name: &str, rest: &str) -> String {
    format!("/v1/vnets/{}{rest}", escape(name))
}
