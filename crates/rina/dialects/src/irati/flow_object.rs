//! The encoded object of a flow, which its two members exchange.

use alloc::string::String;
use alloc::vec::Vec;

use carina_ipcp::config::{QosCube, WindowConfig};
use carina_wire::FlowSpec;
use prost::Message;

use super::values::Naming;

/// Number of retransmissions of a PDU, written into flows of a cube with retransmission.
const RETRANSMISSIONS: u32 = 5;
/// Initial retransmission timeout in milliseconds, written into the same flows.
const RETRANSMISSION_MS: u32 = 1_000;
/// Largest window that a peer may request, in PDUs.
const CREDIT_MAX: u32 = 65_536;
/// Longest A that a peer may request, in milliseconds.
const A_MAX_MS: u32 = 10_000;
/// Number of attempts that the requester may make.
const RETRIES_MAX: u32 = 1;
/// Number of members that may forward the request.
const HOPS: u32 = 3;
/// State of a flow that is being allocated or is allocated.
const STATE: u32 = 1;

/// A flow, as it is encoded.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlowObject {
    /// Application at the member that writes the object.
    #[prost(message, optional, tag = "1")]
    pub(crate) source: Option<Naming>,
    #[prost(message, optional, tag = "2")]
    pub(crate) destination: Option<Naming>,
    #[prost(uint64, required, tag = "3")]
    pub(crate) source_port: u64,
    /// Port-id at the other end; 0 when it is not known yet.
    #[prost(uint64, required, tag = "4")]
    pub(crate) destination_port: u64,
    #[prost(uint64, required, tag = "5")]
    pub(crate) source_address: u64,
    #[prost(uint64, required, tag = "6")]
    pub(crate) destination_address: u64,
    #[prost(message, repeated, tag = "7")]
    pub(crate) connections: Vec<ConnectionId>,
    #[prost(uint32, required, tag = "8")]
    pub(crate) current: u32,
    #[prost(uint32, required, tag = "9")]
    pub(crate) state: u32,
    #[prost(message, optional, tag = "10")]
    pub(crate) spec: Option<QosSpecification>,
    #[prost(message, optional, tag = "12")]
    pub(crate) dtp: Option<DtpConfig>,
    #[prost(message, optional, tag = "13")]
    pub(crate) dtcp: Option<DtcpConfig>,
    #[prost(bytes = "vec", optional, tag = "14")]
    pub(crate) access_control: Option<Vec<u8>>,
    #[prost(uint32, required, tag = "15")]
    pub(crate) retries_max: u32,
    #[prost(uint32, required, tag = "16")]
    pub(crate) retries: u32,
    /// Number of members that may still forward the request to where the application has moved.
    #[prost(uint32, required, tag = "17")]
    pub(crate) hops: u32,
}

/// The ids of a connection: cube and both ends.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ConnectionId {
    #[prost(uint32, required, tag = "1")]
    pub(crate) qos: u32,
    #[prost(uint32, required, tag = "2")]
    pub(crate) source_cep: u32,
    #[prost(uint32, required, tag = "3")]
    pub(crate) destination_cep: u32,
}

/// The flow specification of the application.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct QosSpecification {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) qos: Option<u32>,
    #[prost(uint64, required, tag = "3")]
    pub(crate) average_bandwidth: u64,
    #[prost(uint32, required, tag = "4")]
    pub(crate) average_sdu_rate: u32,
    #[prost(uint32, required, tag = "5")]
    pub(crate) peak_bandwidth: u32,
    #[prost(uint32, required, tag = "6")]
    pub(crate) peak_sdu_rate: u32,
    #[prost(double, required, tag = "7")]
    pub(crate) bit_error_rate: f64,
    #[prost(bool, required, tag = "8")]
    pub(crate) partial_delivery: bool,
    #[prost(bool, required, tag = "9")]
    pub(crate) in_order: bool,
    /// Number of consecutive SDUs that may be missing; negative: any number.
    #[prost(int32, required, tag = "10")]
    pub(crate) max_sdu_gap: i32,
    #[prost(uint32, required, tag = "11")]
    pub(crate) delay: u32,
    #[prost(uint32, required, tag = "12")]
    pub(crate) jitter: u32,
    #[prost(bool, required, tag = "14")]
    pub(crate) msg_boundaries: bool,
    /// Largest share of lost SDUs in 1/10000; 10000: any.
    #[prost(uint32, required, tag = "15")]
    pub(crate) loss: u32,
}

