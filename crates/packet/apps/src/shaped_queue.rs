//! A queue that releases packets at a rate: a token bucket behind [FQ-CoDel](crate::fq_codel).
//!
//! ```text
//!   packet -> tokens, and nothing waits? ---------------------------> out
//!                        \--> FQ-CoDel --> wait until tokens suffice --^
//! ```
//!
//! After a pause, a burst of 5 ms of the rate may pass at once. While packets wait, tokens also
//! make up for up to 20 ms in which the caller did not run. No other packets pass above the rate.

use carina_time::{Duration, Instant};

use crate::codel::{CodelTimes, FULL_FRAME_BYTES, Packet, QueueCounts};
use crate::fq_codel::FqCodel;

/// The rate at which a queue releases packets, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The rate, in bits per second: 1 to 10^12.
    pub bits_per_second: u64,
    /// Bytes that may pass at once after a pause. A longer packet passes nevertheless.
    pub burst_bytes: usize,
    /// Largest number of bytes that may wait.
    pub queue_bytes: usize,
}

impl Shape {
    /// The highest rate, in bits per second.
    pub const RATE_MAX: u64 = 1_000_000_000_000;

    /// The shape for this rate, which is brought into its range: a burst of 5 ms and at least a
    /// full frame, a queue of 100 ms and at least 16 full frames.
    #[must_use]
    pub fn of_rate(bits_per_second: u64) -> Shape {
        let bits_per_second = bits_per_second.clamp(1, Shape::RATE_MAX);
        let bytes_in = |ms: u64| (bits_per_second / 8 * ms / 1000) as usize;
        Shape {
            bits_per_second,
            burst_bytes: bytes_in(BURST_MS).max(FULL_FRAME_BYTES),
            queue_bytes: bytes_in(QUEUE_MS).max(QUEUE_FRAMES_MIN * FULL_FRAME_BYTES),
        }
    }

    fn times(&self) -> CodelTimes {
        CodelTimes::of_rate(self.bits_per_second)
    }
}

/// A queue that releases packets at a rate. Time is an argument; nothing here reads a clock.
#[derive(Debug)]
pub struct ShapedQueue<P> {
    shape: Shape,
    /// The available tokens, in bits times 10^9. Below zero after CoDel has replaced a packet by a
    /// longer one.
    tokens: i128,
    since: Option<Instant>,
    queue: FqCodel<P>,
}

impl<P: Packet> ShapedQueue<P> {
    /// Creates an empty queue with a full bucket of tokens.
    #[must_use]
    pub fn new(shape: Shape) -> ShapedQueue<P> {
        ShapedQueue {
            shape,
            tokens: price(shape.burst_bytes),
            since: None,
            queue: FqCodel::new(shape.times()),
        }
    }

    /// Changes the shape. Waiting packets stay, and so do tokens as far as they fit.
    pub fn set_shape(&mut self, shape: Shape) {
        self.shape = shape;
        self.tokens = self.tokens.min(price(shape.burst_bytes));
        self.queue.set_times(shape.times());
    }

    /// Takes tokens for packets of `bytes` bytes in total, which then need not wait. Returns false,
    /// and takes none, if tokens are missing or other packets wait.
    pub fn pass(&mut self, now: Instant, bytes: usize) -> bool {
        if !self.queue.is_empty() {
            return false;
        }
        self.refill(now, None);
        let passes = price(bytes) <= self.tokens;
        if passes {
            self.tokens -= price(bytes);
        }
        passes
    }

    /// Adds a packet that arrives at `now`. If more bytes than the shape allows or more than
    /// `packets_max` packets wait then, drops packets of the largest flow. Bytes that may leave at
    /// once do not count.
    pub fn push(&mut self, now: Instant, packet: P, packets_max: usize) {
        let front = self.queue.front_bytes();
        self.refill(now, front);
        let at_once = usize::try_from(self.tokens / price(1)).unwrap_or(0);
        let bytes_max = self.shape.queue_bytes.saturating_add(at_once);
        self.queue.push(now, packet, (bytes_max, packets_max));
    }

    /// Takes the next packet that may leave at `now`; `None` if none waits or tokens are missing.
    pub fn pop(&mut self, now: Instant) -> Option<P> {
        let front = self.queue.front_bytes()?;
        self.refill(now, Some(front));
        if price(front) > self.tokens {
            return None;
        }
        let packet = self.queue.pop(now)?;
        self.tokens -= price(packet.bytes());
        Some(packet)
    }

    /// When [`ShapedQueue::pop`] has a packet next, unless other packets arrive before; `None` if
    /// no packet waits.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        let front = self.queue.front_bytes()?;
        self.refill(now, Some(front));
        let missing = u128::try_from(price(front) - self.tokens).unwrap_or(0);
        let wait = missing.div_ceil(u128::from(self.shape.bits_per_second));
        Some(now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// Adds the tokens of the time since the last call. `front` is the length of the packet that
    /// waits for tokens; a caller that is late owes the packets behind it the tokens meanwhile.
    fn refill(&mut self, now: Instant, front: Option<usize>) {
        let since = self.since.replace(now).unwrap_or(now);
        let rate = i128::from(self.shape.bits_per_second);
        let nanos = i128::from(now.since(since).as_nanos());
        let limit = match front {
            None => price(self.shape.burst_bytes),
            Some(front) => price(front) + i128::from(LATE.as_nanos()) * rate,
        };
        let limit = limit.max(price(self.shape.burst_bytes));
        self.tokens = (self.tokens + nanos * rate).min(limit);
    }

    /// Number of packets that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no packet waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Packets that were dropped and marked so far.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        self.queue.counts()
    }
}

/// Number of tokens for this many bytes.
fn price(bytes: usize) -> i128 {
    bytes as i128 * 8 * 1_000_000_000
}

/// Burst after a pause, and bytes that may wait, in ms of the rate.
const BURST_MS: u64 = 5;
const QUEUE_MS: u64 = 100;
/// Number of full frames that may wait at any rate: more than a TCP stream sends first (10, RFC
/// 6928).
const QUEUE_FRAMES_MIN: usize = 16;
/// How late a caller may be without loss of tokens while packets wait.
const LATE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
