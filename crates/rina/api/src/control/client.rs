//! A blocking client for `control.sock`: HTTP/1.1 over a Unix socket, one connection per request.
//!
//! The client reads responses with a `Content-Length`, with a chunked body, or that end with the
//! connection. It refuses bodies of more than 16 MiB.

mod dif;
mod error;
pub(super) mod reply;

use std::io::{self, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::error::{ClientError, Server};
use self::reply::{StreamReply, read_reply, read_stream};
use super::{
    AppInfo, Applied, CaptureCreate, CaptureEnd, CaptureInfo, DifInfo, ErrorReply, Events,
    FlowInfo, IpcpCreate, IpcpInfo, NodeInfo, VmCreate, VmInfo,
};
use crate::PortId;
use crate::paths::RunDir;

/// A client that sends requests to one node's `control.sock`. Each request blocks until the node
/// answers, and fails after a time limit ([`Client::with_answer_limit`], default: 60 s).
#[derive(Debug, Clone)]
pub struct Client {
    server: Server,
    path: PathBuf,
    answer_limit: Duration,
}

impl Client {
    /// Makes a client for the node whose `control.sock` is `path`. Connects only when a request is
    /// sent.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            server: Server::NODE,
            path: path.into(),
            answer_limit: ANSWER_LIMIT,
        }
    }

    /// Returns this client for another server than a node, one that speaks the same HTTP and error
    /// format. Error messages name `server`.
    #[must_use]
    pub fn of_server(self, server: Server) -> Self {
        Self { server, ..self }
    }

    /// Returns this client with another time limit for answers (default: 60 s). For requests that
    /// wait, such as [`Client::events`], the time to wait is added to the limit.
    #[must_use]
    pub fn with_answer_limit(self, answer_limit: Duration) -> Self {
        Self {
            answer_limit,
            ..self
        }
    }

    /// Makes a client for the node in the default run directory of this process
    /// ([`RunDir::from_env`]).
    pub fn from_env() -> Self {
        Self::new(RunDir::from_env().control_sock())
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `GET /v1/node`: describes the node.
    ///
    /// # Errors
    /// [`ClientError`], as for all requests below.
    pub fn node(&self) -> Result<NodeInfo, ClientError> {
        self.get("/v1/node")
    }

    /// `GET /v1/ipcps`: lists the IPCPs of the node.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ipcps(&self) -> Result<Vec<IpcpInfo>, ClientError> {
        self.get("/v1/ipcps")
    }

    /// `POST /v1/ipcps`: creates a shim IPCP.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_ipcp(&self, ipcp: &IpcpCreate) -> Result<IpcpInfo, ClientError> {
        self.post("/v1/ipcps", ipcp)
    }

    /// `DELETE /v1/ipcps/{name}`: destroys an IPCP.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn destroy_ipcp(&self, name: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/ipcps/{}", escape(name)))
    }

    /// `GET /v1/apps`: lists the registered applications.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn apps(&self) -> Result<Vec<AppInfo>, ClientError> {
        self.get("/v1/apps")
    }

    /// `GET /v1/flows`: lists the flows of the node.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn flows(&self) -> Result<Vec<FlowInfo>, ClientError> {
        self.get("/v1/flows")
    }

    /// `DELETE /v1/flows/{port}`: deallocates a flow.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn deallocate_flow(&self, port: PortId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/flows/{port}"))
    }

    /// `GET /v1/difs`: lists the DIFs that the node knows.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn difs(&self) -> Result<Vec<DifInfo>, ClientError> {
        self.get("/v1/difs")
    }

    /// `GET /v1/vms`: lists the VM ports of the node.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn vms(&self) -> Result<Vec<VmInfo>, ClientError> {
        self.get("/v1/vms")
    }

    /// `GET /v1/vms/{name}`: describes one VM port.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn vm(&self, name: &str) -> Result<VmInfo, ClientError> {
        self.get(&format!("/v1/vms/{}", escape(name)))
    }

    /// `POST /v1/vms`: creates a VM port.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_vm(&self, vm: &VmCreate) -> Result<VmInfo, ClientError> {
        self.post("/v1/vms", vm)
    }

    /// `DELETE /v1/vms/{name}`: destroys a VM port.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn destroy_vm(&self, name: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/vms/{}", escape(name)))
    }

    /// `POST /v1/captures`: starts a capture of the packets of an IPCP.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_capture(&self, capture: &CaptureCreate) -> Result<CaptureInfo, ClientError> {
        self.post("/v1/captures", capture)
    }

    /// `GET /v1/captures/{id}`: returns the next part of the capture, as pcapng. The node waits up
    /// to `wait` (at most 5 s) for a packet. It ends a capture that no client reads for 15 s.
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

    /// `GET /v1/events`: returns events after number `since`. Without any, the node waits up
    /// to `wait` (at most 30 s) for one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn events(&self, since: u64, wait: Duration) -> Result<Events, ClientError> {
        self.waiting(wait).get(&format!(
            "/v1/events?since={since}&wait_ms={}",
            wait.as_millis()
        ))
    }

    /// Returns this client with its time limit for answers extended by `wait`, for a request to
    /// which the node may answer only after `wait`.
    #[must_use]
    pub fn waiting(&self, wait: Duration) -> Self {
        self.clone()
            .with_answer_limit(self.answer_limit.saturating_add(wait))
    }

    /// `POST /v1/apply`: applies a configuration, given as TOML.
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

    /// Sends a `GET` for any target and returns the body as text, for tools that print it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get_text(&self, target: &str) -> Result<String, ClientError> {
        let reply = self.exchange("GET", target, None)?;
        String::from_utf8(reply).map_err(|e| self.protocol(e.to_string()))
    }

    /// Sends a `GET` for any target and decodes the JSON body. It serves targets that have no
    /// method of their own, and servers other than a node.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, ClientError> {
        let reply = self.exchange("GET", target, None)?;
        self.read_json(&reply)
    }

    /// Sends a `POST` with `body` as JSON and decodes the JSON answer, like [`Client::get`].
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

    /// Sends a request whose body is JSON text already, and decodes the answer like
    /// [`Client::get`].
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

    /// Sends a `POST` whose answer is a stream of lines. Calls `on_line` with each line, until the
    /// stream ends or `on_line` returns [`ControlFlow::Break`]. Then returns `None`. Returns the
    /// decoded value of a server that answers with one JSON value instead.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn post_streamed<B: Serialize, T: DeserializeOwned>(
        &self,
        target: &str,
        body: &B,
        on_line: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Option<T>, ClientError> {
        let body = serde_json::to_string(body).map_err(|e| self.protocol(e.to_string()))?;
        let body = Some(("application/json", body.as_bytes()));
        let reply = self.asking("POST", target, body, |answer| read_stream(answer, on_line))?;
        match reply {
            StreamReply::Lines => Ok(None),
            StreamReply::Whole(status, body) => {
                let body = self.accepted(status, body)?;
                self.read_json(&body).map(Some)
            }
        }
    }

    /// Sends a `DELETE` for any target and ignores the body of the answer.
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
        let (status, body) = self.asking(method, target, body, read_reply)?;
        self.accepted(status, body)
    }

    /// Sends a request on a connection of its own, and reads the answer.
    fn asking<T>(
        &self,
        method: &str,
        target: &str,
        body: Option<(&str, &[u8])>,
        read: impl FnOnce(&mut BufReader<Answer>) -> io::Result<T>,
    ) -> Result<T, ClientError> {
        let connected = carina_sys::connect_stream(&self.path, self.answer_limit);
        let stream = connected.map_err(|source| ClientError::Connect {
            server: self.server,
            path: self.path.clone(),
            source,
        })?;
        let answer = self.request_on(stream, method, target, body);
        answer
            .and_then(|mut answer| read(&mut answer))
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
            })
    }

    /// The body of an answer, unless it is a refusal.
    fn accepted(&self, status: u16, body: Vec<u8>) -> Result<Vec<u8>, ClientError> {
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

    fn request_on(
        &self,
        mut stream: UnixStream,
        method: &str,
        target: &str,
        body: Option<(&str, &[u8])>,
    ) -> io::Result<BufReader<Answer>> {
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
            // The server may have answered and closed the connection before it read the body.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
        Ok(BufReader::new(Answer {
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

/// Reads from the server's socket until a deadline.
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

/// Percent-encodes `text` as one segment of a URL path.
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

/// Default time limit for an answer. A node may itself wait up to 12 s for other members of a DIF.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
