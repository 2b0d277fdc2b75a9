//! Bytes between two sockets, in both directions, each of which ends by itself.
//!
//! A direction reads only when all that it has read is written, so a reader that stops holds its
//! writer back.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::connection::reset;
use crate::proxy::body::Body;

/// An established connection: copies bytes between the client's socket and the server's, in both
/// directions.
#[derive(Debug)]
pub(crate) struct Relay {
    client: OwnedFd,
    server: OwnedFd,
    up: Direction,
    down: Direction,
    /// The body of a forwarded HTTP request, behind whose end the client's bytes are not copied;
    /// `None` if all bytes are.
    body: Option<Body>,
}

/// The result of one turn of a [`Relay`], which copies a limited number of bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Neither direction can continue before a socket becomes readable or writable.
    Waiting,
    /// There is more to do now; other connections run first.
    Busy,
    /// The connection has ended: both directions have, the server has answered a forwarded request,
    /// or a socket failed.
    Ended,
}

/// One direction.
#[derive(Debug)]
struct Direction {
    /// Bytes that were read from one socket and not yet written to the other. Takes memory only
    /// while there are such bytes.
    unsent: Vec<u8>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The reader has seen the end; what is unsent is written first.
    Ending,
    Ended,
}

impl Relay {
    /// A relay that first sends `to_client` and `to_server`.
    pub(crate) fn new(
        client: OwnedFd,
        server: OwnedFd,
        to_client: Vec<u8>,
        to_server: Vec<u8>,
        body: Option<Body>,
    ) -> Relay {
        Relay {
            client,
            server,
            up: Direction::new(to_server),
            down: Direction::new(to_client),
            body,
        }
    }

    /// Copies bytes in both directions until both wait for their sockets, or the limit of a turn is
    /// reached.
    pub(crate) fn turn(&mut self, buffer: &mut [u8]) -> Turn {
        let body = self.body.as_mut();
        let up = match self.up.turn(&self.client, &self.server, buffer, body) {
            // The server reads no more, but what it has sent is for the client.
            Err(Errno::PIPE) => {
                self.up = Direction::new(Vec::new());
                self.up.state = State::Ended;
                Ok(false)
            }
            up => up,
        };
        let down = self.down.turn(&self.server, &self.client, buffer, None);
        match (up, down) {
            (Err(_), _) | (_, Err(_)) => Turn::Ended,
            // The server has answered a request; the client's direction has no more to say.
            (_, Ok(_)) if self.body.is_some() && self.down.state == State::Ended => Turn::Ended,
            _ if self.up.state == State::Ended && self.down.state == State::Ended => Turn::Ended,
            (Ok(true), _) | (_, Ok(true)) => Turn::Busy,
            _ => Turn::Waiting,
        }
    }

    /// Closes both connections. If the server's direction has not ended properly, the client sees a
    /// reset. The server sees a reset if it has not received everything that the client had to
    /// send.
    pub(crate) fn close(self) {
        let has_answered = self.down.state == State::Ended;
        let has_asked = match &self.body {
            Some(body) => body.is_complete() && self.up.unsent.is_empty(),
            None => self.up.state == State::Ended,
        };
        if !has_answered || (self.body.is_none() && !has_asked) {
            reset(self.client);
        }
        if !has_asked {
            reset(self.server);
        }
    }

    pub(crate) fn client(&self) -> &OwnedFd {
        &self.client
    }

    pub(crate) fn server(&self) -> &OwnedFd {
        &self.server
    }
}

impl Direction {
    fn new(unsent: Vec<u8>) -> Direction {
        let state = State::Open;
        Direction { unsent, state }
    }

    /// Moves bytes until a socket has no more or takes no more; true when the turn is over before.
    /// What stands behind `body` is discarded.
    fn turn(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        buffer: &mut [u8],
        mut body: Option<&mut Body>,
    ) -> Result<bool, Errno> {
        for _ in 0..READS_MAX {
            if !self.flush(to)? || self.state != State::Open {
                return Ok(false);
            }
            let read = match recv(from, &mut *buffer, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                read => read?.0,
            };
            if read == 0 {
                // Many servers take the end of a direction for that of the connection: the end
                // behind a whole request is not passed on.
                let is_whole = body.as_ref().is_some_and(|body| body.is_complete());
                self.state = if is_whole {
                    State::Ended
                } else {
                    State::Ending
                };
                continue;
            }
            let passed = match &mut body {
                Some(body) => body.take(&buffer[..read]).map_err(|_| Errno::PROTO)?,
                None => read,
            };
            let sent = send_some(to, &buffer[..passed])?;
            self.unsent.extend_from_slice(&buffer[sent..passed]);
        }
        Ok(true)
    }

