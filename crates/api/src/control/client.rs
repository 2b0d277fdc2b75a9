//! A blocking client for `control.sock`: HTTP/1.1 over a Unix socket, one connection per request.
//!
//! It understands what the node sends (a `Content-Length` or a chunked body) and refuses answers
//! beyond [`REPLY_BYTES_MAX`].

mod dif;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{
    AppInfo, Applied, CaptureCreate, CaptureEnd, CaptureInfo, DifInfo, ErrorReply, Events,
    FlowInfo, IpcpCreate, IpcpInfo, NodeInfo, VmCreate, VmInfo,
};
use crate::paths::RunDir;
use crate::{ErrorBody, PortId};

/// A client of one node's `control.sock`.
#[derive(Debug, Clone)]
pub struct Client {
    path: PathBuf,
    answer_limit: Duration,
}

/// Why a request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No node answers on the socket.
    #[error("no node answers on {}: {source}{}", path.display(), advice(source))]
    Connect {
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
        "the node on {} has not answered `{request}` within {} s; it is stopped, stuck or very busy",
        path.display(), limit.as_secs_f32()
    )]
    Silent {
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

/// What to do about a node that cannot be reached: one that accepts nothing runs already.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::TimedOut => "",
        _ => "; start one with `carina node`",
    }
}

impl Client {
    /// A client of the node whose socket is `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            answer_limit: ANSWER_LIMIT,
        }
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
    fn waiting(&self, wait: Duration) -> Self {
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

    fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, ClientError> {
        let reply = self.exchange("GET", target, None)?;
        self.read_json(&reply)
    }

    fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        target: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| self.protocol(e.to_string()))?;
        let reply = self.exchange("POST", target, Some(("application/json", &body)))?;
        self.read_json(&reply)
    }

    fn delete(&self, target: &str) -> Result<(), ClientError> {
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
            path: self.path.clone(),
            source,
        })?;
        let (status, body) = self
            .exchange_on(stream, method, target, body)
            .map_err(|source| match source.kind() {
                io::ErrorKind::InvalidData => self.protocol(source.to_string()),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent {
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
        stream.write_all(head.as_bytes())?;
        if let Some((_, body)) = body {
            stream.write_all(body)?;
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

/// How the length of a body is known.
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

fn read_reply(reader: &mut impl BufRead) -> io::Result<(u16, Vec<u8>)> {
    let status_line = read_line(reader)?;
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| status_line.strip_prefix("HTTP/1.0 "))
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse::<u16>().ok())
        .ok_or_else(|| invalid(format!("the status line {status_line:?}")))?;
    let mut framing = if status == 204 {
        Framing::Length(0)
    } else {
        Framing::UntilClose
    };
    for _ in 0..HEADERS_MAX {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok((status, read_body(reader, framing)?));
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| invalid(format!("the header {line:?}")))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let length = value
                .parse()
                .map_err(|_| invalid(format!("the length {value:?}")))?;
            framing = Framing::Length(length);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
        }
    }
    Err(invalid(format!("more than {HEADERS_MAX} headers")))
}

fn read_body(reader: &mut impl BufRead, framing: Framing) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    match framing {
        Framing::Length(length) => read_exactly(reader, length, &mut body)?,
        Framing::UntilClose => {
            reader
                .take(REPLY_BYTES_MAX as u64 + 1)
                .read_to_end(&mut body)?;
            if body.len() > REPLY_BYTES_MAX {
                return Err(invalid(format!("a body beyond {REPLY_BYTES_MAX} bytes")));
            }
        }
        Framing::Chunked => loop {
            let line = read_line(reader)?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length = usize::from_str_radix(digits, 16)
                .map_err(|_| invalid(format!("the chunk length {digits:?}")))?;
            if length == 0 {
                break;
            }
            read_exactly(reader, length, &mut body)?;
            if !read_line(reader)?.is_empty() {
                return Err(invalid("a chunk longer than its length".into()));
            }
        },
    }
    Ok(body)
}

fn read_exactly(reader: &mut impl BufRead, length: usize, body: &mut Vec<u8>) -> io::Result<()> {
    if length > REPLY_BYTES_MAX.saturating_sub(body.len()) {
        return Err(invalid(format!("a body beyond {REPLY_BYTES_MAX} bytes")));
    }
    let start = body.len();
    reader.take(length as u64).read_to_end(body)?;
    if body.len() - start != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(match line.len() as u64 + 1 >= LINE_BYTES_MAX {
            true => invalid(format!("a line beyond {LINE_BYTES_MAX} bytes")),
            false => io::ErrorKind::UnexpectedEof.into(),
        });
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| invalid("a header that is not UTF-8".into()))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Writes `text` as one segment of a path.
fn escape(text: &str) -> String {
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

/// Longest answer read, in bytes.
pub const REPLY_BYTES_MAX: usize = 16 << 20;

const LINE_BYTES_MAX: u64 = 8192;
const HEADERS_MAX: usize = 64;

#[cfg(test)]
mod tests;
