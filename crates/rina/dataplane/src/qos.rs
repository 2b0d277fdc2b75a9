//! The QoS that an IPCP offers, and the check of a flow specification against it.

use carina_api::FlowSpec;
use carina_api::spec::SpecError;
use thiserror::Error;

/// The QoS that an IPCP can promise for every flow, with which flow specifications are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosOffered {
    /// The lowest limit on delay that can be promised, in microseconds; `None` if none can.
    pub delay_us: Option<u32>,
    /// The lowest limit on jitter that can be promised, in microseconds; `None` if none can.
    pub jitter_us: Option<u32>,
    /// The highest bandwidth that can be promised, in bits per second; `None` if none can.
    pub bandwidth_bps: Option<u64>,
    /// Largest share of SDUs that the IPCP may lose, in 1/10000.
    pub loss: u16,
    /// Largest number of consecutive SDUs that the IPCP may lose.
    pub gap: u64,
    /// Whether the IPCP delivers SDUs in order.
    pub in_order: bool,
    /// Whether the IPCP keeps the boundaries of SDUs.
    pub msg_boundaries: bool,
    /// The longest SDU that the IPCP carries, in bytes; `None` for any length.
    pub sdu_bytes_max: Option<usize>,
}

impl QosOffered {
    /// The QoS of shared memory: no loss, no reordering, boundaries kept. There is no limit on
    /// delay, which depends on the scheduler.
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

    /// Returns the QoS of a datagram network: SDUs of at most `sdu_bytes_max` bytes, any of which
    /// may be lost.
    #[must_use]
    pub const fn datagrams(sdu_bytes_max: usize) -> QosOffered {
        QosOffered {
            loss: carina_api::spec::MAX_LOSS_ANY,
            gap: u64::MAX,
            sdu_bytes_max: Some(sdu_bytes_max),
            ..QosOffered::SHARED_MEMORY
        }
    }

    /// Checks whether this QoS meets a flow specification.
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

/// A field of a flow specification that an IPCP cannot meet, with the requested value and the
/// offer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QosError {
    /// The flow specification itself is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A limit on delay or jitter, in µs, is lower than the offer.
    #[error("{field}: {asked} µs requested, at least {offer} µs offered")]
    Bound {
        /// Name of the field of the flow specification.
        field: &'static str,
        /// The limit that the application requested, in µs.
        asked: u32,
        /// The lowest limit that the DIF offers, in µs.
        offer: u32,
    },
    /// A limit on delay or jitter is requested, but none is offered.
    #[error("{field}: {asked} µs requested, no bound is guaranteed (request 0)")]
    NoBound {
        /// Name of the field of the flow specification.
        field: &'static str,
        /// The limit that the application requested, in µs.
        asked: u32,
    },
    /// The requested bandwidth, in bit/s, is higher than the offer.
    #[error("avg_bandwidth_bps: {asked} bit/s requested, at most {offer} bit/s offered")]
    Bandwidth {
        /// The bandwidth that the application requested, in bit/s.
        asked: u64,
        /// The highest bandwidth that the DIF offers, in bit/s.
        offer: u64,
    },
    /// A bandwidth is requested, but none is offered.
    #[error("avg_bandwidth_bps: {asked} bit/s requested, no bandwidth is guaranteed (request 0)")]
    NoBandwidth {
        /// The bandwidth that the application requested, in bit/s.
        asked: u64,
    },
    /// The share of SDUs that may be lost, in 1/10000, is lower than the offer.
    #[error("max_loss: {asked} of 10000 requested, {offer} of 10000 offered")]
    Loss {
        /// The requested share, in 1/10000.
        asked: u16,
        /// The offered share, in 1/10000.
        offer: u16,
    },
    /// The number of consecutive SDUs that may be lost is lower than the offer.
    #[error("max_sdu_gap: {asked} requested, {offer} offered")]
    Gap {
        /// The requested number of SDUs.
        asked: u64,
        /// The offered number of SDUs.
        offer: u64,
    },
    /// Order is requested but not offered.
    #[error("in_order: true requested, false offered")]
    Order,
    /// Boundaries of SDUs are requested but not offered.
    #[error("msg_boundaries: true requested, false offered")]
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
            "max_delay_us: 100 µs requested, at least 500 µs offered"
        );
        assert_eq!(
            asks(FlowSpec {
                max_loss: 3,
                ..base
            }),
            "max_loss: 3 of 10000 requested, 10 of 10000 offered"
        );
        assert_eq!(
            asks(FlowSpec {
                avg_bandwidth_bps: 1000,
                ..base
            }),
            "avg_bandwidth_bps: 1000 bit/s requested, no bandwidth is guaranteed (request 0)"
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
