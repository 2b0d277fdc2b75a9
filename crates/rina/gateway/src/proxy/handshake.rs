//! What a client says before its bytes flow, in either protocol.

use crate::proxy::body::Body;
use crate::proxy::destination::Destination;
use crate::proxy::http::{self, HttpRequest};
use crate::proxy::refusal::Refusal;
use crate::proxy::settings::Protocol;
use crate::proxy::socks::{self, Socks5, Step};

/// The conversation in which a client names its destination: the client's protocol, and how much of
/// the conversation has taken place.
#[derive(Debug)]
pub(crate) enum Handshake {
    /// The client's first byte will select the protocol.
    Either,
    Socks5(Socks5),
    Http,
}

/// What the proxy must do after it has read bytes of a client.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Read more bytes: the client's message is incomplete.
    More,
    /// Send these bytes to the client, then read more.
    Send(Vec<u8>),
    /// Make the connection that the client requests.
    Asked(Asked),
    /// Send `answer` to the client, close the connection, and log `why`.
    Wrong { answer: Vec<u8>, why: String },
}

/// A client's request for a connection to a server.
#[derive(Debug)]
pub(crate) struct Asked {
    pub to: Destination,
    /// Bytes to send to the client when the connection to the server is established.
    pub established: Vec<u8>,
    /// The head of a forwarded HTTP request, which the proxy sends to the server before it forwards
    /// any byte of the client. Empty for other requests.
    pub head: Vec<u8>,
    /// The body of a forwarded HTTP request: the server gets the client's bytes up to its end.
    /// `None` for CONNECT and SOCKS, where all bytes are for the server.
    pub body: Option<Body>,
}

impl Handshake {
    /// Makes the handshake of a client with this protocol. `None`: the client's first byte selects
    /// the protocol.
    pub(crate) fn new(protocol: Option<Protocol>) -> Handshake {
        match protocol {
            None => Handshake::Either,
            Some(Protocol::Socks5) => Handshake::Socks5(Socks5::default()),
            Some(Protocol::Http) => Handshake::Http,
        }
    }

    /// Removes the next complete message from `input` and returns what to do. Bytes that remain in
    /// `input` behind a request belong to the server.
    pub(crate) fn hear(&mut self, input: &mut Vec<u8>) -> Heard {
        if let (Handshake::Either, Some(first)) = (&*self, input.first()) {
            *self = Handshake::new(Some(if socks::is_version(*first) {
                Protocol::Socks5
            } else {
                Protocol::Http
            }));
        }
        match self {
            Handshake::Either => Heard::More,
            Handshake::Socks5(socks) => match socks.step(input) {
                Ok(Step::More) => Heard::More,
                Ok(Step::Send(bytes)) => Heard::Send(bytes.to_vec()),
                Ok(Step::Connect(to)) => Heard::Asked(Asked {
                    to,
                    established: socks::reply(socks::SUCCEEDED).to_vec(),
                    head: Vec::new(),
                    body: None,
                }),
                Err(error) => Heard::Wrong {
                    answer: error.answer(),
                    why: error.to_string(),
                },
            },
            Handshake::Http => match http::take_request(input) {
                Ok(None) => Heard::More,
                Ok(Some(HttpRequest::Tunnel(to))) => Heard::Asked(Asked {
                    to,
                    established: http::ESTABLISHED.to_vec(),
                    head: Vec::new(),
                    body: None,
                }),
                Ok(Some(HttpRequest::Forward { to, head, body })) => Heard::Asked(Asked {
                    to,
                    established: Vec::new(),
                    head,
                    body: Some(body),
                }),
                Err(error) => Heard::Wrong {
                    answer: http::answer(error.status(), &error.to_string()),
                    why: error.to_string(),
                },
            },
        }
    }

    /// The bytes to send to the client when the connection to the server cannot be made, in the
    /// client's protocol. Empty if the client has sent nothing.
    pub(crate) fn refuse(&self, refusal: &Refusal) -> Vec<u8> {
        match self {
            // Such a client has asked for nothing.
            Handshake::Either => Vec::new(),
            Handshake::Socks5(_) => socks::reply(refusal.socks_code()).to_vec(),
            Handshake::Http => http::answer(refusal.http_status(), &refusal.text),
        }
    }
}
