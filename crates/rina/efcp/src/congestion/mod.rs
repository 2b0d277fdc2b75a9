//! Congestion control: the policies that limit how many PDUs may be in flight.

mod aimd;
mod cubic;
mod dctcp;
mod window;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;

pub use aimd::Aimd;
pub use cubic::Cubic;
pub use dctcp::Dctcp;

use carina_time::{Duration, Instant};

use crate::catalogue::{ParamInfo, PolicyInfo, check_names, number, unknown_policy};
use crate::error::PolicyError;

/// A policy of congestion control. Windows are in PDUs, since sequence numbers count PDUs.
pub trait CongestionControl: fmt::Debug + Send {
    /// Returns the name of the policy in the catalogue.
    fn name(&self) -> &'static str;

    /// Returns the largest number of PDUs that may be in flight now; at least 1.
    fn window(&self) -> u64;

    /// Called for each acknowledgement of PDUs that were not acknowledged before.
    fn on_ack(&mut self, ack: &Acked);

    /// Called when the arrival of later PDUs shows that a PDU was lost. It is called once per loss
    /// episode: further losses among PDUs sent before the window shrank do not count again.
    fn on_loss(&mut self, now: Instant, in_flight: u64);

    /// Called when the retransmission timer expires: all PDUs in flight are considered lost.
    fn on_timeout(&mut self, now: Instant, in_flight: u64);

    /// Called when the last reported loss was spurious: the PDU was only late. The policy may undo
    /// its reduction.
    fn on_spurious(&mut self) {}
}

/// What a policy of congestion control learns from an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Time at which the acknowledgement arrived.
    pub now: Instant,
    /// Number of PDUs that this acknowledges for the first time.
    pub count: u64,
    /// Number of PDUs in flight before the acknowledgement.
    pub in_flight: u64,
    /// How many of the newly acknowledged PDUs carried a congestion mark.
    pub marks: u64,
    /// Smoothed round-trip time of the connection; 0 before the first sample.
    pub srtt: Duration,
    /// Smallest round-trip time measured on the connection; 0 before the first sample.
    pub min_rtt: Duration,
    /// Whether the sender used less than half of the window. The window must not grow then.
    pub is_limited: bool,
    /// Whether the sender is still retransmitting the losses of an episode, during which the window
    /// should not grow.
    pub is_recovering: bool,
    /// Sequence number of the next PDU to be sent for the first time.
    pub next_seq: u64,
    /// The sender's left edge: all PDUs with lower sequence numbers are acknowledged.
    pub left: u64,
}

/// No congestion control: only windows of flow control limit the sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl CongestionControl for Unlimited {
    fn name(&self) -> &'static str {
        "none"
    }

    fn window(&self) -> u64 {
        u64::MAX
    }

    fn on_ack(&mut self, _ack: &Acked) {}

    fn on_loss(&mut self, _now: Instant, _in_flight: u64) {}

    fn on_timeout(&mut self, _now: Instant, _in_flight: u64) {}
}

/// Creates the policy `name` with the given parameters; absent parameters have their defaults.
///
/// # Errors
/// The policy or a parameter does not exist, or a value is out of range.
pub fn by_name(
    name: &str,
    params: &BTreeMap<String, String>,
) -> Result<Box<dyn CongestionControl>, PolicyError> {
    let info = check_names("congestion-control", LIST, name, params)?;
    let value = |name, range| number(info, params, name, range);
    Ok(match name {
        "none" => Box::new(Unlimited),
        "aimd" => Box::new(Aimd::new(
            value("initial-window", WINDOWS)?,
            value("increase", 1..=1000)?,
            value("decrease-percent", 1..=90)?,
        )),
        "cubic" => Box::new(Cubic::new(
            value("initial-window", WINDOWS)?,
            value("keep-percent", 10..=95)?,
        )),
        "dctcp" => Box::new(Dctcp::new(
            value("initial-window", WINDOWS)?,
            value("gain-shift", 0..=10)?,
        )),
        _ => return Err(unknown_policy("congestion-control", LIST, name)),
    })
}

