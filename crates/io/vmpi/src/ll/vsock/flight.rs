//! How many bytes of record frames a side may have on the way to its peer.
//!
//! A record waits behind everything that was sent before, in sockets and queues that the sender
//! does not see. The sender therefore measures the time from sending a record to learning that the
//! peer has read the record. With the smallest bound, the usual time is that of an empty path. The
//! sender lets the usual time grow to 1.25 times that by having more bytes on the way, and no
//! further. The usual time is the median of some measurements, because single ones say little:
//! threads on the path wait for a processor, in one round trip and not in the next. The bound
//! follows the rate of the link: a faster peer or a slower one changes the time, and the time
//! changes the bound. Now and then the sender lets the path drain, and measures the empty path
//! again.
//!
//! ```text
//!              BASE_TIMES measured              median <= 1.25 base: the bound grows by half
//!  Draining ------------------------> Following -----+  median > 1.25 base: it shrinks
//!  (smallest bound) <-----------------    ^          |
//!                     CHANGES_MAX times   +----------+
//! ```

/// The bytes on the way, and their bound.
#[derive(Debug)]
pub(super) struct Flight {
    /// Bytes of record frames: sent, and read by the peer.
    sent: u64,
    taken: u64,
    /// Largest number of bytes to have on the way.
    bound: u64,
    /// The usual time of the empty path, in nanoseconds; `None` until it is measured.
    base_ns: Option<u64>,
    /// Measurements since the last change of the bound, in nanoseconds.
    times_ns: Vec<u64>,
    /// Number of changes of the bound since the path was drained.
    changes: u32,
    probe: Option<Probe>,
}

/// A measurement: when the peer has read everything up to here, time has passed since then.
#[derive(Debug)]
struct Probe {
    up_to: u64,
    since_ns: u64,
    /// Whether records waited for the bound meanwhile.
    is_held: bool,
}

/// The peer's count of bytes that it has read is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FalseCount;

impl Flight {
    pub(super) fn new() -> Flight {
        Flight {
            sent: 0,
            taken: 0,
            bound: BOUND_MIN,
            base_ns: None,
            times_ns: Vec::with_capacity(BASE_TIMES),
            changes: 0,
            probe: None,
        }
    }

    /// Bytes that were sent and that the peer has not read, as far as this side knows.
    pub(super) fn on_the_way(&self) -> u64 {
        self.sent - self.taken
    }

    /// Number of bytes that this side may queue when `queued` bytes wait already. An idle link
    /// accepts one record of any length.
    pub(super) fn room(&mut self, queued: u64, record_bytes_max: u64) -> u64 {
        let before = self.on_the_way() + queued;
        if before == 0 {
            return self.bound.max(record_bytes_max);
        }
        let room = self.bound.saturating_sub(before);
        // A flow with much to send leaves some of the room to control messages and to other flows.
        if room < HELD_ROOM
            && let Some(probe) = &mut self.probe
        {
            probe.is_held = true;
        }
        room
    }

    /// Notes that a frame of `bytes` bytes is sent.
    pub(super) fn send(&mut self, bytes: u64, now_ns: u64) {
        self.sent += bytes;
        self.probe.get_or_insert(Probe {
            up_to: self.sent,
            since_ns: now_ns,
            is_held: false,
        });
    }

    /// Notes that the peer has read `taken` bytes since the connection began, and adapts the bound
    /// after some round trips.
    ///
    /// # Errors
    /// [`FalseCount`] if the count goes back, or is larger than what was sent.
    pub(super) fn peer_has_taken(&mut self, taken: u64, now_ns: u64) -> Result<(), FalseCount> {
        if taken < self.taken || taken > self.sent {
            return Err(FalseCount);
        }
        self.taken = taken;
        let Some(probe) = self.probe.take_if(|probe| taken >= probe.up_to) else {
            return Ok(());
        };
        // The time of a round trip without waiting says nothing about the bound: the peer may show
        // a lone record late.
        if probe.is_held {
            self.measured(now_ns.saturating_sub(probe.since_ns));
        }
        Ok(())
    }

    /// Adds a measurement. Changes the bound if the measurements are enough for a median.
    fn measured(&mut self, time_ns: u64) {
        self.times_ns.push(time_ns);
        let Some(base_ns) = self.base_ns else {
            if self.times_ns.len() >= BASE_TIMES {
                self.base_ns = Some(self.take_median());
            }
            return;
        };
        if self.times_ns.len() < TIMES {
            return;
        }
        let time_ns = self.take_median();
        self.changes += 1;
        if self.changes == CHANGES_MAX {
            self.changes = 0;
            self.base_ns = None;
            self.bound = BOUND_MIN;
            return;
        }
        let target_ns = base_ns.saturating_add(base_ns / 4);
        let target_ns = target_ns.clamp(TARGET_NS_MIN, TARGET_NS_MAX);
        let bound = if time_ns <= target_ns {
            self.bound + self.bound / 2
        } else if time_ns > 2 * target_ns {
            self.bound / 2
        } else {
            self.bound - self.bound / 4
        };
        self.bound = bound.clamp(BOUND_MIN, BOUND_MAX);
    }

    /// Removes the measurements and returns their median, in nanoseconds.
    fn take_median(&mut self) -> u64 {
        let middle = self.times_ns.len() / 2;
        let (_, median, _) = self.times_ns.select_nth_unstable(middle);
        let median = *median;
        self.times_ns.clear();
        median
    }
}

/// Range of the time that the last byte on the way may need to be read, in nanoseconds. A scheduler
/// alone delays a thread by as much as the lower end.
const TARGET_NS_MIN: u64 = 100_000;
const TARGET_NS_MAX: u64 = 20_000_000;

