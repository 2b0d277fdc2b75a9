//! A client of an agent's `vnet.sock`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use carina_api::control::{Client as Http, ClientError, Server};
use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};

use crate::plan::Plan;
use carina_vnet::access::{AccessReport, Revoked, TokenReport, TokenWanted, UserWanted};
use carina_vnet::impairment::LinkImpairment;
use carina_vnet::progress::Event;
use carina_vnet::report::NodeSwitch;
use carina_vnet::report::{
    AtPath, Exec, ExecReply, MigrationReport, PoolReport, SaveReport, TestReport, VnetReport,
};
use carina_vnet::way::{Way, WayQuery};

/// The socket of the agent with a run directory.
#[must_use]
pub fn socket_of(run_dir: &RunDir) -> PathBuf {
    run_dir.path().join("vnet.sock")
}

/// A client of one agent.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
}

/// A result of a request; the error is the agent's refusal, or says that none answers.
pub type Answer<T> = Result<T, ClientError>;

impl Client {
    /// A client of the agent with a run directory, which has `limit` for each answer.
    #[must_use]
    pub fn new(run_dir: &RunDir, limit: Duration) -> Client {
        let http = Http::new(socket_of(run_dir)).of_server(AGENT);
        Client {
            http: http.with_answer_limit(limit),
        }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.http.path()
    }

    /// All networks, by name.
    ///
    /// # Errors
    /// No agent answers, or it refuses; as of every call below.
    pub fn list(&self) -> Answer<Vec<VnetReport>> {
        self.http.get("/v1/vnets")
    }

    /// The machines that stand ready.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn pool(&self) -> Answer<PoolReport> {
        self.http.get("/v1/pool")
    }

    /// Has the agent make a token for a user of an access point.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn token(&self, name: &str, access: &str, wanted: &TokenWanted) -> Answer<TokenReport> {
        let path = format!("/v1/vnets/{name}/access/{access}/tokens");
        self.http.post(&path, wanted)
    }

    /// Has the agent take back the tokens of a user, who is cut off.
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

    /// The access points of a network with their users.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn access(&self, name: &str) -> Answer<Vec<AccessReport>> {
        self.http.get(&format!("/v1/vnets/{name}/access"))
    }

    /// Has the agent begin to make a network.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create(&self, document: &Document) -> Answer<VnetReport> {
        self.http
            .send("POST", "/v1/vnets", &document.write(Form::Json))
    }

    /// As [`Client::create`], for one who asks for events until the network is ready. If none are
    /// asked for before that for half a minute, the agent removes it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_followed(&self, document: &Document) -> Answer<VnetReport> {
        let path = "/v1/vnets?followed=true";
        self.http.send("POST", path, &document.write(Form::Json))
    }

    /// Has the agent begin to change a network.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn apply(&self, document: &Document) -> Answer<VnetReport> {
        self.http
            .send("PUT", "/v1/vnets", &document.write(Form::Json))
    }

    /// What making a network, or changing it, would do.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn plan(&self, document: &Document) -> Answer<Plan> {
        self.http
            .send("POST", "/v1/plan", &document.write(Form::Json))
    }

    /// One network.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn report(&self, name: &str) -> Answer<VnetReport> {
        self.http.get(&path_of(name, ""))
    }

    /// What is wanted of a network.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn document(&self, name: &str) -> Answer<Document> {
        self.http.get(&path_of(name, "/document"))
    }

    /// The events of a network after a number, when there is one, at the latest after `wait`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn events(&self, name: &str, since: u64, wait: Duration) -> Answer<Vec<Event>> {
        let query = format!("/events?since={since}&wait_ms={}", wait.as_millis());
        self.http.waiting(wait).get(&path_of(name, &query))
    }

    /// Impairs a link, or no longer does.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn impair(&self, name: &str, link: u32, wanted: &LinkImpairment) -> Answer<()> {
        let json = serde_json::to_string(wanted).expect("an impairment has only plain fields");
        let path = path_of(name, &format!("/links/{link}/impairment"));
        self.http.send("PUT", &path, &json)
    }

    /// Traces the way from a node to another.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn trace(&self, name: &str, query: &WayQuery) -> Answer<Way> {
        // Each echo has a second and the time of a guest's command.
        let limit = Duration::from_secs(2) * query.echoes + TRACE;
        let http = self.http.waiting(limit);
        http.post(&path_of(name, "/trace"), query)
    }

    /// Runs a command in a node.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn exec(&self, name: &str, exec: &Exec) -> Answer<ExecReply> {
        let http = self.http.waiting(Duration::from_millis(exec.limit_ms));
        http.post(&path_of(name, "/exec"), exec)
    }

    /// Probes all links of a network and runs its tests.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn test(&self, name: &str) -> Answer<Vec<TestReport>> {
        self.http.waiting(TESTS).post(&path_of(name, "/test"), &())
    }

    /// Moves a machine to another QEMU of its host while it runs.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn migrate(&self, name: &str, node: &str) -> Answer<MigrationReport> {
        let node = carina_api::control::escape(node);
        let path = path_of(name, &format!("/nodes/{node}/migrate"));
        self.http.waiting(MOVE).post(&path, &())
    }

    /// Stops a node, or has the agent begin to start or restart it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn switch_node(&self, name: &str, node: &str, what: NodeSwitch) -> Answer<VnetReport> {
        let node = carina_api::control::escape(node);
        let path = path_of(name, &format!("/nodes/{node}/{}", what.word()));
        self.http.waiting(SWITCH).post(&path, &())
    }

    /// Takes a link down, or has the agent begin to take it up.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn switch_link(&self, name: &str, link: u32, is_up: bool) -> Answer<VnetReport> {
        let word = if is_up { "up" } else { "down" };
        let path = path_of(name, &format!("/links/{link}/{word}"));
        self.http.waiting(SWITCH).post(&path, &())
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

    /// Has the agent begin to make a network that was saved.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn restore(&self, path: &Path) -> Answer<VnetReport> {
        let path = path.to_owned();
        self.http
            .waiting(SAVE)
            .post("/v1/restore", &AtPath { path })
    }

    /// Removes a network, which has a time for it.
    ///
    /// # Errors
    /// [`ClientError`]. After a timeout the removal goes on.
    pub fn remove(&self, name: &str, limit: Duration) -> Answer<()> {
        let http = self.http.clone().with_answer_limit(limit);
        http.delete(&path_of(name, ""))
    }
}

fn path_of(name: &str, rest: &str) -> String {
    format!("/v1/vnets/{}{rest}", carina_api::control::escape(name))
}

/// What serves the socket, for errors.
const AGENT: Server = Server {
    name: "agent",
    command: "carina vnet agent",
};
/// How long the watch of a trace may take to begin and end.
const TRACE: Duration = Duration::from_secs(60);
/// How long a change that is under way, and the end of a node, may take.
const SWITCH: Duration = Duration::from_secs(120);
/// How long a machine may take to move.
const MOVE: Duration = Duration::from_secs(300);
/// How long it may take to write or read all machines of a network.
const SAVE: Duration = Duration::from_secs(900);
/// How long tests may take.
const TESTS: Duration = Duration::from_secs(600);
/// How long the removal of a network may take.
pub const REMOVAL: Duration = Duration::from_secs(120);
