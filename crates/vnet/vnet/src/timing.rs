//! How long roles wait for one another.

use carina_random::Random;
use carina_time::Duration;

/// How long roles wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A PIP holds what is reserved for so long.
    pub hold: Duration,
    /// A PIP keeps what was made for so long after its VNP named it.
    pub lease: Duration,
    /// A VNP gives an attempt to reserve so long.
    pub attempt: Duration,
    /// Between two messages that ask for the same, at first; later up to [`Timing::repeat_max`].
    pub repeat: Duration,
    /// Between two messages that ask for the same, at most.
    pub repeat_max: Duration,
    /// Between two looks at what should stay as it is.
    pub look: Duration,
    /// An agent that was silent for so long counts as gone.
    pub silence: Duration,
    /// A VNP uses what a PIP advertised for so long.
    pub advertisement: Duration,
    /// So long a VNP lets a network whose resources are held become ready, before the end of the
    /// time of its queue ends it.
    pub making: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            hold: Duration::from_secs(30),
            lease: Duration::from_secs(3600),
            attempt: Duration::from_secs(10),
            repeat: Duration::from_millis(500),
            repeat_max: Duration::from_secs(10),
            look: Duration::from_secs(5),
            silence: Duration::from_secs(20),
            advertisement: Duration::from_secs(2),
            making: Duration::from_secs(60),
        }
    }
}

impl Timing {
    /// The time to wait before the try after `tries` in vain: doubled each time, up to a bound, and
    /// spread by half of it, so that two who were in each other's way do not meet again.
    #[must_use]
    pub fn back_off(&self, tries: u32, random: &mut Random) -> Duration {
        let doubled = self.repeat * (1 << tries.min(16));
        let most = doubled.min(self.repeat_max).as_nanos();
        Duration::from_nanos(random.within(most / 2, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_differ() {
        let (timing, mut random) = (Timing::default(), Random::new(1));
        let waits: Vec<Duration> = (0..100)
            .map(|it| timing.back_off(it, &mut random))
            .collect();
        assert!(waits[0] <= timing.repeat && waits[0] >= timing.repeat / 2);
        assert!(waits.iter().all(|wait| *wait <= timing.repeat_max));
        assert!(
            waits[20..]
                .iter()
                .all(|wait| *wait >= timing.repeat_max / 2)
        );
        assert_ne!(waits[50], waits[51]);
    }
}
