//! The sending half of a connection: the closed-window queue, numbering, runs, the window that was
//! granted, and what is outstanding.
//!
//! ```text
//!            first PDU, with DRF
//!   IDLE ------------------------> SENDING <------------+
//!    ^                              |    |              | window opens
//!    |  nothing sent for 3Δt        |    | window closed,
//!    +------------------------------+    | nothing outstanding
//!                                        v              |
//!                                     CLOSED -----------+
//!                                      | ^
//!                                      +-+ rendezvous, again and again
//! ```

use alloc::collections::VecDeque;

use carina_wire::Payload;

use crate::config::{ConnectionConfig, QueueLimits, WindowControl};
use crate::counters::Counters;
use crate::pacing::Bucket;
use crate::receiver::NEVER;
use crate::seq::Random;

/// A PDU that was sent and is not acknowledged, or was by a selective acknowledgement only.
#[derive(Debug)]
pub(crate) struct Sent<P> {
    /// `None` once it is acknowledged.
    pub(crate) udf: Option<P>,
    /// When it was sent last, in ns.
    pub(crate) sent_at: u64,
    /// When it was sent first, in ns.
    pub(crate) first_at: u64,
    /// Sent more than once.
    pub(crate) is_resent: bool,
    /// Declared lost, and waiting to be sent again.
    pub(crate) is_lost: bool,
    /// From here on, so many are acknowledged; a hint, at least 1 for an acknowledged one.
    pub(crate) skip: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sender<P> {
    pub(crate) is_reliable: bool,
    pub(crate) window: Option<WindowControl>,
    limits: QueueLimits,
    pub(crate) bits: u8,
    delta_t: u64,
    rollover: u64,
    /// The first number that is not used.
    end: u64,

    /// The closed-window queue: written, not yet numbered.
    pub(crate) queue: VecDeque<P>,
    pub(crate) queue_bytes: usize,
    queue_kept: usize,
    pub(crate) bucket: Option<Bucket>,

    pub(crate) is_running: bool,
    /// First number of the run.
    pub(crate) start: u64,
    /// All below is acknowledged; with no retransmission control, sent.
    pub(crate) left: u64,
    /// Number of the next new PDU.
    pub(crate) next: u64,
    /// The first number that may not be sent.
    pub(crate) right: u64,
    /// Outstanding PDUs, from `left` up to `next`.
    pub(crate) sent: VecDeque<Sent<P>>,
    /// When a data or rendezvous PDU was last sent.
    pub(crate) active_at: u64,
    /// When the next rendezvous PDU is due.
    pub(crate) rendezvous_at: u64,
    pub(crate) rendezvous_ns: u64,
    /// Rollover was announced for this run.
    pub(crate) is_rolled_over: bool,
    /// No number is left.
    pub(crate) is_exhausted: bool,
}

impl<P: Payload> Sender<P> {
    pub(crate) fn new(now: u64, config: &ConnectionConfig) -> Sender<P> {
        let space = config.space();
        Sender {
            is_reliable: config.retransmission,
            window: config.window_in_force(),
            limits: config.queue,
            bits: config.seq_bits,
            delta_t: config.delta_t(),
            rollover: config.rollover.unwrap_or(space / 4 * 3),
            end: space - 1,
            queue: VecDeque::new(),
            queue_bytes: 0,
            queue_kept: 0,
            bucket: config.rate.map(|rate| Bucket::new(now, rate)),
            is_running: false,
            start: 0,
            left: 0,
            next: 0,
            right: 0,
            sent: VecDeque::new(),
            active_at: 0,
            rendezvous_at: NEVER,
            rendezvous_ns: 0,
            is_rolled_over: false,
            is_exhausted: false,
        }
    }

    /// UDFs that the closed-window queue takes.
    pub(crate) fn room(&self) -> usize {
        if self.queue_bytes >= self.limits.bytes {
            return 0;
        }
        self.limits.pdus.saturating_sub(self.queue.len())
    }

    pub(crate) fn write(&mut self, mut udf: P) -> Result<(), P> {
        let len = udf.len();
        let is_full = self.queue.len() >= self.limits.pdus
            || (self.queue_bytes > 0 && self.queue_bytes + len > self.limits.bytes);
        // It must outlive the burst, since its acknowledgement will not come sooner.
        if is_full || (self.is_reliable && !udf.keep()) {
            return Err(udf);
        }
        self.queue_bytes += len;
        self.queue.push_back(udf);
        Ok(())
    }

    /// Begins a run when there is none, or when nothing was sent for 3Δt.
    pub(crate) fn begin_when_silent(
        &mut self,
        now: u64,
        random: &mut Random,
        counters: &mut Counters,
    ) {
        let is_silent = now >= self.active_at.saturating_add(3 * self.delta_t);
        if self.is_running && !(is_silent && self.sent.is_empty()) {
            return;
        }
        self.is_running = true;
        self.start = random.initial(self.bits);
        (self.left, self.next) = (self.start, self.start);
        let initial = self.window.map_or(0, |window| window.initial_credit);
        self.right = self.start + u64::from(initial);
        self.is_rolled_over = false;
        counters.runs += 1;
    }

    /// The window allows another new PDU.
    pub(crate) fn is_open(&self) -> bool {
        self.window.is_none() || self.next < self.right
    }

    /// Numbers the next UDF; the caller has checked that there is one and that it may go.
    pub(crate) fn take_new(&mut self, now: u64) -> Option<(u64, P)> {
        if self.next >= self.end {
            self.is_exhausted = true;
            return None;
        }
        let mut udf = self.queue.pop_front()?;
        if self.is_reliable {
            let Some(copy) = udf.share() else {
                self.queue.push_front(udf);
                return None;
            };
            self.sent.push_back(Sent {
                udf: Some(copy),
                sent_at: now,
                first_at: now,
                is_resent: false,
                is_lost: false,
                skip: 0,
            });
        } else {
            self.left = self.next + 1;
        }
        self.queue_bytes -= udf.len();
        self.queue_kept = self.queue_kept.saturating_sub(1);
        let number = self.next;
        self.next += 1;
        self.active_at = now;
        if let Some(bucket) = &mut self.bucket {
            bucket.spend(now);
        }
        Some((number, udf))
    }

    /// True once per run, when numbers run out soon.
    pub(crate) fn rolls_over(&mut self) -> bool {
        let is_due = self.next >= self.rollover && !self.is_rolled_over && self.is_running;
        self.is_rolled_over |= is_due;
        is_due
    }

    /// The burst is over: what stays queued must last.
    pub(crate) fn end_of_burst(&mut self, counters: &mut Counters) {
        if self.is_reliable {
            return;
        }
        while let Some(udf) = self.queue.get_mut(self.queue_kept) {
            if udf.keep() {
                self.queue_kept += 1;
                continue;
            }
            let len = udf.len();
            self.queue.remove(self.queue_kept);
            self.queue_bytes -= len;
            counters.unsent += 1;
        }
    }
}
