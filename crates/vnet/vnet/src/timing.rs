//! Waiting times of roles.

use carina_random::Random;
use carina_time::Duration;

/// The durations of leases, and how long roles wait for one another and repeat messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Lease of a reservation at a PIP.
    pub hold: Duration,
    /// How long a PIP keeps a part that is made after its VNP has last renewed it.
    pub lease: Duration,
    /// How long a VNP waits for the reservations of an attempt.
    pub attempt: Duration,
    /// Time before a message is first repeated; later repetitions wait longer, up to
    /// [`Timing::repeat_max`].
    pub repeat: Duration,
    /// Longest time between two repetitions of a message.
    pub repeat_max: Duration,
    /// Interval of a role's regular work: a PIP checks leases, a VNP renews leases and checks its
    /// networks, a VNO asks for the states of networks that are not ready.
    pub check_interval: Duration,
    /// Time without a report after which an agent counts as lost.
    pub silence_max: Duration,
    /// How long a VNP uses a PIP's advertisement.
    pub advertisement: Duration,
    /// How long a network whose resources are reserved may take to become ready, even if its
    /// queueing time (`on_insufficient = "queue …"`) ends before.
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
            check_interval: Duration::from_secs(5),
            silence_max: Duration::from_secs(20),
            advertisement: Duration::from_secs(2),
            making: Duration::from_secs(60),
        }
    }
}

impl Timing {
    /// The time to wait after `tries` unsuccessful attempts: it doubles with each, up to a bound. A
    /// random part of up to half of it is subtracted, so that two competitors do not collide again.
    #[must_use]
    pub fn back_off(&self, tries: u32, random: &mut Random) -> Duration {
        let doubled = self.repeat * (1 << tries.min(16));
        let pause_max = doubled.min(self.repeat_max).as_nanos();
        Duration::from_nanos(random.within(pause_max / 2, pause_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_differ() {
        let (timing, mut random) = (Timing::default(), Random::new(1));
        let waits: Vec<Duration> = (0..100)
            .map(|attempt| timing.back_off(attempt, &mut random))
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
