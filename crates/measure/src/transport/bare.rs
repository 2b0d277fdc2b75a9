//! SDUs over two bare rings: the limit of what shared memory gives on this machine.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use carina_ring::bare::{BareArrival, BareReceiver, BareSender, bare_region_bytes};

use super::error::{Attempt, TransportError};
use super::{Arrival, Transport};

/// Bytes of each ring: as many as a flow has by default, so that caches see the same.
const CAPACITY: usize = 1 << 20;
/// Spins between two looks at the clock.
const SPINS: u32 = 4096;
/// The longest pause before a look at an empty ring, in spins.
const PAUSE_SPINS_MAX: u32 = 127;
/// A peer that takes nothing for so long has died.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// Two bare rings, one in each direction. Both ends spin.
#[derive(Debug)]
pub struct BareTransport {
    sender: BareSender,
    receiver: BareReceiver,
    pause: u32,
}

impl BareTransport {
    /// Makes the memory at `path`, zeroed.
    ///
    /// # Errors
    /// What the system says of the file.
    pub fn create(path: &Path) -> Result<(), TransportError> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let file = options.open(path).attempt(path.display().to_string())?;
        file.set_len(2 * bare_region_bytes(CAPACITY) as u64)
            .attempt(path.display().to_string())
    }

    /// Maps the memory; one side is the first end, the other is not.
    ///
    /// # Errors
    /// What the system says of the file or the mapping.
    pub fn open(path: &Path, first: bool) -> Result<Self, TransportError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .attempt(path.display().to_string())?;
        let other = bare_region_bytes(CAPACITY) as u64;
        let (out, back) = if first { (0, other) } else { (other, 0) };
        Ok(Self {
            sender: BareSender::map(file.as_fd(), out, CAPACITY).attempt("mapping a ring")?,
            receiver: BareReceiver::map(file.as_fd(), back, CAPACITY).attempt("mapping a ring")?,
            pause: 0,
        })
    }
}

impl BareTransport {
    /// Pauses longer while pauses find more than one message, and not at all in an echo.
    #[inline]
    fn adapt(&mut self) {
        self.pause = match self.receiver.known_bytes() {
            0 => self.pause / 2,
            _ => (self.pause * 2 + 1).min(PAUSE_SPINS_MAX),
        };
    }
}

impl Transport for BareTransport {
    #[inline]
    fn send_until(&mut self, sdu: &[u8], until: Instant) -> Result<bool, TransportError> {
        if self.sender.try_send(sdu) {
            return Ok(true);
        }
        let start = Instant::now();
        loop {
            for _ in 0..SPINS {
                if self.sender.try_send(sdu) {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if now.duration_since(start) > PEER_TIMEOUT {
                return Err(TransportError::PeerStopped);
            }
            if now >= until {
                return Ok(false);
            }
        }
    }

    #[inline]
    fn recv(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Arrival, TransportError> {
        let mut start = None;
        if self.receiver.known_bytes() == 0 {
            // A receiver in step with the sender moves a cache line between CPUs for each message.
            // A pause lets some messages of a stream gather.
            for _ in 0..self.pause {
                std::hint::spin_loop();
            }
        }
        loop {
            for _ in 0..SPINS {
                match self.receiver.try_recv(buffer) {
                    BareArrival::Message(len) => {
                        self.adapt();
                        return Ok(Arrival::Sdu(len));
                    }
                    BareArrival::Closed => return Ok(Arrival::End),
                    BareArrival::Empty => std::hint::spin_loop(),
                }
            }
            if start.get_or_insert_with(Instant::now).elapsed() >= limit {
                return Ok(Arrival::Idle);
            }
        }
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        self.sender.close();
        Ok(())
    }
}
