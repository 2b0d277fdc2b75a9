//! Additive increase, multiplicative decrease, as in RFC 5681.

use carina_time::Instant;

use super::window::Window;
use super::{Acked, CongestionControl};

/// Congestion control by additive increase and multiplicative decrease (RFC 5681).
#[derive(Clone, Copy, Debug)]
pub struct Aimd {
    window: Window,
    /// Growth of the window per round trip, in PDUs.
    increase: f64,
    /// Factor by which a loss multiplies the window.
    keep: f64,
}

impl Aimd {
    /// Starts with a window of `initial` PDUs. The window grows by `increase` PDUs per round trip,
    /// and shrinks by `decrease_percent` (at most 90) at a loss.
    #[must_use]
    pub fn new(initial: u64, increase: u64, decrease_percent: u64) -> Aimd {
        Aimd {
            window: Window::new(initial.max(1)),
            increase: increase.max(1) as f64,
            keep: 1.0 - decrease_percent.min(90) as f64 / 100.0,
        }
    }
}

impl Default for Aimd {
    fn default() -> Aimd {
        Aimd::new(10, 1, 50)
    }
}

impl CongestionControl for Aimd {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn window(&self) -> u64 {
        self.window.whole()
    }

    fn on_ack(&mut self, ack: &Acked) {
        if self.window.is_marked(ack.marks, ack.left, ack.next_seq) {
            self.window.shrink(ack.in_flight, self.keep);
            return;
        }
        if ack.is_limited {
            return;
        }
        let mut count = ack.count as f64;
        if self.window.is_slow_start() {
            count = self.window.slow_start(ack.count);
        }
        if !ack.is_recovering {
            self.window.grow(self.increase * count / self.window.size);
        }
    }

    fn on_loss(&mut self, _now: Instant, in_flight: u64) {
        self.window.shrink(in_flight, self.keep);
    }

    fn on_timeout(&mut self, _now: Instant, in_flight: u64) {
        self.window.collapse(in_flight, self.keep);
    }

    fn on_spurious(&mut self) {
        self.window.restore();
    }
}
