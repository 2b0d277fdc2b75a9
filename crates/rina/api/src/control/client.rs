//! A blocking client for `control.sock`: HTTP/1.1 over a Unix socket, one connection per request.
//!
//! It understands what the node sends (a `Content-Length` or a chunked body) and refuses answers
//! beyond 16 MiB.

mod dif;
pub(super) mod reply;

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use self::reply::read_reply;
use super::{
    AppInfo, Applied, CaptureCreate, CaptureEnd, CaptureInfo, DifInfo, ErrorReply, Events,
    FlowInfo, IpcpCreate, IpcpInfo, NodeInfo, VmCreate, VmInfo,
};
use crate::paths::RunDir;
use crate::{ErrorBody, PortId};

/// A client of one node's `control.sock`.
#[derive(Debug, Clone)]
pub struct Client {
    server: Server,
    path: PathBuf,
    answer_limit: Duration,
}

/// Why a request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No node answers on the socket.
    #[error(
        "no {} answers on {}: {source}{}",
        server.name, path.display(), advice(server, source)
    )]
    Connect {
        /// What serves the socket.
        server: Server,
        /// The socket tried.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{}: the request failed: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The node has the request and does not answer.
    #[error(
        "the {} on {} has not answered `{request}` within {} s; it is stopped, stuck or very busy",
        server.name, path.display(), limit.as_secs_f32()
    )]
    Silent {
        /// What serves the socket.
        server: Server,
        /// The socket.
        path: PathBuf,
        /// Method and target of the request.
        request: String,
        /// How long the answer was waited for.
        limit: Duration,
    },
    /// The answer is not what a node sends.
    #[error("{}: the answer was not understood: {what}", path.display())]
    Protocol {
        /// The socket.
        path: PathBuf,
        /// What was wrong.
        what: String,
    },
    /// The node refused.
    #[error("{body}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The node's words.
        body: ErrorBody,
    },
}

/// What serves a socket, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// What it is called.
    pub name: &'static str,
    /// The command that starts one.
    pub command: &'static str,
}

impl Server {
    /// A node.
    pub const NODE: Server = Server {
        name: "node",
        command: "carina node",
    };
}

/// What to do about a server that cannot be reached: one that accepts nothing runs already.
fn advice(server: &Server, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::TimedOut => String::new(),
        _ => format!("; start one with `{}`", server.command),
    }
}

