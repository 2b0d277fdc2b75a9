//! The sending half of a connection. It keeps the closed-window queue, numbers UDFs, starts runs,
//! and tracks the granted window and the outstanding PDUs.
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

/// A PDU that was sent and whose number is at or above the left edge. It is unacknowledged, or
/// acknowledged by a selective acknowledgement only.
#[derive(Debug)]
pub(crate) struct Sent<P> {
    /// The UDF; `None` once it is acknowledged.
    pub(crate) udf: Option<P>,
    /// Time at which the PDU was last sent.
    pub(crate) sent_at: Instant,
    /// Whether the PDU was sent more than once.
    pub(crate) is_resent: bool,
    /// Whether the PDU is considered lost and waits for its retransmission.
    pub(crate) is_lost: bool,
    /// A hint for skipping acknowledged PDUs: this PDU and those after it, at least `skip` in all,
    /// are acknowledged. At least 1 for an acknowledged PDU.
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

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender<P> {
    pub(crate) is_reliable: bool,
    pub(crate) window: Option<WindowControl>,
    limits: QueueLimits,
    pub(crate) bits: u8,
    pub(crate) ecn: bool,
    profile: EfcpProfile,
    /// The first number of the first run, if it was chosen before the run starts.
    pub(crate) prepared: Option<u64>,
    /// Largest number of PDUs in flight, in addition to congestion control. It is 1 while the
    /// receiver may take any PDU for the first of the run.
    flight_max: u64,
    /// Length of a pause after which the sender starts a new run of numbers, because the receiver
    /// may have dropped its state.
    silence: Duration,
    /// Whether the sender keeps a UDF when it sends a copy, because it may have to send the UDF
    /// again.
    copies: bool,
    /// The last UDF sent, for profiles that repeat it in place of a rendezvous PDU.
    last: Option<P>,
    /// Longest delay of an acknowledgement by the peer; 0 if the peer answers every PDU without
    /// delay.
    a: Duration,
    /// Allowance for the delay of an acknowledgement beyond the round-trip time.
    answer_delay: Duration,
    r: Duration,
    delta_t: Duration,
    rollover: u64,
    /// The first number that is never used.
    end: u64,

    pub(crate) congestion: Box<dyn CongestionControl>,
    pub(crate) rtt: Box<dyn RttEstimator>,
    pub(crate) loss: Loss,

    /// The closed-window queue: UDFs that are written but not numbered. `None` marks a UDF that
    /// could not be kept. Its number stays unused, so that the receiver sees the gap.
    queue: VecDeque<Option<P>>,
    queue_bytes: usize,
    queue_kept: usize,
    pub(crate) bucket: Option<Bucket>,

    pub(crate) is_running: bool,
    /// First number of the run.
    pub(crate) start: u64,
    /// Left edge: all lower numbers are acknowledged; without retransmission control, sent.
    pub(crate) left: u64,
    /// Number of the next new PDU.
    pub(crate) next: u64,
    /// Right edge: the first number that may not be sent.
    pub(crate) right: u64,
    /// Outstanding PDUs, from `left` up to `next`.
    pub(crate) sent: VecDeque<Sent<P>>,
    /// Unacknowledged bytes in `sent`.
    pub(crate) sent_bytes: usize,
    /// When a data or rendezvous PDU was last sent.
    pub(crate) active_at: Instant,
    /// When the next rendezvous PDU is due; [`Instant::MAX`] while the window is open.
    rendezvous_at: Instant,
    rendezvous_pause: Duration,
    is_rendezvous_due: bool,
    /// When to retry sending, after the rate or a lack of buffers prevented it.
    pub(crate) retry_at: Instant,
    /// When the window closed or, if later, when the last control PDU arrived.
    pub(crate) answered_at: Instant,
    /// Whether [`ConnEvent::Rollover`](crate::ConnEvent::Rollover) was emitted for this run.
    pub(crate) is_rolled_over: bool,
    /// Whether all sequence numbers are used.
    pub(crate) is_exhausted: bool,
}

impl<P: Payload> Sender<P> {
    pub(crate) fn new(now: Instant, config: ConnectionConfig) -> Sender<P> {
        let space = config.space();
        let (window, delta_t) = (config.window_in_force(), config.delta_t());
        let repeats = config.profile.stall == Stall::Repeat;
        // A receiver that answers every PDU at once does not delay its acknowledgements by A.
        let a = if config.profile.answers_every {
            Duration::ZERO
        } else {
            config.a
        };
        // Acknowledgements without a delay field need an allowance. Round-trip samples do not show
        // how much of them was A, nor how late the peer's timer was.
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

    /// Number of UDFs that the closed-window queue accepts.
    pub(crate) fn room(&self) -> usize {
        if self.queue_bytes >= self.limits.bytes {
            return 0;
        }
        self.limits.pdus.saturating_sub(self.queue.len())
    }

    pub(crate) fn write(&mut self, mut udf: P) -> Result<(), P> {
        let len = udf.len();
        // While there is room, one UDF of any length is accepted, so the last one may exceed the
        // limit. With retransmission control it must outlive the burst, because its acknowledgement
        // comes later.
        if self.room() == 0 || (self.is_reliable && !udf.keep()) {
            return Err(udf);
        }
        self.queue_bytes += len;
        self.queue.push_back(Some(udf));
        Ok(())
    }

    /// Number of UDFs that are written but not sent.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Whether a data PDU waits: for its first transmission, or for a retransmission.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.loss.queue.is_empty()
    }

