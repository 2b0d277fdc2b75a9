//! What a client says before its bytes flow, in either protocol.

use crate::proxy::body::Body;
use crate::proxy::destination::Destination;
use crate::proxy::http::{self, HttpRequest};
use crate::proxy::refusal::Refusal;
use crate::proxy::settings::Protocol;
use crate::proxy::socks::{self, Socks5, Step};

/// The protocol of a client, and what has been read of it.
#[derive(Debug)]
pub(crate) enum Handshake {
    /// The first byte of the client will tell.
    Either,
    Socks5(Socks5),
    Http,
}

/// What a client's bytes mean.
#[derive(Debug)]
pub(crate) enum Heard {
    /// More bytes are needed.
    More,
    /// Send this, then continue.
    Send(Vec<u8>),
    /// The client wants a connection.
    Asked(Asked),
    /// Send `answer`, then close.
    Wrong { answer: Vec<u8>, why: String },
}

/// The connection that a client wants.
#[derive(Debug)]
pub(crate) struct Asked {
    pub to: Destination,
    /// What the client is sent when the connection is made.
    pub established: Vec<u8>,
    /// What the server is sent first.
    pub head: Vec<u8>,
    /// The end of what the client may send to this server; `None` if nothing ends it.
    pub body: Option<Body>,
}

impl Handshake {
    /// The handshake of a client that speaks `protocol`, or either if that is `None`.
    pub(crate) fn new(protocol: Option<Protocol>) -> Handshake {
        match protocol {
            None => Handshake::Either,
            Some(Protocol::Socks5) => Handshake::Socks5(Socks5::default()),
            Some(Protocol::Http) => Handshake::Http,
        }
    }

    /// Takes the next message off `input`. What stays in `input` behind a request belongs to the
    /// server.
    pub(crate) fn hear(&mut self, input: &mut Vec<u8>) -> Heard {
        if let (Handshake::Either, Some(first)) = (&*self, input.first()) {
            *self = Handshake::new(Some(match socks::is_version(*first) {
                true => Protocol::Socks5,
                false => Protocol::Http,
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

    /// What the client is sent when the connection cannot be made.
    pub(crate) fn refuse(&self, refusal: &Refusal) -> Vec<u8> {
        match self {
            // Such a client has asked for nothing.
            Handshake::Either => Vec::new(),
            Handshake::Socks5(_) => socks::reply(refusal.socks_code()).to_vec(),
            Handshake::Http => http::answer(refusal.http_status(), &refusal.text),
        }
    }
}
