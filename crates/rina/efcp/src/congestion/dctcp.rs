//! DCTCP, as in RFC 8257: the window shrinks in proportion to the share of marked PDUs.

use carina_time::Instant;

use super::window::Window;
use super::{Acked, CongestionControl};

/// Congestion control by DCTCP (RFC 8257). It needs a QoS cube with ECN; without marks it acts like
/// AIMD.
#[derive(Clone, Copy, Debug)]
pub struct Dctcp {
    window: Window,
    /// Estimated share of marked PDUs, 0 to 1.
    share: f64,
    /// g: weight of the last round trip in the estimate.
    gain: f64,
    acked: u64,
    marked: u64,
    /// The current observation of marks ends when the left edge reaches this sequence number.
    until: u64,
}

impl Dctcp {
    /// Starts with a window of `initial` PDUs. A new observation has the weight 1 / 2^`gain_shift`
    /// (`gain_shift` at most 10) in the estimate.
    #[must_use]
    pub fn new(initial: u64, gain_shift: u64) -> Dctcp {
        Dctcp {
            window: Window::new(initial.max(1)),
            share: 1.0,
            gain: 1.0 / (1_u64 << gain_shift.min(10)) as f64,
            acked: 0,
            marked: 0,
            until: 0,
        }
    }

    /// Updates the estimate at the end of an observation, which lasts one round trip.
    fn observe(&mut self, ack: &Acked) {
        let share = self.marked as f64 / self.acked.max(1) as f64;
        self.share = (1.0 - self.gain) * self.share + self.gain * share;
        if self.marked > 0 {
            let keep = 1.0 - self.share / 2.0;
            self.window.shrink(u64::MAX, keep);
        }
        (self.acked, self.marked, self.until) = (0, 0, ack.next_seq);
    }
}

impl Default for Dctcp {
    fn default() -> Dctcp {
        Dctcp::new(10, 4)
    }
}

impl CongestionControl for Dctcp {
    fn name(&self) -> &'static str {
        "dctcp"
    }

    fn window(&self) -> u64 {
        self.window.whole()
    }

    fn on_ack(&mut self, ack: &Acked) {
        self.acked += ack.count;
        self.marked += ack.marks.min(ack.count);
        if ack.left >= self.until || self.until > ack.next_seq {
            self.observe(ack);
        }
        if ack.is_limited || ack.marks > 0 {
            return;
        }
        let mut count = ack.count as f64;
        if self.window.is_slow_start() {
            count = self.window.slow_start(ack.count);
        }
        if !ack.is_recovering {
            self.window.grow(count / self.window.size);
        }
    }

    fn on_loss(&mut self, _now: Instant, in_flight: u64) {
        self.window.shrink(in_flight, 0.5);
    }

    fn on_timeout(&mut self, _now: Instant, in_flight: u64) {
        self.window.collapse(in_flight, 0.5);
    }

    fn on_spurious(&mut self) {
        self.window.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates round trips of 100 PDUs, of which `marks` are marked, and returns the final
    /// window.
    fn after(marks: u64) -> u64 {
        let mut dctcp = Dctcp::new(100, 4);
        dctcp.on_loss(Instant::ZERO, 200);
        for round in 0..60 {
            let ack = Acked {
                now: Instant::from_millis(round),
                count: 100,
                in_flight: 100,
                marks,
                next_seq: (round + 2) * 100,
                left: (round + 1) * 100,
                is_limited: true,
                ..Acked::default()
            };
            dctcp.window.size = 100.0;
            dctcp.on_ack(&ack);
        }
        dctcp.window()
    }

    #[test]
    fn few_marks_shrink_it_a_little_and_many_a_lot() {
        assert_eq!(after(0), 100);
        let (few, many) = (after(10), after(100));
        assert!((90..=96).contains(&few), "{few}");
        assert!((45..=55).contains(&many), "{many}");
    }
}
