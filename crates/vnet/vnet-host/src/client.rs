//! A client of an agent's socket, `vnet.sock`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use carina_api::control::{Client as Http, ClientError, Server};
use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};

use crate::link_hold::LinkHold;
use crate::plan::Plan;
use carina_api::output::Sink;
use carina_vnet::access::{AccessReport, Revoked, TokenReport, TokenWanted, UserWanted};
use carina_vnet::exec_lines::{ExecLines, StreamError};
use carina_vnet::impairment::LinkImpairment;
use carina_vnet::progress::Event;
use carina_vnet::report::NodeSwitch;
use carina_vnet::report::{
    AtPath, Exec, ExecReply, MigrationReport, PoolReport, SaveReport, TestReport, VnetReport,
};
use carina_vnet::trace::{Trace, TraceQuery};

/// Path of the socket of the agent with this run directory.
#[must_use]
pub fn socket_of(run_dir: &RunDir) -> PathBuf {
    run_dir.path().join("vnet.sock")
}

/// Sends requests to the agent of a host over its socket, and waits for the answers.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
}

/// The result of a request. The error is the agent's refusal, or says that no agent answers.
pub type Answer<T> = Result<T, ClientError>;

impl Client {
    /// A client of the agent with this run directory, which waits at most `limit` for each answer.
    #[must_use]
    pub fn new(run_dir: &RunDir, limit: Duration) -> Client {
        let http = Http::new(socket_of(run_dir)).of_server(AGENT);
        Client {
            http: http.with_answer_limit(limit),
        }
    }

