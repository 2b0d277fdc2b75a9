//! Round-trip time estimation: the policies.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

use carina_time::{Duration, Instant};

use crate::catalogue::{ParamInfo, PolicyInfo, check_names, number, unknown_policy};
use crate::error::PolicyError;

/// A policy by which a sender estimates the round-trip time and the retransmission timeout.
pub trait RttEstimator: fmt::Debug + Send {
    /// Returns the name of the policy in the catalogue.
    fn name(&self) -> &'static str;

    /// Adds a measured round-trip time. The caller has already subtracted the time for which the
    /// peer delayed its acknowledgement.
    fn on_sample(&mut self, now: Instant, rtt: Duration);

    /// Returns the estimated round-trip time; 0 before the first sample.
    fn estimate(&self) -> Duration;

    /// Returns the smallest recent sample; 0 before the first sample.
    fn min_rtt(&self) -> Duration;

    /// Returns the retransmission timeout, without back-off and without the time A.
    fn timeout(&self) -> Duration;
}

/// Policy that estimates from the smoothed mean and the deviation of the samples (RFC 6298).
#[derive(Clone, Copy, Debug)]
pub struct Smoothed {
    initial: Duration,
    floor: Duration,
    srtt: Duration,
    deviation: Duration,
    least: Least,
}

impl Smoothed {
    /// Starts with timeout `initial`, which applies before the first sample. Later timeouts are at
    /// least `floor`.
    #[must_use]
    pub fn new(initial: Duration, floor: Duration) -> Smoothed {
        Smoothed {
            initial,
            floor,
            srtt: Duration::ZERO,
            deviation: Duration::ZERO,
            least: Least::new(Duration::from_secs(60)),
        }
    }
}

impl Default for Smoothed {
    fn default() -> Smoothed {
        Smoothed::new(Duration::from_secs(1), Duration::from_millis(10))
    }
}

impl RttEstimator for Smoothed {
    fn name(&self) -> &'static str {
        "smoothed"
    }

    fn on_sample(&mut self, now: Instant, rtt: Duration) {
        // 0 means "no sample".
        let rtt = rtt.clamp(Duration::from_nanos(1), Duration::MAX / 16);
        self.least.on_sample(now, rtt);
        if self.srtt == Duration::ZERO {
            (self.srtt, self.deviation) = (rtt, rtt / 2);
            return;
        }
        let error = self.srtt.abs_diff(rtt);
        self.deviation = (self.deviation * 3 + error) / 4;
        self.srtt = ((self.srtt * 7 + rtt) / 8).max(Duration::from_nanos(1));
    }

    fn estimate(&self) -> Duration {
        self.srtt
    }

    fn min_rtt(&self) -> Duration {
        self.least.get()
    }

    fn timeout(&self) -> Duration {
        if self.srtt == Duration::ZERO {
            return self.initial.max(self.floor);
        }
        (self.srtt + self.deviation * 4).max(self.floor)
    }
}

/// Policy whose estimate is the smallest round-trip time of the recent past, which is that of the
/// path without queues. The timeout is that of [`Smoothed`].
#[derive(Clone, Copy, Debug)]
pub struct Minimum {
    smoothed: Smoothed,
    least: Least,
}

impl Minimum {
    /// Like [`Smoothed::new`]; a sample counts for between one and two times `window`.
    #[must_use]
    pub fn new(initial: Duration, floor: Duration, window: Duration) -> Minimum {
        Minimum {
            smoothed: Smoothed::new(initial, floor),
            least: Least::new(window),
        }
    }
}

impl RttEstimator for Minimum {
    fn name(&self) -> &'static str {
        "minimum"
    }

    fn on_sample(&mut self, now: Instant, rtt: Duration) {
        self.smoothed.on_sample(now, rtt);
        self.least
            .on_sample(now, rtt.clamp(Duration::from_nanos(1), Duration::MAX / 16));
    }

    fn estimate(&self) -> Duration {
        self.least.get()
    }

    fn min_rtt(&self) -> Duration {
        self.least.get()
    }

    fn timeout(&self) -> Duration {
        self.smoothed.timeout()
    }
}

/// The smallest sample of the current window of time and of the one before.
#[derive(Clone, Copy, Debug)]
struct Least {
    window: Duration,
    since: Instant,
    /// Smallest sample of the current window; 0 for none.
    present: Duration,
    past: Duration,
}

