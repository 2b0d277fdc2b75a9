//! Two connected sockets whose bytes are carried from one to the other, in both directions.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// A flow and the connection to a server.
pub(super) struct Relay {
    flow: OwnedFd,
    server: OwnedFd,
    up: Way,
    down: Way,
    /// The connection ends with the answer of the server, though the program says no end.
    ends_with_server: bool,
}

/// How a relay stands after bytes were carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carried {
    /// A socket has an event when there is more to do.
    Waiting,
    /// There is more to do now, after other connections were served.
    More,
    /// Both directions have ended.
    Ended,
}

/// One direction.
struct Way {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    has_ended: bool,
    is_shut: bool,
}

impl Relay {
    /// Joins two sockets that do not block. `to_server` and `to_flow` are sent first.
    pub(super) fn new(
        flow: OwnedFd,
        server: OwnedFd,
        to_server: Vec<u8>,
        to_flow: Vec<u8>,
        ends_with_server: bool,
    ) -> Relay {
        Relay {
            flow,
            server,
            up: Way::new(to_server),
            down: Way::new(to_flow),
            ends_with_server,
        }
    }

    /// Carries what can be carried now.
    ///
    /// # Errors
    /// A side has reset its connection: the other is to be reset, too.
    pub(super) fn carry(&mut self) -> Result<Carried, Errno> {
        let up = match self.up.carry(&self.flow, &self.server) {
            // The server reads no more. Its answer may still come.
            Err(Errno::PIPE) => self.up.give_up(),
            carried => carried?,
        };
        let down = self.down.carry(&self.server, &self.flow)?;
        if self.down.is_shut && (self.up.is_shut || self.ends_with_server) {
            return Ok(Carried::Ended);
        }
        Ok(if up || down {
            Carried::More
        } else {
            Carried::Waiting
        })
    }

    pub(super) fn into_sockets(self) -> (OwnedFd, OwnedFd) {
        (self.flow, self.server)
    }
}

impl Way {
    fn new(first: Vec<u8>) -> Way {
        let end = first.len();
        let mut buffer = first;
        buffer.resize(end.max(BUFFER_BYTES), 0);
        Way {
            buffer,
            start: 0,
            end,
            has_ended: false,
            is_shut: false,
        }
    }

    /// Ends the direction without its bytes.
    fn give_up(&mut self) -> bool {
        (self.has_ended, self.is_shut) = (true, true);
        (self.start, self.end) = (0, 0);
        false
    }

    /// Carries bytes until one side blocks or it is the turn of others; then gives true.
    fn carry(&mut self, from: impl AsFd, to: impl AsFd) -> Result<bool, Errno> {
        for _ in 0..TURN {
            if self.start < self.end {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match send(&to, &self.buffer[self.start..self.end], flags) {
                    Ok(sent) => self.start += sent,
                    Err(Errno::AGAIN) => return Ok(false),
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            (self.start, self.end) = (0, 0);
            if self.has_ended {
                if !self.is_shut {
                    self.is_shut = true;
                    match shutdown(&to, Shutdown::Write) {
                        Ok(()) | Err(Errno::NOTCONN) => {}
                        Err(error) => return Err(error),
                    }
                }
                return Ok(false);
            }
            match recv(&from, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.has_ended = true,
                Ok((received, _)) => self.end = received,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Bytes in each direction that one side has not taken yet.
const BUFFER_BYTES: usize = 32 << 10;

/// Pieces sent and received in a row, before other connections.
const TURN: usize = 32;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn relay(ends_with_server: bool) -> (UnixStream, UnixStream, Relay) {
        let (program, flow) = UnixStream::pair().unwrap();
        let (server, far) = UnixStream::pair().unwrap();
        let (first, greeting) = (b"head".to_vec(), b"200".to_vec());
        let relay = Relay::new(
            flow.into(),
            server.into(),
            first,
            greeting,
            ends_with_server,
        );
        (program, far, relay)
    }

    fn read_all(mut socket: &UnixStream) -> Vec<u8> {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        all
    }

    #[test]
    fn each_direction_ends_behind_its_bytes() {
        let (mut program, mut far, mut relay) = relay(false);
        program.write_all(b" up").unwrap();
        program.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(relay.carry(), Ok(Carried::Waiting));
        assert_eq!(read_all(&far), b"head up");
        far.write_all(b" down").unwrap();
        drop(far);
        assert_eq!(relay.carry(), Ok(Carried::Ended));
        assert_eq!(read_all(&program), b"200 down");
    }

    #[test]
    fn a_reader_that_stops_stops_the_writer() {
        let (program, mut far, mut relay) = relay(true);
        far.set_nonblocking(true).unwrap();
        let (piece, mut written) = (vec![7; 64 << 10], 0);
        loop {
            let wrote = far.write(&piece);
            let carried = relay.carry().unwrap();
            match wrote {
                Ok(bytes) => written += bytes,
                Err(_) if carried == Carried::Waiting => break,
                Err(_) => {}
            }
        }
        far.set_nonblocking(false).unwrap();
        far.shutdown(std::net::Shutdown::Write).unwrap();
        let reader = std::thread::spawn(move || read_all(&program).len());
        while relay.carry().unwrap() != Carried::Ended {
            std::thread::yield_now();
        }
        drop(relay);
        assert_eq!(reader.join().unwrap(), written + 3);
    }
}
