//! How long to look for work before sleeping.
//!
//! Sleeping and being woken costs some microseconds on both sides; looking for work costs the CPU.
//! The budget grows while sleeps turn out short (the next message would have come within the
//! budget) and shrinks while they turn out long, so that an echo at full speed never sleeps and a
//! message per second costs next to nothing.

/// The adaptive budget.
#[derive(Debug)]
pub struct Linger {
    budget_ns: u64,
    yields: bool,
}

impl Linger {
    /// A budget for a system with `cpus` processors: on one, looking for work yields the
    /// processor at once, because whoever brings the work needs it.
    #[must_use]
    pub fn new(cpus: usize) -> Linger {
        Linger {
            budget_ns: BUDGET_NS_MIN,
            yields: cpus <= 1,
        }
    }

    /// How long an app may be idle before it is put to sleep, in ns.
    #[must_use]
    pub fn budget_ns(&self) -> u64 {
        self.budget_ns
    }

    /// A sleep without deadline has ended by a bell after `ns`.
    pub fn slept(&mut self, ns: u64) {
        self.budget_ns = if ns <= BUDGET_NS_MAX {
            (self.budget_ns * 2).min(BUDGET_NS_MAX)
        } else {
            (self.budget_ns / 2).max(BUDGET_NS_MIN)
        };
    }

    /// Idle turns between two looks at the bells of those that sleep. Where every turn yields, a
    /// turn costs as much as a look, and whoever ran meanwhile has probably rung.
    #[must_use]
    pub fn look_turns(&self) -> u32 {
        if self.yields { 1 } else { LOOK_TURNS }
    }

    /// One turn of looking for work without finding any; `turn` counts them.
    pub fn pause(&self, turn: u32) {
        if self.yields || turn.is_multiple_of(YIELD_TURNS) {
            carina_sys::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// A wake-up through an eventfd costs about this much.
const BUDGET_NS_MIN: u64 = 4_000;
/// Beyond this a sleep is cheaper than the wait.
const BUDGET_NS_MAX: u64 = 100_000;
/// Turns without a system call are short.
const LOOK_TURNS: u32 = 32;
/// Even with several processors an application may wait for this one.
const YIELD_TURNS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_sleeps_lengthen_the_budget_and_long_ones_shorten_it() {
        let mut linger = Linger::new(2);
        for _ in 0..10 {
            linger.slept(20_000);
        }
        assert_eq!(linger.budget_ns(), BUDGET_NS_MAX);
        for _ in 0..10 {
            linger.slept(1_000_000_000);
        }
        assert_eq!(linger.budget_ns(), BUDGET_NS_MIN);
    }
}
