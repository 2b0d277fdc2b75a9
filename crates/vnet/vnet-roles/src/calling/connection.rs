//! A connection to another party, for one request after the other.

use std::io::{self, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use carina_api::control::{ErrorReply, StreamReply, read_reply, read_stream};
use carina_api::{DifName, ErrorBody, FlowSpec};
use carina_client::{Node, name};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError, ClientConnection, StreamOwned};

use super::address::Address;
use crate::identity::Identity;
use crate::keys::Tls;
use crate::wire::{Ender, Wire};

/// An open TLS connection to another party. It carries one request after the other.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<StreamOwned<ClientConnection, Wire>>,
    host: String,
}

/// Why a request to another party failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The party is not reached, or cannot prove its identity.
    #[error("{callee} cannot be reached at {address}: {source}")]
    Unreached {
        /// Role and name of the party that was called.
        callee: Identity,
        /// Address at which the party was called.
        address: String,
        /// Why the party was not reached.
        source: io::Error,
    },
    /// The connection to the party broke before the answer was complete.
    #[error("the call to {callee} at {address} broke off: {source}")]
    Broken {
        /// Role and name of the party that was called.
        callee: Identity,
        /// Address at which the party was called.
        address: String,
        /// Why the connection broke.
        source: io::Error,
    },
    /// The party refuses the request.
    #[error("{0}")]
    Refused(#[from] ErrorBody),
    /// The answer is not of the expected kind.
    #[error("{callee} sent an unexpected answer: {what}")]
    Answer {
        /// Role and name of the party that sent the answer.
        callee: Identity,
        /// What is wrong with the party's answer.
        what: String,
    },
}

impl CallError {
    /// Whether the same call would fail again until the keys or the request have changed.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            CallError::Unreached { source, .. } | CallError::Broken { source, .. } => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            CallError::Refused(body) => body.is_final,
            CallError::Answer { .. } => false,
        }
    }
}

/// Rewrites a TLS error as text that says what helps. Errors of certificates get the kind
/// `PermissionDenied`.
fn in_plain_words(source: io::Error) -> io::Error {
    use io::ErrorKind::{PermissionDenied, UnexpectedEof};
    let denied = |words: &str| io::Error::new(PermissionDenied, words.to_owned());
    let inner = source.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(wrong)) => match wrong {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => denied(
                "its certificate is not issued by the authority in this party's `ca.pem`; use \
                 keys of the same authority (`carina vnet keys`)",
            ),
            CertificateError::Revoked => denied("its certificate is revoked"),
            wrong => denied(&format!("its certificate is invalid: {wrong}")),
        },
        Some(rustls::Error::AlertReceived(alert)) => match alert {
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError => denied(
                "it rejects this party's certificate, which may be of another authority; use keys \
                 of the same authority (`carina vnet keys`)",
            ),
            AlertDescription::CertificateRevoked => denied("this party's certificate is revoked"),
            AlertDescription::CertificateExpired => denied("this party's certificate has expired"),
            AlertDescription::CertificateRequired | AlertDescription::AccessDenied => {
                denied("it denies access to the owner of this party's certificate")
            }
            _ => source,
        },
        _ if source.kind() == UnexpectedEof => {
            io::Error::new(UnexpectedEof, "the other side has closed the connection")
        }
        _ => source,
    }
}

/// Everything that is needed to call a party: its identity and address, and the caller's
/// certificate.
#[derive(Clone, Debug)]
pub struct Callee {
    /// The party to call; its certificate must have this role and name.
    pub party: Identity,
    /// The party's address.
    pub address: Address,
    /// The caller's own certificate and key.
    pub tls: Tls,
}

impl Callee {
    /// Connects to the party.
    ///
    /// # Errors
    /// [`CallError::Unreached`].
    pub fn connect(&self) -> Result<Connection, CallError> {
        let reached = self.try_connect();
        reached.map_err(|source| CallError::Unreached {
            callee: self.party.clone(),
            address: self.address.to_string(),
            source: in_plain_words(source),
        })
    }

    fn try_connect(&self) -> io::Result<Connection> {
        match &self.address {
            Address::Tcp(address) => self.secure(Wire::Tcp(tcp(address)?)),
            Address::Dif { dif, node } => self.secure(self.flow(dif, node)?),
        }
    }

    /// Allocates a flow from the caller's own name to the party's name.
    fn flow(&self, dif: &DifName, node: &Path) -> io::Result<Wire> {
        let own = name(&self.tls.party().domain()).map_err(io::Error::other)?;
        let callee = name(&self.party.domain()).map_err(io::Error::other)?;
        let node = Node::connect_within(node, CONNECT).map_err(io::Error::other)?;
        let flow = node.allocate_socket(&own, &callee, Some(dif), &FlowSpec::reliable());
        let socket = flow.map_err(io::Error::other)?.socket;
        Ok(Wire::of_flow(UnixStream::from(socket)))
    }

