//! How long a TCP connection receives nothing while its path is lost, or its system moves.
//!
//! Two connections are measured at once: one sends as much as it can, as iperf3 does, the other a
//! few bytes every [`KEY_EVERY`], as a person in an ssh session does.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Attempt, Error, Result};
use crate::in_namespace::within;

/// The longest times in which no byte arrived at the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// Longest time before the disturbance.
    pub(super) before: Duration,
    /// Longest time from the disturbance to the end.
    pub(super) after: Duration,
}

/// The longest pauses of the two connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gaps {
    /// Pauses of the connection that sends as fast as it can.
    pub(super) bulk: Gap,
    /// Pauses of the connection that sends a few bytes at a time.
    pub(super) keys: Gap,
}

/// Bytes of a key press of an ssh session, encrypted and authenticated.
pub(super) const KEY_BYTES: usize = 64;

/// Runs both connections from namespace `client` to `server` for `time`, and calls `disturb` after
/// half of it. `size` is the length of each write of the first connection.
///
/// # Errors
/// A connection ends early, or `disturb` fails.
pub(super) fn measure(
    [client, server]: [&str; 2],
    address: Ipv4Addr,
    size: usize,
    time: Duration,
    disturb: impl FnOnce() -> Result<()>,
) -> Result<Gaps> {
    let end = Instant::now() + time;
    let bulk = Connection::open(client, server, address)?;
    let keys = Connection::open(client, server, address)?;
    std::thread::scope(|scope| {
        let readers =
            [&bulk, &keys].map(|stream| scope.spawn(move || receive(&stream.received_at)));
        let senders = [
            scope.spawn(|| send(&bulk.sent_from, size, Duration::ZERO, end)),
            scope.spawn(|| send(&keys.sent_from, KEY_BYTES, KEY_EVERY, end)),
        ];
        std::thread::sleep(end.saturating_duration_since(Instant::now()) / 2);
        let disturbed = Instant::now();
        let outcome = disturb();
        for sender in senders {
            sender.join().expect("a sender does not panic")?;
        }
        outcome?;
        let [bulk, keys] = readers.map(|reader| reader.join().expect("a reader does not panic"));
        Ok(Gaps {
            bulk: gap(&bulk?, disturbed)?,
            keys: gap(&keys?, disturbed)?,
        })
    })
}

/// A TCP connection between the namespaces.
struct Connection {
    sent_from: TcpStream,
    received_at: TcpStream,
}

impl Connection {
    fn open(client: &str, server: &str, address: Ipv4Addr) -> Result<Connection> {
        let listener = within(server, || {
            TcpListener::bind((address, 0)).attempt(format!("listening on {address}"))
        })?;
        let at = listener.local_addr().attempt("reading the server's port")?;
        let sent_from = within(client, || {
            TcpStream::connect_timeout(&at, LIMIT).attempt(format!("connecting to {at}"))
        })?;
        let (received_at, _) = listener.accept().attempt("accepting the client")?;
        received_at
            .set_read_timeout(Some(LIMIT))
            .and_then(|()| sent_from.set_write_timeout(Some(LIMIT)))
            .and_then(|()| sent_from.set_nodelay(true))
            .attempt("setting up a connection")?;
        Ok(Connection {
            sent_from,
            received_at,
        })
    }
}

/// Sends until `end`, then ends the connection's direction.
fn send(mut connection: &TcpStream, size: usize, pause: Duration, end: Instant) -> Result<()> {
    let message = vec![7; size];
    while Instant::now() < end {
        connection.write_all(&message).attempt("sending")?;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    let ended = connection.shutdown(std::net::Shutdown::Write);
    ended.attempt("ending a connection")
}

/// Reads to the end; returns when bytes arrived.
fn receive(mut connection: &TcpStream) -> Result<Vec<Instant>> {
    let mut buffer = vec![0; 1 << 18];
    let mut times = Vec::new();
    while connection.read(&mut buffer).attempt("receiving")? > 0 {
        times.push(Instant::now());
    }
    Ok(times)
}

/// The longest gaps before and after the disturbance. The gap in which it happens counts as after.
fn gap(times: &[Instant], disturbed: Instant) -> Result<Gap> {
    let mut gap = Gap {
        before: Duration::ZERO,
        after: Duration::ZERO,
    };
    for pair in times.windows(2) {
        let length = pair[1] - pair[0];
        let longest = if pair[1] < disturbed {
            &mut gap.before
        } else {
            &mut gap.after
        };
        *longest = length.max(*longest);
    }
    if times.last().is_none_or(|last| *last <= disturbed) {
        let text = "the connection does not live through it: nothing arrives afterwards";
        return Err(Error::NoAnswer(text.to_owned()));
    }
    Ok(gap)
}

/// Time between two key presses, short so that a gap is measured well.
const KEY_EVERY: Duration = Duration::from_millis(2);
/// How long a call on a connection may take.
const LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_in_which_the_path_is_lost_counts_as_after() {
        let start = Instant::now();
        let at = |ms: &u64| start + Duration::from_millis(*ms);
        let times: Vec<Instant> = [0, 3, 4, 30, 31].iter().map(at).collect();
        let found = gap(&times, at(&5)).unwrap();
        assert_eq!(found.before, Duration::from_millis(3));
        assert_eq!(found.after, Duration::from_millis(26));
        assert!(gap(&times, at(&40)).is_err());
    }
}
