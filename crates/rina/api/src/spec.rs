//! The flow specification: the QoS that an application requests.
//!
//! Fields and units are those of rlite's API version 2 (`struct rina_flow_spec`), so that a C
//! program for rlite keeps its meaning.

use serde::{Deserialize, Serialize};

/// QoS that an application requests for a flow. For delay, bandwidth and jitter, 0 means "no
/// requirement".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowSpec {
    /// Longest delay that an SDU may have, in microseconds; 0 for any.
    pub max_delay_us: u32,
    /// Largest number of consecutive SDUs that may be lost; `u64::MAX` for any number, 0 for none.
    pub max_sdu_gap: u64,
    /// Average bandwidth in bits per second; 0 for any.
    pub avg_bandwidth_bps: u64,
    /// Largest share of SDUs that may be lost, in 1/10000: 0 for none, 10000 for any.
    pub max_loss: u16,
    /// Whether the DIF must deliver SDUs in the order in which they were sent.
    pub in_order: bool,
    /// Whether the DIF must keep the boundaries of SDUs; otherwise a byte stream is enough.
    pub msg_boundaries: bool,
    /// Largest variation of delay, in microseconds; 0 for any.
    pub max_jitter_us: u32,
}

/// Why a flow specification is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The largest loss is out of range.
    #[error(
        "flow specification: max_loss is {0}; it counts 1/10000 and must be 0 to {MAX_LOSS_ANY}"
    )]
    MaxLoss(u16),
}

impl FlowSpec {
    /// Returns a specification without requirements, except that boundaries of SDUs are kept.
    pub const fn unreliable() -> Self {
        Self {
            max_delay_us: 0,
            max_sdu_gap: u64::MAX,
            avg_bandwidth_bps: 0,
            max_loss: MAX_LOSS_ANY,
            in_order: false,
            msg_boundaries: true,
            max_jitter_us: 0,
        }
    }

    /// Returns a specification that requires every SDU exactly once, complete and in order.
    pub const fn reliable() -> Self {
        Self {
            max_sdu_gap: 0,
            max_loss: 0,
            in_order: true,
            ..Self::unreliable()
        }
    }

    /// Returns a specification that requires order but no retransmission. In a normal DIF it
    /// selects QoS cube 2, which also has flow control.
    pub const fn flow_controlled() -> Self {
        Self {
            in_order: true,
            ..Self::unreliable()
        }
    }

    /// Checks the range of every field.
    ///
    /// # Errors
    /// [`SpecError`], which names the field, its value and the range.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.max_loss > MAX_LOSS_ANY {
            return Err(SpecError::MaxLoss(self.max_loss));
        }
        Ok(())
    }
}

impl Default for FlowSpec {
    fn default() -> Self {
        Self::unreliable()
    }
}

impl From<carina_wire::FlowSpec> for FlowSpec {
    fn from(spec: carina_wire::FlowSpec) -> Self {
        let carina_wire::FlowSpec {
            max_delay_us,
            max_sdu_gap,
            avg_bandwidth_bps,
            max_loss,
            in_order,
            msg_boundaries,
            max_jitter_us,
        } = spec;
        Self {
            max_delay_us,
            max_sdu_gap,
            avg_bandwidth_bps,
            max_loss,
            in_order,
            msg_boundaries,
            max_jitter_us,
        }
    }
}

impl From<FlowSpec> for carina_wire::FlowSpec {
    fn from(spec: FlowSpec) -> Self {
        Self {
            max_delay_us: spec.max_delay_us,
            max_sdu_gap: spec.max_sdu_gap,
            avg_bandwidth_bps: spec.avg_bandwidth_bps,
            max_loss: spec.max_loss,
            in_order: spec.in_order,
            msg_boundaries: spec.msg_boundaries,
            max_jitter_us: spec.max_jitter_us,
        }
    }
}

/// The value of `max_loss` that allows any loss.
pub const MAX_LOSS_ANY: u16 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_ask_for_nothing() {
        let spec: FlowSpec = serde_json::from_str("{}").unwrap();
        assert_eq!(spec, FlowSpec::unreliable());
    }

    #[test]
    fn crossing_the_wire_changes_nothing() {
        for spec in [FlowSpec::reliable(), FlowSpec::unreliable()] {
            assert_eq!(FlowSpec::from(carina_wire::FlowSpec::from(spec)), spec);
        }
        assert_eq!(
            FlowSpec::from(carina_wire::FlowSpec::reliable()),
            FlowSpec::reliable()
        );
    }

    #[test]
    fn unknown_fields_and_bad_ranges_are_refused() {
        assert!(serde_json::from_str::<FlowSpec>(r#"{"max_los":0}"#).is_err());
        let spec = FlowSpec {
            max_loss: 10_001,
            ..FlowSpec::reliable()
        };
        assert!(
            spec.check()
                .unwrap_err()
                .to_string()
                .contains("max_loss is 10001")
        );
        assert_eq!(FlowSpec::reliable().check(), Ok(()));
    }
}
