//! The contents of a PCI (protocol control information, the header of a PDU), independent of its
//! layout.

use super::{Address, CepId, QosId};

/// Type of a PDU: the kind of data or control information in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PduType {
    /// Carries a user-data field of a connection.
    Data,
    /// Carries a CDAP message of layer management, outside any connection.
    Management,
    /// Carries an acknowledgement, flow control, or both: see [`Control`].
    Control,
    /// Asks for a control PDU, because the sender's window is closed.
    Rendezvous,
}

/// Protocol control information of one PDU: the fields of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pci {
    /// Type of the PDU: data, management, control or rendezvous.
    pub kind: PduType,
    /// Address of the member to which the PDU is sent; 0 for the neighbour.
    pub dst: Address,
    /// Address of the member that sent the PDU.
    pub src: Address,
    /// QoS-id of the connection's QoS cube.
    pub qos: QosId,
    /// CEP-id of the connection at the destination.
    pub dst_cep: CepId,
    /// CEP-id of the connection at the source.
    pub src_cep: CepId,
    /// Data run flag: this is the first PDU of a run, and no earlier PDU is outstanding.
    pub drf: bool,
    /// Whether a relay on the path marked congestion (ECN).
    pub ecn: bool,
    /// Sequence number of a data PDU; 0 for other types.
    pub seq: u64,
}

/// Contents of a control or rendezvous PDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Sequence number of this control PDU.
    pub seq: u64,
    /// Highest control sequence number received from the peer.
    pub last_seq: u64,
    /// Acknowledgement; `None` on a connection without retransmission control.
    pub ack: Option<Ack>,
    /// Window and rate that the receiver grants; `None` on a connection without flow control.
    pub window: Option<Window>,
}

/// An acknowledgement. All numbers below `next` have been received. If a dialect transmits the last
/// received number instead, its decoder converts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The next sequence number that the receiver expects.
    pub next: u64,
    /// Ranges of sequence numbers received beyond `next`.
    pub sack: Sack,
    /// Sequence number of the data PDU that caused this acknowledgement.
    pub cause: u64,
    /// Time between the receipt of `cause` and the sending of this PDU, in microseconds.
    pub delay_us: u32,
    /// Number of data PDUs received with the ECN flag in this run, modulo 2^16.
    pub ecn_marks: u16,
}

/// Ranges `[start, end)` of sequence numbers that were received out of order, the most recently
/// changed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sack {
    ranges: [(u64, u64); SACK_RANGES_MAX],
    count: u8,
}

/// Flow control information of a control PDU: window edges and rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Left edge of the window that the sender of this control PDU grants: the next sequence number
    /// that it expects.
    pub left: u64,
    /// Right edge of the window that the sender of this control PDU grants: the first sequence
    /// number that its peer may *not* send.
    pub right: u64,
    /// Left edge of the window in the other direction, in which the author of the PDU is the
    /// sender.
    pub my_left: u64,
    /// Right edge of the window in the other direction, in which the author of the PDU is the
    /// sender.
    pub my_right: u64,
    /// Permitted rate in PDUs per `frame`; 0 without flow control by rate.
    pub rate: u32,
    /// Time frame of the rate, in milliseconds.
    pub frame: u32,
}

impl Sack {
    /// Adds a range; `end` is exclusive. Returns false if there is no room or the range is empty.
    pub fn push(&mut self, start: u64, end: u64) -> bool {
        let at = usize::from(self.count);
        if at == SACK_RANGES_MAX || start >= end {
            return false;
        }
        self.ranges[at] = (start, end);
        self.count += 1;
        true
    }

    /// Adds a range whose edges were truncated on the wire, so that the start may be larger than
    /// the end. Returns false if there is no room or the range is empty.
    pub(super) fn push_truncated(&mut self, start: u64, end: u64) -> bool {
        let at = usize::from(self.count);
        if at == SACK_RANGES_MAX || start == end {
            return false;
        }
        self.ranges[at] = (start, end);
        self.count += 1;
        true
    }

    /// Returns the ranges. Decoded ranges are truncated like all sequence numbers: after a wrap,
    /// the start may be larger than the end.
    #[must_use]
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.ranges[..usize::from(self.count)]
    }
}

/// Largest number of ranges in one acknowledgement.
pub const SACK_RANGES_MAX: usize = 6;
