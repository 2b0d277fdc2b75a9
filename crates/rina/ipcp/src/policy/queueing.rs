//! Queueing policies of the RMT: what happens to a relayed PDU that meets a long queue.

use carina_time::Instant;

use super::Class;

/// A relayed PDU that asks to join the queue of its class, as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Time of the PDU's arrival, on the clock of the IPCP.
    pub now: Instant,
    /// Length of the arriving PDU in bytes, PCI included.
    pub len: usize,
    /// 32 random bits, drawn for this PDU.
    pub random: u32,
}

/// What a queueing policy decides about an arriving PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueDecision {
    /// The PDU is queued.
    Queue,
    /// The PDU is queued with its ECN flag set.
    Mark,
    /// The PDU is dropped and counted.
    Drop,
}

/// A queueing policy. Each N-1 flow has its own instance, which handles all classes of the flow.
pub trait QueuePolicy {
    /// Decides whether a PDU is queued in `class`, the class with number `index` of the N-1 flow.
    /// Called for relayed PDUs only; this IPCP's own flows are limited by
    /// [`QueuePolicy::own_limit`].
    fn admit(&mut self, index: usize, class: &Class, arrival: Arrival) -> QueueDecision;

    /// Queue length, in PDUs and in bytes, up to which this IPCP's own flows may fill a class.
    /// Above it, flows and their writers wait; nothing is dropped.
    fn own_limit(&self) -> (u32, u64);
}

/// Policy `tail-drop`: a PDU that finds the queue full is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailDrop {
    /// Longest queue of a class, in PDUs; a relayed PDU that would make it longer is dropped.
    pub pdus: u32,
    /// Longest queue of a class, in bytes; a relayed PDU that would make it longer is dropped.
    pub bytes: u64,
    /// Longest queue of a class that this IPCP's own flows may build, in PDUs.
    pub own_pdus: u32,
    /// Longest queue of a class that this IPCP's own flows may build, in bytes.
    pub own_bytes: u64,
}

impl QueuePolicy for TailDrop {
    fn admit(&mut self, _index: usize, class: &Class, arrival: Arrival) -> QueueDecision {
        if is_full(class, arrival.len, self.pdus, self.bytes) {
            QueueDecision::Drop
        } else {
            QueueDecision::Queue
        }
    }

    fn own_limit(&self) -> (u32, u64) {
        (self.own_pdus, self.own_bytes)
    }
}

/// Policy `ecn-mark`: above a threshold, a PDU is marked if its cube allows it; a PDU is dropped
/// only when the queue is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EcnMark {
    /// Number of PDUs in the queue from which on arriving PDUs are marked.
    pub mark_pdus: u32,
    /// Number of bytes in the queue from which on arriving PDUs are marked.
    pub mark_bytes: u64,
    /// Queue length at which arriving PDUs are dropped.
    pub full: TailDrop,
}

impl QueuePolicy for EcnMark {
    fn admit(&mut self, index: usize, class: &Class, arrival: Arrival) -> QueueDecision {
        match self.full.admit(index, class, arrival) {
            QueueDecision::Queue
                if class.ecn
                    && (class.pdus >= self.mark_pdus || class.bytes >= self.mark_bytes) =>
            {
                QueueDecision::Mark
            }
            decision => decision,
        }
    }

    fn own_limit(&self) -> (u32, u64) {
        self.full.own_limit()
    }
}

/// Policy `red`: random early detection (Floyd and Jacobson, 1993) on the average queue length in
/// PDUs. Below `threshold_min` no PDU is affected, from `threshold_max` on every PDU is; in
/// between, the share grows linearly to `share`. An affected PDU is marked if its cube allows it,
/// and dropped otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Red {
    /// Average queue length in PDUs from which on arriving PDUs are marked or dropped, some of
    /// them.
    pub threshold_min: u32,
    /// Average queue length in PDUs from which on every arriving PDU is marked or dropped.
    pub threshold_max: u32,
    /// Share of arriving PDUs that are marked or dropped just below `threshold_max`, in 1/10000.
    pub share: u32,
    /// Weight of the average: each PDU moves it by 1/2^`shift` of the difference.
    pub shift: u32,
    /// Queue length at which every arriving PDU is dropped, whatever the average.
    pub full: TailDrop,
    /// Average queue length of each class in PDUs, times 2^16.
    averages: alloc::vec::Vec<u64>,
}