impl Client {
    /// A client of the node whose socket is `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            server: Server::NODE,
            path: path.into(),
            answer_limit: ANSWER_LIMIT,
        }
    }

    /// The client of something else than a node, which serves its socket in the same form.
    #[must_use]
    pub fn of_server(self, server: Server) -> Self {
        Self { server, ..self }
    }

    /// The client with another limit for an answer; 60 s otherwise. What a request itself waits
    /// for, such as an event, comes on top.
    #[must_use]
    pub fn with_answer_limit(self, answer_limit: Duration) -> Self {
        Self {
            answer_limit,
            ..self
        }
    }

    /// A client of the node in the default run directory.
    pub fn from_env() -> Self {
        Self::new(RunDir::from_env().control_sock())
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `GET /v1/node`.
    ///
    /// # Errors
    /// [`ClientError`], as of every call below.
    pub fn node(&self) -> Result<NodeInfo, ClientError> {
        self.get("/v1/node")
    }

    /// `GET /v1/ipcps`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ipcps(&self) -> Result<Vec<IpcpInfo>, ClientError> {
        self.get("/v1/ipcps")
    }

    /// `POST /v1/ipcps`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_ipcp(&self, ipcp: &IpcpCreate) -> Result<IpcpInfo, ClientError> {
        self.post("/v1/ipcps", ipcp)
    }

    /// `DELETE /v1/ipcps/{name}`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn destroy_ipcp(&self, name: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/ipcps/{}", escape(name)))
    }

    /// `GET /v1/apps`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn apps(&self) -> Result<Vec<AppInfo>, ClientError> {
        self.get("/v1/apps")
    }

    /// `GET /v1/flows`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn flows(&self) -> Result<Vec<FlowInfo>, ClientError> {
        self.get("/v1/flows")
    }

    /// `DELETE /v1/flows/{port}`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn deallocate_flow(&self, port: PortId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/flows/{port}"))
    }

    /// `GET /v1/difs`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn difs(&self) -> Result<Vec<DifInfo>, ClientError> {
        self.get("/v1/difs")
    }

    /// `GET /v1/vms`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn vms(&self) -> Result<Vec<VmInfo>, ClientError> {
        self.get("/v1/vms")
    }

    /// `GET /v1/vms/{name}`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn vm(&self, name: &str) -> Result<VmInfo, ClientError> {
        self.get(&format!("/v1/vms/{}", escape(name)))
    }

    /// `POST /v1/vms`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_vm(&self, vm: &VmCreate) -> Result<VmInfo, ClientError> {
        self.post("/v1/vms", vm)
    }

    /// `DELETE /v1/vms/{name}`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn destroy_vm(&self, name: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/vms/{}", escape(name)))
    }

    /// `POST /v1/captures`: begins a capture.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_capture(&self, capture: &CaptureCreate) -> Result<CaptureInfo, ClientError> {
        self.post("/v1/captures", capture)
    }

    /// `GET /v1/captures/{id}`: the next portion of the capture as pcapng, after waiting up to
    /// `wait` (at most 5 s) for a packet. A capture that is not asked for ends by itself.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn read_capture(&self, id: u64, wait: Duration) -> Result<Vec<u8>, ClientError> {
        let target = format!("/v1/captures/{id}?wait_ms={}", wait.as_millis());
        self.waiting(wait).exchange("GET", &target, None)
    }

    /// `DELETE /v1/captures/{id}`: ends a capture.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn end_capture(&self, id: u64) -> Result<CaptureEnd, ClientError> {
        let reply = self.exchange("DELETE", &format!("/v1/captures/{id}"), None)?;
        self.read_json(&reply)
    }

    /// `GET /v1/events`: waits up to `wait` (at most 30 s) for an event after number `since`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn events(&self, since: u64, wait: Duration) -> Result<Events, ClientError> {
        self.waiting(wait).get(&format!(
            "/v1/events?since={since}&wait_ms={}",
            wait.as_millis()
        ))
    }

    /// The client for a request that the node answers after `wait`.
    /// The client with a limit for answers that is longer by what a request itself waits for.
    #[must_use]
    pub fn waiting(&self, wait: Duration) -> Self {
        self.clone()
            .with_answer_limit(self.answer_limit.saturating_add(wait))
    }

    /// `POST /v1/apply` with a configuration in TOML.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn apply(&self, toml: &str) -> Result<Applied, ClientError> {
        let reply = self.exchange(
            "POST",
            "/v1/apply",
            Some(("application/toml", toml.as_bytes())),
        )?;
        self.read_json(&reply)
    }

    /// Any `GET`, its answer as JSON text; for tools that print what the node says.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get_text(&self, target: &str) -> Result<String, ClientError> {
        let reply = self.exchange("GET", target, None)?;
        String::from_utf8(reply).map_err(|e| self.protocol(e.to_string()))
    }

    /// A `GET` of a target that has no method here; other sockets with the same form of requests
    /// and refusals have theirs.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, ClientError> {
        let reply = self.exchange("GET", target, None)?;
        self.read_json(&reply)
    }

    /// A `POST`, as [`Client::get`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        target: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_string(body).map_err(|e| self.protocol(e.to_string()))?;
        self.send("POST", target, &body)
    }

    /// A request with a body that is JSON already, as [`Client::get`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        target: &str,
        json: &str,
    ) -> Result<T, ClientError> {
        let body = Some(("application/json", json.as_bytes()));
        let reply = self.exchange(method, target, body)?;
        self.read_json(&reply)
    }

    /// A `DELETE`, as [`Client::get`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn delete(&self, target: &str) -> Result<(), ClientError> {
        self.exchange("DELETE", target, None).map(drop)
    }

    fn read_json<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|e| self.protocol(e.to_string()))
    }

    fn exchange(
        &self,
        method: &str,
        target: &str,
        body: Option<(&str, &[u8])>,
    ) -> Result<Vec<u8>, ClientError> {
        let connected = carina_sys::connect_stream(&self.path, self.answer_limit);
        let stream = connected.map_err(|source| ClientError::Connect {
            server: self.server,
            path: self.path.clone(),
            source,
        })?;
        let (status, body) = self
            .exchange_on(stream, method, target, body)
            .map_err(|source| match source.kind() {
                io::ErrorKind::InvalidData => self.protocol(source.to_string()),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent {
                    server: self.server,
                    path: self.path.clone(),
                    request: format!("{method} {target}"),
                    limit: self.answer_limit,
                },
                _ => ClientError::Io {
                    path: self.path.clone(),
                    source,
                },
            })?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        match serde_json::from_slice::<ErrorReply>(&body) {
            Ok(reply) => Err(ClientError::Refused {
                status,
                body: reply.error,
            }),
            Err(_) => Err(self.protocol(format!(
                "status {status} with the body {:?}",
                String::from_utf8_lossy(&body[..body.len().min(200)])
            ))),
        }
    }

    fn exchange_on(
        &self,
        mut stream: UnixStream,
        method: &str,
        target: &str,
        body: Option<(&str, &[u8])>,
    ) -> io::Result<(u16, Vec<u8>)> {
        stream.set_write_timeout(Some(self.answer_limit))?;
        let mut head =
            format!("{method} {target} HTTP/1.1\r\nHost: carina\r\nConnection: close\r\n");
        if let Some((kind, body)) = body {
            head += &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        }
        head += "\r\n";
        let mut request = head.into_bytes();
        request.extend(body.into_iter().flat_map(|(_, body)| body));
        match stream.write_all(&request) {
            // A node that needs no body may have answered, and closed, before it came.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
        read_reply(&mut BufReader::new(Answer {
            stream,
            until: Instant::now() + self.answer_limit,
        }))
    }

    fn protocol(&self, what: String) -> ClientError {
        ClientError::Protocol {
            path: self.path.clone(),
            what,
        }
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::from_env()
    }
}

/// What a node answers, until a deadline.
struct Answer {
    stream: UnixStream,
    until: Instant,
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

/// Writes `text` as one segment of a path.
pub fn escape(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'~');
    text.bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// How long a node may take to answer, unless the client says otherwise. It asks other members for
/// up to 12 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