/// Returns descriptions of all policies of congestion control; the first is the default.
#[must_use]
pub fn list() -> &'static [PolicyInfo] {
    LIST
}

const WINDOWS: core::ops::RangeInclusive<u64> = 1..=100_000;

const INITIAL: ParamInfo = ParamInfo {
    name: "initial-window",
    default: "10",
    help: "PDUs in flight at first, 1 to 100000.",
};

const LIST: &[PolicyInfo] = &[
    PolicyInfo {
        name: "cubic",
        help: "CUBIC (RFC 9438): the window is a cubic function of the time since the last loss.",
        params: &[
            INITIAL,
            ParamInfo {
                name: "keep-percent",
                default: "70",
                help: "Percent of the window that is kept after a loss, 10 to 95.",
            },
        ],
    },
    PolicyInfo {
        name: "aimd",
        help: "Additive increase, multiplicative decrease (RFC 5681).",
        params: &[
            INITIAL,
            ParamInfo {
                name: "increase",
                default: "1",
                help: "PDUs added to the window in each round trip, 1 to 1000.",
            },
            ParamInfo {
                name: "decrease-percent",
                default: "50",
                help: "Percent of the window that a loss removes, 1 to 90.",
            },
        ],
    },
    PolicyInfo {
        name: "dctcp",
        help: "DCTCP (RFC 8257): the larger the share of marked PDUs, the more the window \
            shrinks; for cubes with ECN.",
        params: &[
            INITIAL,
            ParamInfo {
                name: "gain-shift",
                default: "4",
                help: "N from 0 to 10: the latest round trip has weight 1/2^N in the average \
                    share of marked PDUs.",
            },
        ],
    },
    PolicyInfo {
        name: "none",
        help: "Only flow control limits the PDUs in flight.",
        params: &[],
    },
];

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn every_policy_of_the_list_can_be_made() {
        for info in list() {
            let mut params = BTreeMap::new();
            let made = by_name(info.name, &params).expect("the defaults");
            assert_eq!(made.name(), info.name);
            for param in info.params {
                params.insert(param.name.to_string(), param.default.to_string());
            }
            by_name(info.name, &params).expect("the defaults, spelt out");
            params.insert("colour".to_string(), "7".to_string());
            assert!(by_name(info.name, &params).is_err());
        }
        let wrong = BTreeMap::from([("initial-window".to_string(), "0".to_string())]);
        assert!(by_name("aimd", &wrong).is_err());
        assert!(by_name("fast", &BTreeMap::new()).is_err());
    }

    #[test]
    fn a_loss_shrinks_and_a_late_arrival_restores() {
        for name in ["aimd", "cubic", "dctcp"] {
            let mut policy = by_name(name, &BTreeMap::new()).expect("it exists");
            let mut ack = Acked {
                count: 10,
                in_flight: 10,
                srtt: Duration::from_millis(1),
                ..Acked::default()
            };
            for round in 0..6_u64 {
                (ack.left, ack.next_seq) = (round * 10, round * 10 + 10);
                policy.on_ack(&ack);
            }
            let before = policy.window();
            assert!(before >= 60, "{name}: {before} after slow start");
            policy.on_loss(Instant::from_nanos(1), before);
            assert!(policy.window() < before, "{name}");
            policy.on_spurious();
            assert_eq!(policy.window(), before, "{name}");
            policy.on_timeout(Instant::from_nanos(2), before);
            assert_eq!(policy.window(), 1, "{name}");
        }
    }

    #[test]
    fn marks_shrink_once_in_a_round_trip() {
        let mut aimd = Aimd::new(100, 1, 50);
        let mut ack = Acked {
            count: 1,
            in_flight: 100,
            marks: 1,
            left: 1,
            next_seq: 101,
            ..Acked::default()
        };
        aimd.on_ack(&ack);
        assert_eq!(aimd.window(), 50);
        ack.left = 60;
        aimd.on_ack(&ack);
        assert_eq!(aimd.window(), 50);
        (ack.left, ack.next_seq, ack.in_flight) = (101, 151, 50);
        aimd.on_ack(&ack);
        assert_eq!(aimd.window(), 25);
    }
}
