//! Retransmission of lost PDUs, the tail loss probe and the retransmission timeout.

use carina_time::Instant;
use carina_wire::Payload;

use super::reordering::Again;
use super::{Sender, Sent};
use crate::counters::Counters;

impl<P: Payload> Sender<P> {
    /// Returns the next lost PDU to retransmit, with its number.
    pub(crate) fn take_lost(&mut self, now: Instant, counters: &mut Counters) -> Option<(u64, P)> {
        while let Some(&number) = self.loss.queue.front() {
            let index = number.checked_sub(self.left);
            let index = index.and_then(|index| usize::try_from(index).ok());
            let slot = index.and_then(|index| self.sent.get_mut(index));
            match slot {
                Some(slot) if slot.is_lost => {
                    let udf = slot.udf.as_mut()?.share()?;
                    self.loss.queue.pop_front();
                    let first_at = core::mem::replace(&mut slot.sent_at, now);
                    let is_third = core::mem::replace(&mut slot.is_resent, true);
                    slot.is_lost = false;
                    let is_probe = self.loss.probe.take() == Some(number);
                    let again = Again {
                        number,
                        first_at,
                        repair: (!is_probe).then_some(self.loss.repairs),
                        late: None,
                    };
                    self.loss.reordering.on_again(again, is_third);
                    self.loss.in_flight += 1;
                    self.loss.is_urgent = false;
                    self.resent(now, counters);
                    return Some((number, udf));
                }
                _ => {
                    self.loss.queue.pop_front();
                }
            }
        }
        None
    }

    fn resent(&mut self, now: Instant, counters: &mut Counters) {
        counters.retransmitted += 1;
        self.active_at = now;
        if let Some(bucket) = &mut self.bucket {
            bucket.spend(now);
        }
        self.loss.arm_timeout(now, self.timeout_max());
    }

    /// Processes the due probe or timeout. The PDUs to send are queued for [`Self::take_lost`].
    pub(crate) fn on_tail(&mut self, now: Instant, counters: &mut Counters) {
        if self.sent.is_empty() {
            self.loss.tail_at = Instant::MAX;
            return;
        }
        if !self.loss.is_timeout {
            counters.probes += 1;
            self.loss.arm_timeout(now, self.timeout_max());
            self.probe();
            return;
        }
        counters.timeouts += 1;
        self.congestion.on_timeout(now, self.loss.in_flight);
        self.loss.queue.clear();
        for (index, slot) in self.sent.iter_mut().enumerate() {
            if slot.udf.is_some() {
                slot.is_lost = true;
                self.loss.queue.push_back(self.left + index as u64);
            }
        }
        self.loss.in_flight = 0;
        self.loss.newest = None;
        self.loss.loss_at = Instant::MAX;
        self.begin_repair(self.loss.queue.len() as u64);
        self.loss.backoff += 1;
        self.loss.arm_timeout(now, self.timeout_max());
    }

    /// Queues the last outstanding PDU as a probe, so that its acknowledgement shows earlier
    /// losses. While no PDU of the run is acknowledged, or without selective acknowledgement,
    /// queues the first one instead, without which the peer acknowledges nothing.
    fn probe(&mut self) {
        let is_open = |slot: &Sent<P>| slot.udf.is_some() && !slot.is_lost;
        let found = if self.left == self.start || self.loss.is_blind {
            self.sent.iter().position(is_open)
        } else {
            self.sent.iter().rposition(is_open)
        };
        let Some(index) = found else {
            return;
        };
        self.sent[index].is_lost = true;
        self.loss.in_flight -= 1;
        self.loss.probe = Some(self.left + index as u64);
        self.loss.queue.push_front(self.left + index as u64);
        self.loss.is_urgent = true;
    }
}
