//! A bridge in software: every frame that arrives at one interface leaves at the other, changed or
//! impaired on request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use carina_sys::{Epoll, Interest, monotonic_ns};

use crate::bpf::Filter;
use crate::error::NetdevError;
use crate::fault::{Fault, FaultCounts, FaultPlan};
use crate::interface::Interface;
use crate::offload::plain_frames;
use crate::packet::{Layout, MAC_HEADER_BYTES, PacketSocket, Received};

/// Counters of one direction of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgeCounts {
    /// Frames received at the first interface of this direction, after segmentation, as they would
    /// be on a wire.
    pub received: u64,
    /// Total bytes of the received frames.
    pub received_bytes: u64,
    /// Number of frames that the [`Change`] modified.
    pub changed: u64,
    /// Number of frames that were sent at the other interface.
    pub sent: u64,
    /// Frames dropped because the other interface was down or accepted no more.
    pub no_room: u64,
    /// Frames dropped because they could not be segmented, or were longer than a slot of the ring.
    pub unsupported: u64,
    /// Frames that the kernel dropped because the receive ring was full.
    pub missed: u64,
    /// Counters of the fault layer in this direction.
    pub fault: FaultCounts,
}

/// A function that may modify a frame in transit. It returns true if it modified the frame.
pub type Change = Box<dyn Fn(&mut [u8]) -> bool + Send>;

/// A bridge in software between two network interfaces.
pub struct Bridge {
    sides: [Side; 2],
    epoll: Epoll,
}

struct Side {
    /// Receives whole frames, which may hold several segments of local TCP.
    rx: PacketSocket,
    /// Sends plain frames only.
    tx: PacketSocket,
    /// Frames from this side that are in transit to the other side.
    fault: Fault<Vec<u8>>,
    change: Option<Change>,
    counts: BridgeCounts,
    is_stuck: bool,
}

impl Bridge {
    /// Bridges two interfaces. The first element of `plans` and `changes` applies to frames from
    /// the first interface, the second to frames from the second.
    ///
    /// # Errors
    /// An interface cannot be opened.
    pub fn open(
        names: [&str; 2],
        plans: [FaultPlan; 2],
        changes: [Option<Change>; 2],
    ) -> Result<Bridge, NetdevError> {
        let interfaces = [Interface::named(names[0])?, Interface::named(names[1])?];
        let mtu = interfaces[0].mtu.max(interfaces[1].mtu);
        let side = |at: usize, change: Option<Change>| -> Result<Side, NetdevError> {
            let layout = Layout {
                rx_bytes: 16 << 20,
                tx_bytes: 64 << 10,
                has_vnet_header: true,
                takes_long: true,
                ..Layout::for_mtu(mtu)
            };
            let rx = PacketSocket::open(&interfaces[at], layout, None)?;
            let promiscuous = rx.be_promiscuous(&interfaces[at]);
            promiscuous.map_err(|error| {
                NetdevError::from_io(
                    format!("receiving all frames of {} (promiscuous mode)", names[at]),
                    "CAP_NET_RAW",
                    error,
                )
            })?;
            let layout = Layout {
                rx_bytes: 64 << 10,
                ..Layout::for_mtu(mtu)
            };
            let tx = PacketSocket::open(&interfaces[at], layout, Some(&Filter::nothing()))?;
            Ok(Side {
                rx,
                tx,
                fault: Fault::new(plans[at]),
                change,
                counts: BridgeCounts::default(),
                is_stuck: false,
            })
        };
        let [first, second] = changes;
        let sides = [side(0, first)?, side(1, second)?];
        let epoll = |source| NetdevError::System {
            what: "epoll".to_owned(),
            source,
        };
        let set = Epoll::new().map_err(epoll)?;
        for side in &sides {
            set.add(side.rx.as_fd(), 0, Interest::Read).map_err(epoll)?;
        }
        Ok(Bridge { sides, epoll: set })
    }