impl Red {
    /// Makes the policy with averages of 0.
    #[must_use]
    pub(crate) fn new(
        threshold_min: u32,
        threshold_max: u32,
        share: u32,
        shift: u32,
        full: TailDrop,
    ) -> Red {
        Red {
            threshold_min,
            threshold_max: threshold_max.max(threshold_min + 1),
            share,
            shift,
            full,
            averages: alloc::vec::Vec::new(),
        }
    }

    fn average(&mut self, index: usize, pdus: u32) -> u32 {
        if self.averages.len() <= index {
            self.averages.resize(index + 1, 0);
        }
        let average = &mut self.averages[index];
        let present = u64::from(pdus) << 16;
        *average = *average - (*average >> self.shift) + (present >> self.shift);
        (*average >> 16) as u32
    }
}

impl QueuePolicy for Red {
    fn admit(&mut self, index: usize, class: &Class, arrival: Arrival) -> QueueDecision {
        let average = self.average(index, class.pdus);
        let decision = self.full.admit(index, class, arrival);
        if decision == QueueDecision::Drop || average < self.threshold_min {
            return decision;
        }
        let is_hit = average >= self.threshold_max || {
            let depth = u64::from(average - self.threshold_min) * u64::from(self.share);
            let share = depth / u64::from(self.threshold_max - self.threshold_min);
            (u64::from(arrival.random) * 10_000) >> 32 < share
        };
        match (is_hit, class.ecn) {
            (false, _) => QueueDecision::Queue,
            (true, true) => QueueDecision::Mark,
            (true, false) => QueueDecision::Drop,
        }
    }

    fn own_limit(&self) -> (u32, u64) {
        self.full.own_limit()
    }
}

fn is_full(class: &Class, len: usize, pdus: u32, bytes: u64) -> bool {
    class.pdus >= pdus || class.bytes + len as u64 > bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: TailDrop = TailDrop {
        pdus: 10,
        bytes: 5000,
        own_pdus: 5,
        own_bytes: 2500,
    };

    fn class(pdus: u32, bytes: u64, ecn: bool) -> Class {
        Class {
            pdus,
            bytes,
            ecn,
            ..Class::default()
        }
    }

    fn arrival(len: usize, random: u32) -> Arrival {
        Arrival {
            now: Instant::ZERO,
            len,
            random,
        }
    }

    #[test]
    fn tail_drop_keeps_both_limits() {
        let mut policy = FULL;
        let mut admit =
            |pdus, bytes, len| policy.admit(0, &class(pdus, bytes, true), arrival(len, 0));
        assert_eq!(admit(9, 0, 100), QueueDecision::Queue);
        assert_eq!(admit(10, 0, 100), QueueDecision::Drop);
        assert_eq!(admit(1, 4900, 100), QueueDecision::Queue);
        assert_eq!(admit(1, 4901, 100), QueueDecision::Drop);
    }

    #[test]
    fn marks_come_before_drops_and_only_where_allowed() {
        let mut policy = EcnMark {
            mark_pdus: 4,
            mark_bytes: 2000,
            full: FULL,
        };
        let mut admit =
            |pdus, bytes, ecn| policy.admit(0, &class(pdus, bytes, ecn), arrival(10, 0));
        assert_eq!(admit(3, 0, true), QueueDecision::Queue);
        assert_eq!(admit(4, 0, true), QueueDecision::Mark);
        assert_eq!(admit(1, 2000, true), QueueDecision::Mark);
        assert_eq!(admit(4, 0, false), QueueDecision::Queue);
        assert_eq!(admit(10, 0, true), QueueDecision::Drop);
    }

    #[test]
    fn red_hits_a_share_that_grows_with_the_average() {
        // With a shift of 0 the average is the current length.
        let mut policy = Red::new(2, 6, 5000, 0, FULL);
        let mut hits = |pdus| {
            let step = u32::MAX / 1000;
            (0..1000)
                .filter(|i| {
                    let decision = policy.admit(0, &class(pdus, 0, false), arrival(10, i * step));
                    decision == QueueDecision::Drop
                })
                .count()
        };
        assert_eq!(hits(1), 0);
        assert_eq!(hits(2), 0);
        assert!((240..=260).contains(&hits(4)), "a quarter, half way");
        assert_eq!(hits(6), 1000);
        assert_eq!(
            policy.admit(1, &class(7, 0, true), arrival(10, 0)),
            QueueDecision::Mark
        );
    }
}
