//! The anti-replay window of a receiver. (RFC 4303 §3.4.3 and appendix A)

/// Records which of the last [`WINDOW`] sequence numbers were seen, up to the highest authentic
/// one.
#[derive(Clone, Copy, Debug)]
pub struct ReplayWindow {
    top: u64,
    /// Bit n is set if the number `top - n` was seen.
    seen: u128,
}

/// Size of the window: how much lower than the highest number a number may be.
pub const WINDOW: u64 = 128;

impl ReplayWindow {
    /// The window before the first packet, which has number 1.
    #[must_use]
    pub fn new() -> ReplayWindow {
        ReplayWindow { top: 0, seen: 1 }
    }

    /// The full sequence number of a packet that carries only the lower half `low`: the nearest
    /// number that is not below the window. (RFC 4303, appendix A2.2)
    #[must_use]
    pub fn extended(&self, low: u32) -> u64 {
        let (top_high, top_low) = (self.top >> 32, self.top as u32);
        let bottom = top_low.wrapping_sub(WINDOW as u32 - 1);
        let high = if u64::from(top_low) >= WINDOW - 1 {
            top_high + u64::from(low < bottom)
        } else if low >= bottom {
            // The number is below a multiple of 2^32. Before the first multiple there is nothing
            // below.
            top_high.saturating_sub(1)
        } else {
            top_high
        };
        high << 32 | u64::from(low)
    }

    /// Whether a number is acceptable: not 0, not seen before, and not below the window.
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        match self.top.checked_sub(number) {
            None => true,
            Some(late) => number != 0 && late < WINDOW && self.seen >> late & 1 == 0,
        }
    }

    /// Records the number of an authentic packet, which must be new ([`ReplayWindow::is_new`]).
    pub fn accept(&mut self, number: u64) {
        match self.top.checked_sub(number) {
            Some(late) if late < WINDOW => self.seen |= 1 << late,
            Some(_) => {}
            None => {
                let ahead = number - self.top;
                self.seen = u32::try_from(ahead)
                    .ok()
                    .and_then(|ahead| self.seen.checked_shl(ahead))
                    .unwrap_or(0)
                    | 1;
                self.top = number;
            }
        }
    }

    /// The highest number of an authentic packet.
    #[must_use]
    pub fn top(&self) -> u64 {
        self.top
    }
}

impl Default for ReplayWindow {
    fn default() -> ReplayWindow {
        ReplayWindow::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_numbers_pass_once_and_old_ones_never() {
        let mut window = ReplayWindow::new();
        assert!(!window.is_new(0) && window.is_new(1) && window.is_new(u64::MAX));
        window.accept(200);
        assert!(!window.is_new(200) && window.is_new(199) && window.is_new(73));
        assert!(!window.is_new(72), "the 129th");
        window.accept(73);
        assert!(!window.is_new(73));
        window.accept(201);
        assert!(!window.is_new(73) && !window.is_new(200) && window.is_new(74));
        window.accept(1000);
        assert!(window.is_new(999) && !window.is_new(201));
    }

    #[test]
    fn upper_half_follows_from_the_window() {
        let at = |top: u64| ReplayWindow { top, seen: 1 };
        assert_eq!(at(0).extended(1), 1);
        assert_eq!(at(0).extended(u32::MAX), u64::from(u32::MAX));
        assert_eq!(at(0xffff_fff0).extended(5), 1 << 32 | 5);
        assert_eq!(at(0xffff_fff0).extended(0xffff_ff80), 0xffff_ff80);
        assert_eq!(at(1 << 32 | 5).extended(0xffff_fff0), 0xffff_fff0);
        assert_eq!(at(1 << 32 | 5).extended(6), 1 << 32 | 6);
        assert_eq!(at(1 << 32 | 500).extended(100), 2 << 32 | 100);
    }
}
