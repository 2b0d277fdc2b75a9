//! Bodies of requests about captures: copies of the packets that an IPCP sends and receives.

use serde::{Deserialize, Serialize};

use crate::{DifName, LocalName};

/// Body of `POST /v1/captures`: starts a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureCreate {
    /// Name of an IPCP of this system, or of a DIF of which this system has one IPCP only.
    pub ipcp: String,
    /// Number of bytes to keep of each packet. Default: all bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap_bytes: Option<u32>,
}

/// Response to [`CaptureCreate`]: the capture that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureInfo {
    /// Number of the capture, for `/v1/captures/{id}`.
    pub id: u64,
    /// Name of the IPCP whose packets are captured.
    pub ipcp: LocalName,
    /// Name of the DIF of the captured IPCP.
    pub dif: DifName,
    /// Link type of the packets, as pcapng numbers it.
    pub link_type: u16,
    /// Text that pcapng stores as the description of the interface; a reader needs it to decode the
    /// packets.
    pub description: String,
}

/// Response of `DELETE /v1/captures/{id}`: how many packets the ended capture has and how many it
/// missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureEnd {
    /// Number of packets that were captured.
    pub packets: u64,
    /// Packets of which no copy was made, because the buffer for copies was full.
    pub missed: u64,
}
