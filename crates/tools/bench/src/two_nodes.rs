//! TCP streams and echos between two network namespaces, which have the addresses [`ADDRESS_A`] and
//! [`ADDRESS_B`].

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Attempt, Error, Result};
use crate::in_namespace::within;

/// Sends datagrams to another node, which returns them.
pub(crate) struct Echo {
    socket: UdpSocket,
    server: UdpSocket,
    size: usize,
    /// Time between an answer and the next echo.
    pause: Duration,
}

impl Echo {
    /// Echos from the first node to the second, `size` bytes each, with this pause between an
    /// answer and the next echo.
    pub(crate) fn between([near, far]: [&str; 2], size: u64, pause: Duration) -> Result<Echo> {
        let server = within(far, || {
            UdpSocket::bind((ADDRESS_B, 0)).attempt("binding a socket for echos")
        })?;
        let to = server.local_addr().attempt("the address of a socket")?;
        let socket = within(near, || {
            let socket = UdpSocket::bind((ADDRESS_A, 0)).attempt("binding a socket for echos")?;
            socket
                .connect(to)
                .attempt("connecting a socket for echos")?;
            Ok(socket)
        })?;
        for (socket, limit) in [(&server, LOOK), (&socket, ECHO_LIMIT)] {
            let set = socket.set_read_timeout(Some(limit));
            set.attempt("setting the time limit of a socket")?;
        }
        Ok(Echo {
            socket,
            server,
            size: size as usize,
            pause,
        })
    }

    /// The times of echos during `time`. An echo that is lost has no time.
    pub(crate) fn round_trips(&self, time: Duration) -> Result<Vec<Duration>> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = vec![0; 2048];
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok((bytes, from)) = self.server.recv_from(&mut buffer) {
                        // A datagram that is not sent counts as lost.
                        let _ = self.server.send_to(&buffer[..bytes], from);
                    }
                }
            });
            let measured = self.ask(Instant::now() + time);
            is_over.store(true, Ordering::Relaxed);
            measured
        })
    }

    fn ask(&self, end: Instant) -> Result<Vec<Duration>> {
        let (mut times, mut number) = (Vec::new(), 0_u64);
        let mut datagram = vec![0; self.size.max(8)];
        let mut buffer = vec![0; 2048];
        while Instant::now() < end {
            number += 1;
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            let begin = Instant::now();
            self.socket.send(&datagram).attempt("sending an echo")?;
            loop {
                match self.socket.recv(&mut buffer) {
                    Ok(bytes) if buffer[..bytes] == datagram => {
                        times.push(begin.elapsed());
                        break;
                    }
                    // A late answer to an earlier echo.
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).attempt("receiving an echo"),
                }
            }
            if !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
        }
        Ok(times)
    }
}

/// A connection from the first node to the second: its two ends.
pub(crate) fn connection([near, far]: [&str; 2]) -> Result<[TcpStream; 2]> {
    let listener = within(far, || {
        TcpListener::bind((ADDRESS_B, 0)).attempt("listening for a stream")
    })?;
    let to = listener.local_addr().attempt("the address of a listener")?;
    let sender = within(near, || {
        TcpStream::connect_timeout(&to, ECHO_LIMIT).attempt("connecting a stream")
    })?;
    let (receiver, _) = listener.accept().attempt("accepting a stream")?;
    Ok([sender, receiver])
}

/// Sends a stream for `warm` and then as long as `beside` runs. Returns the rate of the bytes that
/// arrive in the second part, in 10⁶ bits per second.
pub(crate) fn stream(
    [mut sender, mut receiver]: [TcpStream; 2],
    warm: Duration,
    time: Duration,
    beside: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    let limit = Some(time + ECHO_LIMIT);
    receiver
        .set_read_timeout(limit)
        .attempt("setting a time limit")?;
    let other = sender.try_clone().attempt("a second handle of a stream")?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let bytes = vec![7; 64 << 10];
            // It ends when the stream is shut down.
            while sender.write_all(&bytes).is_ok() {}
        });
        let begin = Instant::now();
        let received = scope.spawn(move || {
            let (mut buffer, mut bytes, mut counted) = (vec![0; 64 << 10], 0_u64, None);
            let end = warm + time;
            while begin.elapsed() < end {
                match receiver.read(&mut buffer) {
                    // A read with a time limit is not restarted after a signal.
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    read => bytes += read.attempt("receiving a stream")? as u64,
                }
                if begin.elapsed() >= warm && counted.is_none() {
                    counted = Some((bytes, Instant::now()));
                }
            }
            let (before, since) = counted.unwrap_or((bytes, Instant::now()));
            Ok::<f64, Error>(
                (bytes - before) as f64 * 8.0 / since.elapsed().as_secs_f64().max(1e-3) / 1e6,
            )
        });
        std::thread::sleep(warm);
        let beside = beside();
        let received = received.join().expect("what is done there does not panic");
        // The other end is closed, which also ends the sender.
        let _ = other.shutdown(Shutdown::Both);
        beside.and(received)
    })
}

/// Address of the first node.
pub(crate) const ADDRESS_A: &str = "10.0.0.1";
/// Address of the second node.
pub(crate) const ADDRESS_B: &str = "10.0.0.2";
/// How long an answer may take.
const ECHO_LIMIT: Duration = Duration::from_secs(5);
/// How often a thread checks whether it must end.
const LOOK: Duration = Duration::from_millis(20);