    /// Whether everything was sent and, with retransmission control, acknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.sent.is_empty()
    }

    /// Whether the flow-control window allows the first transmission of another PDU.
    pub(crate) fn is_open(&self) -> bool {
        self.window.is_none() || self.next < self.right
    }

    /// Whether congestion control allows another PDU.
    pub(crate) fn has_flight(&self) -> bool {
        !self.is_reliable
            || self.loss.is_urgent
            || self.loss.in_flight < self.congestion.window().min(self.flight_max)
    }

    /// Whether the rate allows another PDU now. If not, sets `retry_at` to the time when it does.
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

    /// Takes the next UDF from the queue and numbers it. `None` when the queue is empty, when the
    /// window, congestion control or the limit of unacknowledged bytes forbids sending, or when no
    /// buffer is free.
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

    /// Whether the data PDU with this number carries the data run flag.
    pub(crate) fn has_flag(&self, number: u64) -> bool {
        number == self.start || self.profile.drf_on_every || self.is_behind_wrap(number)
    }

    /// Whether this number is among the first after a wrap, where PDUs carry the data run flag.
    /// Only for profiles with [`Wrap::NewRun`] and without retransmission control.
    pub(crate) fn is_behind_wrap(&self, number: u64) -> bool {
        self.profile.wrap == Wrap::NewRun
            && !self.is_reliable
            && number >= seq::space(self.bits)
            && seq::truncate(number, self.bits) < FLAGS_BEHIND_WRAP
    }

    /// The left edge to announce in control PDUs. Profiles without selective acknowledgement
    /// announce 0 until the first acknowledgement.
    pub(crate) fn announced_left(&self) -> u64 {
        if self.left == self.start && !self.profile.selective {
            0
        } else {
            self.left
        }
    }

    /// When the next timer of the sender is due.
    pub(crate) fn next_timeout(&self) -> Instant {
        let mut at = self.rendezvous_at.min(self.retry_at);
        if self.is_reliable {
            at = at
                .min(self.loss.loss_at)
                .min(self.loss.tail_at)
                .min(self.fails_at())
                .min(self.unanswered_at());
        }
        at
    }

    /// Processes the timers that are due. Returns true when the connection has failed.
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
        if now >= self.loss.loss_at {
            self.find_losses(now, self.loss.in_flight, counters);
        }
        if now >= self.loss.tail_at {
            self.on_tail(now, counters);
        }
        false
    }

    /// Drops everything that is queued or outstanding.
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

    /// Returns true once per run, when sequence numbers will run out soon.
    pub(crate) fn rolls_over(&mut self) -> bool {
        let is_due = self.next >= self.rollover && !self.is_rolled_over && self.is_running;
        self.is_rolled_over |= is_due;
        is_due
    }

    /// Ends a burst: without retransmission control, copies queued UDFs to memory that outlives the
    /// burst.
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

/// Without retransmission control: number of PDUs after the wrap of sequence numbers that carry the
/// data run flag.
const FLAGS_BEHIND_WRAP: u64 = 16;

/// How long to wait for free buffers before the next attempt.
const RETRY: Duration = Duration::from_millis(1);