    /// Writes the unsent bytes, and then the end of the direction if it was read. False if the
    /// socket takes no more bytes now.
    fn flush(&mut self, to: &OwnedFd) -> Result<bool, Errno> {
        if !self.unsent.is_empty() {
            let sent = send_some(to, &self.unsent)?;
            self.unsent.drain(..sent);
            if !self.unsent.is_empty() {
                return Ok(false);
            }
            self.unsent = Vec::new();
        }
        if self.state == State::Ending {
            // The other end may have closed already.
            let _ = shutdown(to, Shutdown::Write);
            self.state = State::Ended;
        }
        Ok(true)
    }
}

/// Sends as many bytes as the socket takes without waiting. Returns their number.
fn send_some(to: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    let mut sent = 0;
    while sent < bytes.len() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&to, &bytes[sent..], flags) {
            Ok(count) => sent += count,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Largest number of reads of one direction in a turn.
const READS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, OwnedFd) {
        let (ours, relays) = UnixStream::pair().unwrap();
        (ours, relays.into())
    }

    fn read(mut from: &UnixStream, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        from.read_exact(&mut buffer).unwrap();
        buffer
    }

    #[test]
    fn first_bytes_come_first_and_each_direction_ends_by_itself() {
        let ((mut client, client_end), (mut server, server_end)) = (pair(), pair());
        let first = |text: &str| text.as_bytes().to_vec();
        let mut relay = Relay::new(client_end, server_end, first("ok"), first("early"), None);
        let mut buffer = [0; 16];
        server.write_all(b"banner").unwrap();
        client.write_all(b"+late").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(relay.turn(&mut buffer), Turn::Waiting);
        assert_eq!(read(&client, 8), b"okbanner");
        let mut all = Vec::new();
        (&server).read_to_end(&mut all).unwrap();
        assert_eq!(all, b"early+late");
        server.write_all(b"more").unwrap();
        assert_eq!(relay.turn(&mut buffer), Turn::Waiting);
        drop(server);
        assert_eq!(relay.turn(&mut buffer), Turn::Ended);
        relay.close();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"more");
    }

    #[test]
    fn reader_that_stops_holds_its_writer_back() {
        let ((mut client, client_end), (server, server_end)) = (pair(), pair());
        let mut relay = Relay::new(client_end, server_end, Vec::new(), Vec::new(), None);
        client.set_nonblocking(true).unwrap();
        let mut buffer = vec![0; 4096];
        let mut written = 0;
        // The relay takes from the client only what the server's socket has room for.
        loop {
            match client.write(&[7; 4096]) {
                Ok(count) => written += count,
                Err(_) => match relay.turn(&mut buffer) {
                    Turn::Waiting if client.write(&[7]).is_err() => break,
                    Turn::Waiting => written += 1,
                    turn => assert_eq!(turn, Turn::Busy),
                },
            }
            assert!(written < 16 << 20, "nothing holds the client back");
        }
        assert!(relay.up.unsent.len() <= 4096);
        let mut got = 0;
        while got < written {
            got += read(&server, 1).len();
            if got % 1024 == 0 {
                relay.turn(&mut buffer);
            }
        }
        assert!(relay.up.unsent.is_empty());
    }

    #[test]
    fn bytes_behind_a_body_reach_no_server() {
        let ((mut client, client_end), (mut server, server_end)) = (pair(), pair());
        let body = Some(Body::Length(4));
        let mut relay = Relay::new(client_end, server_end, Vec::new(), b"H".to_vec(), body);
        client.write_all(b"bodyGET http://other/").unwrap();
        let mut buffer = [0; 64];
        assert_eq!(relay.turn(&mut buffer), Turn::Waiting);
        assert_eq!(read(&server, 5), b"Hbody");
        server.set_nonblocking(true).unwrap();
        assert!(server.read(&mut [0]).is_err());
        drop(server);
        assert_eq!(relay.turn(&mut buffer), Turn::Ended);
    }
}