    fn secure(&self, mut stream: Wire) -> io::Result<Connection> {
        stream.set_limits(CONNECT, CONNECT)?;
        let mut session = self.tls.call(&self.party).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Connection {
            stream: BufReader::new(StreamOwned::new(session, stream)),
            host: self.party.domain(),
        })
    }

    fn broken(&self, source: io::Error) -> CallError {
        CallError::Broken {
            callee: self.party.clone(),
            address: self.address.to_string(),
            source: in_plain_words(source),
        }
    }

    /// Sends a request over a connection and returns the body of the answer.
    ///
    /// # Errors
    /// Any error but [`CallError::Unreached`]. The caller must drop the connection, unless the
    /// error is a refusal.
    pub fn request(
        &self,
        connection: &mut Connection,
        request: &Request<'_>,
    ) -> Result<Vec<u8>, CallError> {
        let answer = connection.exchange(request);
        let (status, body) = answer.map_err(|source| self.broken(source))?;
        self.accepted(status, body)
    }
}

impl Callee {
    /// Sends a request over a new connection, and passes each line of the streamed answer to
    /// `on_line` until the answer ends or `on_line` breaks off. Returns `None` then. A party that
    /// does not stream answers with a body, which is returned.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn stream(
        &self,
        request: &Request<'_>,
        on_line: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Option<Vec<u8>>, CallError> {
        let mut connection = self.connect()?;
        let answer = connection
            .send(request)
            .and_then(|()| read_stream(&mut connection.stream, on_line));
        match answer.map_err(|source| self.broken(source))? {
            StreamReply::Lines => Ok(None),
            StreamReply::Whole(status, body) => self.accepted(status, body).map(Some),
        }
    }

    /// The body of an answer, unless it is a refusal.
    fn accepted(&self, status: u16, body: Vec<u8>) -> Result<Vec<u8>, CallError> {
        if (200..300).contains(&status) {
            return Ok(body);
        }
        match serde_json::from_slice::<ErrorReply>(&body) {
            Ok(reply) => Err(CallError::Refused(reply.error)),
            Err(_) => Err(CallError::Answer {
                callee: self.party.clone(),
                what: format!("status {status}"),
            }),
        }
    }
}

/// An HTTP request to another party.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// HTTP method, such as `GET`.
    pub method: &'a str,
    /// Path and query of the request, such as `/v1/messages`.
    pub target: &'a str,
    /// Body, as JSON.
    pub body: &'a str,
    /// How long the party may take to answer, beyond the usual limit.
    pub wait: Duration,
}

impl Connection {
    fn exchange(&mut self, request: &Request<'_>) -> io::Result<(u16, Vec<u8>)> {
        self.send(request)?;
        read_reply(&mut self.stream)
    }

    fn send(&mut self, request: &Request<'_>) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.sock.set_limits(request.wait + ANSWER, ANSWER)?;
        let (method, target, length) = (request.method, request.target, request.body.len());
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n",
            self.host
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(request.body.as_bytes())?;
        stream.flush()
    }

    /// The certificate of the other party.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let shown = self.stream.get_ref().conn.peer_certificates()?;
        shown
            .first()
            .map(|certificate| certificate.clone().into_owned())
    }

    /// Converts an unused connection into a stream, for protocols other than HTTP. `limit` is the
    /// timeout of each read and write.
    ///
    /// # Errors
    /// The system refuses to set the timeout.
    pub fn into_stream(self, limit: Duration) -> io::Result<StreamOwned<ClientConnection, Wire>> {
        let stream = self.stream.into_inner();
        stream.sock.set_limits(limit, limit)?;
        Ok(stream)
    }

    /// A handle to end the connection from another thread.
    ///
    /// # Errors
    /// The system cannot duplicate the socket.
    pub(crate) fn ender(&self) -> io::Result<Ender> {
        self.stream.get_ref().sock.ender()
    }
}

fn tcp(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Timeout of connecting, and of each step of the handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of each piece of an answer, in addition to the wait of the request itself.
const ANSWER: Duration = Duration::from_secs(35);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_tls_say_what_would_help() {
        let callee = Identity::new(crate::identity::Role::Vno, "acme").unwrap();
        let error = |source: io::Error| CallError::Unreached {
            callee: callee.clone(),
            address: "192.0.2.1:7099".to_owned(),
            source: in_plain_words(source),
        };
        let wrong = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let unknown = error(io::Error::new(io::ErrorKind::InvalidData, wrong));
        assert!(
            unknown.is_final() && unknown.to_string().contains("ca.pem"),
            "{unknown}"
        );
        for alert in [
            AlertDescription::UnknownCA,
            AlertDescription::CertificateUnknown,
            AlertDescription::CertificateRequired,
            AlertDescription::CertificateExpired,
            AlertDescription::AccessDenied,
        ] {
            let alert = rustls::Error::AlertReceived(alert);
            let refused = error(io::Error::other(alert));
            assert!(
                refused.is_final() && refused.to_string().contains("this party's certificate"),
                "{refused}"
            );
        }
        let words = "peer closed connection without sending TLS close_notify: https://docs.rs/";
        let closed = error(io::Error::new(io::ErrorKind::UnexpectedEof, words));
        assert!(!closed.is_final());
        assert!(
            closed.to_string().ends_with("has closed the connection"),
            "{closed}"
        );
        assert!(!error(io::ErrorKind::ConnectionRefused.into()).is_final());
    }
}
