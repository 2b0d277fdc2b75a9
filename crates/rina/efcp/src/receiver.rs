//! The receiving half of a connection. It tracks runs, order, duplicates and gaps, and decides the
//! window that it grants and when an acknowledgement is due.
//!
//! ```text
//!        silence for 2Δt
//!   +-------------------------------------------+
//!   v                                           |
//!  INITIAL --- DRF ------------------------> RUNNING --+ DRF elsewhere: a new run; the old
//!   |  ^ PDU without DRF, with                  ^      | one is remembered for Δt, and what
//!   |  | retransmission: held for its DRF       |      | is of it is discarded
//!   +--+                                        |<-----+
//!   |                                           |
//!   +-- PDU without DRF, no retransmission: ----+
//!       start unknown, a gap before it
//! ```

mod arrival;
mod gaps;
mod ranges;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use carina_time::{Duration, Instant};
use carina_wire::Payload;
use carina_wire::dif::{Ack, Sack, Window};

use crate::config::{AckPolicy, ConnectionConfig, RateControl, WindowControl};
use crate::counters::Counters;
use crate::event::FailReason;
use crate::profile::{EfcpProfile, Stall, Wrap};
use crate::seq;
use ranges::Ranges;

/// A user-data field (UDF) that a connection delivers to its reader.
#[derive(Debug)]
pub struct Delivered<P> {
    /// The bytes of the UDF, still with the header of delimiting if the policy has one.
    pub udf: P,
    /// Sequence number of the UDF, extended to 64 bits.
    pub seq: u64,
    /// With in-order delivery: whether UDFs directly before this one are lost for good.
    pub gap_before: bool,
}

/// State of one sequence number between the left edge and the highest number received.
#[derive(Debug)]
enum Slot<P> {
    /// The PDU has not been received.
    Missing,
    /// The PDU was received at this time and its UDF delivered (without in-order delivery).
    Done(Instant),
    /// The PDU was received at this time, and its UDF waits for earlier ones.
    Held(Instant, P),
}

impl<P> Slot<P> {
    fn received_at(&self) -> Option<Instant> {
        match self {
            Slot::Missing => None,
            Slot::Done(at) | Slot::Held(at, _) => Some(*at),
        }
    }
}

