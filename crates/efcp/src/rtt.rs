//! Round-trip time estimation, as a policy.

use core::fmt;

/// A policy of round-trip time estimation.
pub trait RttEstimator: fmt::Debug {
    /// Its name in the catalogue.
    fn name(&self) -> &'static str;

    /// A sample in ns, without the time that the other side let pass.
    fn on_sample(&mut self, now: u64, rtt_ns: u64);

    /// The estimate in ns; 0 before the first sample.
    fn estimate_ns(&self) -> u64;

    /// The smallest sample in ns that is thought to be still possible; 0 before the first.
    fn min_ns(&self) -> u64;

    /// Retransmission timeout in ns, without back-off and without A.
    fn timeout_ns(&self) -> u64;
}

/// Smoothed mean and deviation, as in RFC 6298.
#[derive(Clone, Copy, Debug)]
pub struct Smoothed {
    initial_ns: u64,
    floor_ns: u64,
    srtt_ns: u64,
    deviation_ns: u64,
    min_ns: u64,
}

impl Smoothed {
    /// With a timeout of `initial_ns` before the first sample and of `floor_ns` at least.
    #[must_use]
    pub fn new(initial_ns: u64, floor_ns: u64) -> Smoothed {
        Smoothed {
            initial_ns,
            floor_ns,
            srtt_ns: 0,
            deviation_ns: 0,
            min_ns: 0,
        }
    }
}

impl Default for Smoothed {
    fn default() -> Smoothed {
        Smoothed::new(1_000_000_000, 10_000_000)
    }
}

impl RttEstimator for Smoothed {
    fn name(&self) -> &'static str {
        "smoothed"
    }

    fn on_sample(&mut self, _now: u64, rtt_ns: u64) {
        // 0 stands for "no sample".
        let rtt_ns = rtt_ns.clamp(1, u64::MAX / 16);
        if self.srtt_ns == 0 {
            (self.srtt_ns, self.deviation_ns) = (rtt_ns, rtt_ns / 2);
            self.min_ns = rtt_ns;
            return;
        }
        let error = self.srtt_ns.abs_diff(rtt_ns);
        self.deviation_ns = (3 * self.deviation_ns + error) / 4;
        self.srtt_ns = ((7 * self.srtt_ns + rtt_ns) / 8).max(1);
        self.min_ns = self.min_ns.min(rtt_ns);
    }

    fn estimate_ns(&self) -> u64 {
        self.srtt_ns
    }

    fn min_ns(&self) -> u64 {
        self.min_ns
    }

    fn timeout_ns(&self) -> u64 {
        if self.srtt_ns == 0 {
            return self.initial_ns.max(self.floor_ns);
        }
        (self.srtt_ns + 4 * self.deviation_ns).max(self.floor_ns)
    }
}
