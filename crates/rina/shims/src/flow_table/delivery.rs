//! SDUs of a flow: given to its application, checked before they are sent, counted.

use carina_engine::counters::Value;
use carina_engine::{Links, Packet};
use carina_wire::pcapng::Direction;

use super::{FlowTable, Stage};

/// Why a piece cannot be delivered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The reader has no room, or does not exist yet. The engine runs the IPCP again when the
    /// reader has room.
    Reader,
    /// No buffer is free. No event reports when one becomes free.
    Buffer,
}

impl<X> FlowTable<X> {
    /// Gives an SDU to the flow's application, or keeps it until an application accepts the flow.
    /// If the application has no room, the SDU is dropped, because a datagram network has no flow
    /// control.
    #[inline]
    pub(crate) fn deliver(&mut self, at: usize, packet: Packet, links: &mut Links) {
        self.taps.note(Direction::In, &[], &packet);
        self.push_to_flow(at, packet, links);
    }

    #[inline]
    pub(super) fn push_to_flow(&mut self, at: usize, mut packet: Packet, links: &mut Links) {
        let Some(flow) = self.slots.get_mut(at) else {
            return;
        };
        let Some(ends) = flow.links.filter(|_| flow.stage == Stage::Open) else {
            let fits = flow.waiting.len() < WAITING_MAX && packet.materialise(&self.pool);
            if fits {
                flow.waiting.push_back(packet)
            } else {
                self.row.add(Value::DropNoBuffer, 1)
            }
            return;
        };
        let bytes = packet.len();
        if !links.may_push(ends.to_flow, bytes) {
            self.row.add(Value::DropRingFull, 1);
        } else if links.push(ends.to_flow, packet).is_err() {
            self.row.add(Value::DropFlowEnded, 1);
        } else {
            self.row.add(Value::SdusIn, 1);
            self.row.add(Value::BytesIn, bytes as u64);
        }
    }

    /// Gives the application the first bytes of a frame, at most its link's longest piece, and
    /// returns how many. `more`: the SDU continues after the frame.
    ///
    /// # Errors
    /// Why no byte was delivered. The caller must offer the frame again.
    pub(crate) fn deliver_piece(
        &mut self,
        at: usize,
        bytes: &[u8],
        more: bool,
        links: &mut Links,
    ) -> Result<usize, Held> {
        let flow = self.slots.get_mut(at);
        let open = flow.filter(|flow| flow.stage == Stage::Open);
        let ends = open.and_then(|flow| flow.links).ok_or(Held::Reader)?;
        let to_flow = ends.to_flow;
        let piece = bytes.len().min(links.piece_max(to_flow));
        // A link that has ended takes everything; its packets are counted as dropped.
        if links.closed(to_flow).is_none() && !links.may_push(to_flow, piece) {
            return Err(Held::Reader);
        }
        let is_last = piece == bytes.len() && !more;
        let packet = Packet::copy_of(&bytes[..piece], &self.pool).map(|mut packet| {
            packet.set_more(!is_last);
            packet
        });
        let packet = packet.ok_or(Held::Buffer)?;
        if links.push(to_flow, packet).is_err() {
            self.row.add(Value::DropFlowEnded, 1);
        } else {
            let value = if is_last {
                Value::SdusIn
            } else {
                Value::PiecesIn
            };
            self.row.add(value, 1);
            self.row.add(Value::BytesIn, piece as u64);
        }
        Ok(piece)
    }

    /// Whether a packet of the application is a whole SDU of at most `sdu_bytes_max` bytes. A
    /// longer SDU arrives in several packets (pieces); its last piece counts it as dropped.
    #[inline]
    pub(crate) fn fits(&mut self, at: usize, packet: &Packet, sdu_bytes_max: usize) -> bool {
        let Some(flow) = self.slots.get_mut(at) else {
            return false;
        };
        let is_start = !std::mem::replace(&mut flow.is_in_pieces, packet.more());
        let fits = is_start && !packet.more() && packet.len() <= sdu_bytes_max;
        if fits {
            self.taps.note(Direction::Out, &[], packet)
        } else {
            // Counted once for each SDU, however many pieces it has.
            self.row.add(Value::DropTooLong, u64::from(!packet.more()))
        }
        fits
    }

    /// Counts an SDU that was sent.
    #[inline]
    pub(crate) fn count_sent(&self, bytes: usize) {
        self.row.add(Value::SdusOut, 1);
        self.row.add(Value::BytesOut, bytes as u64);
    }
}

/// Largest number of SDUs that wait for an application to accept a flow.
const WAITING_MAX: usize = 64;
