//! Joining: shows a token to its access point and receives what the user gets.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::control::{Joined, Reply, Request};
use crate::key::PrivateKey;
use crate::refusal::Refused;
use crate::token::Token;
use crate::tunnel::DATAGRAM_MAX;
use crate::user_app::any_address;
use crate::user_end::{UserEnd, UserSink};

/// The answer of an access point that has accepted a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Address of the access point that has answered.
    pub point: SocketAddr,
    /// The user's settings in the network: address, routes, rate and others.
    pub joined: Joined,
}

/// Why joining failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The access point refuses the token.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// No access point answers.
    #[error(
        "no access point with the key of the token answers at {tried} within {} s: the network \
         may be removed, or a firewall may drop UDP packets", limit.as_secs()
    )]
    Silent {
        /// The addresses that were tried.
        tried: String,
        /// How long this system tried to reach the addresses.
        limit: Duration,
    },
    /// A socket cannot be opened.
    #[error("opening a UDP socket for {point}: {source}")]
    Socket {
        /// Address and UDP port of the access point that refused or did not answer.
        point: SocketAddr,
        /// Why the operating system could not open the socket.
        source: std::io::Error,
    },
    /// The caller has interrupted the attempt.
    #[error("interrupted")]
    Interrupted,
}

/// An attempt at one address of the access point.
struct Attempt {
    socket: UdpSocket,
    end: UserEnd,
    point: SocketAddr,
}

/// Sends an attempt's datagrams, and keeps the answer.
struct Heard<'a> {
    socket: &'a UdpSocket,
    point: SocketAddr,
    reply: Option<Reply>,
}

impl UserSink for Heard<'_> {
    fn send(&mut self, datagram: &[u8]) {
        // A lost datagram is sent again.
        let _ = self.socket.send_to(datagram, self.point);
    }

    fn deliver(&mut self, _: &[u8]) {}

    fn hear(&mut self, reply: Reply) {
        self.reply = Some(reply);
    }
}

/// Shows a token at all addresses of its access point until one answers. `key` is the key of this
/// system. `is_interrupted` is called several times a second.
///
/// # Errors
/// The token is refused, no access point answers within `limit`, or the attempt is interrupted.
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

/// Time between two requests.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);
/// Largest number of datagrams that are read at a time.
const BURST: usize = 32;
