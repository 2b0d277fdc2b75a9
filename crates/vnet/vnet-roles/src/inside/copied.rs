//! Copies of frames, as those ask for them who look from elsewhere.

use std::time::Duration;

use super::Ask;

/// Which frames are copied.
#[derive(Clone, Debug)]
pub struct Copied {
    node: String,
    interface: String,
    far: String,
    snap: Option<u32>,
    session: u64,
}

/// A portion of a file (pcapng).
#[derive(Clone, Debug)]
pub struct Portion {
    /// Where to go on.
    pub next: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether none comes after them.
    pub has_ended: bool,
}

impl Copied {
    /// Those that pass the first of two ends of a link, `NODE:INTERFACE`, at most so many bytes of
    /// each. `session` is a number that was drawn for it.
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

    /// Asks for what comes after so many bytes.
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

    /// Says that it is enough.
    #[must_use]
    pub fn enough(&self) -> Ask {
        Ask::Enough {
            node: self.node.clone(),
            session: self.session,
        }
    }
}
