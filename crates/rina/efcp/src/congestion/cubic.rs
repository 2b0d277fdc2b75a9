//! CUBIC, as in RFC 9438: growth depends on the time since the last loss, not on the round-trip
//! time.

use carina_time::Instant;

use super::window::Window;
use super::{Acked, CongestionControl};

/// Congestion control by CUBIC (RFC 9438).
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    window: Window,
    /// beta: factor by which a loss multiplies the window.
    keep: f64,
    /// Window before the last loss, in PDUs.
    prior: f64,
    /// W_max: the window around which growth is slowest. It equals `prior`, or less if that loss
    /// came at a smaller window than the loss before.
    plateau: f64,
    /// When growth after the last loss began; `None` until the next acknowledgement.
    since: Option<Instant>,
    /// K: seconds from `since` until the window reaches the plateau.
    reach_s: f64,
    /// W_est: the window that AIMD would have now. CUBIC never grows more slowly.
    friendly: f64,
    /// State before the last reduction, to undo a reduction for a spurious loss.
    before: Option<Before>,
}

/// The fields, besides the window, that a reduction changes.
#[derive(Clone, Copy, Debug)]
struct Before {
    prior: f64,
    plateau: f64,
    since: Option<Instant>,
    reach_s: f64,
    friendly: f64,
}

/// C, in PDUs per second cubed.
const STEEPNESS: f64 = 0.4;

impl Cubic {
    /// Starts with a window of `initial` PDUs. After a loss, `keep_percent` (10 to 95) of the
    /// window remains.
    #[must_use]
    pub fn new(initial: u64, keep_percent: u64) -> Cubic {
        Cubic {
            window: Window::new(initial.max(1)),
            keep: keep_percent.clamp(10, 95) as f64 / 100.0,
            prior: 0.0,
            plateau: 0.0,
            since: None,
            reach_s: 0.0,
            friendly: 0.0,
            before: None,
        }
    }

    fn note_loss(&mut self) {
        self.before = Some(Before {
            prior: self.prior,
            plateau: self.plateau,
            since: self.since,
            reach_s: self.reach_s,
            friendly: self.friendly,
        });
        let size = self.window.size;
        // Fast convergence: if this loss came at a smaller window than the last, other flows need
        // room, so the plateau is lowered.
        self.plateau = if size < self.plateau {
            size * (1.0 + self.keep) / 2.0
        } else {
            size
        };
        self.prior = size;
        self.since = None;
    }

    fn begin(&mut self, now: Instant) {
        self.since = Some(now);
        self.friendly = self.window.size;
        let missing = self.plateau - self.window.size;
        if missing > 0.0 {
            self.reach_s = cube_root(missing / STEEPNESS);
        } else {
            (self.plateau, self.reach_s) = (self.window.size, 0.0);
        }
    }

    fn avoid(&mut self, ack: &Acked, count: f64) {
        if self.since.is_none() {
            self.begin(ack.now);
        }
        let since = self.since.unwrap_or(ack.now);
        let rtt_s = ack.srtt.as_nanos() as f64 / 1e9;
        let from_plateau = ack.now.since(since).as_nanos() as f64 / 1e9 + rtt_s - self.reach_s;
        let cubed = from_plateau * from_plateau * from_plateau;
        let size = self.window.size;
        let target = (STEEPNESS * cubed + self.plateau).clamp(size, 1.5 * size);
        let alpha = if self.friendly < self.prior {
            3.0 * (1.0 - self.keep) / (1.0 + self.keep)
        } else {
            1.0
        };
        self.friendly += alpha * count / size;
        let by_cube = (target - size) / size * count;
        let by_friend = self.friendly - size;
        self.window.grow(by_cube.max(by_friend).max(0.0));
    }
}

impl Default for Cubic {
    fn default() -> Cubic {
        Cubic::new(10, 70)
    }
}

impl CongestionControl for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn window(&self) -> u64 {
        self.window.whole()
    }

    fn on_ack(&mut self, ack: &Acked) {
        if self.window.is_marked(ack.marks, ack.left, ack.next_seq) {
            self.note_loss();
            self.window.shrink(ack.in_flight, self.keep);
            return;
        }
        if ack.is_limited {
            // While the application limits the sender, the time does not count as growth.
            self.since = None;
            return;
        }
        let mut count = ack.count as f64;
        if self.window.is_slow_start() {
            count = self.window.slow_start(ack.count);
        }
        if !ack.is_recovering && count > 0.0 && !self.window.is_slow_start() {
            self.avoid(ack, count);
        }
    }

    fn on_loss(&mut self, _now: Instant, in_flight: u64) {
        self.note_loss();
        self.window.shrink(in_flight, self.keep);
    }

    fn on_timeout(&mut self, _now: Instant, in_flight: u64) {
        if self.window.size > 1.0 {
            self.note_loss();
        }
        self.window.collapse(in_flight, self.keep);
    }

    fn on_spurious(&mut self) {
        self.window.restore();
        if let Some(before) = self.before.take() {
            (self.prior, self.plateau) = (before.prior, before.plateau);
            (self.since, self.reach_s) = (before.since, before.reach_s);
            self.friendly = before.friendly;
        }
    }
}

/// The cube root of a number that is not negative, by Newton's method, because `core` has none.
fn cube_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = value.max(1.0);
    // Starting above the root, each step reduces the value by a third until it is near the root.
    for _ in 0..64 {
        root = (2.0 * root + value / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use carina_time::Duration;

    use super::*;

    #[test]
    fn cube_roots() {
        for value in [0.001, 0.5, 1.0, 8.0, 1000.0, 1e9] {
            let root = cube_root(value);
            assert!((root * root * root - value).abs() < value * 1e-9, "{value}");
        }
    }

    #[test]
    fn the_plateau_is_reached_after_k_seconds() {
        let mut cubic = Cubic::new(100, 70);
        cubic.on_loss(Instant::ZERO, 100);
        assert_eq!(cubic.window(), 70);
        let mut ack = Acked {
            count: 70,
            in_flight: 70,
            srtt: Duration::from_millis(100),
            min_rtt: Duration::from_millis(100),
            ..Acked::default()
        };
        // K = cbrt(30 / 0.4) = 4.2 s.
        let mut at_half = 0;
        for tick in 0..42 {
            ack.now = Instant::from_millis(tick * 100);
            cubic.on_ack(&ack);
            if tick == 20 {
                at_half = cubic.window();
            }
        }
        assert!((90..=97).contains(&at_half), "{at_half}: steep at first");
        let size = cubic.window();
        assert!((98..=102).contains(&size), "{size}: flat near the plateau");
    }
}
