//! A client of an agent's `vnet.sock`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use carina_api::control::{Client as Http, ClientError};
use carina_api::paths::RunDir;
use carina_vnet::document::{Document, Form};

use crate::impairment::LinkImpairment;
use crate::plan::Plan;
use crate::progress::Event;
use crate::report::{Exec, ExecReply, PoolReport, TestReport, VnetReport};
use crate::way::{Way, WayQuery};

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
        let http = Http::new(socket_of(run_dir)).with_answer_limit(limit);
        Client { http }
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

    /// Has the agent begin to make a network.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create(&self, document: &Document) -> Answer<VnetReport> {
        self.http
            .send("POST", "/v1/vnets", &document.write(Form::Json))
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

/// How long the watch of a trace may take to begin and end.
const TRACE: Duration = Duration::from_secs(60);
/// How long tests may take.
const TESTS: Duration = Duration::from_secs(600);
/// How long the removal of a network may take.
pub const REMOVAL: Duration = Duration::from_secs(120);
