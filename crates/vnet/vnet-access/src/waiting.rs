//! Packets of users that wait for tokens of the user's rate.

use carina_apps::codel::{Packet, QueueCounts};
use carina_apps::congestion::mark_congestion;
use carina_apps::flow_hash::packet_hash;
use carina_apps::shaped_queue::{Shape, ShapedQueue};
use carina_time::Instant;

use crate::discard::{Discard, Discards};

/// Limits the packets of one user in one direction to a rate.
#[derive(Debug)]
pub(crate) struct UserQueue {
    queue: ShapedQueue<IpPacket>,
    /// The counts of `queue` at the last call of [`UserQueue::take_counts`].
    taken: QueueCounts,
    /// The reason under which dropped packets count.
    reason: Discard,
}

#[derive(Debug)]
struct IpPacket(Vec<u8>);

impl Packet for IpPacket {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn flow(&self) -> u32 {
        packet_hash(&self.0).unwrap_or_default()
    }

    fn mark_congestion(&mut self) -> bool {
        mark_congestion(&mut self.0)
    }
}

impl UserQueue {
    /// A queue for this rate in bits per second. Packets that it drops count as `reason`.
    pub(crate) fn new(rate_bps: u64, reason: Discard) -> UserQueue {
        UserQueue {
            queue: ShapedQueue::new(Shape::of_rate(rate_bps)),
            taken: QueueCounts::default(),
            reason,
        }
    }

    pub(crate) fn set_rate(&mut self, rate_bps: u64) {
        self.queue.set_shape(Shape::of_rate(rate_bps));
    }

    /// Returns true if the packet may pass at once. Otherwise a copy of it waits, if there is room.
    pub(crate) fn pass(&mut self, now: Instant, packet: &[u8]) -> bool {
        let passes = self.queue.pass(now, packet.len());
        if !passes {
            let packet = IpPacket(packet.to_vec());
            self.queue.push(now, packet, PACKETS_MAX);
        }
        passes
    }

    /// Takes the next packet that may pass at `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.queue.pop(now).map(|packet| packet.0)
    }

    /// When the next packet may pass; `None` if none waits.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Instant> {
        self.queue.due(now)
    }

    /// Number of packets that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Counts the packets that were dropped since the last call. Returns the number of those that
    /// were marked.
    pub(crate) fn take_counts(&mut self, discards: &mut Discards) -> u64 {
        let (now, before) = (self.queue.counts(), self.taken);
        self.taken = now;
        let dropped = |counts: QueueCounts| counts.dropped_full + counts.dropped_codel;
        discards.add(self.reason, dropped(now) - dropped(before));
        now.marked - before.marked
    }
}

/// Largest number of packets of a user that wait in one direction, so that short packets take
/// little memory.
const PACKETS_MAX: usize = 2048;
