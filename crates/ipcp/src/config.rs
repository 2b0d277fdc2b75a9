//! Configuration of a DIF and of one member.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use carina_wire::dif::{Dialect, Widths};
use serde::{Deserialize, Serialize};

/// What one IPCP is told at its birth.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the IPCP: an application name in the N-1 DIFs, unique in the DIF.
    pub name: String,
    /// Name of the DIF.
    pub dif: String,
    /// What the DIF's members speak: decides the layout of PDUs and the whole of layer management.
    pub dialect: Dialect,
    /// The DIF's configuration: given to the first member, learned by all others at enrollment
    /// (in [`Dialect::Irati`] every member is given its own).
    pub dif_config: Option<DifConfig>,
}

/// What all members of a DIF agree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DifConfig {
    /// Field widths in bytes.
    pub widths: FieldWidths,
    /// Longest PDU in bytes, PCI included, SDU protection not; 0 to take what the N-1 flow of the
    /// first neighbour carries, at most 65,535.
    pub max_pdu: u32,
    /// Longest life of a PDU in milliseconds: MPL of delta-t.
    pub max_pdu_lifetime_ms: u32,
    /// Hops that a PDU may take.
    pub hop_limit: u8,
    /// Small SDUs may share a PDU.
    pub concatenation: bool,
    /// Keep-alive interval of neighbours in milliseconds; three missed ones are a loss.
    pub keepalive_ms: u32,
    /// QoS cubes, in the order in which they are tried. Empty for the standard five.
    pub cubes: Vec<QosCube>,
    /// Policy of each component that does not have its default, by component name.
    pub policies: BTreeMap<String, PolicySpec>,
}

/// [`Widths`] as a configuration writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FieldWidths {
    /// Addresses: 1, 2, 4 or 8 bytes.
    pub address: u8,
    /// CEP-ids: 1, 2 or 4.
    pub cep: u8,
    /// QoS-ids: 1 or 2.
    pub qos: u8,
    /// Sequence numbers: 2, 4 or 8.
    pub seq: u8,
    /// Control sequence numbers: 2, 4 or 8.
    pub ctrl_seq: u8,
    /// PDU length: 2 or 4.
    pub length: u8,
    /// Rates: 4.
    pub rate: u8,
    /// Time frames: 4.
    pub frame: u8,
}

/// A policy by name, with its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySpec {
    /// Its name in the catalogue.
    pub name: String,
    /// Parameters as text; the policy checks them.
    pub params: BTreeMap<String, String>,
}

/// A class of service that the DIF offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QosCube {
    /// QoS-id in the PCI, 1 or more.
    pub id: u16,
    /// Name for people.
    pub name: String,
    /// SDUs are delivered in order.
    #[serde(default)]
    pub in_order: bool,
    /// Lost PDUs are sent again: nothing is lost unless the flow fails.
    #[serde(default)]
    pub retransmission: bool,
    /// Flow control by window.
    #[serde(default)]
    pub window: Option<WindowConfig>,
    /// Flow control by rate, in PDUs per frame.
    #[serde(default)]
    pub rate: Option<RateConfig>,
    /// Consecutive SDUs that may be missing before delivery waits; none for any number.
    #[serde(default)]
    pub max_sdu_gap: Option<u64>,
    /// An SDU may be delivered in parts when the rest is lost.
    #[serde(default)]
    pub partial_delivery: bool,
    /// Class of the RMT: 0 is served first by `strict-priority`.
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// Share of the RMT under `weighted-fair`.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// Relays may mark instead of drop.
    #[serde(default)]
    pub ecn: bool,
    /// Initial value of the A timer in milliseconds: how long an acknowledgement may wait.
    #[serde(default = "default_a")]
    pub initial_a_ms: u32,
    /// How long a PDU is sent again before the flow fails, in milliseconds: R of delta-t.
    #[serde(default = "default_r")]
    pub retransmit_ms: u32,
    /// Longest delay that the cube promises, in microseconds; 0 for none.
    #[serde(default)]
    pub max_delay_us: u32,
    /// Largest share of lost SDUs that it promises, in 1/10000; 10000 for none.
    #[serde(default = "default_loss")]
    pub max_loss: u16,
}

/// Window-based flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WindowConfig {
    /// PDUs that the receiver allows at most.
    pub credit_max: u32,
    /// PDUs that the sender assumes before it has heard from the receiver.
    pub initial_credit: u32,
}

/// Rate-based flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// PDUs per frame.
    pub pdus: u32,
    /// The frame in milliseconds.
    pub frame_ms: u32,
}

impl Default for DifConfig {
    fn default() -> DifConfig {
        DifConfig {
            widths: FieldWidths::default(),
            max_pdu: 0,
            max_pdu_lifetime_ms: 2_000,
            hop_limit: 64,
            concatenation: true,
            keepalive_ms: 5_000,
            cubes: Vec::new(),
            policies: BTreeMap::new(),
        }
    }
}

impl Default for FieldWidths {
    fn default() -> FieldWidths {
        let Widths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        } = Widths::default();
        FieldWidths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        }
    }
}

impl From<FieldWidths> for Widths {
    fn from(widths: FieldWidths) -> Widths {
        let FieldWidths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        } = widths;
        Widths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        }
    }
}

impl Default for WindowConfig {
    fn default() -> WindowConfig {
        WindowConfig {
            credit_max: 4096,
            initial_credit: 64,
        }
    }
}

fn default_priority() -> u8 {
    2
}

fn default_weight() -> u16 {
    1
}

fn default_a() -> u32 {
    20
}

fn default_r() -> u32 {
    30_000
}

fn default_loss() -> u16 {
    10_000
}
