//! A client and a server over TCP in this program, which is static. Their protocol is that of the
//! programs in Python: a header of 16 bytes with a letter and the size of messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::{Job, Place, python};
use crate::error::{Attempt, Error, Result};
use crate::wrap::Work;
use crate::wrap::processes::words;

/// What the client does: `carina bench tcp ADDRESS` with options.
#[derive(Debug, Clone, Copy)]
pub struct TcpJob {
    /// Address of the server.
    pub server: SocketAddr,
    /// Whether each message is answered.
    pub is_echoed: bool,
    /// Size of messages in bytes.
    pub size: usize,
    /// How long the client sends, in nanoseconds.
    pub time_ns: u64,
    /// Number of connections on which it sends at once.
    pub connections: usize,
}

pub(super) fn server(place: Place<'_>) -> Vec<String> {
    let address = format!("{}:{}", place.address, place.port);
    words([place.carina, "bench", "tcp", &address, "--serve"])
}

pub(super) fn client(job: Job<'_>) -> Vec<String> {
    let address = format!("{}:{}", job.host, job.port);
    let size = job.size.to_string();
    let time = format!("{}us", job.time_ns / 1000);
    let mut client = words([
        job.carina, "bench", "tcp", &address, "--size", &size, "--time", &time,
    ]);
    match job.work {
        Work::StaticRoundTrips => client.push("--echo".to_owned()),
        Work::Many { connections } => {
            client.extend(words(["--connections", &connections.to_string()]));
        }
        _ => {}
    }
    client
}

/// Serves connections, each on a thread of its own, until the process ends.
///
/// # Errors
/// The address cannot be used.
pub fn serve(address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address).attempt(format!("listening on {address}"))?;
    for connection in listener.incoming() {
        match connection {
            // A client that ends early is no error of the server.
            Ok(connection) => drop(std::thread::spawn(move || answer(connection))),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    Ok(())
}

fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut head = [0; HEADER_BYTES];
    connection.read_exact(&mut head)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    if head[..1] == *python::BULK.as_bytes() {
        let start = Instant::now();
        let mut bytes = 0_u64;
        loop {
            match connection.read(&mut buffer)? {
                0 => break,
                more => bytes += more as u64,
            }
        }
        return writeln!(connection, "{bytes} {}", start.elapsed().as_nanos());
    }
    let size = std::str::from_utf8(&head[1..]).unwrap_or_default().trim();
    let size = size.parse().unwrap_or(0).clamp(1, BUFFER_BYTES);
    loop {
        connection.read_exact(&mut buffer[..size])?;
        connection.write_all(&buffer[..size])?;
    }
}

/// Does the job, and returns the numbers that the client prints: bytes and nanoseconds, or with
/// `is_echoed` mean, median and 99th percentile of round trips in nanoseconds.
///
/// # Errors
/// The server does not answer in time.
pub fn run_client(job: &TcpJob) -> Result<Vec<u64>> {
    if job.is_echoed {
        return round_trips(job);
    }
    let barrier = Barrier::new(job.connections);
    let limit = Duration::from_nanos(job.time_ns);
    let opened: Result<Vec<TcpStream>> = (0..job.connections).map(|_| open(job)).collect();
    let start = Instant::now();
    let sent: Vec<Result<u64>> = std::thread::scope(|scope| {
        let send = |connection| {
            barrier.wait();
            send(connection, job.size, Instant::now() + limit)
        };
        let opened = opened?.into_iter();
        let threads: Vec<_> = opened
            .map(|connection| scope.spawn(move || send(connection)))
            .collect();
        let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        Ok::<_, Error>(ended.filter_map(std::result::Result::ok).collect())
    })?;
    let elapsed = start.elapsed().as_nanos() as u64;
    let bytes: Result<Vec<u64>> = sent.into_iter().collect();
    Ok(vec![bytes?.iter().sum(), elapsed])
}

/// Sends until `end`, and waits until the server has counted all bytes. Returns their number.
fn send(mut connection: TcpStream, size: usize, end: Instant) -> Result<u64> {
    let message = vec![0; size];
    while Instant::now() < end {
        connection.write_all(&message).attempt("sending")?;
    }
    let ended = connection.shutdown(Shutdown::Write);
    ended.attempt("ending the stream")?;
    let mut line = String::new();
    let read = BufReader::new(connection).read_line(&mut line);
    read.attempt("reading what has arrived")?;
    let bytes = line.split(' ').next().and_then(|bytes| bytes.parse().ok());
    bytes.ok_or_else(|| Error::NoAnswer(format!("the server has answered {line:?}")))
}

fn round_trips(job: &TcpJob) -> Result<Vec<u64>> {
    let mut connection = open(job)?;
    let (message, mut answer) = (vec![0; job.size], vec![0; job.size]);
    let mut times = Vec::new();
    let mut before = Instant::now();
    let end = before + Duration::from_nanos(job.time_ns);
    while before < end {
        connection.write_all(&message).attempt("sending")?;
        connection.read_exact(&mut answer).attempt("receiving")?;
        let after = Instant::now();
        times.push((after - before).as_nanos() as u64);
        before = after;
    }
    times.sort_unstable();
    let at = |percent| times.get(times.len() * percent / 100).copied();
    let (Some(median), Some(p99)) = (at(50), at(99)) else {
        return Err(Error::NoAnswer("no message was answered".to_owned()));
    };
    Ok(vec![
        times.iter().sum::<u64>() / times.len() as u64,
        median,
        p99,
    ])
}

fn open(job: &TcpJob) -> Result<TcpStream> {
    let what = format!("connecting to {}", job.server);
    let mut connection = TcpStream::connect_timeout(&job.server, LIMIT).attempt(what)?;
    let prepare = |connection: &TcpStream| {
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(LIMIT))?;
        connection.set_write_timeout(Some(LIMIT))
    };
    prepare(&connection).attempt("setting options of a socket")?;
    let letter = if job.is_echoed {
        python::ROUND_TRIPS
    } else {
        python::BULK
    };
    let head = format!("{letter}{:15}", job.size);
    let sent = connection.write_all(head.as_bytes());
    sent.attempt("sending a header")?;
    Ok(connection)
}

const HEADER_BYTES: usize = 16;

/// Size of the server's buffer: of the largest message.
const BUFFER_BYTES: usize = 1 << 20;

/// How long a call of the client may take.
const LIMIT: Duration = Duration::from_secs(30);

/// How long the server waits before it accepts again after an error.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn client_counts_what_the_server_has_read() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            for _ in 0..4 {
                let (connection, _) = listener.accept().unwrap();
                std::thread::spawn(move || answer(connection));
            }
        });
        let job = TcpJob {
            server,
            is_echoed: false,
            size: 1000,
            time_ns: 20_000_000,
            connections: 3,
        };
        let [bytes, ns] = run_client(&job).unwrap()[..] else {
            panic!("two numbers");
        };
        assert!(bytes > 0 && bytes.is_multiple_of(1000), "{bytes}");
        assert!(ns >= job.time_ns, "{ns}");
        let echoed = TcpJob {
            is_echoed: true,
            connections: 1,
            ..job
        };
        let [mean, median, p99] = run_client(&echoed).unwrap()[..] else {
            panic!("three numbers");
        };
        assert!(mean > 0 && median > 0 && p99 >= median);
        serving.join().unwrap();
    }
}
