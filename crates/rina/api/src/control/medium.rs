//! Parts of `[[ipcp]]` that describe the network below a shim IPCP.

use serde::{Deserialize, Serialize};

use crate::AppName;

/// How a shim over Ethernet writes application names in ARP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArpDialect {
    /// Carina's own format: Ethertype 0x0806. `|` separates the parts of a name; empty parts at the
    /// end are omitted.
    #[default]
    Native,
    /// The format of rlite, which is identical to `Native`.
    Rlite,
    /// Ethertype 0x4305. `/` separates the parts of a name; all four parts are written.
    Irati,
}

/// How a shim over UDP or TCP frames SDUs in datagrams or in the byte stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Frames carry flow numbers, and flows are allocated by name. See `docs/explanation/shims.md`.
    #[default]
    Native,
    /// The format of rlite and IRATI: SDUs without flow numbers. A pair of IP addresses and ports
    /// identifies a flow, and the configuration maps names to addresses.
    Rlite,
}

/// Address of a remote application: a row of the table `peers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerAddress {
    /// Name of the remote application.
    pub name: AppName,
    /// Address as `HOST` or `HOST:PORT`. An IPv6 address with a port is written `[ADDRESS]:PORT`.
    pub address: String,
}

/// Faults that the fault layer applies to everything that an IPCP sends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSpec {
    /// Share of SDUs that the fault layer drops, 0 to 1.
    pub loss: f64,
    /// Share of SDUs that the fault layer sends twice, 0 to 1.
    pub duplicate: f64,
    /// Share of SDUs that are sent without the delay, so that they overtake others, 0 to 1.
    pub reorder: f64,
    /// Time for which each SDU is held back, in milliseconds.
    pub delay_ms: f64,
    /// Largest random deviation from `delay_ms`, in both directions, in milliseconds.
    pub jitter_ms: f64,
    /// Limit of the sending rate, in bits per second; 0 for no limit.
    pub rate_bps: u64,
    /// Largest number of bytes that may wait because of the rate limit and the delay; SDUs beyond
    /// it are dropped.
    pub queue_bytes: usize,
    /// Seed of the random number generator; the same seed gives the same faults for the same SDUs.
    pub seed: u64,
}

impl Default for FaultSpec {
    /// A specification without faults.
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

/// Sound because no field is NaN: the check of the configuration refuses NaN.
impl Eq for FaultSpec {}
