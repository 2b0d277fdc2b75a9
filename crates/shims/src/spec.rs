//! Flow specifications between the API and the wire.

use carina_api::FlowSpec;

pub(crate) fn to_wire(spec: &FlowSpec) -> carina_wire::FlowSpec {
    carina_wire::FlowSpec {
        max_delay_us: spec.max_delay_us,
        max_sdu_gap: spec.max_sdu_gap,
        avg_bandwidth_bps: spec.avg_bandwidth_bps,
        max_loss: spec.max_loss,
        in_order: spec.in_order,
        msg_boundaries: spec.msg_boundaries,
        max_jitter_us: spec.max_jitter_us,
    }
}

pub(crate) fn from_wire(spec: &carina_wire::FlowSpec) -> FlowSpec {
    FlowSpec {
        max_delay_us: spec.max_delay_us,
        max_sdu_gap: spec.max_sdu_gap,
        avg_bandwidth_bps: spec.avg_bandwidth_bps,
        max_loss: spec.max_loss,
        in_order: spec.in_order,
        msg_boundaries: spec.msg_boundaries,
        max_jitter_us: spec.max_jitter_us,
    }
}
