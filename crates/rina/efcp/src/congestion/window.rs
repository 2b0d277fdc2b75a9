//! The window that all policies here have: slow start, then what the policy says.

/// A congestion window in PDUs, with a fraction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) size: f64,
    /// Below it the window doubles with each round trip.
    pub(super) threshold: f64,
    /// Size and threshold before the last reduction.
    before: Option<(f64, f64)>,
    /// Marks of PDUs below this number are of a reduction that was made already.
    marked_until: u64,
}

/// Smallest window after a loss that was found by what came after it.
pub(super) const LEAST: f64 = 2.0;

/// No window needs more: sequence spaces are bounded, and so are floating point numbers.
const MOST: f64 = 1e9;

impl Window {
    pub(super) fn new(initial: u64) -> Window {
        Window {
            size: initial as f64,
            threshold: MOST,
            before: None,
            marked_until: 0,
        }
    }

    /// To the nearest, so that what is in flight on average is what the policy says: always less
    /// would cost half a PDU, which is much of a small window.
    pub(super) fn whole(&self) -> u64 {
        // Between 1 and MOST, hence exact enough and in range.
        (self.size.clamp(1.0, MOST) + 0.5) as u64
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Slow start: one for each PDU that arrived. Returns those that are left over once the
    /// threshold is reached.
    pub(super) fn slow_start(&mut self, count: u64) -> f64 {
        let grown = (self.size + count as f64).min(self.threshold).min(MOST);
        let left = count as f64 - (grown - self.size);
        self.size = grown;
        left
    }

    pub(super) fn grow(&mut self, by: f64) {
        self.size = (self.size + by).min(MOST);
    }

    /// Multiplies by `factor`, from what was in flight or from the window, whichever is less.
    pub(super) fn shrink(&mut self, in_flight: u64, factor: f64) {
        self.before = Some((self.size, self.threshold));
        let used = self.size.min((in_flight as f64).max(LEAST));
        self.threshold = (used * factor).max(LEAST);
        self.size = self.threshold;
    }

    pub(super) fn collapse(&mut self, in_flight: u64, factor: f64) {
        // A second timeout in a row says nothing new of how much is too much.
        if self.size > 1.0 {
            self.shrink(in_flight, factor);
        }
        self.size = 1.0;
    }

    /// The last reduction was for nothing.
    pub(super) fn restore(&mut self) {
        if let Some((size, threshold)) = self.before.take() {
            self.size = self.size.max(size);
            self.threshold = self.threshold.max(threshold);
        }
    }

    /// True when marks call for a reduction: once per round trip.
    pub(super) fn is_marked(&mut self, marks: u64, left: u64, next_seq: u64) -> bool {
        if marks == 0 || left < self.marked_until {
            return false;
        }
        self.marked_until = next_seq;
        true
    }
}
