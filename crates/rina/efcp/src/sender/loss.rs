//! Retransmission control: which PDUs were acknowledged, which are lost, and when to stop waiting.
//!
//! Losses are detected by time, as in RFC 8985 (RACK): a PDU is lost when another PDU that was sent
//! sufficiently later has arrived. Once three later PDUs have arrived, any later time is
//! sufficient. If PDUs are observed to arrive out of order, the sender waits for as long as they
//! were late. A tail loss probe, and then the retransmission timeout with exponential back-off,
//! detect losses after which no PDU arrives.

mod reordering;
mod resend;

use alloc::collections::VecDeque;

use carina_time::{Duration, Instant};
use carina_wire::Payload;
use carina_wire::dif::Ack;

use super::{Sender, Sent};
use crate::congestion::Acked;
use crate::counters::{Counters, Discard};
use crate::seq;
use reordering::Reordering;

/// State of retransmission control.
#[derive(Debug)]
pub(crate) struct Loss {
    /// PDUs that are believed to be in flight.
    pub(crate) in_flight: u64,
    /// Numbers of lost PDUs, in the order of their retransmission. Some may have been acknowledged
    /// meanwhile.
    pub(crate) queue: VecDeque<u64>,
    /// Acknowledged PDUs beyond the left edge.
    beyond: u64,
    /// Of all PDUs that have arrived, the one that was sent last: time of sending, number, and
    /// round-trip time.
    newest: Option<(Instant, u64, Duration)>,
    reordering: Reordering,
    /// When a PDU is considered lost if no acknowledgement arrives first.
    pub(crate) loss_at: Instant,
    /// When the tail loss probe or the retransmission timeout is due.
    pub(crate) tail_at: Instant,
    /// Whether `tail_at` is the timeout rather than the probe.
    is_timeout: bool,
    /// Timeouts since the last progress.
    backoff: u32,
    /// Whether acknowledgements contain only the next expected number.
    is_blind: bool,
    /// Consecutive acknowledgements without news while PDUs are outstanding.
    repeats: u32,
    /// A repair of losses lasts until the left edge reaches this number.
    repair_until: Option<u64>,
    /// Whether one PDU may be sent regardless of the congestion window.
    pub(crate) is_urgent: bool,
    /// When the left edge last moved or, if nothing was outstanding, when a PDU became outstanding.
    pub(crate) progress_at: Instant,
    /// Retransmission timeout and probe timeout, without back-off.
    timeout: Duration,
    probe_timeout: Duration,
    /// Congestion marks that the peer has reported, modulo 2^16.
    marks: u16,
    /// Number of repairs so far, including one in progress.
    repairs: u64,
    /// PDUs that the last repair considered lost, and how many of them had arrived after all
    /// (`wrong`). `declared` becomes 0 when congestion control has undone its reduction.
    declared: u64,
    wrong: u64,
    /// Number of the probe that waits to be sent.
    probe: Option<u64>,
}

impl Loss {
    pub(crate) fn timeouts_in_a_row(&self) -> u32 {
        self.backoff
    }

    pub(crate) fn new(timeout: Duration, is_blind: bool) -> Loss {
        Loss {
            in_flight: 0,
            queue: VecDeque::new(),
            beyond: 0,
            newest: None,
            reordering: Reordering::default(),
            loss_at: Instant::MAX,
            tail_at: Instant::MAX,
            is_timeout: true,
            backoff: 0,
            is_blind,
            repeats: 0,
            repair_until: None,
            is_urgent: false,
            progress_at: Instant::ZERO,
            timeout,
            probe_timeout: timeout,
            marks: 0,
            repairs: 0,
            declared: 0,
            wrong: 0,
            probe: None,
        }
    }

    /// Resets the state for a new run, in which nothing is outstanding.
    pub(super) fn restart(&mut self) {
        let (timeout, probe_timeout) = (self.timeout, self.probe_timeout);
        let queue = core::mem::take(&mut self.queue);
        let reordering = core::mem::take(&mut self.reordering);
        *self = Loss::new(timeout, self.is_blind);
        (self.probe_timeout, self.reordering, self.queue) = (probe_timeout, reordering, queue);
        self.queue.clear();
        self.reordering.restart();
    }

