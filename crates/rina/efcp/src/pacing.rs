//! Flow control by rate: a token bucket that fills evenly over the time frame.

use carina_time::Instant;

use crate::config::RateControl;

/// A token bucket. It fills evenly, so that PDUs are spread over the time frame. It holds at most a
/// tenth of a frame's PDUs (at least one), so that a pause does not cause a large burst.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// The configured rate, which is never exceeded.
    own: RateControl,
    /// Time per PDU in 1/256 ns, a unit that is exact enough for high rates.
    cost: u64,
    /// The time in 1/256 ns up to which tokens are used.
    spent: u128,
    depth: u128,
}

impl Bucket {
    pub(crate) fn new(now: Instant, rate: RateControl) -> Bucket {
        let mut bucket = Bucket {
            own: rate,
            cost: 1,
            spent: u128::from(now.as_nanos()) * 256,
            depth: 1,
        };
        bucket.adopt(rate);
        bucket
    }

    fn adopt(&mut self, rate: RateControl) {
        let frame_ns = u64::from(rate.frame_ms.max(1)) * 1_000_000;
        let pdus = u64::from(rate.pdus.max(1));
        self.cost = (frame_ns * 256 / pdus).max(1);
        self.depth = u128::from(self.cost) * u128::from(pdus.div_ceil(10));
    }

    /// Sets the rate that the peer grants. The lower of it and the configured rate applies.
    pub(crate) fn limit(&mut self, now: Instant, rate: RateControl) {
        let speed =
            |one: RateControl, other: RateControl| u64::from(one.pdus) * u64::from(other.frame_ms);
        let is_lower = speed(rate, self.own) < speed(self.own, rate);
        let before = self.cost;
        self.adopt(if is_lower { rate } else { self.own });
        if self.cost < before {
            // A debt from the earlier, lower rate must not delay the sender at the new rate.
            let floor = u128::from(now.as_nanos()) * 256;
            self.spent = self.spent.min(floor + self.depth);
        }
    }

    /// The time at which the next PDU may be sent.
    pub(crate) fn ready_at(&self) -> Instant {
        let at = (self.spent + u128::from(self.cost)).saturating_sub(self.depth);
        u64::try_from(at.div_ceil(256)).map_or(Instant::MAX, Instant::from_nanos)
    }

    pub(crate) fn spend(&mut self, now: Instant) {
        let floor = u128::from(now.as_nanos()) * 256;
        self.spent = self.spent.max(floor) + u128::from(self.cost);
    }
}
