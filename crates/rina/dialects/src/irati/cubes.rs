//! QoS cubes as encoded objects, sent to an IPCP to which an address was assigned.

use alloc::string::String;
use alloc::vec::Vec;

use carina_ipcp::config::QosCube;
use prost::Message;

use super::flow_object::{DtcpConfig, DtpConfig};

/// A list of cubes.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cubes {
    #[prost(message, repeated, tag = "1")]
    pub(crate) all: Vec<Cube>,
}

/// A QoS cube, as it is encoded.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cube {
    #[prost(uint32, required, tag = "1")]
    pub(crate) id: u32,
    #[prost(string, required, tag = "2")]
    pub(crate) name: String,
    #[prost(bool, required, tag = "8")]
    pub(crate) partial_delivery: bool,
    #[prost(bool, required, tag = "9")]
    pub(crate) in_order: bool,
    /// Number of consecutive SDUs that may be missing; absent: any number.
    #[prost(uint32, optional, tag = "10")]
    pub(crate) max_sdu_gap: Option<u32>,
    #[prost(uint32, required, tag = "11")]
    pub(crate) delay: u32,
    #[prost(uint32, required, tag = "12")]
    pub(crate) jitter: u32,
    #[prost(message, optional, tag = "13")]
    pub(crate) dtp: Option<DtpConfig>,
    #[prost(message, optional, tag = "14")]
    pub(crate) dtcp: Option<DtcpConfig>,
    #[prost(uint32, required, tag = "15")]
    pub(crate) loss: u32,
}

/// Converts the cubes of a configuration.
pub(super) fn of(cubes: &[QosCube]) -> Cubes {
    let cube = |cube: &QosCube| Cube {
        id: cube.id.into(),
        name: cube.name.clone(),
        partial_delivery: cube.partial_delivery,
        in_order: cube.in_order,
        max_sdu_gap: cube.max_sdu_gap.and_then(|gap| u32::try_from(gap).ok()),
        delay: cube.max_delay_us,
        jitter: 0,
        dtp: Some(DtpConfig::of(cube)),
        dtcp: Some(DtcpConfig::of(cube)),
        loss: cube.max_loss.into(),
    };
    Cubes {
        all: cubes.iter().map(cube).collect(),
    }
}