/// An earlier run that was replaced. Until `until`, PDUs with its numbers are discarded.
#[derive(Clone, Copy, Debug)]
struct Previous {
    start: u64,
    end: u64,
    until: Instant,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver<P> {
    is_in_order: bool,
    is_reliable: bool,
    window: Option<WindowControl>,
    /// The rate that the receiver grants.
    rate: Option<RateControl>,
    gap_max: Option<u64>,
    a: Duration,
    delta_t: Duration,
    bits: u8,
    reorder_max: u64,
    ack_policy: AckPolicy,
    profile: EfcpProfile,
    /// Setting: whether the receiver sends a control PDU for every data PDU that it receives.
    answers_every: bool,
    /// Setting: whether the receiver sends another control PDU for each duplicate of a data PDU,
    /// because the first one may have been lost.
    answers_old: bool,
    /// Added to numbers of the wire, so that late PDUs with numbers below the first one do not
    /// become negative.
    base: u64,

    /// Whether a run of the sender has started at any time since the connection began. Never
    /// becomes false again.
    has_run: bool,
    /// Whether a run started with the data run flag and no control PDU was sent since.
    is_new_run: bool,
    /// Whether a run is in progress: it has started, and has not expired.
    is_running: bool,
    /// Whether the first sequence number of the run is known, because its PDU with the DRF arrived.
    is_start_known: bool,
    /// Whether `start` is a guess, because the PDU with the DRF has not arrived. Lower numbers may
    /// still be the start.
    is_start_guessed: bool,
    start: u64,
    /// Left edge: all lower numbers are delivered, queued for delivery or given up.
    left: u64,
    /// The highest sequence number received, plus one.
    highest: u64,
    /// Right edge: the first sequence number that the sender may not send.
    right: u64,
    /// Number of UDFs for which the reader has room.
    credit: u32,
    /// State of the numbers from `left` up. Either empty, or the first is missing and the last is
    /// not.
    ring: VecDeque<Slot<P>>,
    /// The first sequence number in the ring that is not missing: the end of the first gap.
    gap_end: u64,
    /// When the receiver gives up the gap at the left edge.
    gap_at: Instant,
    /// Whether a gap was given up and the next delivered UDF must report it.
    is_gap: bool,
    /// Set while the sender has reported that it sent all numbers below the first value, but some
    /// of these are missing. The second value is the time of the first such report.
    announced: Option<(u64, Instant)>,
    ready: VecDeque<Delivered<P>>,
    /// Number of UDFs at the front of `ready` that already outlive the burst.
    ready_kept: usize,
    /// PDUs that arrived before the first PDU of their run: number on the wire, and bytes.
    early: Vec<(u64, P)>,
    previous: Option<Previous>,
    /// A sequence number far from the run. A further PDU slightly above it confirms a new run.
    candidate: Option<u64>,
    heard_at: Instant,
    /// Why the connection must fail: a PDU is lost although none may be.
    pub(crate) broken: Option<FailReason>,

    ranges: Ranges,
    /// A range that arrived twice and was not reported yet.
    twice: Option<(u64, u64)>,
    /// PDUs received since the last acknowledgement.
    unacked: u32,
    is_ack_due: bool,
    /// The latest time for the next acknowledgement.
    pub(crate) ack_at: Instant,
    cause: u64,
    cause_at: Instant,
    marks: u16,
}

/// Largest number of PDUs held until the first PDU of their run arrives.
const EARLY_MAX: usize = 64;

/// If the start of a run is unknown, PDUs up to this many numbers below the first one received are
/// still accepted.
const LOOK_BACK: u64 = 64;

/// Largest step in sequence numbers that is accepted without confirmation when there is no window.
const JUMP: u64 = 4096;

impl<P: Payload> Receiver<P> {
    pub(crate) fn new(config: &ConnectionConfig) -> Receiver<P> {
        let window = config.window_in_force();
        let is_controlled = window.is_some() || config.rate.is_some();
        Receiver {
            is_in_order: config.in_order,
            is_reliable: config.retransmission,
            window,
            rate: config.rate,
            gap_max: config.max_sdu_gap,
            a: config.a,
            delta_t: config.delta_t(),
            bits: config.seq_bits,
            reorder_max: (config.reorder_max as u64).min(config.space() / 8),
            ack_policy: config.ack,
            profile: config.profile,
            answers_every: config.profile.answers_every && is_controlled,
            answers_old: config.retransmission
                || (is_controlled && config.profile.stall == Stall::Repeat),
            base: match config.seq_bits {
                ..64 if config.profile.wrap != Wrap::NewConnection => config.space(),
                _ => 0,
            },
            has_run: false,
            is_new_run: false,
            is_running: false,
            is_start_known: false,
            is_start_guessed: false,
            start: 0,
            left: 0,
            highest: 0,
            right: 0,
            credit: window.map_or(0, |window| window.credit_max),
            ring: VecDeque::new(),
            gap_end: 0,
            gap_at: Instant::MAX,
            is_gap: false,
            announced: None,
            ready: VecDeque::new(),
            ready_kept: 0,
            early: Vec::new(),
            previous: None,
            candidate: None,
            heard_at: Instant::ZERO,
            broken: None,
            ranges: Ranges::default(),
            twice: None,
            unacked: 0,
            is_ack_due: false,
            ack_at: Instant::MAX,
            cause: 0,
            cause_at: Instant::ZERO,
            marks: 0,
        }
    }

