//! Flow control by rate: tokens that accrue evenly over the frame.

use crate::config::RateControl;

/// A token bucket. It fills evenly, so that PDUs are spread over the frame, and holds at most a
/// tenth of a frame's PDUs (one at least), so that a pause does not become a burst.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: RateControl,
    /// ns that one PDU costs, in 1/256 ns, so that high rates are exact enough.
    cost: u64,
    /// Time in 1/256 ns up to which tokens are spent.
    spent: u128,
    depth: u64,
}

impl Bucket {
    pub(crate) fn new(now: u64, rate: RateControl) -> Bucket {
        let frame_ns = u64::from(rate.frame_ms.max(1)) * 1_000_000;
        let pdus = u64::from(rate.pdus.max(1));
        let cost = (frame_ns * 256 / pdus).max(1);
        Bucket {
            rate,
            cost,
            spent: u128::from(now) * 256,
            depth: cost * pdus.div_ceil(10),
        }
    }

    pub(crate) fn rate(&self) -> RateControl {
        self.rate
    }

    /// When the next PDU may go, in ns.
    pub(crate) fn ready_at(&self) -> u64 {
        let at = (self.spent + u128::from(self.cost)).saturating_sub(u128::from(self.depth));
        u64::try_from(at.div_ceil(256)).unwrap_or(u64::MAX)
    }

    pub(crate) fn spend(&mut self, now: u64) {
        let floor = u128::from(now) * 256;
        self.spent = self.spent.max(floor) + u128::from(self.cost);
    }
}
