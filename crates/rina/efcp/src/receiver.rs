//! The receiving half of a connection: runs, order, duplicates, gaps, the window it grants, and
//! when an acknowledgement is due.
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

/// A UDF for the reader.
#[derive(Debug)]
pub struct Delivered<P> {
    /// The bytes.
    pub udf: P,
    /// Its sequence number, as 64 bits.
    pub seq: u64,
    /// UDFs before it are missing for good (with in-order delivery).
    pub gap_before: bool,
}

/// One sequence number between the left edge and the highest that was seen.
#[derive(Debug)]
enum Slot<P> {
    /// Not received.
    Missing,
    /// Received at this time and delivered (without in-order delivery).
    Done(Instant),
    /// Received at this time and waiting for what is before it.
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

/// A run that was replaced: what is of it is discarded until `until`.
#[derive(Clone, Copy, Debug)]
struct Previous {
    start: u64,
    end: u64,
    until: Instant,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Receiver<P> {
    is_in_order: bool,
    is_reliable: bool,
    window: Option<WindowControl>,
    /// The rate that is granted.
    rate: Option<RateControl>,
    gap_max: Option<u64>,
    a: Duration,
    delta_t: Duration,
    bits: u8,
    reorder_max: u64,
    ack_policy: AckPolicy,
    profile: EfcpProfile,
    /// A control PDU answers every data PDU.
    answers_every: bool,
    /// A control PDU answers a duplicate.
    answers_old: bool,
    /// What numbers of the wire are counted from: room for those that come before the first.
    base: u64,

    /// There was a run.
    has_run: bool,
    /// A run began with the data run flag, and no control PDU was sent since.
    is_new_run: bool,
    is_running: bool,
    /// The first sequence number of the run is known: its DRF was seen.
    is_start_known: bool,
    /// The DRF PDU of the run has not come; `start` is where it is looked for from.
    is_start_guessed: bool,
    start: u64,
    /// All below is done: delivered, queued for delivery or given up.
    left: u64,
    /// One beyond the highest sequence number received.
    highest: u64,
    /// The first sequence number that the sender may not send.
    right: u64,
    /// UDFs that the reader has room for.
    credit: u32,
    /// From `left` up. Empty, or the first is missing and the last is not.
    ring: VecDeque<Slot<P>>,
    /// The first sequence number in the ring that is not missing.
    gap_end: u64,
    /// When the gap at the left edge is given up.
    gap_at: Instant,
    /// A gap was passed and the next UDF must say so.
    is_gap: bool,
    /// Below this all was sent (so the sender said), known since then.
    announced: Option<(u64, Instant)>,
    ready: VecDeque<Delivered<P>>,
    /// This many at the front of `ready` are kept already.
    ready_kept: usize,
    /// PDUs that came before the first of their run: number on the wire, bytes.
    early: Vec<(u64, P)>,
    previous: Option<Previous>,
    /// A sequence number far away that would be believed if another close above it came.
    candidate: Option<u64>,
    heard_at: Instant,
    /// Something is lost although nothing may be.
    pub(crate) broken: Option<FailReason>,

    ranges: Ranges,
    /// A range that arrived twice and is not reported yet.
    twice: Option<(u64, u64)>,
    /// PDUs received since the last acknowledgement.
    unacked: u32,
    is_ack_due: bool,
    /// When an acknowledgement is due at the latest.
    pub(crate) ack_at: Instant,
    cause: u64,
    cause_at: Instant,
    marks: u16,
}

/// Most PDUs that wait for the first of their run.
const EARLY_MAX: usize = 64;

/// Sequence numbers below the first PDU seen of a run whose start is unknown, that are still taken
/// when they come late.
const LOOK_BACK: u64 = 64;

/// How far sequence numbers may jump without doubt when there is no window.
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

    /// UDFs held, delivered or not.
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

    /// The reader has room for so many UDFs.
    pub(crate) fn set_credit(&mut self, credit: u32) {
        let most = self.window.map_or(0, |window| window.credit_max);
        self.credit = credit.min(most);
    }

