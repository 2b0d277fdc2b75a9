//! What shims over networks are made from: parts of `[[ipcp]]`.

use serde::{Deserialize, Serialize};

use crate::AppName;

/// How names are written in RINA ARP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArpDialect {
    /// Ethertype 0x0806, the parts of a name with `|` between, empty ones at the end left out.
    #[default]
    Native,
    /// rlite's, after which the native one is made: the same.
    Rlite,
    /// Ethertype 0x4305, the parts of a name with `/` between, all four of them.
    Irati,
}

/// How SDUs lie in datagrams or a byte stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// With flow numbers and allocation by name; see `docs/explanation/shims.md`.
    #[default]
    Native,
    /// Bare SDUs, as rlite and IRATI: one flow per pair of addresses, names by configuration.
    Rlite,
}

/// Where an application is: a row of the table `peers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerAddress {
    /// The application.
    pub name: AppName,
    /// `HOST` or `HOST:PORT`; an IPv6 address with a port is written `[ADDRESS]:PORT`.
    pub address: String,
}

/// Impairment of everything that an IPCP sends: the fault layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSpec {
    /// Share of SDUs lost, 0 to 1.
    pub loss: f64,
    /// Share of SDUs sent twice, 0 to 1.
    pub duplicate: f64,
    /// Share of SDUs that are not delayed and so overtake others, 0 to 1.
    pub reorder: f64,
    /// Delay in milliseconds.
    pub delay_ms: f64,
    /// The delay differs by up to this much up or down, in milliseconds.
    pub jitter_ms: f64,
    /// Bits per second; 0 for no limit.
    pub rate_bps: u64,
    /// Bytes that may wait.
    pub queue_bytes: usize,
    /// For all that is random.
    pub seed: u64,
}

impl Default for FaultSpec {
    /// Impairs nothing.
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            delay_ms: 0.0,
            jitter_ms: 0.0,
            rate_bps: 0,
            queue_bytes: 16 << 20,
            seed: 1,
        }
    }
}

/// Two specifications with a share that is no number are never asked to be equal: the check of a
/// configuration refuses them.
impl Eq for FaultSpec {}
