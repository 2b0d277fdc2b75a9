//! Conversion between flow specifications and QoS cubes on one side, and rlite's QoS specification
//! and connection policies on the other.
//!
//! rlite has no cubes: the caller's member derives connection policies from the specification, and
//! both ends apply them. A gap of 0 means a reliable flow, any other value best effort.

use core::error::Error;
use core::fmt;

use carina_ipcp::config::{QosCube, WindowConfig};
use carina_wire::FlowSpec;

use super::values::{ConnectionPolicies, DtcpConfig, FlowControl, QosSpec, Retransmission, Window};

/// Largest number of PDUs that wait for a closed window, as rlite announces it.
const CLOSED_QUEUE: u64 = 128;

/// Time limit of retransmissions that rlite announces.
const MAX_TIME_TO_RETRY: u32 = 15;
/// Number of retransmissions that rlite announces.
const RETRIES: u32 = 10;
/// Initial retransmission timeout that rlite announces, in milliseconds.
const INITIAL_TIMEOUT_MS: u32 = 1_000;

/// Largest window that another member may request, in PDUs.
const CREDIT_MAX: u64 = 65_536;

/// Why no QoS cube serves a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum CubeError {
    /// The DIF has no cube with (`true`) or without (`false`) retransmission.
    Retransmission(bool),
    /// The specification limits lost SDUs without requesting retransmission.
    MaxLoss,
    /// The caller requests rate-based flow control.
    Rate,
}

impl fmt::Display for CubeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CubeError::Retransmission(true) => "the DIF has no QoS cube with retransmission",
            CubeError::Retransmission(false) => "the DIF has no QoS cube without retransmission",
            CubeError::MaxLoss => {
                "a limit on max_loss needs retransmission; request it with \
                max_sdu_gap 0"
            }
            CubeError::Rate => "Carina has no rate-based flow control in rlite DIFs",
        })
    }
}

impl Error for CubeError {}

/// The specification that a flow actually gets. A stream must be in order and without gaps, which
/// may be more than was requested.
pub(super) fn served_by(spec: FlowSpec) -> FlowSpec {
    if spec.msg_boundaries {
        spec
    } else {
        FlowSpec {
            in_order: true,
            max_sdu_gap: 0,
            ..spec
        }
    }
}

/// Selects the cube of the DIF that serves a specification.
///
/// # Errors
/// What the DIF cannot provide.
pub(super) fn select(cubes: &[QosCube], spec: &FlowSpec) -> Result<QosCube, CubeError> {
    let is_reliable = spec.max_sdu_gap == 0;
    let found = cubes.iter().find(|cube| cube.retransmission == is_reliable);
    let Some(cube) = found else {
        return Err(CubeError::Retransmission(is_reliable));
    };
    if spec.max_loss < FlowSpec::MAX_LOSS && !is_reliable {
        return Err(CubeError::MaxLoss);
    }
    Ok(QosCube {
        in_order: spec.in_order,
        partial_delivery: !spec.msg_boundaries,
        ..cube.clone()
    })
}

/// Encodes a specification as rlite does.
pub(super) fn qos_spec(spec: &FlowSpec) -> QosSpec {
    let allocation = |value: u32| (value != 0).then_some(value);
    QosSpec {
        avg_bandwidth: Some(spec.avg_bandwidth_bps),
        partial_delivery: Some(!spec.msg_boundaries),
        in_order: Some(spec.in_order),
        max_sdu_gap: Some(i32::try_from(spec.max_sdu_gap).unwrap_or(-1)),
        delay: allocation(spec.max_delay_us),
        jitter: allocation(spec.max_jitter_us),
        ..QosSpec::default()
    }
}

/// Decodes a specification as rlite encodes it.
pub(super) fn flow_spec(qos: &QosSpec) -> FlowSpec {
    let max_sdu_gap = match qos.max_sdu_gap {
        Some(gap) => u64::try_from(gap).unwrap_or(u64::MAX),
        None => u64::MAX,
    };
    FlowSpec {
        max_delay_us: qos.delay.unwrap_or_default(),
        max_sdu_gap,
        avg_bandwidth_bps: qos.avg_bandwidth.unwrap_or_default(),
        max_loss: if max_sdu_gap == 0 {
            0
        } else {
            FlowSpec::MAX_LOSS
        },
        in_order: qos.in_order.unwrap_or_default(),
        msg_boundaries: !qos.partial_delivery.unwrap_or_default(),
        max_jitter_us: qos.jitter.unwrap_or_default(),
    }
}

/// Encodes the policies of a connection as rlite does.
pub(super) fn policies(cube: &QosCube) -> ConnectionPolicies {
    let window = cube.window.map(|window| Window {
        closed_queue: Some(CLOSED_QUEUE),
        initial_credit: Some(u64::from(window.initial_credit)),
    });
    let has_window = window.is_some();
    let rtx = |value: u32| Some(if cube.retransmission { value } else { 0 });
    let has_dtcp = has_window || cube.retransmission;
    ConnectionPolicies {
        has_dtcp: Some(has_dtcp),
        dtcp: Some(DtcpConfig {
            has_flow_control: Some(has_window),
            flow_control: Some(FlowControl {
                has_window: Some(has_window),
                window,
                has_rate: Some(false),
            }),
            has_retransmission: Some(cube.retransmission),
            retransmission: Some(Retransmission {
                max_time_to_retry: rtx(MAX_TIME_TO_RETRY),
                retries: rtx(RETRIES),
                initial_timeout_ms: rtx(INITIAL_TIMEOUT_MS),
            }),
        }),
        seq_rollover: None,
        initial_a_ms: Some(if has_dtcp { cube.initial_a_ms } else { 0 }),
    }
}

/// Selects the cube for a connection with these policies, at the called member.
///
/// # Errors
/// What this member cannot provide.
pub(super) fn cube_for(
    cubes: &[QosCube],
    spec: &FlowSpec,
    policies: &ConnectionPolicies,
) -> Result<QosCube, CubeError> {
    let dtcp = policies.dtcp.clone().unwrap_or_default();
    let has_dtcp = policies.has_dtcp.unwrap_or_default();
    let retransmission = has_dtcp && dtcp.has_retransmission.unwrap_or_default();
    let flow_control = dtcp.flow_control.unwrap_or_default();
    if flow_control.has_rate.unwrap_or_default() {
        return Err(CubeError::Rate);
    }
    let has_window = has_dtcp
        && dtcp.has_flow_control.unwrap_or_default()
        && flow_control.has_window.unwrap_or_default();
    let base = cubes
        .iter()
        .find(|cube| cube.retransmission == retransmission);
    let Some(base) = base else {
        return Err(CubeError::Retransmission(retransmission));
    };
    let credit = flow_control.window.and_then(|window| window.initial_credit);
    let credit = credit.filter(|credit| *credit > 0).unwrap_or(512);
    // The initial credit is also the largest.
    let credit = u32::try_from(credit.min(CREDIT_MAX)).unwrap_or(u32::MAX);
    Ok(QosCube {
        in_order: spec.in_order || !spec.msg_boundaries,
        window: has_window.then_some(WindowConfig {
            credit_max: credit,
            initial_credit: credit,
        }),
        initial_a_ms: policies
            .initial_a_ms
            .unwrap_or(base.initial_a_ms)
            .min(10_000),
        partial_delivery: !spec.msg_boundaries,
        ..base.clone()
    })
}