/// Number of measurements of the empty path, and of those between two changes of the bound.
const BASE_TIMES: usize = 9;
const TIMES: usize = 5;

/// Number of changes of the bound after which the path is drained. The bound then needs some 5 to
/// grow again.
const CHANGES_MAX: u32 = 200;

/// A sender whose room is smaller than this waits for the bound, in bytes. A piece of an SDU, with
/// what is left to others, needs less.
const HELD_ROOM: u64 = 11 << 10;

/// Range of the bound in bytes. Below the smallest, the sender would wait for each record.
const BOUND_MIN: u64 = 16 << 10;
const BOUND_MAX: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends as much as the bound allows to a peer that reads at a rate, over a path of 100 µs.
    /// Returns the bound after `rounds` round trips.
    fn saturate(flight: &mut Flight, bytes_per_us: u64, rounds: u32) -> u64 {
        saturate_path(flight, 100_000, bytes_per_us, rounds)
    }

    fn saturate_path(flight: &mut Flight, path_ns: u64, bytes_per_us: u64, rounds: u32) -> u64 {
        let mut now_ns = 0;
        for _ in 0..rounds {
            loop {
                let room = flight.room(0, 4096);
                if room < 4096 {
                    break;
                }
                flight.send(4096, now_ns);
            }
            let on_the_way = flight.on_the_way();
            now_ns += path_ns + on_the_way * 1000 / bytes_per_us;
            flight.peer_has_taken(flight.sent, now_ns).unwrap();
        }
        flight.bound
    }

    #[test]
    fn bytes_on_the_way_follow_the_rate_of_the_peer() {
        let mut flight = Flight::new();
        // 30 µs or somewhat more, at 1000 bytes each µs.
        let bound = saturate(&mut flight, 1000, 200);
        assert!((30_000..80_000).contains(&bound), "{bound}");
        // The peer becomes slow, then fast.
        assert_eq!(saturate(&mut flight, 1, 200), BOUND_MIN);
        assert_eq!(saturate(&mut flight, 100_000, 200), BOUND_MAX);
        // It becomes slow for so long that the path is measured again, with the smallest bound.
        let bound = saturate(&mut flight, 1, 3000);
        assert!((BOUND_MIN..=BOUND_MIN * 3 / 2).contains(&bound), "{bound}");
        assert_eq!(saturate(&mut flight, 100_000, 200), BOUND_MAX);
    }

    #[test]
    fn long_path_holds_as_many_bytes_as_lengthen_it_by_a_quarter() {
        let mut flight = Flight::new();
        // 0.8 ms or somewhat more, at 50 bytes each µs.
        let bound = saturate_path(&mut flight, 3_000_000, 50, 300);
        assert!((40_000..BOUND_MAX).contains(&bound), "{bound}");
    }

    /// Saturates a path of which a round trip takes `delay_ns(round)`, whatever is on the way.
    /// Returns the mean of the bound.
    fn saturate_delays(flight: &mut Flight, rounds: u64, delay_ns: impl Fn(u64) -> u64) -> u64 {
        let mut bounds = 0;
        for round in 0..rounds {
            let now_ns = round * 1_000_000_000;
            while flight.room(0, 4096) >= 4096 {
                flight.send(4096, now_ns);
            }
            let taken = flight.sent;
            flight
                .peer_has_taken(taken, now_ns + delay_ns(round))
                .unwrap();
            bounds += flight.bound;
        }
        bounds / rounds
    }

    #[test]
    fn single_late_round_trips_do_not_change_the_bound() {
        let mut flight = Flight::new();
        let bound = saturate(&mut flight, 100_000, 200);
        let is_late = |round: u64| round.is_multiple_of(3);
        saturate_delays(&mut flight, 70, |round| {
            if is_late(round) { 50_000_000 } else { 100_000 }
        });
        assert_eq!(flight.bound, bound);
    }

    #[test]
    fn round_trips_of_very_different_times_let_the_bound_grow() {
        let mut bounds = 0;
        for seed in 0..100 {
            let mut flight = Flight::new();
            // 1 to 8 ms, as in a VM whose processor is emulated.
            let mut random = carina_random::Random::new(seed);
            let delays: Vec<u64> = (0..600).map(|_| 1_000_000 << random.below(4)).collect();
            bounds += saturate_delays(&mut flight, 600, |round| delays[round as usize]);
        }
        assert!(bounds / 100 >= BOUND_MAX / 2, "{}", bounds / 100);
    }

    #[test]
    fn lone_records_do_not_change_the_bound() {
        let mut flight = Flight::new();
        for second in 1..10 {
            flight.send(100, second * 1_000_000_000);
            assert!(flight.room(0, 4096) > 4096, "{second}");
            let taken = flight.sent;
            let late_ns = second * 1_000_000_000 + 50_000_000;
            flight.peer_has_taken(taken, late_ns).unwrap();
        }
        assert_eq!(flight.bound, BOUND_MIN);
    }

    #[test]
    fn false_counts_are_refused() {
        let mut flight = Flight::new();
        flight.send(100, 1);
        assert_eq!(flight.peer_has_taken(101, 2), Err(FalseCount));
        flight.peer_has_taken(50, 2).unwrap();
        assert_eq!(flight.peer_has_taken(49, 2), Err(FalseCount));
        // An idle link takes a record that is longer than the bound.
        flight.peer_has_taken(100, 2).unwrap();
        assert_eq!(flight.room(0, 1 << 20), 1 << 20);
    }
}
