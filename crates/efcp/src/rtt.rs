//! Round-trip time estimation, as a policy.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::fmt;

use crate::catalogue::{ParamInfo, PolicyInfo, check_names, number};

/// A policy of round-trip time estimation.
pub trait RttEstimator: fmt::Debug + Send {
    /// Its name in the catalogue.
    fn name(&self) -> &'static str;

    /// A sample in ns, without the time that the other side let pass.
    fn on_sample(&mut self, now: u64, rtt_ns: u64);

    /// The estimate in ns; 0 before the first sample.
    fn estimate_ns(&self) -> u64;

    /// The smallest sample in ns that is thought to be still possible; 0 before the first.
    fn min_ns(&self) -> u64;

    /// Retransmission timeout in ns, without back-off and without A.
    fn timeout_ns(&self) -> u64;
}

/// Smoothed mean and deviation, as in RFC 6298.
#[derive(Clone, Copy, Debug)]
pub struct Smoothed {
    initial_ns: u64,
    floor_ns: u64,
    srtt_ns: u64,
    deviation_ns: u64,
    least: Least,
}

impl Smoothed {
    /// With a timeout of `initial_ns` before the first sample and of `floor_ns` at least.
    #[must_use]
    pub fn new(initial_ns: u64, floor_ns: u64) -> Smoothed {
        Smoothed {
            initial_ns,
            floor_ns,
            srtt_ns: 0,
            deviation_ns: 0,
            least: Least::new(60_000_000_000),
        }
    }
}

impl Default for Smoothed {
    fn default() -> Smoothed {
        Smoothed::new(1_000_000_000, 10_000_000)
    }
}

impl RttEstimator for Smoothed {
    fn name(&self) -> &'static str {
        "smoothed"
    }

    fn on_sample(&mut self, now: u64, rtt_ns: u64) {
        // 0 stands for "no sample".
        let rtt_ns = rtt_ns.clamp(1, u64::MAX / 16);
        self.least.on_sample(now, rtt_ns);
        if self.srtt_ns == 0 {
            (self.srtt_ns, self.deviation_ns) = (rtt_ns, rtt_ns / 2);
            return;
        }
        let error = self.srtt_ns.abs_diff(rtt_ns);
        self.deviation_ns = (3 * self.deviation_ns + error) / 4;
        self.srtt_ns = ((7 * self.srtt_ns + rtt_ns) / 8).max(1);
    }

    fn estimate_ns(&self) -> u64 {
        self.srtt_ns
    }

    fn min_ns(&self) -> u64 {
        self.least.get()
    }

    fn timeout_ns(&self) -> u64 {
        if self.srtt_ns == 0 {
            return self.initial_ns.max(self.floor_ns);
        }
        (self.srtt_ns + 4 * self.deviation_ns).max(self.floor_ns)
    }
}

/// The smallest round-trip time of the recent past: what the path takes without queues. The
/// timeout is that of [`Smoothed`].
#[derive(Clone, Copy, Debug)]
pub struct Minimum {
    smoothed: Smoothed,
    least: Least,
}

impl Minimum {
    /// As [`Smoothed::new`], and samples count for `window_ns` to twice that.
    #[must_use]
    pub fn new(initial_ns: u64, floor_ns: u64, window_ns: u64) -> Minimum {
        Minimum {
            smoothed: Smoothed::new(initial_ns, floor_ns),
            least: Least::new(window_ns),
        }
    }
}

impl RttEstimator for Minimum {
    fn name(&self) -> &'static str {
        "minimum"
    }

    fn on_sample(&mut self, now: u64, rtt_ns: u64) {
        self.smoothed.on_sample(now, rtt_ns);
        self.least.on_sample(now, rtt_ns.clamp(1, u64::MAX / 16));
    }

    fn estimate_ns(&self) -> u64 {
        self.least.get()
    }

    fn min_ns(&self) -> u64 {
        self.least.get()
    }

    fn timeout_ns(&self) -> u64 {
        self.smoothed.timeout_ns()
    }
}

