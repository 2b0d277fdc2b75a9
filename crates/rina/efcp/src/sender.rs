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

mod loss;
mod runs;
mod stall;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use carina_time::{Duration, Instant};
use carina_wire::Payload;

use crate::config::{ConnectionConfig, QueueLimits, WindowControl};
use crate::congestion::CongestionControl;
use crate::counters::Counters;
use crate::pacing::Bucket;
use crate::profile::{EfcpProfile, Stall, Wrap};
use crate::rtt::RttEstimator;
use crate::seq;
use loss::Loss;

/// A PDU that was sent and is not acknowledged, or was by a selective acknowledgement only.
#[derive(Debug)]
pub(crate) struct Sent<P> {
    /// `None` once it is acknowledged.
    pub(crate) udf: Option<P>,
    /// When it was sent last, in ns.
    pub(crate) sent_at: Instant,
    /// Sent more than once.
    pub(crate) is_resent: bool,
    /// Declared lost, and waiting to be sent again.
    pub(crate) is_lost: bool,
    /// From here on, so many are acknowledged; a hint, at least 1 for an acknowledged one.
    pub(crate) skip: u32,
}

impl<P> Sent<P> {
    fn acknowledged() -> Sent<P> {
        Sent {
            udf: None,
            sent_at: Instant::ZERO,
            is_resent: false,
            is_lost: false,
            skip: 1,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sender<P> {
    pub(crate) is_reliable: bool,
    pub(crate) window: Option<WindowControl>,
    limits: QueueLimits,
    pub(crate) bits: u8,
    pub(crate) ecn: bool,
    profile: EfcpProfile,
    /// The first number of the first run, where it is known before.
    pub(crate) prepared: Option<u64>,
    /// Most PDUs in flight whatever congestion control says: 1 while the other side may take any
    /// for the first of the run.
    flight_max: u64,
    /// After such a silence either side may have forgotten the run.
    silence: Duration,
    /// A UDF is sent as a copy: it may have to be sent again.
    copies: bool,
    /// The last UDF, to be repeated where that stands for a rendezvous PDU.
    last: Option<P>,
    /// A, as far as the other side lets it pass.
    a: Duration,
    /// How long an acknowledgement may take beyond the round trip.
    answer_delay: Duration,
    r: Duration,
    delta_t: Duration,
    rollover: u64,
    /// The first number that is not used.
    end: u64,

    pub(crate) congestion: Box<dyn CongestionControl>,
    pub(crate) rtt: Box<dyn RttEstimator>,
    pub(crate) loss: Loss,

    /// The closed-window queue: written, not yet numbered. `None` stands for one that could not
    /// be kept: its number stays unused, so that the other side sees the gap.
    queue: VecDeque<Option<P>>,
    queue_bytes: usize,
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
    /// Bytes of them that are not acknowledged.
    pub(crate) sent_bytes: usize,
    /// When a data or rendezvous PDU was last sent.
    pub(crate) active_at: Instant,
    /// When the next rendezvous PDU is due; [`Instant::MAX`] while the window is open.
    rendezvous_at: Instant,
    rendezvous_pause: Duration,
    is_rendezvous_due: bool,
    /// When sending is tried again that the rate forbade, or a lack of buffers.
    pub(crate) retry_at: Instant,
    /// When the window closed, or control was heard since.
    pub(crate) answered_at: Instant,
    /// Rollover was announced for this run.
    pub(crate) is_rolled_over: bool,
    /// No number is left.
    pub(crate) is_exhausted: bool,
}

impl<P: Payload> Sender<P> {
    pub(crate) fn new(now: Instant, config: ConnectionConfig) -> Sender<P> {
        let space = config.space();
        let (window, delta_t) = (config.window_in_force(), config.delta_t());
        let repeats = config.profile.stall == Stall::Repeat;
        // A receiver that answers every PDU at once does not wait for A.
        let a = if config.profile.answers_every {
            Duration::ZERO
        } else {
            config.a
        };
        // Acknowledgements without a delay field need an allowance: round-trip times do not show
        // how much of them was A, nor by how much the other side's timer is late.
        let answer_delay = if config.profile.selective { a } else { a * 2 };
        let timeout = config.rtt.timeout() + answer_delay;
        Sender {
            is_reliable: config.retransmission,
            window,
            limits: config.queue,
            bits: config.seq_bits,
            ecn: config.ecn,
            profile: config.profile,
            prepared: None,
            flight_max: u64::MAX,
            silence: delta_t * if config.profile.takes_any_first { 2 } else { 3 },
            copies: config.retransmission || (repeats && window.is_some()),
            last: None,
            a,
            answer_delay,
            r: config.r,
            delta_t,
            rollover: match config.rollover {
                _ if config.profile.wrap != Wrap::NewConnection => u64::MAX,
                Some(number) => number,
                None => space / 4 * 3,
            },
            end: match config.profile.wrap {
                Wrap::Continues => u64::MAX,
                Wrap::NewRun if !config.retransmission => u64::MAX,
                Wrap::NewConnection | Wrap::NewRun => space - 1,
            },
            congestion: config.congestion,
            rtt: config.rtt,
            loss: Loss::new(timeout, !config.profile.selective),
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
            sent_bytes: 0,
            active_at: Instant::ZERO,
            rendezvous_at: Instant::MAX,
            rendezvous_pause: Duration::ZERO,
            is_rendezvous_due: false,
            retry_at: Instant::MAX,
            answered_at: Instant::ZERO,
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
        // While there is any room, one UDF of any length is taken: the last may go beyond the
        // limit. It must outlive the burst, since its acknowledgement will not come sooner.
        if self.room() == 0 || (self.is_reliable && !udf.keep()) {
            return Err(udf);
        }
        self.queue_bytes += len;
        self.queue.push_back(Some(udf));
        Ok(())
    }

    /// UDFs that were written and not sent.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// There may be something to send.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.loss.queue.is_empty()
    }

    /// Everything was sent and, with retransmission control, acknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.sent.is_empty()
    }

    /// The window allows another new PDU.
    pub(crate) fn is_open(&self) -> bool {
        self.window.is_none() || self.next < self.right
    }

    /// Congestion control allows another PDU.
    pub(crate) fn has_flight(&self) -> bool {
        !self.is_reliable
            || self.loss.is_urgent
            || self.loss.in_flight < self.congestion.window().min(self.flight_max)
    }

    /// True when the rate allows another PDU; if not, `retry_at` is set to when it does.
    pub(crate) fn takes_tokens(&mut self, now: Instant) -> bool {
        self.retry_at = Instant::MAX;
        let Some(bucket) = &self.bucket else {
            return true;
        };
        let ready_at = bucket.ready_at();
        if ready_at > now {
            self.retry_at = ready_at;
        }
        ready_at <= now
    }

    /// Numbers the next UDF. `None` when the queue is empty, when the window, congestion control or
    /// the rate forbid it, or when there is no buffer.
    pub(crate) fn take_new(&mut self, now: Instant) -> Option<(u64, P)> {
        loop {
            if !self.is_open() || !self.has_flight() || self.sent_bytes >= self.limits.flight_bytes
            {
                return None;
            }
            if self.next >= self.end {
                let is_last = self.profile.wrap == Wrap::NewConnection;
                self.is_exhausted = is_last && !self.queue.is_empty();
                return None;
            }
            let slot = self.queue.front_mut()?;
            let copy = match slot {
                Some(udf) if self.copies => {
                    let copy = udf.share();
                    if copy.is_none() {
                        self.retry_at = now + RETRY;
                        return None;
                    }
                    copy
                }
                _ => None,
            };
            let udf = self.queue.pop_front().flatten();
            self.queue_kept = self.queue_kept.saturating_sub(1);
            let number = self.next;
            self.next += 1;
            self.active_at = now;
            let Some(udf) = udf else {
                self.left = self.next;
                continue;
            };
            self.queue_bytes -= udf.len();
            if self.is_reliable {
                self.outstanding(now, copy);
            } else {
                self.left = self.next;
                if copy.is_some() {
                    self.last = copy;
                }
            }
            if let Some(bucket) = &mut self.bucket {
                bucket.spend(now);
            }
            return Some((number, udf));
        }
    }

    fn outstanding(&mut self, now: Instant, udf: Option<P>) {
        if self.sent.is_empty() {
            self.loss.progress_at = now;
        }
        self.sent_bytes += udf.as_ref().map_or(0, P::len);
        self.sent.push_back(Sent {
            udf,
            sent_at: now,
            is_resent: false,
            is_lost: false,
            skip: 1,
        });
        self.loss.is_urgent = false;
        self.loss.on_new(now);
    }

    /// Whether the data PDU with this number has the data run flag.
    pub(crate) fn has_flag(&self, number: u64) -> bool {
        number == self.start || self.profile.drf_on_every || self.is_behind_wrap(number)
    }

    /// Without retransmission control, where numbers that are used again need the data run flag:
    /// this one is among the first of them.
    pub(crate) fn is_behind_wrap(&self, number: u64) -> bool {
        self.profile.wrap == Wrap::NewRun
            && !self.is_reliable
            && number >= seq::space(self.bits)
            && seq::truncate(number, self.bits) < FLAGS_BEHIND_WRAP
    }

    /// The left edge that it announces: 0 while nothing was acknowledged, where that is usual.
    pub(crate) fn announced_left(&self) -> u64 {
        if self.left == self.start && !self.profile.selective {
            0
        } else {
            self.left
        }
    }

    /// When the next timer of this half is due.
    pub(crate) fn next_timeout(&self) -> Instant {
        let mut at = self.rendezvous_at.min(self.retry_at);
        if self.is_reliable {
            at = at
                .min(self.loss.doubt_at)
                .min(self.loss.tail_at)
                .min(self.fails_at())
                .min(self.unanswered_at());
        }
        at
    }

    /// Does what is due. True when the connection has failed.
    pub(crate) fn handle_timeout(&mut self, now: Instant, counters: &mut Counters) -> bool {
        self.check_rendezvous(now);
        if now >= self.retry_at {
            self.retry_at = Instant::MAX;
        }
        if !self.is_reliable {
            return false;
        }
        if now >= self.fails_at() || now >= self.unanswered_at() {
            return true;
        }
        if now >= self.loss.doubt_at {
            self.find_losses(now, self.loss.in_flight, counters);
        }
        if now >= self.loss.tail_at {
            self.on_tail(now, counters);
        }
        false
    }

    /// Forgets everything that is queued or outstanding.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.sent.clear();
        self.sent_bytes = 0;
        self.last = None;
        self.queue_bytes = 0;
        self.queue_kept = 0;
        self.rendezvous_at = Instant::MAX;
        self.retry_at = Instant::MAX;
        self.loss.restart();
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
        while let Some(slot) = self.queue.get_mut(self.queue_kept) {
            self.queue_kept += 1;
            let Some(udf) = slot else {
                continue;
            };
            if !udf.keep() {
                self.queue_bytes -= udf.len();
                *slot = None;
                counters.unsent += 1;
            }
        }
    }
}

/// PDUs with the data run flag after the last sequence number, without retransmission control.
const FLAGS_BEHIND_WRAP: u64 = 16;

/// When buffers may be there again, in ns.
const RETRY: Duration = Duration::from_millis(1);
