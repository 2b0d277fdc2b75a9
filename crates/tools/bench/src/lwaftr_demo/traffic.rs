//! Traffic between two namespaces, through the network stacks of their kernels.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::nothing;
use crate::error::{Attempt, Error, Result};
use crate::in_namespace::within;

/// A page that contains bytes of every value.
fn page() -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 256) as u8;
    (0..PAGE_BYTES).map(byte).collect()
}

const PAGE_BYTES: usize = 1 << 20;
const HTTP_PORT: u16 = 80;
const UDP_PORT: u16 = 9009;

/// Serves a page over HTTP in the namespace `server`, fetches it in `client`, and compares it.
/// Returns its length.
pub(super) fn fetch(
    client: &str,
    server: &str,
    address: &str,
    patience: Duration,
) -> Result<usize> {
    let listener = within(server, || {
        TcpListener::bind((address, HTTP_PORT)).attempt("the web server")
    })?;
    let serving = thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(patience))?;
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            request.push(byte[0]);
        }
        write!(
            stream,
            "HTTP/1.0 200 OK\r\nContent-Length: {PAGE_BYTES}\r\n\r\n"
        )?;
        stream.write_all(&page())
    });
    let answer = within(client, || {
        let what = "fetching the page";
        let mut stream = connect(address, patience)?;
        stream.set_read_timeout(Some(patience)).attempt(what)?;
        let request = b"GET / HTTP/1.0\r\n\r\n";
        stream.write_all(request).attempt(what)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).attempt(what)?;
        Ok(answer)
    })?;
    let served = serving.join().expect("the web server does not panic");
    served.attempt("serving the page")?;
    if answer.ends_with(&page()) {
        Ok(PAGE_BYTES)
    } else {
        Err(Error::NoAnswer(format!(
            "the page is damaged: {} bytes came",
            answer.len()
        )))
    }
}

/// Connects, with retries, because the first packets may find no next hop.
fn connect(address: &str, patience: Duration) -> Result<TcpStream> {
    let end = Instant::now() + patience;
    loop {
        match TcpStream::connect((address, HTTP_PORT)) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > end => {
                return Err(error).attempt("connecting to the web server");
            }
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Sends UDP for `time`. Returns the rate of received payload in Mb/s.
pub(super) fn send_datagrams(
    from: &str,
    to: &str,
    address: &str,
    size: usize,
    time: Duration,
) -> Result<f64> {
    let what = "a socket of UDP";
    let receiver = within(to, || UdpSocket::bind((address, UDP_PORT)).attempt(what))?;
    let sender = within(from, || UdpSocket::bind(("0.0.0.0", 0)).attempt(what))?;
    receiver.set_read_timeout(Some(QUIET)).attempt(what)?;
    let has_ended = AtomicBool::new(false);
    let (bytes, seconds) = thread::scope(|scope| {
        let counting = scope.spawn(|| count(&receiver, &has_ended));
        let (payload, end) = (vec![7; size], Instant::now() + time);
        while Instant::now() < end {
            // A datagram that finds a full queue is lost, as in a network.
            let _ = sender.send_to(&payload, (address, UDP_PORT));
        }
        has_ended.store(true, Ordering::Release);
        counting.join().expect("the receiver does not panic")
    })?;
    if seconds > 0.0 {
        Ok(bytes as f64 * 8.0 / seconds / 1e6)
    } else {
        Err(nothing(&format!("{size} bytes of UDP to {address}")))
    }
}

/// Counts the bytes after the first datagram, and the time from the first to the last one.
fn count(receiver: &UdpSocket, has_ended: &AtomicBool) -> Result<(usize, f64)> {
    let (mut buffer, mut bytes) = ([0; 2048], 0);
    let mut times: Option<(Instant, Instant)> = None;
    loop {
        match receiver.recv(&mut buffer) {
            Ok(length) => {
                let now = Instant::now();
                match &mut times {
                    None => times = Some((now, now)),
                    Some((_, last)) => {
                        bytes += length;
                        *last = now;
                    }
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if has_ended.load(Ordering::Acquire) {
                    let seconds = times.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
                    return Ok((bytes, seconds));
                }
            }
            Err(error) => return Err(error).attempt("receiving UDP"),
        }
    }
}

/// Time without a datagram after the end of sending, after which nothing is on its way any more.
const QUIET: Duration = Duration::from_millis(200);
