//! What the PCI says, whatever its layout.

use super::{Address, CepId, QosId};

/// What a PDU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PduType {
    /// A user-data field of a connection.
    Data,
    /// Layer management: a CDAP message outside any connection.
    Management,
    /// Acknowledgement, flow control, or both: see [`Control`].
    Control,
    /// The sender finds its window closed and asks for a control PDU.
    Rendezvous,
}

/// Protocol control information of one PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pci {
    /// What it is.
    pub kind: PduType,
    /// Where it goes.
    pub dst: Address,
    /// Where it comes from.
    pub src: Address,
    /// QoS cube of the connection.
    pub qos: QosId,
    /// CEP-id at the destination.
    pub dst_cep: CepId,
    /// CEP-id at the source.
    pub src_cep: CepId,
    /// Data run flag: the first PDU of a run, nothing before it is outstanding.
    pub drf: bool,
    /// A relay met congestion.
    pub ecn: bool,
    /// Sequence number of a data PDU; 0 for management and control.
    pub seq: u64,
}

/// What a control PDU says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Control sequence number of this PDU.
    pub seq: u64,
    /// Highest control sequence number received from the other side.
    pub last_seq: u64,
    /// Acknowledgement, when retransmission control is on.
    pub ack: Option<Ack>,
    /// Flow control, when it is on.
    pub window: Option<Window>,
}

/// An acknowledgement. Everything below `next` has been received; a dialect that counts the last
/// received instead is converted where it is decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The sequence number that is expected next.
    pub next: u64,
    /// What has been received beyond `next`.
    pub sack: Sack,
    /// Sequence number of the data PDU that caused this acknowledgement.
    pub cause: u64,
    /// Time between the receipt of `cause` and the sending of this PDU, in microseconds.
    pub delay_us: u32,
    /// Data PDUs received so far in this run with the ECN flag set, modulo 2^16.
    pub ecn_marks: u16,
}

/// Ranges `[start, end)` received out of order, the most recently changed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sack {
    ranges: [(u64, u64); SACK_RANGES_MAX],
    count: u8,
}

/// Flow control information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// New left window edge of the receiver: next expected.
    pub left: u64,
    /// New right window edge: the first sequence number that may *not* be sent.
    pub right: u64,
    /// The author's own sender-side left edge.
    pub my_left: u64,
    /// The author's own sender-side right edge.
    pub my_right: u64,
    /// Permitted rate in PDUs per `frame`; 0 when control is by window.
    pub rate: u32,
    /// Unit of the rate in milliseconds.
    pub frame: u32,
}

impl Sack {
    /// Adds a range; false when there is no room or it is empty.
    pub fn push(&mut self, start: u64, end: u64) -> bool {
        let at = usize::from(self.count);
        if at == SACK_RANGES_MAX || start >= end {
            return false;
        }
        self.ranges[at] = (start, end);
        self.count += 1;
        true
    }

    /// Adds a range whose edges were truncated on the wire, so that the start may be the larger
    /// number; false when there is no room or it is empty.
    pub(super) fn push_truncated(&mut self, start: u64, end: u64) -> bool {
        let at = usize::from(self.count);
        if at == SACK_RANGES_MAX || start == end {
            return false;
        }
        self.ranges[at] = (start, end);
        self.count += 1;
        true
    }

    /// The ranges. Decoded ones are truncated like all sequence numbers: once the numbers have
    /// wrapped, the start of a range may be larger than its end.
    #[must_use]
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.ranges[..usize::from(self.count)]
    }
}

/// Most ranges in one acknowledgement.
pub const SACK_RANGES_MAX: usize = 6;
