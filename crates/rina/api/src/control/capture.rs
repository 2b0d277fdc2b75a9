//! Captures: copies of what an IPCP sends and receives.

use serde::{Deserialize, Serialize};

use crate::{DifName, LocalName};

/// `POST /v1/captures`: begins a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureCreate {
    /// Name of the IPCP in this system, or of a DIF that has only one here.
    pub ipcp: String,
    /// Bytes to keep of each packet; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap_bytes: Option<u32>,
}

/// The answer to [`CaptureCreate`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureInfo {
    /// Number of the capture, for `/v1/captures/{id}`.
    pub id: u64,
    /// The IPCP.
    pub ipcp: LocalName,
    /// Its DIF.
    pub dif: DifName,
    /// What the packets are: the link type in the capture.
    pub link_type: u16,
    /// What must be known to read them: the description of the interface in the capture.
    pub description: String,
}

/// `DELETE /v1/captures/{id}`: how it went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureEnd {
    /// Packets that were captured.
    pub packets: u64,
    /// Packets that passed while there was no room for copies.
    pub missed: u64,
}