    /// Notes that a new PDU was sent. This delays the probe, but not beyond the timeout: a writer
    /// that keeps writing must not prevent the retransmission of the first PDU of a run, without
    /// which nothing is acknowledged.
    pub(super) fn on_new(&mut self, now: Instant) {
        let is_first = self.in_flight == 0 && self.queue.is_empty();
        if is_first || !self.is_timeout {
            let latest = (self.progress_at + self.timeout).max(now);
            self.is_timeout = false;
            self.tail_at = (now + self.probe_timeout).min(latest);
        }
        self.in_flight += 1;
    }

    fn arm_timeout(&mut self, now: Instant, timeout_max: Duration) {
        let backed_off = self.timeout * (1 << self.backoff.min(20));
        let wait = backed_off.min(timeout_max.max(self.timeout));
        self.is_timeout = true;
        self.tail_at = now + wait;
    }

    /// Whether the sender is repairing losses.
    pub(crate) fn is_repairing(&self) -> bool {
        self.repair_until.is_some()
    }
}

/// A single unacknowledged PDU is not probed sooner than this after A: the peer delays its
/// acknowledgement by A, and timers and schedulers of both sides are late by more than a short
/// round-trip time.
const PROBE_LEAST: Duration = Duration::from_millis(5);

/// What one acknowledgement reports that earlier ones have not reported.
#[derive(Default)]
struct News {
    /// [`Loss::newest`] before the acknowledgement.
    newest: Option<(Instant, u64, Duration)>,
    count: u64,
    /// Whether the acknowledgement moved the left edge of the sender's window.
    is_progress: bool,
    /// PDUs that were considered lost but had arrived.
    wrong: u64,
}

