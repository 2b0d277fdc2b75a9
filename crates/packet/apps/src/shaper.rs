//! **shaper**: delays frames above a rate in a queue that it keeps short, by a token bucket and
//! FQ-CoDel (RFC 8290, RFC 8289).
//!
//! - inputs: `input`
//! - outputs: `output`
//! - configuration: `bits_per_second`: 1 to 10^12, counted without preamble and FCS;
//!   `burst_bytes`: bytes that may pass at once after a pause, 1514 to 10^12 (default: 5 ms of the
//!   rate, at least 1514; the longest frame of the pool passes in any case); `queue_bytes`: bytes
//!   that may wait, 1514 to 10^12 (default: 100 ms of the rate, at least 24,224)
//! - counters: `drop_full`: frames for which the queue had no room; `drop_codel`: frames that were
//!   dropped because frames of their flow waited longer than 5 ms for some time; `marked_ce`:
//!   frames of ECN-capable flows that were marked instead
//! - cost: a subtraction; a frame that waits is also hashed and moved twice, and occupies a frame
//!   of the pool meanwhile
//!
//! Flows with few frames pass flows that fill the link. The queue holds at most a quarter of as
//! many frames as the pool has left, so that no number of full links exhausts the pool. (A.
//! Choudhury and E. Hahne, *Dynamic queue length thresholds for shared-memory packet switches*) A
//! change of the configuration keeps the waiting frames.
//!
//! [`rate_limiter`](crate::rate_limiter) drops frames instead. One TCP stream gets a tenth of such
//! a rate, but at least 90 % of that of a shaper.

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, PortList, Ports,
};
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::codel::{FULL_FRAME_BYTES, Packet};
use crate::congestion::{mark_congestion, packet_in};
use crate::flow_hash::{flow_hash, packet_hash};
use crate::shaped_queue::{Shape, ShapedQueue};

/// The configuration of the app `shaper`, which delays frames above a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShaperConfig {
    /// The rate, in bits per second.
    pub bits_per_second: u64,
    /// Bytes that may pass at once after a pause; `None` means 5 ms of the rate.
    #[serde(default)]
    pub burst_bytes: Option<u64>,
    /// Bytes that may wait; `None` means 100 ms of the rate.
    #[serde(default)]
    pub queue_bytes: Option<u64>,
}

/// The running app `shaper`: delays frames above a rate.
pub struct Shaper {
    queue: ShapedQueue<Frame>,
    /// When to visit the app although no frame arrives.
    next: Option<Instant>,
    pool: Pool,
    full: Counter,
    codel: Counter,
    marked: Counter,
}

/// Why a configuration of the app `shaper` is invalid.
#[derive(Debug, thiserror::Error)]
enum ShaperError {
    #[error("bits_per_second = {0}: must be 1 to {max}", max = Shape::RATE_MAX)]
    Rate(u64),
    #[error("{name} = {bytes}: must be {FULL_FRAME_BYTES} to {BYTES_MAX}")]
    Bytes { name: &'static str, bytes: u64 },
}

const BYTES_MAX: u64 = 1_000_000_000_000;

impl ShaperConfig {
    /// A shaper for this rate, which is brought into its range, with the default of each other key.
    #[must_use]
    pub fn of_rate(bits_per_second: u64) -> ShaperConfig {
        ShaperConfig {
            bits_per_second: bits_per_second.clamp(1, Shape::RATE_MAX),
            burst_bytes: None,
            queue_bytes: None,
        }
    }

    /// The shape that this configuration describes. The burst is at least `frame_bytes`.
    fn shape(self, frame_bytes: usize) -> Result<Shape, ShaperError> {
        if !(1..=Shape::RATE_MAX).contains(&self.bits_per_second) {
            return Err(ShaperError::Rate(self.bits_per_second));
        }
        let shape = Shape::of_rate(self.bits_per_second);
        let checked = |name, wanted: Option<u64>, usual| match wanted {
            Some(bytes) if !(FULL_FRAME_BYTES as u64..=BYTES_MAX).contains(&bytes) => {
                Err(ShaperError::Bytes { name, bytes })
            }
            Some(bytes) => Ok(bytes as usize),
            None => Ok(usual),
        };
        let burst_bytes = checked("burst_bytes", self.burst_bytes, shape.burst_bytes)?;
        Ok(Shape {
            burst_bytes: burst_bytes.max(frame_bytes),
            queue_bytes: checked("queue_bytes", self.queue_bytes, shape.queue_bytes)?,
            ..shape
        })
    }
}

impl AppConfig for ShaperConfig {
    const KIND: &'static str = "shaper";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::OUTPUT;

    type App = Shaper;

    fn check(&self) -> Result<(), AppError> {
        Ok(self.shape(0).map(drop)?)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Shaper, AppError> {
        Ok(Shaper {
            queue: ShapedQueue::new(self.shape(context.pool().frame_bytes())?),
            next: None,
            pool: context.pool().clone(),
            full: context.counter("drop_full"),
            codel: context.counter("drop_codel"),
            marked: context.counter("marked_ce"),
        })
    }

    fn can_apply(&self, _old: &ShaperConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut Shaper) {
        if let Ok(shape) = self.shape(app.pool.frame_bytes()) {
            app.queue.set_shape(shape);
        }
    }
}

impl FrameApp for Shaper {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        if !self.queue.is_empty() {
            self.release(ports);
        }
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        if self.queue.is_empty() && ports.waiting(0) <= ports.room(0) {
            let bytes = ports.frames(0).map(Frame::len).sum();
            if self.queue.pass(now, bytes) {
                return ports.forward(0, 0, |_| true);
            }
        }
        let frames_max = (self.pool.spare() / SHARE).max(1);
        ports.drain(0, |frame| self.queue.push(now, frame, frames_max));
        self.release(ports);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.next
    }
}

impl Shaper {
    /// Sends the frames for which there are tokens.
    fn release(&mut self, ports: &mut Ports<'_>) {
        let (now, room) = (ports.now(), ports.room(0));
        ports.fill(0, room.min(FRAME_BURST), || self.queue.pop(now));
        let due = self.queue.due(now);
        self.next = if ports.room(0) == 0 {
            due.map(|due| due.max(now + WAIT_FOR_ROOM))
        } else {
            // Frames that are due now are sent in the next breath, because this one moved some.
            due.map(|due| {
                if due > now {
                    due.max(now + WAKE_EVERY)
                } else {
                    due
                }
            })
        };
        let counts = self.queue.counts();
        self.full.set(counts.dropped_full);
        self.codel.set(counts.dropped_codel);
        self.marked.set(counts.marked);
    }
}

impl Packet for Frame {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn flow(&self) -> u32 {
        let bytes = Frame::bytes(self);
        packet_hash(&bytes[packet_in(bytes)..]).unwrap_or_else(|| flow_hash(bytes))
    }

    fn mark_congestion(&mut self) -> bool {
        let at = packet_in(Frame::bytes(self));
        mark_congestion(&mut self.bytes_mut()[at..])
    }
}

/// The queue holds at most one frame for this many that the pool has left.
const SHARE: usize = 4;
/// Time between two visits for tokens: short compared with any round trip, long compared with the
/// cost of a visit.
const WAKE_EVERY: Duration = Duration::from_micros(50);
/// Time until the next visit while the output has no room.
const WAIT_FOR_ROOM: Duration = Duration::from_millis(1);
