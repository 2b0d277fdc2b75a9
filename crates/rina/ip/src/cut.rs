//! Cuts packets of several segments: TCP segments and UDP datagrams that a kernel left uncut.

use carina_netdev::{MAC_HEADER_BYTES, Unsupported, VnetHeader, plain_frames};

/// The packets into which a packet was cut.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// Where each packet ends in `bytes`.
    ends: Vec<usize>,
}

impl Pieces {
    /// Removes all packets.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends a packet.
    pub(crate) fn push(&mut self, packet: &[u8]) {
        self.bytes.extend_from_slice(packet);
        self.ends.push(self.bytes.len());
    }

    /// Returns the packets in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(&self.ends);
        ranges.map(|(start, end)| &self.bytes[start..*end])
    }
}

/// Cuts a packet into the packets that its sender meant, with their checksums, and passes each to
/// `each`. In front of the packet, `slot` has [`MAC_HEADER_BYTES`] bytes, which are overwritten.
///
/// # Errors
/// The header does not suit the packet. Some packets may have been passed.
pub(crate) fn cut(
    header: &VnetHeader,
    slot: &mut [u8],
    mut each: impl FnMut(&[u8]),
) -> Result<(), Unsupported> {
    let first = slot.get(MAC_HEADER_BYTES).ok_or(Unsupported)?;
    let ethertype: u16 = if first >> 4 == 6 { 0x86dd } else { 0x0800 };
    slot[..MAC_HEADER_BYTES].fill(0);
    slot[12..MAC_HEADER_BYTES].copy_from_slice(&ethertype.to_be_bytes());
    let mac = MAC_HEADER_BYTES as u16;
    let shifted = VnetHeader {
        checksum: header
            .checksum
            .map(|(start, at)| (start.saturating_add(mac), at)),
        segments: header
            .segments
            .map(|(kind, size, headers)| (kind, size, headers.saturating_add(mac))),
        ..*header
    };
    plain_frames(&shifted.bytes(), slot, |frame| {
        each(&frame[MAC_HEADER_BYTES..]);
    })
}