/// Configuration of the data transfer protocol.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DtpConfig {
    #[prost(bool, required, tag = "1")]
    pub(crate) has_dtcp: bool,
    #[prost(uint64, required, tag = "6")]
    pub(crate) rollover: u64,
    #[prost(uint32, required, tag = "7")]
    pub(crate) initial_a_ms: u32,
    #[prost(message, optional, tag = "8")]
    pub(crate) policies: Option<Policy>,
}

/// Configuration of the data transfer control protocol.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DtcpConfig {
    #[prost(bool, required, tag = "1")]
    pub(crate) has_flow_control: bool,
    #[prost(message, optional, tag = "2")]
    pub(crate) flow_control: Option<FlowControl>,
    #[prost(bool, required, tag = "3")]
    pub(crate) has_retransmission: bool,
    #[prost(message, optional, tag = "4")]
    pub(crate) retransmission: Option<Retransmission>,
    #[prost(message, optional, tag = "5")]
    pub(crate) lost_control_pdu: Option<Policy>,
    #[prost(message, optional, tag = "6")]
    pub(crate) rtt_estimator: Option<Policy>,
    #[prost(message, optional, tag = "7")]
    pub(crate) policies: Option<Policy>,
}

/// Configuration of flow control.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlowControl {
    #[prost(bool, required, tag = "1")]
    pub(crate) is_window_based: bool,
    #[prost(message, optional, tag = "2")]
    pub(crate) window: Option<Window>,
    #[prost(bool, required, tag = "3")]
    pub(crate) is_rate_based: bool,
    #[prost(message, optional, tag = "4")]
    pub(crate) rate: Option<Rate>,
    #[prost(uint32, required, tag = "5")]
    pub(crate) threshold_1: u32,
    #[prost(uint32, required, tag = "6")]
    pub(crate) threshold_2: u32,
    #[prost(uint32, required, tag = "7")]
    pub(crate) threshold_3: u32,
    #[prost(uint32, required, tag = "8")]
    pub(crate) threshold_4: u32,
    #[prost(uint32, required, tag = "9")]
    pub(crate) threshold_5: u32,
    #[prost(uint32, required, tag = "10")]
    pub(crate) threshold_6: u32,
    #[prost(message, optional, tag = "11")]
    pub(crate) policy_1: Option<Policy>,
    #[prost(message, optional, tag = "12")]
    pub(crate) policy_2: Option<Policy>,
    #[prost(message, optional, tag = "13")]
    pub(crate) policy_3: Option<Policy>,
    #[prost(message, optional, tag = "14")]
    pub(crate) policy_4: Option<Policy>,
}

/// Window-based flow control.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Window {
    #[prost(uint32, required, tag = "1")]
    pub(crate) closed_queue_max: u32,
    #[prost(uint32, required, tag = "2")]
    pub(crate) initial_credit: u32,
    #[prost(message, optional, tag = "3")]
    pub(crate) policy_1: Option<Policy>,
    #[prost(message, optional, tag = "4")]
    pub(crate) policy_2: Option<Policy>,
}

/// Rate-based flow control.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Rate {
    #[prost(uint32, required, tag = "1")]
    pub(crate) pdus: u32,
    #[prost(uint32, required, tag = "2")]
    pub(crate) frame_ms: u32,
    #[prost(message, optional, tag = "3")]
    pub(crate) policy_1: Option<Policy>,
    #[prost(message, optional, tag = "4")]
    pub(crate) policy_2: Option<Policy>,
    #[prost(message, optional, tag = "5")]
    pub(crate) policy_3: Option<Policy>,
}

/// Configuration of retransmission control.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Retransmission {
    #[prost(uint32, required, tag = "1")]
    pub(crate) time_max_ms: u32,
    #[prost(uint32, required, tag = "2")]
    pub(crate) times_max: u32,
    #[prost(message, optional, tag = "3")]
    pub(crate) policy_1: Option<Policy>,
    #[prost(message, optional, tag = "4")]
    pub(crate) policy_2: Option<Policy>,
    #[prost(message, optional, tag = "5")]
    pub(crate) policy_3: Option<Policy>,
    #[prost(message, optional, tag = "6")]
    pub(crate) policy_4: Option<Policy>,
    #[prost(message, optional, tag = "7")]
    pub(crate) policy_5: Option<Policy>,
    #[prost(message, optional, tag = "8")]
    pub(crate) policy_6: Option<Policy>,
    #[prost(uint32, required, tag = "9")]
    pub(crate) initial_ms: u32,
}

