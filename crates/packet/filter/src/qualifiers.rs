//! The words in front of an address.

use crate::names::Protocol;

/// The direction in which an address counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Source,
    Destination,
    Either,
    Both,
}

/// What an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// The words in front of an address: `tcp src port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Qualifiers {
    pub(crate) protocol: Option<Protocol>,
    pub(crate) direction: Option<Direction>,
    /// A host, where nothing is said.
    pub(crate) kind: Option<Kind>,
}

impl Qualifiers {
    pub(crate) fn direction(self) -> Direction {
        self.direction.unwrap_or(Direction::Either)
    }
}