    /// Makes [`Bridge::step`] return true when `fd` is readable.
    ///
    /// # Errors
    /// Errors of epoll.
    pub fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.add(fd, 1, Interest::Read)
    }

    /// Moves all frames that can be moved, then waits for the next event, at most until `deadline`
    /// (ns of the monotonic clock). Returns true if a watched descriptor is readable.
    ///
    /// # Errors
    /// Errors of epoll.
    pub fn step(&mut self, deadline: Option<u64>) -> io::Result<bool> {
        let now = monotonic_ns();
        let mut moved = false;
        for from in 0..2 {
            moved |= self.take_in(from, now);
            self.let_out(from, now);
        }
        let due = self.sides.iter().filter_map(|side| side.fault.next_due());
        let stuck = self.sides.iter().any(|side| side.is_stuck);
        let stuck = stuck.then_some(now + STUCK_NS);
        let next = due.chain(deadline).chain(stuck).min();
        let wait = if moved {
            Some(0)
        } else {
            next.map(|next| next.saturating_sub(monotonic_ns()))
        };
        let mut ready = Vec::new();
        self.epoll.wait(&mut ready, wait)?;
        Ok(ready.iter().any(|ready| ready.token == 1))
    }

    /// Returns the counters of the direction from the first interface to the second, then of the
    /// opposite direction.
    pub fn counts(&mut self) -> [BridgeCounts; 2] {
        for side in &mut self.sides {
            side.counts.missed += u64::from(side.rx.take_missed());
            side.counts.fault = side.fault.counts();
        }
        [self.sides[0].counts, self.sides[1].counts]
    }

    /// Receives a burst of frames at one side. Returns true if there were any.
    fn take_in(&mut self, from: usize, now: u64) -> bool {
        let side = &mut self.sides[from];
        let mut moved = false;
        for _ in 0..BURST {
            let Some(received) = side.rx.receive() else {
                break;
            };
            moved = true;
            let (counts, fault, change) = (&mut side.counts, &mut side.fault, &side.change);
            let done = pass(&received, |frame| {
                let mut frame = with_tag(frame, &received);
                counts.received += 1;
                counts.received_bytes += frame.len() as u64;
                if change.as_ref().is_some_and(|change| change(&mut frame)) {
                    counts.changed += 1;
                }
                let bytes = frame.len();
                fault.offer(now, frame, bytes);
            });
            if !done {
                counts.unsupported += 1;
            }
        }
        side.rx.release();
        moved
    }

    /// Sends the frames whose delay has ended.
    fn let_out(&mut self, from: usize, now: u64) {
        let (first, second) = self.sides.split_at_mut(1);
        let (source, sink) = match from {
            0 => (&mut first[0], &mut second[0]),
            _ => (&mut second[0], &mut first[0]),
        };
        let mut has_committed = sink.is_stuck;
        while let Some(frame) = source.fault.take_due(now) {
            match sink.tx.reserve(frame.len()) {
                Some(place) => {
                    place.copy_from_slice(&frame);
                    sink.tx.commit(frame.len());
                    source.counts.sent += 1;
                    has_committed = true;
                }
                None => source.counts.no_room += 1,
            }
        }
        if has_committed {
            match sink.tx.flush() {
                Ok(is_through) => sink.is_stuck = !is_through,
                // The interface is down; its frames are dropped.
                Err(_) => {
                    sink.is_stuck = false;
                    let lost = sink.tx.discard() as u64;
                    source.counts.sent -= lost.min(source.counts.sent);
                    source.counts.no_room += lost;
                }
            }
        }
    }
}

/// Passes the plain frames in `received` to `each`. Returns false if it cannot be segmented.
fn pass(received: &Received<'_>, each: impl FnMut(&[u8])) -> bool {
    let is_whole = !received.is_cut && received.frame.len() >= MAC_HEADER_BYTES;
    is_whole && plain_frames(received.vnet_header, received.frame, each).is_ok()
}

/// The frame with the VLAN tag that the kernel had removed.
fn with_tag(frame: &[u8], received: &Received<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(frame.len() + 4);
    out.extend_from_slice(&frame[..12]);
    if let Some(tag) = received.tag {
        out.extend_from_slice(&tag.ethertype.to_be_bytes());
        out.extend_from_slice(&tag.control.to_be_bytes());
    }
    out.extend_from_slice(&frame[12..]);
    out
}

/// Largest number of frames that are received from one side in one turn.
const BURST: usize = 64;

/// Time after which frames that an interface did not accept are offered again, in ns.
const STUCK_NS: u64 = 50_000;
