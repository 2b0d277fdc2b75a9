//! FQ-CoDel: a queue that shares a link among flows and keeps each flow's waiting time short.
//! (RFC 8290)
//!
//! ```text
//!   packet -> hash of flow -> one of 1024 queues, each with CoDel --+
//!                                                                   v
//!             new flows first, then the others in turns (deficit round robin) -> out
//! ```
//!
//! A flow that has sent nothing for a while is served first. A flow that sends little therefore
//! does not wait behind the queue of one that fills the link. Packets of a flow keep their order,
//! because they are in one queue.

use std::collections::VecDeque;

use carina_time::Instant;

use crate::codel::{CodelQueue, CodelTimes, FULL_FRAME_BYTES, Packet, QueueCounts};
use crate::flow_hash::choice;

/// A queue of packets of many flows. Time is an argument; nothing here reads a clock.
#[derive(Debug)]
pub struct FqCodel<P> {
    times: CodelTimes,
    flows: Vec<Flow<P>>,
    /// For each hash bucket, the number of its flow plus 1; 0 if it has none. Empty until a packet
    /// waits.
    buckets: Vec<u16>,
    /// Flows that became active a short time ago; they are served first.
    new: VecDeque<u16>,
    /// Flows that have used their first turn.
    old: VecDeque<u16>,
    /// Length of the longest packet so far.
    longest: usize,
    bytes: usize,
    packets: usize,
    counts: QueueCounts,
}

#[derive(Debug)]
struct Flow<P> {
    queue: CodelQueue<P>,
    /// Bytes that the flow may still send in this turn.
    deficit: i64,
    /// Whether the flow is in the list `new` or the list `old` of its [`FqCodel`].
    is_listed: bool,
}

impl<P: Packet> FqCodel<P> {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(times: CodelTimes) -> FqCodel<P> {
        FqCodel {
            times,
            flows: Vec::new(),
            buckets: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            longest: FULL_FRAME_BYTES,
            bytes: 0,
            packets: 0,
            counts: QueueCounts::default(),
        }
    }

    /// Changes how long packets may wait before CoDel acts; the waiting packets stay.
    pub fn set_times(&mut self, times: CodelTimes) {
        self.times = times;
    }

    /// Adds a packet that arrives at `now`. If more than `bytes_max` bytes or `packets_max` packets
    /// wait then, drops packets from the head of the flow with the most bytes. (RFC 8290 §4.1.2)
    /// One packet may wait whatever its length.
    pub fn push(&mut self, now: Instant, packet: P, (bytes_max, packets_max): (usize, usize)) {
        let (bytes, number) = (packet.bytes(), self.flow_of(packet.flow()));
        self.longest = self.longest.max(bytes);
        self.bytes += bytes;
        self.packets += 1;
        let flow = &mut self.flows[usize::from(number)];
        flow.queue.push(now, packet);
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = QUANTUM;
            self.new.push_back(number);
        }
        while self.packets > 1 && (self.bytes > bytes_max || self.packets > packets_max) {
            let fattest = self.fattest(number);
            let fattest = &mut self.flows[fattest].queue;
            let Some((_, packet)) = fattest.pop_front() else {
                break;
            };
            self.bytes -= packet.bytes();
            self.packets -= 1;
            self.counts.dropped_full += 1;
        }
    }

    /// Number of the flow of a hash; makes the flow if it is new.
    fn flow_of(&mut self, hash: u32) -> u16 {
        if self.buckets.is_empty() {
            self.buckets = vec![0; BUCKETS];
        }
        let bucket = &mut self.buckets[choice(hash, BUCKETS)];
        if *bucket == 0 {
            self.flows.push(Flow {
                queue: CodelQueue::default(),
                deficit: 0,
                is_listed: false,
            });
            // At most one flow per bucket, and `BUCKETS` fits.
            *bucket = self.flows.len() as u16;
        }
        *bucket - 1
    }

    /// The flow with the most bytes. `hint` is the first to be considered: if it has more than half
    /// of all bytes, no other needs a look.
    fn fattest(&self, hint: u16) -> usize {
        let hint = usize::from(hint);
        if self.flows[hint].queue.bytes() * 2 > self.bytes {
            return hint;
        }
        let listed = self.new.iter().chain(&self.old).copied().map(usize::from);
        listed
            .max_by_key(|number| self.flows[*number].queue.bytes())
            .unwrap_or(hint)
    }

    /// Length of the packet that leaves next unless CoDel drops it; `None` if no packet waits.
    pub fn front_bytes(&mut self) -> Option<usize> {
        let number = self.next_flow()?;
        self.flows[usize::from(number)].queue.front_bytes()
    }

    /// Takes the next packet at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<P> {
        loop {
            let number = self.next_flow()?;
            let Flow { queue, deficit, .. } = &mut self.flows[usize::from(number)];
            let (bytes, packets) = (queue.bytes(), queue.len());
            let rules = (&self.times, self.longest);
            let packet = queue.pop(now, rules, &mut self.counts);
            self.bytes -= bytes - queue.bytes();
            self.packets -= packets - queue.len();
            if let Some(packet) = packet {
                *deficit -= packet.bytes() as i64;
                return Some(packet);
            }
        }
    }

    /// The flow that is served next, which has a packet. (RFC 8290 §4.2)
    fn next_flow(&mut self) -> Option<u16> {
        if self.packets == 0 {
            return None;
        }
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = *list.front()?;
            let flow = &mut self.flows[usize::from(number)];
            let is_empty = flow.queue.len() == 0;
            if !is_empty && flow.deficit > 0 {
                return Some(number);
            }
            list.pop_front();
            if !is_empty {
                flow.deficit += QUANTUM;
            } else if !is_new || self.old.is_empty() {
                flow.is_listed = false;
                continue;
            }
            // An empty flow that was new must not be new again before the others had their turns.
            self.old.push_back(number);
        }
    }

    /// Number of packets that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Whether no packet waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Number of bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packets that were dropped and marked so far.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        self.counts
    }
}

/// Number of hash buckets. (RFC 8290 §5.2.4)
const BUCKETS: usize = 1024;
/// Bytes that a flow may send in a turn. (RFC 8290 §5.2.3)
const QUANTUM: i64 = FULL_FRAME_BYTES as i64;
