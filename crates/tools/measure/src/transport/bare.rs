//! SDUs over two bare rings: the upper limit of what shared memory achieves on this machine.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carina_ring::bare::{
    BARE_LENGTH_BYTES, BareArrival, BareReceiver, BareSender, bare_region_bytes,
};
use carina_sys::Mapping;
use serde::{Deserialize, Serialize};

use super::error::{Attempt, TransportError};
use super::{Arrival, Transport};

/// Bytes of each ring, the same as the default of a flow's ring, so that caches have the same
/// effect.
const CAPACITY: usize = 1 << 20;
/// Bytes of memory for both rings.
pub const BARE_BYTES: usize = 2 * bare_region_bytes(CAPACITY);
/// Longest SDU that fits into a ring, in bytes.
pub const BARE_SDU_MAX: u64 = (CAPACITY - BARE_LENGTH_BYTES) as u64;
/// Number of spins between two reads of the clock.
const SPINS: u32 = 4096;
/// Longest pause between two polls of a ring, in spins.
const PAUSE_SPINS_MAX: u32 = 127;
/// A peer that takes nothing from a full ring for this long counts as dead.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// Place of two bare rings in memory: a file and an offset in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarePlace {
    /// Path of a file, or of the memory of a device.
    pub path: PathBuf,
    /// Offset of the rings in the file, in bytes: a multiple of the page size.
    pub offset: u64,
}

/// A transport of two bare rings, one in each direction. Both ends wait by spinning.
#[derive(Debug)]
pub struct BareTransport {
    sender: BareSender,
    receiver: BareReceiver,
    pause: u32,
    /// Further memory that must stay mapped as long as the rings.
    _kept: Option<Mapping>,
}

impl BareTransport {
    /// Makes both rings empty. Creates or extends the file if necessary. May only be called while
    /// neither end is open.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn prepare(place: &BarePlace) -> Result<(), TransportError> {
        let file = place.file(OpenOptions::new().create(true).truncate(false))?;
        let what = place.path.display().to_string();
        let length = file.metadata().attempt(what.clone())?.len();
        let end = place.offset + BARE_BYTES as u64;
        if length < end {
            file.set_len(end).attempt(what.clone())?;
        }
        let header = bare_region_bytes(0);
        for ring in place.rings() {
            let mapping = Mapping::shared(file.as_fd(), ring, header).attempt(what.clone())?;
            for at in (0..header).step_by(size_of::<u64>()) {
                mapping.atomic_u64(at).store(0, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Opens one end of the rings. One side passes `first` as true, the other as false.
    ///
    /// # Errors
    /// The file cannot be opened or mapped.
    pub fn open(place: &BarePlace, first: bool) -> Result<Self, TransportError> {
        let file = place.file(&mut OpenOptions::new())?;
        let [mut out, mut back] = place.rings();
        if !first {
            (out, back) = (back, out);
        }
        let sender = BareSender::map(file.as_fd(), out, CAPACITY);
        let receiver = BareReceiver::map(file.as_fd(), back, CAPACITY);
        Ok(Self::over(
            sender.attempt("mapping a ring")?,
            receiver.attempt("mapping a ring")?,
            None,
        ))
    }
}

impl BareTransport {
    /// A transport over rings that the caller has mapped. `kept` stays mapped as long as the rings.
    pub(super) fn over(sender: BareSender, receiver: BareReceiver, kept: Option<Mapping>) -> Self {
        Self {
            sender,
            receiver,
            pause: 0,
            _kept: kept,
        }
    }
}

impl BarePlace {
    /// The rings at the beginning of the file `path`.
    pub fn file_at(path: PathBuf) -> Self {
        Self { path, offset: 0 }
    }

    /// Offset of each ring.
    fn rings(&self) -> [u64; 2] {
        [
            self.offset,
            self.offset + bare_region_bytes(CAPACITY) as u64,
        ]
    }

    fn file(&self, options: &mut OpenOptions) -> Result<File, TransportError> {
        let opened = options.read(true).write(true).open(&self.path);
        opened.attempt(self.path.display().to_string())
    }
}

impl BareTransport {
    /// Lengthens the pause while more messages are waiting after each one that was read, as in a
    /// stream; shortens it otherwise, down to none in an echo.
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
            // A receiver that keeps in step with the sender moves a cache line between CPUs for
            // each message. A pause lets several messages of a stream gather.
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
