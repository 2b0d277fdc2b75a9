//! Joining: a token is shown to its access point, which says what the user gets.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::control::{Joined, Reply, Request};
use crate::key::PrivateKey;
use crate::refusal::Refused;
use crate::token::Token;
use crate::tunnel::DATAGRAM_MAX;
use crate::user_app::any_address;
use crate::user_end::{UserEnd, UserSink};

/// What came of joining.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The address of the access point that has answered.
    pub point: SocketAddr,
    /// What it gives.
    pub joined: Joined,
}

/// Why a user could not join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The access point refuses the token.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Nothing answers.
    #[error(
        "no access point with the key of the token answers at {tried} within {} s: the network may \
         have gone, or UDP does not pass on the way", limit.as_secs()
    )]
    Silent {
        /// The addresses that were tried.
        tried: String,
        /// For how long.
        limit: Duration,
    },
    /// No socket.
    #[error("a socket for {point}: {source}")]
    Socket {
        /// The address of the access point.
        point: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Someone has had enough of it.
    #[error("interrupted")]
    Interrupted,
}

/// One address of the access point that is tried.
struct Attempt {
    socket: UdpSocket,
    end: UserEnd,
    point: SocketAddr,
}

/// What the machine of an attempt gives.
struct Heard<'a> {
    socket: &'a UdpSocket,
    point: SocketAddr,
    reply: Option<Reply>,
}

impl UserSink for Heard<'_> {
    fn send(&mut self, datagram: &[u8]) {
        // What is lost is sent again.
        let _ = self.socket.send_to(datagram, self.point);
    }

    fn deliver(&mut self, _: &[u8]) {}

    fn hear(&mut self, reply: Reply) {
        self.reply = Some(reply);
    }
}

/// Shows a token at all addresses of its access point, for a system with this key, until one
/// answers. `is_interrupted` is asked several times a second.
///
/// # Errors
/// The token is refused, or no one answers within `limit`.
pub fn join(
    token: &Token,
    key: &PrivateKey,
    limit: Duration,
    mut is_interrupted: impl FnMut() -> bool,
) -> Result<Admission, JoinError> {
    let claims = token.claims();
    let (mut attempts, mut failure) = (Vec::new(), None);
    for point in &claims.at {
        match socket_for(*point) {
            Ok(socket) => attempts.push(Attempt {
                end: UserEnd::new(key, claims.key, *point, None),
                socket,
                point: *point,
            }),
            Err(source) => {
                failure = Some(JoinError::Socket {
                    point: *point,
                    source,
                })
            }
        }
    }
    if let (true, Some(failure)) = (attempts.is_empty(), failure) {
        return Err(failure);
    }
    let begin = Instant::now();
    let mut asked: Option<Instant> = None;
    let request = Request::Join(token.text().to_owned());
    while begin.elapsed() < limit {
        if is_interrupted() {
            return Err(JoinError::Interrupted);
        }
        let asks = asked.is_none_or(|asked| asked.elapsed() >= ASK_AGAIN);
        if asks {
            asked = Some(Instant::now());
        }
        for attempt in &mut attempts {
            match attempt.visit(asks.then_some(&request)) {
                None => {}
                Some(Reply::Refused(refused)) => return Err(refused.into()),
                Some(Reply::Joined(joined)) => {
                    let point = attempt.point;
                    return Ok(Admission { point, joined });
                }
            }
        }
        std::thread::sleep(LOOK);
    }
    let tried: Vec<String> = claims.at.iter().map(ToString::to_string).collect();
    let tried = tried.join(" and ");
    Err(JoinError::Silent { tried, limit })
}

impl Attempt {
    fn visit(&mut self, request: Option<&Request>) -> Option<Reply> {
        let Attempt { socket, end, point } = self;
        let mut heard = Heard {
            socket,
            point: *point,
            reply: None,
        };
        let mut bytes = [0; DATAGRAM_MAX];
        for _ in 0..BURST {
            let Ok((count, from)) = socket.recv_from(&mut bytes) else {
                break;
            };
            end.handle_datagram(from, &bytes[..count], &mut heard);
        }
        end.tick(&mut heard);
        if let Some(request) = request {
            end.ask(request, &mut heard);
        }
        heard.reply
    }
}

fn socket_for(point: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(any_address(point))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// How often the request is made.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);
/// Datagrams that are read at a time.
const BURST: usize = 32;
