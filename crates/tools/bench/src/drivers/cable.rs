//! The host's end of a card's cable: a UDP socket on which each datagram is a frame.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use carina_vm::Backend;

use crate::error::{Attempt, Error, Result};

/// The host's end of a cable.
#[derive(Debug)]
pub(super) struct Cable {
    socket: UdpSocket,
    card: SocketAddr,
}

impl Cable {
    pub(super) fn new() -> Result<Cable> {
        let bind = || UdpSocket::bind("127.0.0.1:0").attempt("a socket on the loopback interface");
        let socket = bind()?;
        let limit = Some(Duration::from_millis(20));
        socket.set_read_timeout(limit).attempt("a socket")?;
        // This socket is closed here, so that QEMU can bind its address.
        let card = bind()?.local_addr().attempt("a socket")?;
        Ok(Cable { socket, card })
    }

    /// The back end that QEMU connects to the card.
    pub(super) fn backend(&self) -> Result<Backend> {
        let own = self.socket.local_addr().attempt("a socket")?;
        let value = format!("socket,udp={own},localaddr={}", self.card);
        Ok(Backend::Other(value))
    }

    /// Waits for the first frame, and then counts frames of a size for a time. Returns their rate
    /// in 10⁶ per second.
    pub(super) fn count(&self, size: u64, time_ns: u64) -> Result<f64> {
        let mut frame = [0; 2048];
        let mut came = |until: Instant| {
            let mut count = 0_u64;
            while Instant::now() < until {
                if matches!(self.socket.recv(&mut frame), Ok(len) if len as u64 == size) {
                    count += 1;
                }
            }
            count
        };
        let begin = Instant::now();
        while came(Instant::now() + Duration::from_millis(10)) == 0 {
            if begin.elapsed() > PATIENCE {
                let what = format!("no frame of {size} bytes has come out of the guest");
                return Err(Error::NoAnswer(what));
            }
        }
        came(Instant::now() + Duration::from_nanos(time_ns / 3));
        let begin = Instant::now();
        let count = came(begin + Duration::from_nanos(time_ns));
        Ok(count as f64 * 1e-6 / begin.elapsed().as_secs_f64())
    }

    /// Discards all frames that have arrived.
    pub(super) fn discard(&self) {
        let mut frame = [0; 2048];
        while self.socket.recv(&mut frame).is_ok() {}
    }

    /// Sends frames of a size until `is_over` returns true, at a rate of [`OFFERED_PER_S`].
    pub(super) fn send_until(&self, size: u64, is_over: impl Fn() -> bool) {
        let mut frame = vec![0; size as usize];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
        let begin = Instant::now();
        let mut sent = 0_u64;
        while !is_over() {
            for _ in 0..BURST {
                // A frame that the socket refuses does not count at the receiver.
                let _ = self.socket.send_to(&frame, self.card);
            }
            sent += BURST;
            let due = Duration::from_nanos(sent * 1_000_000_000 / OFFERED_PER_S);
            if let Some(early) = due.checked_sub(begin.elapsed()) {
                std::thread::sleep(early);
            }
        }
    }
}

/// Number of frames sent to a card in a second: more than a card under emulation can receive.
pub(super) const OFFERED_PER_S: u64 = 400_000;
const BURST: u64 = 64;
const PATIENCE: Duration = Duration::from_secs(30);