/// A policy by name.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Policy {
    #[prost(string, required, tag = "1")]
    pub(crate) name: String,
    #[prost(string, required, tag = "2")]
    pub(crate) implementation: String,
    #[prost(string, required, tag = "3")]
    pub(crate) version: String,
}

impl Policy {
    fn unset() -> Option<Policy> {
        Some(Policy::default())
    }

    /// The default policy, which every implementation has.
    fn standard() -> Option<Policy> {
        Some(Policy {
            name: "default".into(),
            implementation: "default".into(),
            version: "0".into(),
        })
    }
}

/// The values from which the object of a flow is written.
pub(super) struct FlowParameters<'a> {
    /// Name of the application at this end.
    pub(super) local: &'a str,
    /// Name of the application at the other end.
    pub(super) remote: &'a str,
    /// Port-ids of this end and of the other end.
    pub(super) ports: (u32, u32),
    /// Addresses of the members at this end and at the other end.
    pub(super) addresses: (u64, u64),
    /// CEP-ids of this end and of the other end.
    pub(super) ceps: (u32, u32),
    pub(super) spec: &'a FlowSpec,
    pub(super) cube: &'a QosCube,
}

impl FlowObject {
    pub(super) fn new(sketch: &FlowParameters<'_>) -> FlowObject {
        FlowObject {
            source: Some(Naming::of(sketch.local)),
            destination: Some(Naming::of(sketch.remote)),
            source_port: sketch.ports.0.into(),
            destination_port: sketch.ports.1.into(),
            source_address: sketch.addresses.0,
            destination_address: sketch.addresses.1,
            connections: alloc::vec![ConnectionId {
                qos: sketch.cube.id.into(),
                source_cep: sketch.ceps.0,
                destination_cep: sketch.ceps.1,
            }],
            current: 0,
            state: STATE,
            spec: Some(QosSpecification::of(sketch.spec)),
            dtp: Some(DtpConfig::of(sketch.cube)),
            dtcp: Some(DtcpConfig::of(sketch.cube)),
            access_control: None,
            retries_max: RETRIES_MAX,
            retries: 0,
            hops: HOPS,
        }
    }

    /// The present connection of the flow.
    pub(super) fn connection(&self) -> Option<&ConnectionId> {
        self.connections.get(self.current as usize)
    }

    /// True when the numbers in the object fit the fields in which they are used.
    pub(super) fn is_sound(&self) -> bool {
        let port = |port: u64| u32::try_from(port).is_ok();
        port(self.source_port) && port(self.destination_port) && self.source_address != 0
    }

    /// The cube with the parameters that the requester changed, limited to reasonable values.
    pub(super) fn adapt(&self, cube: &QosCube) -> QosCube {
        let mut cube = cube.clone();
        if let Some(dtp) = &self.dtp {
            cube.initial_a_ms = dtp.initial_a_ms.min(A_MAX_MS);
        }
        let dtcp = self.dtcp.as_ref().filter(|dtcp| dtcp.has_flow_control);
        let control = dtcp.and_then(|dtcp| dtcp.flow_control.as_ref());
        let window = control.filter(|control| control.is_window_based);
        if let (Some(own), Some(wanted)) = (
            &mut cube.window,
            window.and_then(|control| control.window.as_ref()),
        ) {
            *own = WindowConfig {
                credit_max: wanted.initial_credit.clamp(1, CREDIT_MAX),
                initial_credit: wanted.initial_credit.clamp(1, CREDIT_MAX),
            };
        }
        cube
    }
}

impl QosSpecification {
    fn of(spec: &FlowSpec) -> QosSpecification {
        QosSpecification {
            name: None,
            qos: None,
            average_bandwidth: spec.avg_bandwidth_bps,
            average_sdu_rate: 0,
            peak_bandwidth: 0,
            peak_sdu_rate: 0,
            bit_error_rate: 0.0,
            partial_delivery: false,
            in_order: spec.in_order,
            max_sdu_gap: i32::try_from(spec.max_sdu_gap).unwrap_or(-1),
            delay: spec.max_delay_us,
            jitter: spec.max_jitter_us,
            msg_boundaries: spec.msg_boundaries,
            loss: spec.max_loss.into(),
        }
    }

