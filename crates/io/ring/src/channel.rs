//! A duplex channel: two rings in one shared memory, and four doorbells.
//!
//! ```text
//!   end A                                   end B
//!   tx  --- ring 0 (offset 0) ------------->  rx
//!   rx  <-- ring 1 (region_bytes) ----------  tx
//!   peer_rx_doorbell  ==  my_rx_doorbell of B   "there is data for B"
//!   peer_tx_doorbell  ==  my_tx_doorbell of B   "there is room for B's tx"
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use carina_sys::{Doorbell, Memory};

use crate::{Consumer, Producer, RingMap, State, WakeMode, region_bytes};

/// One of the two ends of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that writes ring 0 and reads ring 1.
    A,
    /// The end that writes ring 1 and reads ring 0.
    B,
}

impl Side {
    /// Returns the other of the two sides.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Returns the number of the ring that this end writes: 0 or 1.
    #[must_use]
    pub fn tx_ring(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }

    /// Returns the end that writes the ring of this number; `None` for a number other than 0 and 1.
    #[must_use]
    pub fn from_tx_ring(ring: usize) -> Option<Self> {
        match ring {
            0 => Some(Self::A),
            1 => Some(Self::B),
            _ => None,
        }
    }
}

/// Memory and doorbells of a channel, for the process that creates the channel. That process hands
/// them out to the two ends, and cleans up when an end dies.
#[derive(Debug)]
pub struct ChannelMemory {
    memory: Memory,
    capacity: usize,
    rings: [Arc<RingMap>; 2],
    /// Indexed by [`Side::tx_ring`] of the end that listens.
    rx_doorbells: [Doorbell; 2],
    tx_doorbells: [Doorbell; 2],
}

impl ChannelMemory {
    /// Creates a channel of two rings of `capacity` bytes each, a power of two from 4096 to 2^31.
    ///
    /// # Errors
    /// `InvalidInput` for another capacity; the kernel refuses memory or open files.
    pub fn create(capacity: usize) -> io::Result<Self> {
        check_capacity(capacity)?;
        let memory = Memory::anonymous("carina-channel", 2 * region_bytes(capacity))?;
        let rings = map_rings(&memory, capacity)?;
        for ring in &rings {
            ring.init();
        }
        Ok(Self {
            memory,
            capacity,
            rings,
            rx_doorbells: [Doorbell::new()?, Doorbell::new()?],
            tx_doorbells: [Doorbell::new()?, Doorbell::new()?],
        })
    }

    /// Returns the capacity of each of the two rings in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Opens one end in this process. At most one endpoint of each side may exist in all processes.
    ///
    /// # Errors
    /// The kernel refuses; usually the process has too many open files.
    pub fn endpoint(&self, side: Side, mode: WakeMode) -> io::Result<Endpoint> {
        let (me, peer) = (side.tx_ring(), side.other().tx_ring());
        Ok(Endpoint {
            tx: Producer::fresh(Arc::clone(&self.rings[me]), mode),
            rx: Consumer::fresh(Arc::clone(&self.rings[peer]), mode),
            my_rx_doorbell: self.rx_doorbells[me].try_clone()?,
            my_tx_doorbell: self.tx_doorbells[me].try_clone()?,
            peer_rx_doorbell: self.rx_doorbells[peer].try_clone()?,
            peer_tx_doorbell: self.tx_doorbells[peer].try_clone()?,
        })
    }

    /// Duplicates the descriptors that another process needs to be one end, in the order of
    /// [`Endpoint::from_fds`]: memory, my_rx, my_tx, peer_rx, peer_tx. The doorbells are separate
    /// open files, so the receiver cannot make this process block on them.
    ///
    /// # Errors
    /// The kernel refuses; usually the process has too many open files.
    pub fn endpoint_fds(&self, side: Side) -> io::Result<[OwnedFd; 5]> {
        let (me, peer) = (side.tx_ring(), side.other().tx_ring());
        Ok([
            self.memory.as_fd().try_clone_to_owned()?,
            self.rx_doorbells[me].reopen()?,
            self.tx_doorbells[me].reopen()?,
            self.rx_doorbells[peer].reopen()?,
            self.tx_doorbells[peer].reopen()?,
        ])
    }