    /// The right edge as it would be advertised: it never moves back.
    fn right_now(&self) -> u64 {
        // Where every PDU is answered at once, the reader has not had the time to take it.
        let waiting = if self.profile.selective {
            self.ready.len()
        } else {
            self.ready_kept
        };
        let handed_out = self.left.saturating_sub(waiting as u64);
        let right = handed_out + u64::from(self.credit);
        // Beyond the highest number the sender would take the edge of the window for an old one.
        let right = match self.last_of_run() {
            Some(last) if self.is_reliable || self.left <= last => right.min(last + 1),
            _ => right,
        };
        self.right.max(right)
    }

    /// The highest number of the first run, where that one ends a run.
    fn last_of_run(&self) -> Option<u64> {
        let is_last = self.profile.wrap == Wrap::NewRun && self.bits < 64;
        is_last.then(|| self.base + seq::space(self.bits) - 1)
    }

    /// An acknowledgement, or news of the window, should go out without waiting.
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

    /// The burst is over: what waits must last.
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

    /// True once after a run has begun.
    pub(crate) fn takes_new_run(&mut self) -> bool {
        core::mem::take(&mut self.is_new_run)
    }

    /// What a control PDU says of this half.
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

    /// From now on, this rate is granted.
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
            // While something is held, the gap before it is what is waited for.
            Some((_, at)) if self.ring.is_empty() => at + self.a,
            _ => Instant::MAX,
        };
        self.gap_at
            .min(self.ack_at)
            .min(forget_at)
            .min(announced_at)
    }

    /// True when the run was forgotten.
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

    /// Nothing is ever given up.
    fn is_reliable_for_good(&self) -> bool {
        self.is_reliable && self.gap_max.unwrap_or(0) == 0
    }

    /// Moves the left edge over what is there, and over gaps that are not waited for any longer.
    fn advance(&mut self, now: Instant, counters: &mut Counters) {
        loop {
            while let Some(slot) = self.ring.front() {
                if matches!(slot, Slot::Missing) {
                    break;
                }
                if let Some(Slot::Held(_, udf)) = self.ring.pop_front() {
                    let gap_before = core::mem::take(&mut self.is_gap);
                    let seq = self.left;
                    self.ready.push_back(Delivered {
                        udf,
                        seq,
                        gap_before,
                    });
                }
                self.left += 1;
            }
            self.ranges.pass(self.left);
            self.gap_at = Instant::MAX;
            if self.ring.is_empty() {
                break;
            }
            if self.gap_end < self.left {
                let present = |slot: &Slot<P>| slot.received_at().is_some();
                let at = self.ring.iter().position(present).unwrap_or(0);
                self.gap_end = self.left + at as u64;
            }
            let at = self.gap_deadline();
            if at > now {
                self.gap_at = at;
                return;
            }
            self.give_up(self.gap_end, counters);
        }
        self.reach_announced(now, counters);
    }

    /// When the gap at the left edge is given up.
    fn gap_deadline(&self) -> Instant {
        let missing = self.gap_end - self.left;
        let index = usize::try_from(missing).unwrap_or(usize::MAX);
        let seen_at = self.ring.get(index).and_then(Slot::received_at);
        let at = seen_at.unwrap_or_default() + self.a;
        let gap_max = self.gap_max;
        match (self.is_reliable, gap_max) {
            (true, Some(most)) if missing <= most && most > 0 => at,
            (true, _) => Instant::MAX,
            (false, Some(most)) if self.is_start_known && missing > most => Instant::ZERO,
            (false, _) => at,
        }
    }

    /// Moves the left edge up to `to` over what is missing.
    fn give_up(&mut self, to: u64, counters: &mut Counters) {
        let count = to.saturating_sub(self.left);
        if self.is_start_known {
            counters.given_up += count;
        }
        let dropped = usize::try_from(count)
            .unwrap_or(usize::MAX)
            .min(self.ring.len());
        self.ring.drain(..dropped);
        self.left = self.left.max(to);
        self.highest = self.highest.max(self.left);
        self.is_start_known = true;
        self.is_gap = self.is_in_order;
    }

    /// The sender said that everything below a number was sent, and A has passed since.
    fn reach_announced(&mut self, now: Instant, counters: &mut Counters) {
        let Some((seq, at)) = self.announced else {
            return;
        };
        if seq <= self.left {
            self.announced = None;
        } else if now >= at + self.a && self.ring.is_empty() {
            self.announced = None;
            self.give_up(seq, counters);
            self.is_ack_due = true;
        }
    }
}
