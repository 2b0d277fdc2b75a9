//! The quality of service that an IPCP offers, and the check of a flow specification against it.

use carina_api::FlowSpec;
use carina_api::spec::SpecError;
use thiserror::Error;

/// The quality of service that an IPCP can promise for every flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosOffered {
    /// The smallest bound on delay that can be promised, in microseconds; `None`: no bound can.
    pub delay_us: Option<u32>,
    /// The smallest bound on jitter that can be promised, in microseconds; `None`: no bound can.
    pub jitter_us: Option<u32>,
    /// The largest bandwidth that can be promised, in bits per second; `None`: nothing can.
    pub bandwidth_bps: Option<u64>,
    /// The largest share of SDUs lost, in 1/10000.
    pub loss: u16,
    /// The largest number of consecutive SDUs lost.
    pub gap: u64,
    /// SDUs arrive in order.
    pub in_order: bool,
    /// The boundaries of SDUs are kept.
    pub msg_boundaries: bool,
    /// The longest SDU in bytes; `None`: any length.
    pub sdu_bytes_max: Option<usize>,
}

impl QosOffered {
    /// Shared memory: nothing lost, nothing reordered, boundaries kept, and no bound on delay,
    /// which depends on the scheduler.
    pub const SHARED_MEMORY: QosOffered = QosOffered {
        delay_us: None,
        jitter_us: None,
        bandwidth_bps: None,
        loss: 0,
        gap: 0,
        in_order: true,
        msg_boundaries: true,
        sdu_bytes_max: None,
    };

    /// A network of datagrams: an SDU of at most `sdu_bytes_max` bytes may be lost.
    #[must_use]
    pub const fn datagrams(sdu_bytes_max: usize) -> QosOffered {
        QosOffered {
            loss: carina_api::spec::MAX_LOSS_ANY,
            gap: u64::MAX,
            sdu_bytes_max: Some(sdu_bytes_max),
            ..QosOffered::SHARED_MEMORY
        }
    }

    /// Checks a request against the offer.
    ///
    /// # Errors
    /// The first field that cannot be met.
    pub fn meets(&self, spec: &FlowSpec) -> Result<(), QosError> {
        spec.check()?;
        bound("max_delay_us", spec.max_delay_us, self.delay_us)?;
        bound("max_jitter_us", spec.max_jitter_us, self.jitter_us)?;
        match (spec.avg_bandwidth_bps, self.bandwidth_bps) {
            (0, _) => {}
            (asked, Some(offer)) if asked <= offer => {}
            (asked, Some(offer)) => return Err(QosError::Bandwidth { asked, offer }),
            (asked, None) => return Err(QosError::NoBandwidth { asked }),
        }
        if spec.max_loss < self.loss {
            return Err(QosError::Loss {
                asked: spec.max_loss,
                offer: self.loss,
            });
        }
        if spec.max_sdu_gap < self.gap {
            return Err(QosError::Gap {
                asked: spec.max_sdu_gap,
                offer: self.gap,
            });
        }
        if spec.in_order && !self.in_order {
            return Err(QosError::Order);
        }
        if spec.msg_boundaries && !self.msg_boundaries {
            return Err(QosError::Boundaries);
        }
        Ok(())
    }
}

/// A field of a flow specification that an IPCP cannot meet: the value asked for and the offer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QosError {
    /// The flow specification contradicts itself.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A bound in time, in µs, is lower than the offer.
    #[error("{field}: {asked} µs asked for, at least {offer} µs offered")]
    Bound {
        /// The field.
        field: &'static str,
        /// The bound asked for.
        asked: u32,
        /// The lowest bound offered.
        offer: u32,
    },
    /// A bound in time is asked for, and none is promised.
    #[error("{field}: {asked} µs asked for, no bound is promised (ask 0)")]
    NoBound {
        /// The field.
        field: &'static str,
        /// The bound asked for.
        asked: u32,
    },
    /// The bandwidth, in bit/s, is higher than the offer.
    #[error("avg_bandwidth_bps: {asked} bit/s asked for, at most {offer} bit/s offered")]
    Bandwidth {
        /// The bandwidth asked for.
        asked: u64,
        /// The highest bandwidth offered.
        offer: u64,
    },
    /// A bandwidth is asked for, and none is promised.
    #[error("avg_bandwidth_bps: {asked} bit/s asked for, no bandwidth is promised (ask 0)")]
    NoBandwidth {
        /// The bandwidth asked for.
        asked: u64,
    },
    /// The share of SDUs that may be lost, in 1/10000, is lower than the offer.
    #[error("max_loss: {asked} of 10000 asked for, {offer} of 10000 offered")]
    Loss {
        /// The share asked for.
        asked: u16,
        /// The share offered.
        offer: u16,
    },
    /// The number of consecutive SDUs that may be lost is lower than the offer.
    #[error("max_sdu_gap: {asked} asked for, {offer} offered")]
    Gap {
        /// The number asked for.
        asked: u64,
        /// The number offered.
        offer: u64,
    },
    /// Order is asked for and not offered.
    #[error("in_order: true asked for, false offered")]
    Order,
    /// Boundaries of SDUs are asked for and not offered.
    #[error("msg_boundaries: true asked for, false offered")]
    Boundaries,
}

fn bound(field: &'static str, asked: u32, offer: Option<u32>) -> Result<(), QosError> {
    match offer {
        _ if asked == 0 => Ok(()),
        Some(offer) if offer <= asked => Ok(()),
        Some(offer) => Err(QosError::Bound {
            field,
            asked,
            offer,
        }),
        None => Err(QosError::NoBound { field, asked }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reliable_and_unreliable_flows_fit_shared_memory() {
        assert_eq!(
            QosOffered::SHARED_MEMORY.meets(&FlowSpec::reliable()),
            Ok(())
        );
        assert_eq!(
            QosOffered::SHARED_MEMORY.meets(&FlowSpec::unreliable()),
            Ok(())
        );
    }

    #[test]
    fn a_refusal_names_the_field_and_both_values() {
        let offer = QosOffered {
            delay_us: Some(500),
            loss: 10,
            ..QosOffered::SHARED_MEMORY
        };
        let asks = |spec: FlowSpec| offer.meets(&spec).unwrap_err().to_string();
        let base = FlowSpec {
            max_loss: 10,
            ..FlowSpec::reliable()
        };
        assert_eq!(
            asks(FlowSpec {
                max_delay_us: 100,
                ..base
            }),
            "max_delay_us: 100 µs asked for, at least 500 µs offered"
        );
        assert_eq!(
            asks(FlowSpec {
                max_loss: 3,
                ..base
            }),
            "max_loss: 3 of 10000 asked for, 10 of 10000 offered"
        );
        assert_eq!(
            asks(FlowSpec {
                avg_bandwidth_bps: 1000,
                ..base
            }),
            "avg_bandwidth_bps: 1000 bit/s asked for, no bandwidth is promised (ask 0)"
        );
        assert!(
            asks(FlowSpec {
                max_jitter_us: 9,
                ..base
            })
            .starts_with("max_jitter_us: 9 µs")
        );
        assert_eq!(
            offer.meets(&FlowSpec {
                max_delay_us: 500,
                ..base
            }),
            Ok(())
        );
    }
}