    /// Marks the stream that `side` wrote as failed, because that end died, and wakes the other
    /// end. If the end closed its stream before it died, the stream stays closed.
    pub fn fail(&self, side: Side) {
        let ring = &self.rings[side.tx_ring()];
        if ring.state() == State::Open {
            ring.set_state(State::Failed);
        }
        let survivor = side.other().tx_ring();
        self.rx_doorbells[survivor].signal();
        self.tx_doorbells[survivor].signal();
    }

    /// Returns the state of the stream that `side` writes: open, closed or failed.
    #[must_use]
    pub fn state(&self, side: Side) -> State {
        self.rings[side.tx_ring()].state()
    }
}

/// One end of a channel, opened in this process: a ring to write, a ring to read, and the doorbells
/// of both.
#[derive(Debug)]
pub struct Endpoint {
    /// Writing end of the ring to the peer.
    pub tx: Producer,
    /// Reading end of the ring from the peer.
    pub rx: Consumer,
    /// Doorbell that the peer rings when `rx` is armed and the peer has published records.
    pub my_rx_doorbell: Doorbell,
    /// Doorbell that the peer rings when `tx` is armed for space and the peer has released enough.
    pub my_tx_doorbell: Doorbell,
    /// Doorbell that this end rings when `tx` reports that the peer sleeps.
    pub peer_rx_doorbell: Doorbell,
    /// Doorbell that this end rings when `rx` reports that the peer waits for room.
    pub peer_tx_doorbell: Doorbell,
}

impl Endpoint {
    /// Opens the end `side` from descriptors received from another process: memory, my_rx, my_tx,
    /// peer_rx, peer_tx.
    ///
    /// # Errors
    /// `InvalidInput` for a capacity that is not allowed, `InvalidData` if the memory has another
    /// size; errors of the kernel.
    pub fn from_fds(
        capacity: usize,
        side: Side,
        mode: WakeMode,
        fds: [OwnedFd; 5],
    ) -> io::Result<Self> {
        check_capacity(capacity)?;
        let [memory, my_rx, my_tx, peer_rx, peer_tx] = fds;
        let memory = Memory::from_fd(memory, 2 * region_bytes(capacity))?;
        let rings = map_rings(&memory, capacity)?;
        Ok(Self {
            tx: Producer::fresh(Arc::clone(&rings[side.tx_ring()]), mode),
            rx: Consumer::fresh(Arc::clone(&rings[side.other().tx_ring()]), mode),
            my_rx_doorbell: Doorbell::from_fd(my_rx)?,
            my_tx_doorbell: Doorbell::from_fd(my_tx)?,
            peer_rx_doorbell: Doorbell::from_fd(peer_rx)?,
            peer_tx_doorbell: Doorbell::from_fd(peer_tx)?,
        })
    }

    /// Makes the committed records visible to the peer, and wakes the peer if it sleeps.
    #[inline]
    pub fn publish(&mut self) {
        if self.tx.publish() {
            self.peer_rx_doorbell.signal();
        }
    }

    /// Releases the room of everything that was read, and wakes the peer if it waits for that room.
    #[inline]
    pub fn release(&mut self) {
        if self.rx.release() {
            self.peer_tx_doorbell.signal();
        }
    }

    /// Like [`Endpoint::release`], but only when enough room has gathered: see
    /// [`Consumer::release_lazily`].
    #[inline]
    pub fn release_lazily(&mut self) {
        if self.rx.release_lazily() {
            self.peer_tx_doorbell.signal();
        }
    }

    /// Publishes the committed records, ends the stream with `state`, and wakes the peer if it
    /// sleeps.
    pub fn close(&mut self, state: State) {
        if self.tx.close(state) {
            self.peer_rx_doorbell.signal();
        }
    }
}

fn check_capacity(capacity: usize) -> io::Result<()> {
    if !capacity.is_power_of_two() || !(4096..=1 << 31).contains(&capacity) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("ring capacity {capacity}: must be a power of two in 4096..=2^31"),
        ));
    }
    Ok(())
}

fn map_rings(memory: &Memory, capacity: usize) -> io::Result<[Arc<RingMap>; 2]> {
    let second = region_bytes(capacity) as u64;
    Ok([
        Arc::new(RingMap::map(memory.as_fd(), 0, capacity)?),
        Arc::new(RingMap::map(memory.as_fd(), second, capacity)?),
    ])
}
