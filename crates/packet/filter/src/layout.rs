//! Where headers begin in a frame, for the part of a filter that is read next.

use crate::program::{Field, Size};

/// Offsets in bytes. Each `vlan` of a filter moves them for all that is behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Of the Ethertype.
    pub(crate) ethertype: u32,
    /// Of what Ethernet carries.
    pub(crate) payload: u32,
}

impl Layout {
    pub(crate) const ETHERNET: Layout = Layout {
        ethertype: 12,
        payload: 14,
    };

    /// Behind one more VLAN tag.
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

    /// In what Ethernet carries.
    pub(crate) fn network(self, offset: u32, size: Size) -> Field {
        Field {
            offset: self.payload + offset,
            behind: None,
            size,
        }
    }

    /// Behind a header of IPv4 with its options.
    pub(crate) fn transport4(self, offset: u32, size: Size) -> Field {
        // A filter has no room for so many tags that this overflows.
        let header = u16::try_from(self.payload).unwrap_or(u16::MAX);
        Field {
            offset: self.payload + offset,
            behind: Some(header),
            size,
        }
    }

    /// Behind a header of IPv6 without extensions.
    pub(crate) fn transport6(self, offset: u32, size: Size) -> Field {
        self.network(40 + offset, size)
    }
}
