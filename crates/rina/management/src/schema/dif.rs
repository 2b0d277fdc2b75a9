//! A DIF's configuration as an encoded value.

use alloc::string::String;
use alloc::vec::Vec;

use carina_ipcp::config::{DifConfig, FieldWidths, PolicySpec, QosCube, RateConfig, WindowConfig};
use prost::Message;

use super::values::{decode, encode};

#[derive(Clone, PartialEq, Eq, Message)]
struct ParamValue {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct PolicyValue {
    #[prost(string, tag = "1")]
    component: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    params: Vec<ParamValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct CubeValue {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(bool, tag = "3")]
    in_order: bool,
    #[prost(bool, tag = "4")]
    retransmission: bool,
    /// Largest and initial credit.
    #[prost(uint32, repeated, tag = "5")]
    window: Vec<u32>,
    /// PDUs per frame and length of the frame in milliseconds.
    #[prost(uint32, repeated, tag = "6")]
    rate: Vec<u32>,
    #[prost(uint64, optional, tag = "7")]
    max_sdu_gap: Option<u64>,
    #[prost(bool, tag = "8")]
    partial_delivery: bool,
    #[prost(uint32, tag = "9")]
    priority: u32,
    #[prost(uint32, tag = "10")]
    weight: u32,
    #[prost(bool, tag = "11")]
    ecn: bool,
    #[prost(uint32, tag = "12")]
    initial_a_ms: u32,
    #[prost(uint32, tag = "13")]
    retransmit_ms: u32,
    #[prost(uint32, tag = "14")]
    max_delay_us: u32,
    #[prost(uint32, tag = "15")]
    max_loss: u32,
}

/// A DIF's configuration, as it is encoded.
#[derive(Clone, PartialEq, Eq, Message)]
struct DifValue {
    /// Widths in bytes: address, CEP-id, QoS-id, sequence number, control sequence number, length,
    /// rate, time frame.
    #[prost(uint32, repeated, tag = "1")]
    widths: Vec<u32>,
    #[prost(uint32, tag = "2")]
    max_pdu: u32,
    #[prost(uint32, tag = "3")]
    max_pdu_lifetime_ms: u32,
    #[prost(uint32, tag = "4")]
    hop_limit: u32,
    #[prost(bool, tag = "5")]
    concatenation: bool,
    #[prost(uint32, tag = "6")]
    keepalive_ms: u32,
    #[prost(message, repeated, tag = "7")]
    cubes: Vec<CubeValue>,
    #[prost(message, repeated, tag = "8")]
    policies: Vec<PolicyValue>,
}

/// Encodes a DIF's configuration.
pub(crate) fn encode_dif(config: &DifConfig) -> Vec<u8> {
    let w = config.widths;
    let widths = [
        w.address, w.cep, w.qos, w.seq, w.ctrl_seq, w.length, w.rate, w.frame,
    ];
    encode(&DifValue {
        widths: widths.into_iter().map(u32::from).collect(),
        max_pdu: config.max_pdu,
        max_pdu_lifetime_ms: config.max_pdu_lifetime_ms,
        hop_limit: u32::from(config.hop_limit),
        concatenation: config.concatenation,
        keepalive_ms: config.keepalive_ms,
        cubes: config.cubes.iter().map(write_cube).collect(),
        policies: config
            .policies
            .iter()
            .map(|(component, spec)| PolicyValue {
                component: component.clone(),
                name: spec.name.clone(),
                params: spec
                    .params
                    .iter()
                    .map(|(name, value)| ParamValue {
                        name: name.clone(),
                        value: value.clone(),
                    })
                    .collect(),
            })
            .collect(),
    })
}

/// Decodes a DIF's configuration; `None` when it is malformed.
pub(crate) fn decode_dif(bytes: &[u8]) -> Option<DifConfig> {
    let value: DifValue = decode(bytes)?;
    let widths: Vec<u8> = value
        .widths
        .iter()
        .map(|width| u8::try_from(*width).ok())
        .collect::<Option<_>>()?;
    let [address, cep, qos, seq, ctrl_seq, length, rate, frame] = widths[..] else {
        return None;
    };
    let policy = |policy: PolicyValue| {
        let params = policy
            .params
            .into_iter()
            .map(|param| (param.name, param.value))
            .collect();
        (
            policy.component,
            PolicySpec {
                name: policy.name,
                params,
            },
        )
    };
    Some(DifConfig {
        widths: FieldWidths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        },
        max_pdu: value.max_pdu,
        max_pdu_lifetime_ms: value.max_pdu_lifetime_ms,
        hop_limit: u8::try_from(value.hop_limit).ok()?,
        concatenation: value.concatenation,
        keepalive_ms: value.keepalive_ms,
        cubes: value
            .cubes
            .into_iter()
            .map(read_cube)
            .collect::<Option<_>>()?,
        policies: value.policies.into_iter().map(policy).collect(),
    })
}

fn write_cube(cube: &QosCube) -> CubeValue {
    CubeValue {
        id: u32::from(cube.id),
        name: cube.name.clone(),
        in_order: cube.in_order,
        retransmission: cube.retransmission,
        window: cube
            .window
            .iter()
            .flat_map(|w| [w.credit_max, w.initial_credit])
            .collect(),
        rate: cube
            .rate
            .iter()
            .flat_map(|r| [r.pdus, r.frame_ms])
            .collect(),
        max_sdu_gap: cube.max_sdu_gap,
        partial_delivery: cube.partial_delivery,
        priority: u32::from(cube.priority),
        weight: u32::from(cube.weight),
        ecn: cube.ecn,
        initial_a_ms: cube.initial_a_ms,
        retransmit_ms: cube.retransmit_ms,
        max_delay_us: cube.max_delay_us,
        max_loss: u32::from(cube.max_loss),
    }
}

fn read_cube(cube: CubeValue) -> Option<QosCube> {
    let window = match cube.window[..] {
        [] => None,
        [credit_max, initial_credit] => Some(WindowConfig {
            credit_max,
            initial_credit,
        }),
        _ => return None,
    };
    let rate = match cube.rate[..] {
        [] => None,
        [pdus, frame_ms] => Some(RateConfig { pdus, frame_ms }),
        _ => return None,
    };
    Some(QosCube {
        id: u16::try_from(cube.id).ok()?,
        name: cube.name,
        in_order: cube.in_order,
        retransmission: cube.retransmission,
        window,
        rate,
        max_sdu_gap: cube.max_sdu_gap,
        partial_delivery: cube.partial_delivery,
        priority: u8::try_from(cube.priority).ok()?,
        weight: u16::try_from(cube.weight).ok()?,
        ecn: cube.ecn,
        initial_a_ms: cube.initial_a_ms,
        retransmit_ms: cube.retransmit_ms,
        max_delay_us: cube.max_delay_us,
        max_loss: u16::try_from(cube.max_loss).ok()?,
    })
}