    /// Path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.http.path()
    }

    /// Reports of all networks, sorted by name.
    ///
    /// # Errors
    /// [`ClientError`]: no agent answers, or the agent refuses the request. This holds for every
    /// method below.
    pub fn list(&self) -> Answer<Vec<VnetReport>> {
        self.http.get("/v1/vnets")
    }

    /// The state of the agent's pool of paused machines.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn pool(&self) -> Answer<PoolReport> {
        self.http.get("/v1/pool")
    }

    /// Makes a token for a user of an access point.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn token(&self, name: &str, access: &str, wanted: &TokenWanted) -> Answer<TokenReport> {
        let path = format!("/v1/vnets/{name}/access/{access}/tokens");
        self.http.post(&path, wanted)
    }

    /// Revokes the tokens of a user, and disconnects the user.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn revoke(&self, name: &str, access: &str, user: &str) -> Answer<Revoked> {
        let user = UserWanted {
            user: user.to_owned(),
        };
        let path = format!("/v1/vnets/{name}/access/{access}/revocations");
        self.http.post(&path, &user)
    }

    /// The access points of a network, with their users.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn access(&self, name: &str) -> Answer<Vec<AccessReport>> {
        self.http.get(&format!("/v1/vnets/{name}/access"))
    }

    /// Makes the agent begin to make a network.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create(&self, document: &Document) -> Answer<VnetReport> {
        self.http
            .send("POST", "/v1/vnets", &document.write(Form::Json))
    }

    /// Like [`Client::create`], for a caller who keeps asking for events until the network is
    /// ready. If the caller does not ask for half a minute before that, the agent removes the
    /// network.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_followed(&self, document: &Document) -> Answer<VnetReport> {
        let path = "/v1/vnets?followed=true";
        self.http.send("POST", path, &document.write(Form::Json))
    }

    /// Makes the agent begin to change a network to match the document.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn apply(&self, document: &Document) -> Answer<VnetReport> {
        self.http
            .send("PUT", "/v1/vnets", &document.write(Form::Json))
    }

    /// Plans what making a network, or changing it to match the document, would do.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn plan(&self, document: &Document) -> Answer<Plan> {
        self.http
            .send("POST", "/v1/plan", &document.write(Form::Json))
    }

    /// The report of a network.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn report(&self, name: &str) -> Answer<VnetReport> {
        self.http.get(&path_of(name, ""))
    }

    /// The document of a network.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn document(&self, name: &str) -> Answer<Document> {
        self.http.get(&path_of(name, "/document"))
    }

    /// Returns the events of a network after event number `since`. If no such event exists yet, the
    /// agent waits for one for up to `wait`; the result may then be empty.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn events(&self, name: &str, since: u64, wait: Duration) -> Answer<Vec<Event>> {
        let query = format!("/events?since={since}&wait_ms={}", wait.as_millis());
        self.http.waiting(wait).get(&path_of(name, &query))
    }

    /// Sets the impairments of a link, or removes them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn impair(&self, name: &str, link: u32, wanted: &LinkImpairment) -> Answer<()> {
        let json = serde_json::to_string(wanted).expect("an impairment has only plain fields");
        let path = path_of(name, &format!("/links/{link}/impairment"));
        self.http.send("PUT", &path, &json)
    }

    /// Traces the path from one node to another.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn trace(&self, name: &str, query: &TraceQuery) -> Answer<Trace> {
        // Each echo request takes at most a second, plus the time of a command in a guest.
        let limit = Duration::from_secs(2) * query.echoes + TRACE;
        let http = self.http.waiting(limit);
        http.post(&path_of(name, "/trace"), query)
    }

    /// Runs a command in a node, and hands its output to `sink` while the command runs. Returns the
    /// exit status; `None` if the sink refused output, which ends the command.
    ///
    /// # Errors
    /// [`ClientError`] if the request fails before output arrives; [`StreamError`] if the command
    /// was killed or its output breaks off.
    pub fn stream(
        &self,
        name: &str,
        exec: &Exec,
        sink: &mut dyn Sink,
    ) -> Answer<Result<Option<i32>, StreamError>> {
        let http = self.http.waiting(Duration::from_millis(exec.limit_ms));
        let path = path_of(name, "/exec?stream=true");
        let mut lines = ExecLines::new(sink);
        let whole = http.post_streamed(&path, exec, &mut |line| lines.take(line))?;
        Ok(match whole {
            None => lines.end(),
            // An agent of an earlier version.
            Some(whole) => lines.whole(whole),
        })
    }

    /// Runs a command in a node, waits until it ends, and returns its exit status and the beginning
    /// of its output (see [`ExecReply`]).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn exec(&self, name: &str, exec: &Exec) -> Answer<ExecReply> {
        let http = self.http.waiting(Duration::from_millis(exec.limit_ms));
        http.post(&path_of(name, "/exec"), exec)
    }

    /// Probes all links of a network and runs the tests of its document.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn test(&self, name: &str) -> Answer<Vec<TestReport>> {
        self.http.waiting(TESTS).post(&path_of(name, "/test"), &())
    }

    /// Migrates a running machine to another QEMU of its host.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn migrate(&self, name: &str, node: &str) -> Answer<MigrationReport> {
        let node = carina_api::control::escape(node);
        let path = path_of(name, &format!("/nodes/{node}/migrate"));
        self.http.waiting(MOVE).post(&path, &())
    }

    /// Stops a node, or makes the agent begin to start or restart it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn switch_node(&self, name: &str, node: &str, what: NodeSwitch) -> Answer<VnetReport> {
        let node = carina_api::control::escape(node);
        let path = path_of(name, &format!("/nodes/{node}/{}", what.word()));
        self.http.waiting(SWITCH).post(&path, &())
    }

    /// Takes a link down, or makes the agent begin to take it up.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn switch_link(&self, name: &str, link: u32, is_up: bool) -> Answer<VnetReport> {
        let word = if is_up { "up" } else { "down" };
        let path = path_of(name, &format!("/links/{link}/{word}"));
        self.http.waiting(SWITCH).post(&path, &())
    }

    /// Holds a link in the engine of its network, where its frames can be captured, until the
    /// returned value is dropped or this process ends.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn hold_link(&self, name: &str, link: u32) -> Answer<LinkHold> {
        let path = path_of(name, &format!("/links/{link}/hold"));
        LinkHold::begin(self.http.waiting(HOLD), path)
    }

    /// Saves a network into a new directory of the agent's host.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn save(&self, name: &str, path: &Path) -> Answer<SaveReport> {
        let path = path.to_owned();
        let http = self.http.waiting(SAVE);
        http.post(&path_of(name, "/save"), &AtPath { path })
    }

    /// Makes the agent begin to restore a saved network from a directory of its host.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn restore(&self, path: &Path) -> Answer<VnetReport> {
        let path = path.to_owned();
        self.http
            .waiting(SAVE)
            .post("/v1/restore", &AtPath { path })
    }

    /// Removes a network, and waits at most `limit` for the end of the removal.
    ///
    /// # Errors
    /// [`ClientError`]. After a timeout the agent continues the removal.
    pub fn remove(&self, name: &str, limit: Duration) -> Answer<()> {
        let http = self.http.clone().with_answer_limit(limit);
        http.delete(&path_of(name, ""))
    }
}

fn path_of(name: &str, rest: &str) -> String {
    format!("/v1/vnets/{}{rest}", carina_api::control::escape(name))
}

/// The server behind the socket, as errors name it.
const AGENT: Server = Server {
    name: "agent",
    command: "carina vnet agent",
};
/// Longest time for starting and ending the watch of a trace.
const TRACE: Duration = Duration::from_secs(60);
/// Longest time for completing a change in progress, and for ending a node.
const SWITCH: Duration = Duration::from_secs(120);
/// Longest time that a link is held.
const HOLD: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longest time for migrating a machine.
const MOVE: Duration = Duration::from_secs(300);
/// Longest time for writing or reading all machines of a network.
const SAVE: Duration = Duration::from_secs(900);
/// Longest time for running tests.
const TESTS: Duration = Duration::from_secs(600);
/// Longest time for removing a network.
pub const REMOVAL: Duration = Duration::from_secs(120);
