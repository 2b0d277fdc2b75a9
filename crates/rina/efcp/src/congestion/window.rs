//! The congestion window that all policies of this crate share, with slow start.

/// A congestion window in PDUs, as a floating point number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) size: f64,
    /// Slow start threshold: below it the window doubles with each round trip.
    pub(super) threshold: f64,
    /// Size and threshold before the last reduction, to undo it.
    before: Option<(f64, f64)>,
    /// Until the left edge reaches this sequence number, marks belong to a reduction that was
    /// already made.
    marked_until: u64,
}

/// Smallest window after a loss that was detected by later arrivals, in PDUs.
pub(super) const LEAST: f64 = 2.0;

/// Largest window. No path needs more, and it keeps floating point arithmetic exact enough.
const SIZE_MAX: f64 = 1e9;

impl Window {
    pub(super) fn new(initial: u64) -> Window {
        Window {
            size: initial as f64,
            threshold: SIZE_MAX,
            before: None,
            marked_until: 0,
        }
    }

    /// The window rounded to the nearest whole PDU. Rounding down would cost half a PDU on average,
    /// which matters for small windows.
    pub(super) fn whole(&self) -> u64 {
        // The value lies between 1 and MOST, so the conversion is in range.
        (self.size.clamp(1.0, SIZE_MAX) + 0.5) as u64
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Slow start: grows by one PDU for each of `count` arrived PDUs, up to the threshold. Returns
    /// how many PDUs remain for growth above the threshold.
    pub(super) fn slow_start(&mut self, count: u64) -> f64 {
        let grown = (self.size + count as f64).min(self.threshold).min(SIZE_MAX);
        let left = count as f64 - (grown - self.size);
        self.size = grown;
        left
    }

    pub(super) fn grow(&mut self, by: f64) {
        self.size = (self.size + by).min(SIZE_MAX);
    }

    /// Multiplies the window by `factor`, starting from the PDUs in flight if those are fewer than
    /// the window.
    pub(super) fn shrink(&mut self, in_flight: u64, factor: f64) {
        self.before = Some((self.size, self.threshold));
        let used = self.size.min((in_flight as f64).max(LEAST));
        self.threshold = (used * factor).max(LEAST);
        self.size = self.threshold;
    }

    pub(super) fn collapse(&mut self, in_flight: u64, factor: f64) {
        // A second timeout in a row gives no new information about the capacity of the path.
        if self.size > 1.0 {
            self.shrink(in_flight, factor);
        }
        self.size = 1.0;
    }

    /// Undoes the last reduction, which turned out to be unnecessary.
    pub(super) fn restore(&mut self) {
        if let Some((size, threshold)) = self.before.take() {
            self.size = self.size.max(size);
            self.threshold = self.threshold.max(threshold);
        }
    }

    /// Whether congestion marks call for a reduction now; at most once per round trip.
    pub(super) fn is_marked(&mut self, marks: u64, left: u64, next_seq: u64) -> bool {
        if marks == 0 || left < self.marked_until {
            return false;
        }
        self.marked_until = next_seq;
        true
    }
}