impl Least {
    fn new(window: Duration) -> Least {
        Least {
            window,
            since: Instant::ZERO,
            present: Duration::ZERO,
            past: Duration::ZERO,
        }
    }

    fn on_sample(&mut self, now: Instant, rtt: Duration) {
        if self.present == Duration::ZERO {
            (self.since, self.present) = (now, rtt);
        } else if now.since(self.since) >= self.window {
            (self.since, self.past, self.present) = (now, self.present, rtt);
        } else {
            self.present = self.present.min(rtt);
        }
    }

    fn get(&self) -> Duration {
        match self.past {
            Duration::ZERO => self.present,
            past => past.min(self.present),
        }
    }
}

/// Creates the policy `name` with the given parameters; absent parameters have their defaults.
///
/// # Errors
/// The policy or a parameter does not exist, or a value is out of range.
pub fn by_name(
    name: &str,
    params: &BTreeMap<String, String>,
) -> Result<Box<dyn RttEstimator>, PolicyError> {
    let info = check_names("rtt-estimation", LIST, name, params)?;
    let ms = |name| number(info, params, name, 1..=3_600_000).map(Duration::from_millis);
    let (initial, floor) = (ms("initial-ms")?, ms("floor-ms")?);
    Ok(match name {
        "smoothed" => Box::new(Smoothed::new(initial, floor)),
        "minimum" => Box::new(Minimum::new(initial, floor, ms("window-ms")?)),
        _ => return Err(unknown_policy("rtt-estimation", LIST, name)),
    })
}

/// Returns descriptions of all policies of round-trip time estimation; the first is the default.
#[must_use]
pub fn list() -> &'static [PolicyInfo] {
    LIST
}

const INITIAL: ParamInfo = ParamInfo {
    name: "initial-ms",
    default: "1000",
    help: "Timeout in ms before the first sample, 1 to 3600000.",
};

const FLOOR: ParamInfo = ParamInfo {
    name: "floor-ms",
    default: "10",
    help: "Smallest timeout in ms, 1 to 3600000; the sender adds A, the longest time for which \
        the receiver delays an acknowledgement.",
};

const LIST: &[PolicyInfo] = &[
    PolicyInfo {
        name: "smoothed",
        help: "The estimate is the smoothed mean of the samples; the timeout adds their deviation \
            (RFC 6298).",
        params: &[INITIAL, FLOOR],
    },
    PolicyInfo {
        name: "minimum",
        help: "The estimate is the smallest recent sample; the timeout is computed as in \
            `smoothed`.",
        params: &[
            INITIAL,
            FLOOR,
            ParamInfo {
                name: "window-ms",
                default: "10000",
                help: "Time in ms for which a sample counts as recent, 1 to 3600000.",
            },
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn estimates_follow_samples() {
        let mut smoothed = Smoothed::default();
        assert_eq!(smoothed.timeout(), MS * 1000);
        for _ in 0..100 {
            smoothed.on_sample(Instant::ZERO, MS * 50);
        }
        assert_eq!(smoothed.estimate(), MS * 50);
        assert!(smoothed.timeout() < MS * 52);
        smoothed.on_sample(Instant::ZERO, MS * 500);
        assert!(smoothed.timeout() > MS * 400);
        assert_eq!(smoothed.min_rtt(), MS * 50);
        smoothed.on_sample(Instant::ZERO, Duration::MAX);
        assert!(smoothed.timeout() > Duration::ZERO);
    }

    #[test]
    fn the_minimum_is_forgotten_after_two_windows() {
        let mut minimum = Minimum::new(MS * 1000, MS, MS * 100);
        minimum.on_sample(Instant::ZERO, MS * 10);
        minimum.on_sample(Instant::from_millis(50), MS * 30);
        minimum.on_sample(Instant::from_millis(120), MS * 40);
        assert_eq!(minimum.estimate(), MS * 10);
        minimum.on_sample(Instant::from_millis(230), MS * 50);
        assert_eq!(minimum.estimate(), MS * 40);
    }

    #[test]
    fn every_policy_of_the_list_can_be_made() {
        for info in list() {
            let made = by_name(info.name, &BTreeMap::new()).expect("the defaults");
            assert_eq!(made.name(), info.name);
        }
        assert!(by_name("guess", &BTreeMap::new()).is_err());
    }
}
