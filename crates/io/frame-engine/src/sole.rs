//! Values of configurations that only one app of a graph may have.

use std::fmt;

/// A value of a configuration that only one app of a graph may have, such as the path of a socket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sole {
    what: &'static str,
    value: Vec<u8>,
    is_secret: bool,
    reason: &'static str,
}

impl Sole {
    /// Creates such a value. `what` is the configuration key or the thing, such as `socket`.
    /// `reason` says why two apps cannot share the value.
    #[must_use]
    pub fn new(what: &'static str, value: impl Into<Vec<u8>>, reason: &'static str) -> Sole {
        Sole {
            what,
            value: value.into(),
            is_secret: false,
            reason,
        }
    }

    /// Like [`Sole::new`], for a value that errors must not show.
    #[must_use]
    pub fn secret(what: &'static str, value: impl Into<Vec<u8>>, reason: &'static str) -> Sole {
        Sole {
            is_secret: true,
            ..Sole::new(what, value, reason)
        }
    }
}

impl fmt::Display for Sole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, reason) = (self.what, self.reason);
        if self.is_secret {
            write!(f, "the same {what}: {reason}")
        } else {
            let value = String::from_utf8_lossy(&self.value);
            write!(f, "the same {what}, {value}: {reason}")
        }
    }
}

impl fmt::Debug for Sole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sole({})", self.what)
    }
}
