//! The quality of service a shim offers, and the check of a request against it.

use carina_api::FlowSpec;

/// What a shim can promise for every flow.
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
    /// What shared memory gives: nothing lost, nothing reordered, boundaries kept, and no promise
    /// in time, for time is the scheduler's.
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

    /// What a network of datagrams gives: each SDU of at most `sdu_bytes_max` bytes arrives or does
    /// not.
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
    /// A sentence that names the first field that cannot be met, the value asked for and the value
    /// offered.
    pub fn meets(&self, spec: &FlowSpec) -> Result<(), String> {
        spec.check()?;
        bound("max_delay_us", spec.max_delay_us, self.delay_us, "µs")?;
        bound("max_jitter_us", spec.max_jitter_us, self.jitter_us, "µs")?;
        match (spec.avg_bandwidth_bps, self.bandwidth_bps) {
            (0, _) => {}
            (asked, Some(offer)) if asked <= offer => {}
            (asked, Some(offer)) => {
                return Err(format!(
                    "avg_bandwidth_bps: {asked} bit/s asked for, at most {offer} bit/s offered"
                ));
            }
            (asked, None) => {
                return Err(format!(
                    "avg_bandwidth_bps: {asked} bit/s asked for, no bandwidth is promised (ask 0)"
                ));
            }
        }
        if spec.max_loss < self.loss {
            return Err(format!(
                "max_loss: {} of 10000 asked for, {} of 10000 offered",
                spec.max_loss, self.loss
            ));
        }
        if spec.max_sdu_gap < self.gap {
            return Err(format!(
                "max_sdu_gap: {} asked for, {} offered",
                spec.max_sdu_gap, self.gap
            ));
        }
        if spec.in_order && !self.in_order {
            return Err("in_order: true asked for, false offered".to_owned());
        }
        if spec.msg_boundaries && !self.msg_boundaries {
            return Err("msg_boundaries: true asked for, false offered".to_owned());
        }
        Ok(())
    }
}

fn bound(field: &str, asked: u32, offer: Option<u32>, unit: &str) -> Result<(), String> {
    match offer {
        _ if asked == 0 => Ok(()),
        Some(offer) if offer <= asked => Ok(()),
        Some(offer) => Err(format!(
            "{field}: {asked} {unit} asked for, at least {offer} {unit} offered"
        )),
        None => Err(format!(
            "{field}: {asked} {unit} asked for, no bound is promised (ask 0)"
        )),
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
        let asks = |spec: FlowSpec| offer.meets(&spec).unwrap_err();
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
