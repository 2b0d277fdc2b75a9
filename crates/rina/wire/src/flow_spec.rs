//! What a flow must offer, as it is carried between two systems.

/// What an application asks of a flow. The fields and units are those of rlite's version 2
/// specification; zero means "no requirement" unless a field says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowSpec {
    /// Longest tolerable delay of an SDU in microseconds; 0: any.
    pub max_delay_us: u32,
    /// Largest tolerable number of consecutively lost SDUs; `u64::MAX`: any.
    pub max_sdu_gap: u64,
    /// Mean bandwidth needed, in bits per second; 0: none in particular.
    pub avg_bandwidth_bps: u64,
    /// Largest tolerable share of lost SDUs, in hundredths of a percent: 0..=10000.
    pub max_loss: u16,
    /// SDUs must arrive in the order in which they were sent.
    pub in_order: bool,
    /// A read must return exactly one written SDU.
    pub msg_boundaries: bool,
    /// Largest tolerable variation of delay in microseconds; 0: any.
    pub max_jitter_us: u32,
}

impl FlowSpec {
    /// Largest value of [`FlowSpec::max_loss`]: everything may be lost.
    pub const MAX_LOSS: u16 = 10_000;

    /// The specification that every DIF can meet.
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

    /// Everything arrives, whole and in order.
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
