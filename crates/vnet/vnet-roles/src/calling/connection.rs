//! A connection to another party, over which one request goes after the other.

use std::io::{self, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use carina_api::control::{ErrorReply, read_reply};
use carina_api::{DifName, ErrorBody, FlowSpec};
use carina_client::{Node, name};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CertificateError, ClientConnection, StreamOwned};

use super::address::Address;
use crate::identity::Identity;
use crate::keys::Tls;
use crate::wire::{Ender, Wire};

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<StreamOwned<ClientConnection, Wire>>,
    host: String,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The other side is not reached, or is not who it should be.
    #[error("{callee} at {address} is not reached: {source}")]
    Unreached {
        /// Who was called.
        callee: Identity,
        /// Where.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the call to {callee} at {address} broke off: {source}")]
    Broken {
        /// Who was called.
        callee: Identity,
        /// Where.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// It refuses.
    #[error("{0}")]
    Refused(#[from] ErrorBody),
    /// The answer is not what was expected.
    #[error("{callee} answers with something else: {what}")]
    Answer {
        /// Who was called.
        callee: Identity,
        /// What is wrong.
        what: String,
    },
}

impl CallError {
    /// Whether the same call fails each time, until keys or what is asked for are others.
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

/// An error of TLS in words that say what would help; one of certificates denies permission.
fn in_plain_words(source: io::Error) -> io::Error {
    use io::ErrorKind::{PermissionDenied, UnexpectedEof};
    let denied = |words: &str| io::Error::new(PermissionDenied, words.to_owned());
    let inner = source.get_ref();
    match inner.and_then(|it| it.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(wrong)) => match wrong {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => denied(
                "its certificate is not of the authority in `ca.pem` here; use keys of the same \
                 authority (`carina vnet keys`)",
            ),
            CertificateError::Revoked => denied("its certificate is revoked"),
            wrong => denied(&format!("its certificate does not hold: {wrong}")),
        },
        Some(rustls::Error::AlertReceived(alert)) => match alert {
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError => denied(
                "it does not accept the certificate here, which may be of another authority; use \
                 keys of the same authority (`carina vnet keys`)",
            ),
            AlertDescription::CertificateRevoked => denied("the certificate here is revoked"),
            AlertDescription::CertificateExpired => denied("the certificate here has expired"),
            AlertDescription::CertificateRequired | AlertDescription::AccessDenied => {
                denied("it does not let in who has the certificate here")
            }
            _ => source,
        },
        _ if source.kind() == UnexpectedEof => {
            io::Error::new(UnexpectedEof, "the other side has closed the connection")
        }
        _ => source,
    }
}

/// A way to a party.
#[derive(Clone, Debug)]
pub struct Callee {
    /// Who it is.
    pub party: Identity,
    /// Where.
    pub address: Address,
    /// By whose certificate it is called.
    pub tls: Tls,
}

impl Callee {
    /// Calls.
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

    /// A flow from the own name to that of the party.
    fn flow(&self, dif: &DifName, node: &Path) -> io::Result<Wire> {
        let own = name(&self.tls.party().domain()).map_err(io::Error::other)?;
        let there = name(&self.party.domain()).map_err(io::Error::other)?;
        let node = Node::connect_within(node, CONNECT).map_err(io::Error::other)?;
        let flow = node.allocate_socket(&own, &there, Some(dif), &FlowSpec::reliable());
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

    /// Sends a request over a connection and reads the body of the answer.
    ///
    /// # Errors
    /// All but [`CallError::Unreached`]; the connection is to be dropped unless it is a refusal.
    pub fn request(
        &self,
        connection: &mut Connection,
        request: &Request<'_>,
    ) -> Result<Vec<u8>, CallError> {
        let answer = connection.exchange(request);
        let (status, body) = answer.map_err(|source| self.broken(source))?;
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

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The body, which is JSON.
    pub body: &'a str,
    /// How long the other side may take until it answers.
    pub wait: Duration,
}

impl Connection {
    fn exchange(&mut self, request: &Request<'_>) -> io::Result<(u16, Vec<u8>)> {
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
        stream.flush()?;
        read_reply(&mut self.stream)
    }

    /// The certificate that the other side has shown.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let shown = self.stream.get_ref().conn.peer_certificates()?;
        shown.first().map(|it| it.clone().into_owned())
    }

    /// The stream itself, for what is no HTTP. Nothing was asked over it yet. A read, and a write,
    /// may wait for so long.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn into_stream(self, limit: Duration) -> io::Result<StreamOwned<ClientConnection, Wire>> {
        let stream = self.stream.into_inner();
        stream.sock.set_limits(limit, limit)?;
        Ok(stream)
    }

    /// A way to end it from another thread.
    ///
    /// # Errors
    /// The system's refusal.
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

/// How long connecting, and a step of the handshake, may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long each piece of an answer may take, besides what the request itself waits for.
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
                refused.is_final() && refused.to_string().contains("the certificate here"),
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