impl<P: Payload> Sender<P> {
    /// Processes an acknowledgement. Returns whether it contains anything new.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        ack: &Ack,
        is_newest: bool,
        counters: &mut Counters,
    ) -> Result<bool, Discard> {
        if !self.is_running {
            return Err(Discard::AckOfUnsent);
        }
        let next = seq::extend(ack.next, self.left, self.bits);
        let Some(next) = next.filter(|next| *next <= self.next) else {
            return Err(Discard::AckOfUnsent);
        };
        if is_newest {
            self.sample(now, ack);
        }
        let in_flight = self.loss.in_flight;
        let mut news = News {
            newest: self.loss.newest,
            ..News::default()
        };
        while self.left < next {
            let Some(sent) = self.sent.pop_front() else {
                break;
            };
            if let Some(udf) = &sent.udf {
                self.sent_bytes -= udf.len();
                self.arrived(now, self.left, &sent, &mut news, counters);
            } else {
                self.loss.beyond -= 1;
            }
            self.left += 1;
            news.is_progress = true;
        }
        let mut ranges = ack.sack.as_slice();
        let twice = self.twice(next, ranges);
        if twice.is_some() {
            ranges = &ranges[1..];
        }
        for &(start, end) in ranges {
            self.on_range(now, next, start, end, &mut news, counters);
        }
        if let Some(twice) = twice {
            news.wrong += self.on_twice(twice, counters);
        }
        if news.count == 0 && !news.is_progress {
            self.learn(news.wrong);
            if self.loss.is_blind && is_newest && next == self.left {
                self.on_repeat(now, counters);
            }
            return Ok(false);
        }
        self.be_quick();
        self.after_ack(now, ack, is_newest, in_flight, &news, counters);
        Ok(true)
    }

    /// Takes a round-trip sample, if the PDU that caused the acknowledgement was sent only once.
    fn sample(&mut self, now: Instant, ack: &Ack) {
        let cause = if self.loss.is_blind {
            ack.next.wrapping_sub(1)
        } else {
            ack.cause
        };
        let cause = seq::extend(cause, self.left, self.bits);
        let index = cause.and_then(|cause| cause.checked_sub(self.left));
        let index = index.and_then(|index| usize::try_from(index).ok());
        let Some(sent) = index.and_then(|index| self.sent.get(index)) else {
            return;
        };
        if sent.is_resent || sent.udf.is_none() {
            return;
        }
        // Such an acknowledgement does not name its cause. It may have been sent only after a
        // retransmission arrived.
        let is_vague = self.sent.front().is_some_and(|first| first.is_resent);
        if self.loss.is_blind && (is_vague || self.loss.is_repairing()) {
            return;
        }
        let elapsed = now.since(sent.sent_at);
        // A delay above the round-trip time is invalid. The peer should not add a delay above A.
        let delay = Duration::from_micros(u64::from(ack.delay_us));
        if delay > elapsed {
            return;
        }
        self.rtt.on_sample(now, elapsed - delay);
        let estimate = self.rtt.estimate();
        // The peer may delay its acknowledgement by A.
        self.loss.timeout = self.rtt.timeout() + self.answer_delay;
        let round_trips = (estimate * 2).max(PROBE_LEAST);
        let probe_timeout = round_trips + self.answer_delay;
        self.loss.probe_timeout = probe_timeout.min(self.loss.timeout);
    }

    /// Processes the first acknowledgement of a PDU.
    fn arrived(
        &mut self,
        now: Instant,
        number: u64,
        sent: &Sent<P>,
        news: &mut News,
        counters: &mut Counters,
    ) {
        news.count += 1;
        let rtt = now.since(sent.sent_at);
        let newest = self.loss.newest;
        let is_newer = newest.is_none_or(|(at, of, _)| (at, of) < (sent.sent_at, number));
        if !is_newer || sent.is_resent || sent.is_lost {
            return self.arrived_oddly(now, number, sent, is_newer, news, counters);
        }
        self.loss.in_flight -= 1;
        self.loss.newest = Some((sent.sent_at, number, rtt));
    }

    /// Processes a range of a selective acknowledgement. Acknowledged PDUs are skipped many at a
    /// time, so that only new ones cost time.
    fn on_range(
        &mut self,
        now: Instant,
        next: u64,
        start: u64,
        end: u64,
        news: &mut News,
        counters: &mut Counters,
    ) {
        let start = seq::extend(start, self.left, self.bits);
        let end = seq::extend(end, self.left, self.bits);
        let (Some(start), Some(end)) = (start, end) else {
            return counters.discard(Discard::AbsurdSack);
        };
        if start >= end || start <= next || end > self.next {
            return counters.discard(Discard::AbsurdSack);
        }
        let start = start.max(self.left);
        let mut number = start;
        while number < end {
            let index = index_of(number, self.left);
            let Some(slot) = self.sent.get_mut(index) else {
                return;
            };
            if slot.udf.is_none() {
                number += u64::from(slot.skip.max(1));
                continue;
            }
            let sent = core::mem::replace(slot, Sent::acknowledged());
            self.sent_bytes -= sent.udf.as_ref().map_or(0, P::len);
            self.loss.beyond += 1;
            self.arrived(now, number, &sent, news, counters);
            number += 1;
        }
        if end > start
            && let Some(slot) = self.sent.get_mut(index_of(start, self.left))
        {
            let length = u32::try_from(end - start).unwrap_or(u32::MAX);
            slot.skip = slot.skip.max(length);
        }
    }

    fn after_ack(
        &mut self,
        now: Instant,
        ack: &Ack,
        is_newest: bool,
        in_flight: u64,
        news: &News,
        counters: &mut Counters,
    ) {
        if news.is_progress {
            self.loss.progress_at = now;
            self.loss.repeats = 0;
            self.loss.backoff = 0;
        }
        let mut marks = 0;
        if is_newest {
            let reported = u64::from(ack.ecn_marks.wrapping_sub(self.loss.marks));
            marks = reported.min(news.count);
            counters.marks_echoed += marks;
            self.loss.marks = ack.ecn_marks;
        }
        self.learn(news.wrong);
        self.congestion.on_ack(&Acked {
            now,
            count: news.count,
            in_flight,
            marks: if self.ecn { marks } else { 0 },
            srtt: self.rtt.estimate(),
            min_rtt: self.rtt.min_rtt(),
            is_limited: in_flight.saturating_mul(2) < self.congestion.window(),
            is_recovering: self.loss.is_repairing(),
            next_seq: self.next,
            left: self.left,
        });
        self.find_losses(now, in_flight, counters);
        self.arm_tail(now);
    }

    fn begin_repair(&mut self, declared: u64) {
        self.loss.repair_until = Some(self.next);
        self.loss.repairs += 1;
        self.loss.reordering.on_repair(self.loss.repairs);
        self.loss.is_urgent = true;
        (self.loss.declared, self.loss.wrong) = (declared, 0);
    }

    fn arm_tail(&mut self, now: Instant) {
        if self.sent.is_empty() {
            self.loss.tail_at = Instant::MAX;
            self.loss.loss_at = Instant::MAX;
            self.loss.is_timeout = false;
        } else if self.loss.is_repairing() || self.loss.beyond > 0 || self.loss.backoff > 0 {
            self.loss.arm_timeout(now, self.timeout_max());
        } else {
            self.loss.is_timeout = false;
            self.loss.tail_at = now + self.loss.probe_timeout;
        }
    }

    /// Longest timeout with back-off. It is short enough for several timeouts within R.
    fn timeout_max(&self) -> Duration {
        (self.r / 8).clamp(Duration::from_millis(1), Duration::from_secs(60))
    }

    /// Considers PDUs lost that were sent sufficiently long before one that has arrived.
    /// `in_flight` is the number of PDUs in flight before that arrival, which was too many for the
    /// path.
    pub(super) fn find_losses(&mut self, now: Instant, in_flight: u64, counters: &mut Counters) {
        self.loss.loss_at = Instant::MAX;
        let Some((newest_at, newest, newest_rtt)) = self.loss.newest else {
            return;
        };
        let (min_rtt, estimate) = (self.rtt.min_rtt(), self.rtt.estimate());
        let is_sure = self.loss.beyond >= DUPLICATES || self.loss.is_repairing();
        let wait = match self.loss.reordering.window(estimate) {
            // The round-trip time of a PDU that has overtaken others says nothing about the others.
            Some(window) => newest_rtt.max(estimate) + window,
            None if is_sure => newest_rtt,
            None => newest_rtt + (min_rtt / 4).min(estimate),
        };
        let mut index = 0;
        while let Some(slot) = self.sent.get_mut(index) {
            if slot.udf.is_none() {
                index += slot.skip.max(1) as usize;
                continue;
            }
            let number = self.left + index as u64;
            if index > 0 && self.loss.is_blind {
                // Nothing is known about the PDUs after the first one.
                break;
            }
            index += 1;
            if slot.is_lost {
                continue;
            }
            if (slot.sent_at, number) >= (newest_at, newest) {
                if !slot.is_resent {
                    break;
                }
                continue;
            }
            let at = slot.sent_at + wait;
            if at > now {
                self.loss.loss_at = self.loss.loss_at.min(at);
                continue;
            }
            slot.is_lost = true;
            self.declare(now, number, in_flight, counters);
        }
    }

    fn declare(&mut self, now: Instant, number: u64, in_flight: u64, counters: &mut Counters) {
        self.loss.queue.push_back(number);
        counters.lost += 1;
        if self.loss.repair_until.is_none() {
            self.begin_repair(0);
            self.congestion.on_loss(now, in_flight);
        }
        self.loss.declared += 1;
        self.loss.in_flight -= 1;
    }

    /// Processes an acknowledgement without news, in profiles without selective acknowledgement.
    /// Several of them mean that the next expected PDU is lost.
    fn on_repeat(&mut self, now: Instant, counters: &mut Counters) {
        let is_repairing = self.loss.is_repairing();
        let number = self.left;
        let Some(first) = self.sent.front_mut().filter(|first| !first.is_lost) else {
            return;
        };
        let is_late = now >= first.sent_at + self.rtt.min_rtt();
        if !is_late || is_repairing {
            return;
        }
        self.loss.repeats += 1;
        if self.loss.repeats >= REPEATS {
            first.is_lost = true;
            self.loss.repeats = 0;
            let in_flight = self.loss.in_flight;
            self.declare(now, number, in_flight, counters);
        }
    }

    /// When the connection fails because the left edge does not move.
    pub(crate) fn fails_at(&self) -> Instant {
        if self.is_reliable && !self.sent.is_empty() {
            self.loss.progress_at + self.r
        } else {
            Instant::MAX
        }
    }
}

fn index_of(number: u64, left: u64) -> usize {
    usize::try_from(number.saturating_sub(left)).unwrap_or(usize::MAX)
}

/// This many arrivals after a missing PDU mean a loss, as long as no reordering was observed.
const DUPLICATES: u64 = 3;

/// This many repeated acknowledgements mean a loss.
const REPEATS: u32 = 3;
