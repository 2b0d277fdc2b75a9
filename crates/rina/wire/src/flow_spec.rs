//! The flow specification, as two systems exchange it.

/// QoS that an application requests for a flow. Fields and units are those of version 2 of rlite's
/// specification. Zero means "no requirement" unless a field says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowSpec {
    /// Longest tolerable delay of an SDU in microseconds; 0 for any.
    pub max_delay_us: u32,
    /// Largest tolerable number of consecutively lost SDUs; `u64::MAX` for any.
    pub max_sdu_gap: u64,
    /// Average bandwidth in bits per second; 0 for any.
    pub avg_bandwidth_bps: u64,
    /// Largest tolerable share of lost SDUs, in 1/10000: 0 to 10000.
    pub max_loss: u16,
    /// Whether SDUs must arrive in the order in which they were sent.
    pub in_order: bool,
    /// Whether a read must return exactly one SDU as it was written.
    pub msg_boundaries: bool,
    /// Largest tolerable variation of delay in microseconds; 0 for any.
    pub max_jitter_us: u32,
}

impl FlowSpec {
    /// The value of [`FlowSpec::max_loss`] that allows the loss of all SDUs.
    pub const MAX_LOSS: u16 = 10_000;

    /// Returns a specification that every DIF can meet.
    pub const fn unreliable() -> FlowSpec {
        FlowSpec {
            max_delay_us: 0,
            max_sdu_gap: u64::MAX,
            avg_bandwidth_bps: 0,
            max_loss: FlowSpec::MAX_LOSS,
            in_order: false,
            msg_boundaries: true,
            max_jitter_us: 0,
        }
    }

    /// A specification that requires every SDU, complete and in order.
    pub const fn reliable() -> FlowSpec {
        FlowSpec {
            max_sdu_gap: 0,
            max_loss: 0,
            in_order: true,
            ..FlowSpec::unreliable()
        }
    }
}

impl Default for FlowSpec {
    fn default() -> FlowSpec {
        FlowSpec::unreliable()
    }
}
