//! Captures at remote hosts: which frames to capture, and portions of the resulting file.

use std::time::Duration;

use super::Ask;

/// Which frames to capture.
#[derive(Clone, Debug)]
pub struct Copied {
    node: String,
    interface: String,
    far: String,
    snap: Option<u32>,
    session: u64,
}

/// A portion of a capture file (pcapng).
#[derive(Clone, Debug)]
pub struct Portion {
    /// The position of the next portion.
    pub next: u64,
    /// The bytes of the portion.
    pub bytes: Vec<u8>,
    /// Whether this is the last portion.
    pub has_ended: bool,
}

impl Copied {
    /// A capture of the frames that pass the first of the two given link ends (`NODE:INTERFACE`),
    /// at most `snap` bytes of each. `session` is a random number.
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

    /// The request for the portion after `since` bytes.
    #[must_use]
    pub fn ask(&self, since: u64, wait: Duration) -> Ask {
        Ask::Copy {
            node: self.node.clone(),
            interface: self.interface.clone(),
            far: self.far.clone(),
            snap: self.snap,
            session: self.session,
            since,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The request to stop the capture.
    #[must_use]
    pub fn enough(&self) -> Ask {
        Ask::Enough {
            node: self.node.clone(),
            session: self.session,
        }
    }
}