    pub(crate) fn poll_deliver(&mut self) -> Option<Delivered<P>> {
        let delivered = self.ready.pop_front()?;
        self.ready_kept = self.ready_kept.saturating_sub(1);
        Some(delivered)
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Number of UDFs that the receiver holds.
    pub(crate) fn held(&self) -> usize {
        let held = |slot: &&Slot<P>| matches!(slot, Slot::Held(..));
        self.ready.len() + self.early.len() + self.ring.iter().filter(held).count()
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn right(&self) -> u64 {
        self.right
    }

    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Sets for how many UDFs the reader has room.
    pub(crate) fn set_credit(&mut self, credit: u32) {
        let credit_max = self.window.map_or(0, |window| window.credit_max);
        self.credit = credit.min(credit_max);
    }

    /// The right edge to advertise now; it never moves back.
    fn right_now(&self) -> u64 {
        // If every PDU is answered at once, the reader has had no time to fetch UDFs of this burst.
        // So only older ones count.
        let waiting = if self.profile.selective {
            self.ready.len()
        } else {
            self.ready_kept
        };
        let handed_out = self.left.saturating_sub(waiting as u64);
        let right = handed_out + u64::from(self.credit);
        // The sender would take an edge beyond the highest sequence number for an old one.
        let right = match self.last_of_run() {
            Some(last) if self.is_reliable || self.left <= last => right.min(last + 1),
            _ => right,
        };
        self.right.max(right)
    }

    /// The highest number of the first run, if the profile ends a run there.
    fn last_of_run(&self) -> Option<u64> {
        let is_last = self.profile.wrap == Wrap::NewRun && self.bits < 64;
        is_last.then(|| self.base + seq::space(self.bits) - 1)
    }

    /// Whether an acknowledgement or a window update should be sent now.
    pub(crate) fn is_control_due(&self) -> bool {
        if !self.is_running || !self.is_ack_due && self.window.is_none() {
            return false;
        }
        if self.is_ack_due {
            return true;
        }
        let gain = self.right_now() - self.right;
        let is_stuck = self.right.saturating_sub(self.highest) <= u64::from(self.credit) / 4;
        gain > 0 && (gain >= u64::from(self.credit / 4).max(1)) && is_stuck
    }

    /// Ends a burst: UDFs that wait for the reader are copied to memory that outlives the burst.
    pub(crate) fn end_of_burst(&mut self, counters: &mut Counters) {
        if self.is_reliable && self.unacked >= self.ack_policy.burst.max(1) {
            self.is_ack_due = true;
        }
        while self.ready_kept < self.ready.len() {
            if self.ready[self.ready_kept].udf.keep() {
                self.ready_kept += 1;
                continue;
            }
            self.ready.remove(self.ready_kept);
            counters.discard(crate::Discard::NoBuffer);
            if self.is_reliable {
                self.broken = Some(FailReason::NoBuffer);
            }
            if let Some(next) = self.ready.get_mut(self.ready_kept) {
                next.gap_before = self.is_in_order;
            }
        }
    }

    /// Returns true once after a run has started.
    pub(crate) fn takes_new_run(&mut self) -> bool {
        core::mem::take(&mut self.is_new_run)
    }

    /// The acknowledgement and the window for a control PDU. `None` if there is nothing to report.
    pub(crate) fn report(&mut self, now: Instant) -> Option<(Option<Ack>, Window)> {
        if !self.is_running || (self.window.is_none() && self.rate.is_none()) {
            self.is_ack_due = false;
            return None;
        }
        self.right = self.right_now();
        let ack = self.is_reliable.then(|| {
            let mut sack = Sack::default();
            if self.profile.selective {
                if let Some((start, end)) = self.twice.take() {
                    sack.push(start, end);
                }
                self.ranges.report(self.left, &mut sack);
            }
            Ack {
                next: self.left,
                sack,
                cause: self.cause,
                delay_us: u32::try_from(now.since(self.cause_at).as_micros()).unwrap_or(u32::MAX),
                ecn_marks: self.marks,
            }
        });
        self.unacked = 0;
        self.is_ack_due = false;
        self.ack_at = Instant::MAX;
        let window = Window {
            left: self.left,
            right: self.right,
            rate: self.rate.map_or(0, |rate| rate.pdus),
            frame: self.rate.map_or(0, |rate| rate.frame_ms),
            ..Window::default()
        };
        Some((ack, window))
    }

    /// Sets the rate that the receiver grants.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: RateControl) {
        if self.rate.is_some() {
            self.rate = Some(rate);
            self.is_ack_due = true;
            self.ack_at = self.ack_at.min(now);
        }
    }

    pub(crate) fn next_timeout(&self) -> Instant {
        let forget_at = if self.is_running || !self.early.is_empty() {
            self.heard_at + self.delta_t * 2
        } else {
            Instant::MAX
        };
        let announced_at = match self.announced {
            // While a UDF is held, `gap_at` applies to the gap before it.
            Some((_, at)) if self.ring.is_empty() => at + self.a,
            _ => Instant::MAX,
        };
        self.gap_at
            .min(self.ack_at)
            .min(forget_at)
            .min(announced_at)
    }

    /// Processes the timers that are due. Returns true when the run was forgotten.
    pub(crate) fn handle_timeout(&mut self, now: Instant, counters: &mut Counters) -> bool {
        if self.ack_at <= now {
            self.is_ack_due = true;
            self.ack_at = Instant::MAX;
        }
        if self.is_running && !self.is_reliable_for_good() {
            self.advance(now, counters);
        }
        let is_silent = now >= self.heard_at + self.delta_t * 2;
        if is_silent && (self.is_running || !self.early.is_empty()) {
            self.forget();
            return true;
        }
        false
    }

    fn forget(&mut self) {
        if self.is_reliable && !self.ring.is_empty() {
            self.broken = Some(FailReason::RunBroken);
        }
        self.is_running = false;
        self.ring.clear();
        self.early.clear();
        self.ranges = Ranges::default();
        self.twice = None;
        self.gap_at = Instant::MAX;
        self.ack_at = Instant::MAX;
        self.announced = None;
        self.is_ack_due = false;
        self.unacked = 0;
    }

    /// Whether the receiver waits for every missing PDU, without a limit of gaps.
    fn is_reliable_for_good(&self) -> bool {
        self.is_reliable && self.gap_max.unwrap_or(0) == 0
    }
}
