//! Retransmission control: what was acknowledged, what is lost, and when to stop waiting.
//!
//! Losses are found by time, as in RFC 8985 (RACK): a PDU is lost when one that was sent
//! sufficiently later has arrived. *Sufficiently* is nothing once three have arrived, until PDUs
//! are seen to arrive out of order; from then on it is what they were late by. A probe at the tail,
//! and then the retransmission timeout with exponential back-off, find what nothing arrives after.

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
    /// PDUs that are thought to be on their way.
    pub(crate) in_flight: u64,
    /// Numbers of lost PDUs, to be sent again in this order; some may be acknowledged by now.
    pub(crate) queue: VecDeque<u64>,
    /// PDUs beyond the left edge that were acknowledged.
    beyond: u64,
    /// The PDU sent last of all that have arrived: when, its number, and its round-trip time.
    newest: Option<(Instant, u64, Duration)>,
    reordering: Reordering,
    /// When a PDU is declared lost if nothing comes.
    pub(crate) doubt_at: Instant,
    /// The probe, or the timeout.
    pub(crate) tail_at: Instant,
    /// `tail_at` is the timeout.
    is_timeout: bool,
    /// Timeouts in a row.
    backoff: u32,
    /// Acknowledgements tell nothing but what is expected next.
    is_blind: bool,
    /// Acknowledgements in a row without news although PDUs are outstanding.
    repeats: u32,
    /// Repairing losses until the left edge reaches this number.
    repair_until: Option<u64>,
    /// One PDU may be sent whatever the congestion window says.
    pub(crate) is_urgent: bool,
    /// When the left edge moved last, or something became outstanding.
    pub(crate) progress_at: Instant,
    /// Retransmission timeout and probe timeout in ns, without back-off.
    timeout: Duration,
    probe_timeout: Duration,
    /// Congestion marks that the other side has reported.
    marks: u16,
    /// Repairs so far; the last may be going on.
    repairs: u64,
    /// PDUs declared lost in the last repair, and how many of them had arrived. The first is 0
    /// once congestion control has taken its reaction back.
    declared: u64,
    wrong: u64,
    /// The probe on its way to be sent.
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
            doubt_at: Instant::MAX,
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

    /// A new run begins with nothing outstanding.
    pub(super) fn restart(&mut self) {
        let (timeout, probe_timeout) = (self.timeout, self.probe_timeout);
        let queue = core::mem::take(&mut self.queue);
        let reordering = core::mem::take(&mut self.reordering);
        *self = Loss::new(timeout, self.is_blind);
        (self.probe_timeout, self.reordering, self.queue) = (probe_timeout, reordering, queue);
        self.queue.clear();
        self.reordering.restart();
    }

    /// A new PDU was sent. It puts the probe off, but not for ever: a writer that goes on must not
    /// keep the first PDU of a run, without which nothing is acknowledged, from being sent again.
    pub(super) fn on_new(&mut self, now: Instant) {
        let is_first = self.in_flight == 0 && self.queue.is_empty();
        if is_first || !self.is_timeout {
            let latest = (self.progress_at + self.timeout).max(now);
            self.is_timeout = false;
            self.tail_at = (now + self.probe_timeout).min(latest);
        }
        self.in_flight += 1;
    }

    fn arm_timeout(&mut self, now: Instant, most: Duration) {
        let backed_off = self.timeout * (1 << self.backoff.min(20));
        let wait = backed_off.min(most.max(self.timeout));
        self.is_timeout = true;
        self.tail_at = now + wait;
    }

    /// Losses are being repaired.
    pub(crate) fn is_repairing(&self) -> bool {
        self.repair_until.is_some()
    }
}

/// A lone PDU is not sent again sooner than this after A, in ns: the other side lets A pass, and
/// its timer and both sides' schedulers are late by more than a short round-trip time.
const PROBE_LEAST: Duration = Duration::from_millis(5);

/// What one acknowledgement has brought.
#[derive(Default)]
struct News {
    /// The PDU sent last of all that had arrived before.
    newest: Option<(Instant, u64, Duration)>,
    count: u64,
    /// The left edge moved.
    is_progress: bool,
    /// PDUs that were taken for lost and had arrived.
    wrong: u64,
}

impl<P: Payload> Sender<P> {
    /// Takes an acknowledgement. True when it says something new.
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

    /// A round-trip time, when the PDU that caused the acknowledgement was sent only once.
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
        // Without its cause, an acknowledgement may have waited for one before to be sent again.
        let is_vague = self.sent.front().is_some_and(|first| first.is_resent);
        if self.loss.is_blind && (is_vague || self.loss.is_repairing()) {
            return;
        }
        let elapsed = now.since(sent.sent_at);
        // A delay longer than the round trip is a lie, and one longer than A is not the receiver's
        // to add.
        let delay = Duration::from_micros(u64::from(ack.delay_us));
        if delay > elapsed {
            return;
        }
        self.rtt.on_sample(now, elapsed - delay);
        let estimate = self.rtt.estimate();
        // The other side may let A pass before it acknowledges.
        self.loss.timeout = self.rtt.timeout() + self.answer_delay;
        let round_trips = (estimate * 2).max(PROBE_LEAST);
        let probe_timeout = round_trips + self.answer_delay;
        self.loss.probe_timeout = probe_timeout.min(self.loss.timeout);
    }

    /// A PDU was acknowledged for the first time.
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

    /// A range of a selective acknowledgement. Runs of acknowledged PDUs are skipped as a whole,
    /// so that a range costs what is new in it.
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
            self.loss.doubt_at = Instant::MAX;
            self.loss.is_timeout = false;
        } else if self.loss.is_repairing() || self.loss.beyond > 0 || self.loss.backoff > 0 {
            self.loss.arm_timeout(now, self.timeout_most());
        } else {
            self.loss.is_timeout = false;
            self.loss.tail_at = now + self.loss.probe_timeout;
        }
    }

    /// Longest timeout with back-off: there must be several within R.
    fn timeout_most(&self) -> Duration {
        (self.r / 8).clamp(Duration::from_millis(1), Duration::from_secs(60))
    }

    /// Declares lost what was sent sufficiently before something that has arrived. What was in
    /// flight before that arrived is what was too much.
    pub(super) fn find_losses(&mut self, now: Instant, in_flight: u64, counters: &mut Counters) {
        self.loss.doubt_at = Instant::MAX;
        let Some((newest_at, newest, newest_rtt)) = self.loss.newest else {
            return;
        };
        let (min_rtt, estimate) = (self.rtt.min_rtt(), self.rtt.estimate());
        let is_sure = self.loss.beyond >= DUPLICATES || self.loss.is_repairing();
        let wait = match self.loss.reordering.window(estimate) {
            // The round trip of one that has overtaken says nothing of the others.
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
                // Of what is behind the first nothing is known.
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
                self.loss.doubt_at = self.loss.doubt_at.min(at);
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

    /// An acknowledgement of nothing new, where it cannot tell what has arrived instead: several
    /// mean that what is expected next is lost.
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

    /// When the connection fails because nothing moves.
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

/// So many PDUs that arrive after a missing one mean a loss, until reordering was seen.
const DUPLICATES: u64 = 3;

/// So many repeated acknowledgements mean a loss.
const REPEATS: u32 = 3;
