//! Offsets of the headers in a frame, for the part of a filter that is parsed next.

use crate::program::{Field, Size};

/// Offsets of headers, in bytes. Each `vlan` in a filter increases them for the rest of the filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Offset of the Ethertype.
    pub(crate) ethertype: u32,
    /// Offset of Ethernet's payload.
    pub(crate) payload: u32,
}

impl Layout {
    pub(crate) const ETHERNET: Layout = Layout {
        ethertype: 12,
        payload: 14,
    };

    /// The layout behind one more VLAN tag.
    pub(crate) fn behind_tag(self) -> Layout {
        Layout {
            ethertype: self.ethertype + 4,
            payload: self.payload + 4,
        }
    }

    pub(crate) fn ethertype(self) -> Field {
        Field {
            offset: self.ethertype,
            behind: None,
            size: Size::Half,
        }
    }

    /// A field in Ethernet's payload.
    pub(crate) fn network(self, offset: u32, size: Size) -> Field {
        Field {
            offset: self.payload + offset,
            behind: None,
            size,
        }
    }

    /// A field behind an IPv4 header, options included.
    pub(crate) fn transport4(self, offset: u32, size: Size) -> Field {
        // A filter is too short for as many `vlan` as this would need to overflow.
        let header = u16::try_from(self.payload).unwrap_or(u16::MAX);
        Field {
            offset: self.payload + offset,
            behind: Some(header),
            size,
        }
    }

    /// A field behind an IPv6 header without extension headers.
    pub(crate) fn transport6(self, offset: u32, size: Size) -> Field {
        self.network(40 + offset, size)
    }
}
