//! The TCP connection that is measured: its client in one namespace, its server in another.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::error::{Attempt, Error, Result};
use crate::in_namespace::within;

/// What is sent over the connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Bytes of each message.
    pub(super) size: usize,
    /// Duration for which the client sends.
    pub(super) time: Duration,
    /// Whether the client waits for the echo of each message.
    pub(super) is_echoed: bool,
}

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Bytes that the server received.
    pub(super) bytes: u64,
    /// Time from the server's first byte to its last, in ns.
    pub(super) ns: f64,
    /// Round-trip times in ns, in ascending order.
    pub(super) round_trips: Vec<f64>,
}

impl Measured {
    /// Goodput in 10⁶ bits per second; `None` if nothing arrived.
    pub(super) fn mbps(&self) -> Option<f64> {
        (self.ns > 0.0).then(|| self.bytes as f64 * 8000.0 / self.ns)
    }
}

/// Runs a client in namespace `client` and a server with this address in namespace `server`.
///
/// # Errors
/// The client cannot connect, or the connection ends early.
pub(super) fn measure(
    client: &str,
    server: &str,
    address: Ipv4Addr,
    load: Load,
) -> Result<Measured> {
    let listener = within(server, || {
        TcpListener::bind((address, 0)).attempt(format!("listening on {address}"))
    })?;
    let at = listener.local_addr().attempt("reading the server's port")?;
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&listener, load));
        let connected = within(client, || {
            TcpStream::connect_timeout(&at, LIMIT).attempt(format!("connecting to {at}"))
        });
        let sent = connected.and_then(|connection| send(connection, load));
        if sent.is_err() {
            // The server waits for a connection that does not come.
            let _ = within(server, || {
                TcpStream::connect(at).attempt("ending the server")
            });
        }
        let served = serving.join().expect("the server does not panic");
        let round_trips = sent?;
        Ok(Measured {
            round_trips,
            ..served?
        })
    })
}

fn serve(listener: &TcpListener, load: Load) -> Result<Measured> {
    let (mut connection, _) = listener.accept().attempt("accepting the client")?;
    let set = connection.set_read_timeout(Some(LIMIT));
    set.and_then(|()| connection.set_nodelay(true))
        .attempt("setting up the server's connection")?;
    let mut buffer = vec![0; (1 << 18).max(load.size)];
    let (mut first, mut last, mut bytes) = (None, Instant::now(), 0);
    loop {
        let got = connection.read(&mut buffer).attempt("receiving")?;
        if got == 0 {
            break;
        }
        last = Instant::now();
        first.get_or_insert(last);
        bytes += got as u64;
        if load.is_echoed {
            connection.write_all(&buffer[..got]).attempt("answering")?;
        }
    }
    Ok(Measured {
        bytes,
        ns: first.map_or(0.0, |first| (last - first).as_nanos() as f64),
        round_trips: Vec::new(),
    })
}

/// Sends messages for the time of the load. Returns the round-trip times.
fn send(mut connection: TcpStream, load: Load) -> Result<Vec<f64>> {
    let set = connection.set_nodelay(true);
    set.and_then(|()| connection.set_read_timeout(Some(LIMIT)))
        .and_then(|()| connection.set_write_timeout(Some(LIMIT)))
        .attempt("setting up the client's connection")?;
    let message = vec![7; load.size];
    let mut answer = vec![0; load.size];
    let mut round_trips = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < load.time {
        let sent = Instant::now();
        connection.write_all(&message).attempt("sending")?;
        if load.is_echoed {
            connection
                .read_exact(&mut answer)
                .attempt("waiting for the echo")?;
            round_trips.push(sent.elapsed().as_nanos() as f64);
        }
    }
    match connection.shutdown(std::net::Shutdown::Write) {
        Err(error) if error.kind() != ErrorKind::NotConnected => {
            return Err(Error::NoAnswer(format!("ending the connection: {error}")));
        }
        _ => {}
    }
    round_trips.sort_by(f64::total_cmp);
    Ok(round_trips)
}

/// How long a call on the connection may take.
const LIMIT: Duration = Duration::from_secs(20);
