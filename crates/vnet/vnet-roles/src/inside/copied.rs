//! Captures at remote hosts: which frames to capture, and portions of the resulting file.

use std::time::Duration;

use super::NodeRequest;

/// Which frames a remote host captures for a viewer: those that pass one end of a link. Makes the
/// requests of the viewer's session.
#[derive(Clone, Debug)]
pub struct Copied {
    node: String,
    interface: String,
    far: String,
    snap: Option<u32>,
    session: u64,
}

/// Bytes of a capture file (pcapng) that the host has sent in one answer.
#[derive(Clone, Debug)]
pub struct Portion {
    /// Position in the file after these bytes: the `since` of the next request.
    pub next: u64,
    /// The bytes of the file; empty if the host had none within the wait.
    pub bytes: Vec<u8>,
    /// Whether the file ends after these bytes.
    pub has_ended: bool,
}

impl Copied {
    /// The frames that pass the first of two link ends (`NODE:INTERFACE`), in both directions. The
    /// host captures at most `snap` bytes of each frame; `None`: all. The second end only names the
    /// other side in the file. `session` is a random number that identifies the capture at the
    /// host.
    #[must_use]
    pub fn of([near, far]: [&str; 2], snap: Option<u32>, session: u64) -> Copied {
        let (node, interface) = near.split_once(':').unwrap_or((near, ""));
        Copied {
            node: node.to_owned(),
            interface: interface.to_owned(),
            far: far.to_owned(),
            snap,
            session,
        }
    }

    /// The request for the bytes of the capture file from position `since` on. If no such bytes
    /// exist yet, the host waits for some for up to `wait` (at most 10 s); its answer may then be
    /// empty. The first request of a session has 0 for both, and starts the capture.
    #[must_use]
    pub fn ask(&self, since: u64, wait: Duration) -> NodeRequest {
        NodeRequest::Copy {
            node: self.node.clone(),
            interface: self.interface.clone(),
            far: self.far.clone(),
            snap: self.snap,
            session: self.session,
            since,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The request that stops the capture. What was captured so far can still be fetched.
    #[must_use]
    pub fn stop_capture(&self) -> NodeRequest {
        NodeRequest::StopCapture {
            node: self.node.clone(),
            session: self.session,
        }
    }
}
