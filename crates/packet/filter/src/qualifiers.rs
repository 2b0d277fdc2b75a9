//! Qualifiers: the words in front of an address.

use crate::names::Protocol;

/// Whether an address is compared with the source, the destination, either or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Source,
    Destination,
    Either,
    Both,
}

/// What an operand is: a host, a network, a port and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// The qualifiers in front of an address, such as `tcp src port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Qualifiers {
    pub(crate) protocol: Option<Protocol>,
    pub(crate) direction: Option<Direction>,
    /// What the operand is; `None` means a host.
    pub(crate) kind: Option<Kind>,
}

impl Qualifiers {
    pub(crate) fn direction(self) -> Direction {
        self.direction.unwrap_or(Direction::Either)
    }
}