/// The smallest of the samples of this window and of the one before.
#[derive(Clone, Copy, Debug)]
struct Least {
    window_ns: u64,
    since: u64,
    /// 0 for none.
    present: u64,
    past: u64,
}

impl Least {
    fn new(window_ns: u64) -> Least {
        Least {
            window_ns,
            since: 0,
            present: 0,
            past: 0,
        }
    }

    fn on_sample(&mut self, now: u64, rtt_ns: u64) {
        if self.present == 0 {
            (self.since, self.present) = (now, rtt_ns);
        } else if now.saturating_sub(self.since) >= self.window_ns {
            (self.since, self.past, self.present) = (now, self.present, rtt_ns);
        } else {
            self.present = self.present.min(rtt_ns);
        }
    }

    fn get(&self) -> u64 {
        match self.past {
            0 => self.present,
            past => past.min(self.present),
        }
    }
}

/// The policy of this name with these parameters, each at its default when it is not given.
///
/// # Errors
/// There is no such policy or parameter, or a value is out of its range; in words for people.
pub fn by_name(
    name: &str,
    params: &BTreeMap<String, String>,
) -> Result<Box<dyn RttEstimator>, String> {
    let info = check_names("rtt-estimation", LIST, name, params)?;
    let ms = |name| Ok::<u64, String>(number(info, params, name, 1..=3_600_000)? * 1_000_000);
    let (initial, floor) = (ms("initial-ms")?, ms("floor-ms")?);
    Ok(match name {
        "smoothed" => Box::new(Smoothed::new(initial, floor)),
        "minimum" => Box::new(Minimum::new(initial, floor, ms("window-ms")?)),
        _ => return Err(format!("rtt-estimation has no policy {name:?}")),
    })
}

/// The policies; the first is the default.
#[must_use]
pub fn list() -> &'static [PolicyInfo] {
    LIST
}

const INITIAL: ParamInfo = ParamInfo {
    name: "initial-ms",
    default: "1000",
    help: "Timeout before the first sample in ms, 1 to 3600000.",
};

const FLOOR: ParamInfo = ParamInfo {
    name: "floor-ms",
    default: "10",
    help: "Smallest timeout in ms (A is added to it), 1 to 3600000.",
};

const LIST: &[PolicyInfo] = &[
    PolicyInfo {
        name: "smoothed",
        help: "Smoothed mean, and deviation for the timeout (RFC 6298).",
        params: &[INITIAL, FLOOR],
    },
    PolicyInfo {
        name: "minimum",
        help: "The smallest recent sample; the timeout is that of smoothed.",
        params: &[
            INITIAL,
            FLOOR,
            ParamInfo {
                name: "window-ms",
                default: "10000",
                help: "How long a sample counts in ms, 1 to 3600000.",
            },
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn estimates_follow_samples() {
        let mut smoothed = Smoothed::default();
        assert_eq!(smoothed.timeout_ns(), 1000 * MS);
        for _ in 0..100 {
            smoothed.on_sample(0, 50 * MS);
        }
        assert_eq!(smoothed.estimate_ns(), 50 * MS);
        assert!(smoothed.timeout_ns() < 52 * MS);
        smoothed.on_sample(0, 500 * MS);
        assert!(smoothed.timeout_ns() > 400 * MS);
        assert_eq!(smoothed.min_ns(), 50 * MS);
        smoothed.on_sample(0, u64::MAX);
        assert!(smoothed.timeout_ns() > 0);
    }

    #[test]
    fn the_minimum_is_forgotten_after_two_windows() {
        let mut minimum = Minimum::new(1000 * MS, MS, 100 * MS);
        minimum.on_sample(0, 10 * MS);
        minimum.on_sample(50 * MS, 30 * MS);
        minimum.on_sample(120 * MS, 40 * MS);
        assert_eq!(minimum.estimate_ns(), 10 * MS);
        minimum.on_sample(230 * MS, 50 * MS);
        assert_eq!(minimum.estimate_ns(), 40 * MS);
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