    /// Converts to a flow specification for the called application.
    pub(super) fn read(&self) -> FlowSpec {
        FlowSpec {
            max_delay_us: self.delay,
            max_sdu_gap: u64::try_from(self.max_sdu_gap).unwrap_or(u64::MAX),
            avg_bandwidth_bps: self.average_bandwidth,
            max_loss: u16::try_from(self.loss)
                .unwrap_or(FlowSpec::MAX_LOSS)
                .min(FlowSpec::MAX_LOSS),
            in_order: self.in_order,
            msg_boundaries: self.msg_boundaries,
            max_jitter_us: self.jitter,
        }
    }
}

impl DtpConfig {
    pub(super) fn of(cube: &QosCube) -> DtpConfig {
        DtpConfig {
            has_dtcp: cube.retransmission || cube.window.is_some() || cube.rate.is_some(),
            rollover: 0,
            initial_a_ms: cube.initial_a_ms,
            policies: Policy::standard(),
        }
    }
}

impl DtcpConfig {
    pub(super) fn of(cube: &QosCube) -> DtcpConfig {
        DtcpConfig {
            has_flow_control: cube.window.is_some() || cube.rate.is_some(),
            flow_control: Some(FlowControl::of(cube)),
            has_retransmission: cube.retransmission,
            retransmission: Some(Retransmission::of(cube)),
            lost_control_pdu: Policy::unset(),
            rtt_estimator: Policy::unset(),
            policies: Policy::standard(),
        }
    }
}

impl FlowControl {
    fn of(cube: &QosCube) -> FlowControl {
        let window = cube
            .window
            .map_or((0, 0), |window| (window.credit_max, window.initial_credit));
        let rate = cube.rate.map_or((0, 0), |rate| (rate.pdus, rate.frame_ms));
        FlowControl {
            is_window_based: cube.window.is_some(),
            window: Some(Window {
                closed_queue_max: window.0,
                initial_credit: window.1,
                policy_1: Policy::unset(),
                policy_2: Policy::unset(),
            }),
            is_rate_based: cube.rate.is_some(),
            rate: Some(Rate {
                pdus: rate.0,
                frame_ms: rate.1,
                policy_1: Policy::unset(),
                policy_2: Policy::unset(),
                policy_3: Policy::unset(),
            }),
            policy_1: Policy::unset(),
            policy_2: Policy::unset(),
            policy_3: Policy::unset(),
            policy_4: Policy::unset(),
            ..FlowControl::default()
        }
    }
}

impl Retransmission {
    fn of(cube: &QosCube) -> Retransmission {
        let (times_max, initial_ms) = if cube.retransmission {
            (RETRANSMISSIONS, RETRANSMISSION_MS)
        } else {
            (0, 0)
        };
        Retransmission {
            time_max_ms: 0,
            times_max,
            policy_1: Policy::unset(),
            policy_2: Policy::unset(),
            policy_3: Policy::unset(),
            policy_4: Policy::unset(),
            policy_5: Policy::unset(),
            policy_6: Policy::unset(),
            initial_ms,
        }
    }
}

/// Chooses the first cube for a specification: with retransmission if there is a limit on missing
/// SDUs; otherwise with flow control and without retransmission.
///
/// # Errors
/// The DIF has no such cube.
pub(super) fn choose<'a>(spec: &FlowSpec, cubes: &'a [QosCube]) -> Result<&'a QosCube, NoCube> {
    let wants_all = i32::try_from(spec.max_sdu_gap).is_ok();
    let has_dtcp = |cube: &QosCube| cube.window.is_some() || cube.rate.is_some();
    let fits = |cube: &&QosCube| {
        if wants_all {
            cube.retransmission
        } else {
            has_dtcp(cube) && !cube.retransmission
        }
    };
    cubes.iter().find(fits).ok_or(NoCube { wants_all })
}

/// Error: the DIF has no QoS cube for a specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoCube {
    /// The specification limits the number of missing SDUs.
    wants_all: bool,
}

impl core::fmt::Display for NoCube {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the DIF has no QoS cube ")?;
        f.write_str(if self.wants_all {
            "with retransmission, which a limit on missing SDUs needs"
        } else {
            "with flow control and without retransmission"
        })
    }
}

impl core::error::Error for NoCube {}
