//! Measures the throughput between two nodes with a TCP stream of some seconds.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{Node, Output, System};
use crate::error::{Attempt, Error, Result};
use crate::namespace;

/// How many bytes a receiver got of a TCP stream, and in how much time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrived {
    /// Number of bytes received.
    pub bytes: u64,
    /// Time from the first byte to the last.
    pub time: Duration,
}

impl Arrived {
    /// The rate in bits a second.
    pub fn bps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time.as_secs_f64().max(1e-3)
    }
}

impl Node {
    /// Accepts one stream at a port of the node, and reads it to its end.
    ///
    /// # Errors
    /// No stream arrives within `limit`, or it breaks.
    pub(crate) fn receive(&self, port: u16, limit: Duration) -> Result<Arrived> {
        match &self.system {
            System::Namespace(node) => namespace::within(node.namespace(), || receive(port, limit)),
            System::Machine(node) => {
                let output = node.run(&receiving(port, limit), limit + ANSWER)?;
                arrived_in(&output)
            }
        }
    }

    /// Connects to another node as soon as that listens, and sends a stream for some time.
    ///
    /// # Errors
    /// The other node does not listen within `limit`, or it breaks the stream.
    pub(crate) fn send(&self, to: SocketAddrV4, time: Duration, limit: Duration) -> Result<()> {
        match &self.system {
            System::Namespace(node) => {
                namespace::within(node.namespace(), || send(to, time, limit))
            }
            System::Machine(node) => {
                let output = node.run(&sending(to, time, limit), limit + time + ANSWER)?;
                if output.is_success() {
                    Ok(())
                } else {
                    Err(unreached(to, limit))
                }
            }
        }
    }
}

fn receive(port: u16, limit: Duration) -> Result<Arrived> {
    let what = || format!("listening at port {port}");
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).attempt(what())?;
    listener.set_nonblocking(true).attempt(what())?;
    let deadline = Instant::now() + limit;
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).attempt(what()),
        }
        if Instant::now() > deadline {
            let what = "no stream arrived".to_owned();
            return Err(Error::Timeout { what, limit });
        }
        std::thread::sleep(LOOK);
    };
    stream.set_nonblocking(false).attempt(what())?;
    stream.set_read_timeout(Some(limit)).attempt(what())?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = read(&mut stream, &mut buffer)?;
    let (began, mut last) = (Instant::now(), Instant::now());
    while last < deadline {
        match read(&mut stream, &mut buffer)? {
            0 => break,
            more => bytes += more,
        }
        last = Instant::now();
    }
    Ok(Arrived {
        bytes,
        time: last - began,
    })
}

/// Reads from a stream. A read with a time limit is not restarted after a signal, so this does.
fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<u64> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return Ok(read.attempt("reading a stream")? as u64),
        }
    }
}

fn send(to: SocketAddrV4, time: Duration, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let mut stream = loop {
        match TcpStream::connect_timeout(&to.into(), CONNECT) {
            Ok(stream) => break stream,
            Err(_) if Instant::now() < deadline => std::thread::sleep(AGAIN),
            Err(_) => return Err(unreached(to, limit)),
        }
    };
    stream
        .set_write_timeout(Some(limit))
        .attempt("sending a stream")?;
    let buffer = vec![0; BUFFER_BYTES];
    let end = Instant::now() + time;
    while Instant::now() < end {
        stream.write_all(&buffer).attempt("sending a stream")?;
    }
    Ok(())
}

/// The script in a guest that receives a stream, and prints its bytes and the guest's uptime at its
/// begin and end. The script's input stays open: at its end `nc` would shut the stream down, and
/// the sending `nc` would end, too.
fn receiving(port: u16, limit: Duration) -> String {
    let seconds = limit.as_secs().max(1);
    format!(
        "f=/tmp/.stream{port}; rm -f $f; mkfifo $f\n\
         timeout {seconds} nc -l -p {port} <>$f | {{\n\
         dd bs=1 count=1 of=/dev/null 2>/dev/null; read s x </proc/uptime\n\
         n=$(wc -c); read e x </proc/uptime; echo \"$n $s $e\"; }}"
    )
}

/// The script in a guest that sends a stream; `timeout` ends it by a signal.
fn sending(to: SocketAddrV4, time: Duration, limit: Duration) -> String {
    let (address, port, seconds) = (to.ip(), to.port(), time.as_secs().max(1));
    let tries = limit.as_secs().max(1) * 5;
    format!(
        "for i in $(seq {tries}); do timeout {seconds} nc {address} {port} </dev/zero >/dev/null\n\
         [ $? -ge 128 ] && exit 0; sleep 0.2; done; exit 1"
    )
}

fn arrived_in(output: &Output) -> Result<Arrived> {
    let text = output.text();
    let mut words = text.split_whitespace();
    let mut number = || -> Option<f64> {
        let number: f64 = words.next()?.parse().ok()?;
        number.is_finite().then_some(number)
    };
    let numbers = (number(), number(), number());
    let (Some(bytes), Some(begin), Some(end)) = numbers else {
        return Err(Error::Ended("the stream"));
    };
    let seconds = (end - begin).clamp(0.0, SECONDS_MAX);
    if bytes < 1.0 {
        return Err(Error::Ended("the stream"));
    }
    Ok(Arrived {
        bytes: bytes as u64,
        time: Duration::from_secs_f64(seconds),
    })
}

fn unreached(to: SocketAddrV4, limit: Duration) -> Error {
    let what = format!("{to} accepted no stream");
    Error::Timeout { what, limit }
}

const BUFFER_BYTES: usize = 1 << 17;
const LOOK: Duration = Duration::from_millis(2);
const AGAIN: Duration = Duration::from_millis(50);
const CONNECT: Duration = Duration::from_secs(2);
/// Time after its own limit within which a command in a guest must return.
const ANSWER: Duration = Duration::from_secs(30);
const SECONDS_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_says_of_a_stream_is_read() {
        let output = |text: &str| Output {
            status: 0,
            stdout: text.as_bytes().to_vec(),
            stderr: Vec::new(),
        };
        let arrived = arrived_in(&output("2500000 10.5 12.5\n")).unwrap();
        assert_eq!(arrived.bps(), 1e7);
        for text in ["", "0 1 2", "x 1 2", "5 1", "NaN 1 2"] {
            assert!(arrived_in(&output(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn stream_arrives_whole() {
        // Below the ports that the kernel assigns automatically.
        let port = 28_000 + (std::process::id() % 1000) as u16;
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let limit = Duration::from_secs(60);
        let receives = std::thread::spawn(move || receive(port, limit));
        send(to, Duration::from_millis(100), limit).unwrap();
        let arrived = receives.join().unwrap().unwrap();
        let buffer = BUFFER_BYTES as u64;
        assert!(
            arrived.bytes > 0 && arrived.bytes.is_multiple_of(buffer),
            "{arrived:?}"
        );
        assert!(arrived.time <= limit);
    }
}
