//! Pieces of SDUs: how much may be sent, and which channel a received piece belongs to.

use carina_wire::vmpi::{
    BUNDLE_HEADER_BYTES, BundleHeader, CONTROL_BYTES_MAX, Channel, DataHeader, HEADER_BYTES,
};

use super::Endpoint;
use super::credit::record_cost;
use super::event::Violation;
use super::table::State;

/// What the owner must do with a bundle that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxBundle {
    /// Deliver the SDUs of the bundle to this channel's flow.
    Deliver(Channel),
    /// End this channel's flow: the application at the other end damaged the SDUs in the bundle.
    Broken(Channel),
    /// Discard the bundle: it is for no open channel. The endpoint has counted it.
    Discard,
}

/// What the owner must do with a record that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rx {
    /// Copy the payload out and give it to [`Endpoint::handle_control`].
    Control,
    /// Deliver the payload, a piece of an SDU, to this channel's flow.
    Deliver {
        /// The channel.
        channel: Channel,
        /// The SDU continues in the next piece.
        more: bool,
    },
    /// Discard the record: it is for no open channel. The endpoint has counted it.
    Discard,
}

impl Endpoint {
    /// Returns how many bytes of ring space this side may use on a channel now. The result is 0
    /// while a control message waits to be sent, so that data never overtakes the answer that opens
    /// its channel.
    pub fn tx_credit(&self, channel: Channel) -> u64 {
        match self.table.peek(channel) {
            Some(entry) if entry.state == State::Open && self.outgoing.is_empty() => {
                entry.tx.available()
            }
            _ => 0,
        }
    }

    /// Returns how many of the `remaining_bytes` of an SDU to put into the next piece. If the
    /// result is smaller than `remaining_bytes`, the piece must carry MORE. `None` means that
    /// nothing may be sent now: ask again after [`super::Event::Credit`], or after control messages
    /// were sent.
    pub fn next_piece_bytes(&self, channel: Channel, remaining_bytes: usize) -> Option<usize> {
        let entry = self.table.peek(channel)?;
        let max = entry
            .tx
            .piece_bytes_max()
            .min(self.limits.piece_bytes_max as usize);
        let piece = remaining_bytes.min(max);
        (record_cost(piece) <= self.tx_credit(channel)).then_some(piece)
    }

    /// Counts a piece of `bytes` payload bytes that the owner has put into the ring behind a
    /// [`DataHeader`].
    pub fn on_tx(&mut self, channel: Channel, bytes: usize) {
        if let Some(entry) = self.table.entry(channel) {
            entry.tx.spend(record_cost(bytes));
        }
    }

    /// Returns the longest bundle that may be sent on a channel, and the longest SDU in a bundle,
    /// both in bytes. `None` if the peer accepts no bundles or the channel is not open.
    pub fn bundle_bytes_max(&self, channel: Channel) -> Option<(usize, usize)> {
        let entry = self.table.peek(channel)?;
        let limits = &self.limits;
        let is_taken = entry.state == State::Open && limits.bundle_bytes_max > 0;
        let piece = entry.tx.piece_bytes_max();
        let piece = piece.min(limits.piece_bytes_max as usize);
        let sdu = usize::try_from(limits.sdu_bytes_max).unwrap_or(usize::MAX);
        is_taken.then_some((limits.bundle_bytes_max as usize, piece.min(sdu)))
    }

    /// Counts a bundle of `bytes` bytes that the owner has put into the ring behind a
    /// [`BundleHeader`].
    pub fn on_tx_bundle(&mut self, channel: Channel, bytes: usize) {
        if let Some(entry) = self.table.entry(channel) {
            entry.tx.spend(bytes as u64);
        }
    }

    /// Decides what to do with a bundle that arrived. `header` is `None` if the record is too short
    /// for one. `bytes` is the length of what follows the header. `longest_sdu_bytes` is the length
    /// of the longest SDU in the bundle, or `None` if the bundle is not a sequence of whole SDUs.
    ///
    /// The peer's node writes the frame of a bundle, but the peer's application can write the
    /// memory of the SDUs in it. An error within the bundle therefore ends only the flow.
    ///
    /// # Errors
    /// As for [`Endpoint::on_rx`].
    pub fn on_bundle(
        &mut self,
        header: Option<[u8; BUNDLE_HEADER_BYTES]>,
        bytes: usize,
        longest_sdu_bytes: Option<usize>,
    ) -> Result<RxBundle, Violation> {
        let Some(header) = header else {
            return Err(self.give_up(Violation::ShortRecord { bytes }));
        };
        let channel = match BundleHeader::decode(header) {
            Ok(header) => header.channel,
            Err(error) => return Err(self.give_up(Violation::Header(error))),
        };
        let limit = self.config.bundle_bytes_max as usize;
        let Some(entry) = self.table.entry(channel).filter(|e| e.state.may_receive()) else {
            self.counters.unknown_channel += 1;
            return Ok(RxBundle::Discard);
        };
        if bytes > limit || !bytes.is_multiple_of(8) || entry.sdu_bytes > 0 {
            return Err(self.give_up(Violation::BadBundle { channel }));
        }
        let beyond_bytes = entry.rx.receive(bytes as u64);
        let is_open = entry.state == State::Open;
        if beyond_bytes > 0 {
            return Err(self.give_up(Violation::CreditOverrun {
                channel,
                beyond_bytes,
            }));
        }
        if !is_open {
            self.counters.closing_channel += 1;
            return Ok(RxBundle::Discard);
        }
        let config = &self.config;
        let is_taken = |len: usize| {
            len <= config.piece_bytes_max as usize && len as u64 <= config.sdu_bytes_max
        };
        Ok(if longest_sdu_bytes.is_some_and(is_taken) {
            RxBundle::Deliver(channel)
        } else {
            RxBundle::Broken(channel)
        })
    }

    /// Decides what to do with a record that arrived. `header` is its first four bytes;
    /// `record_bytes` is its length with the header. The caller reads both from shared memory only
    /// once.
    ///
    /// # Errors
    /// The peer broke the protocol. The endpoint has then given up the link and queued events about
    /// it; the owner must also call `VmpiImpl::fail` on the device below.
    pub fn on_rx(
        &mut self,
        header: [u8; HEADER_BYTES],
        record_bytes: usize,
    ) -> Result<Rx, Violation> {
        let header = match DataHeader::decode(header) {
            Ok(header) => header,
            Err(error) => return Err(self.give_up(Violation::Header(error))),
        };
        let Some(bytes) = record_bytes.checked_sub(HEADER_BYTES) else {
            return Err(self.give_up(Violation::ShortRecord {
                bytes: record_bytes,
            }));
        };
        let DataHeader { channel, more } = header;
        if channel.is_control() {
            return if bytes <= CONTROL_BYTES_MAX {
                Ok(Rx::Control)
            } else {
                Err(self.give_up(Violation::PieceTooLong { channel, bytes }))
            };
        }
        let (sdu_max, piece_max) = (self.config.sdu_bytes_max, self.config.piece_bytes_max);
        let Some(entry) = self.table.entry(channel).filter(|e| e.state.may_receive()) else {
            self.counters.unknown_channel += 1;
            return Ok(Rx::Discard);
        };
        let beyond_bytes = entry.rx.receive(record_cost(bytes));
        entry.sdu_bytes = entry.sdu_bytes.saturating_add(bytes as u64);
        let sdu_bytes = entry.sdu_bytes;
        if !more {
            entry.sdu_bytes = 0;
        }
        let is_open = entry.state == State::Open;
        if beyond_bytes > 0 {
            return Err(self.give_up(Violation::CreditOverrun {
                channel,
                beyond_bytes,
            }));
        }
        if bytes > piece_max as usize {
            return Err(self.give_up(Violation::PieceTooLong { channel, bytes }));
        }
        if sdu_bytes > sdu_max {
            return Err(self.give_up(Violation::SduTooLong { channel }));
        }
        if !is_open {
            self.counters.closing_channel += 1;
            return Ok(Rx::Discard);
        }
        Ok(Rx::Deliver { channel, more })
    }

    /// Reports how many bytes of ring space the reader of a channel has released since the start of
    /// the flow: the sum of [`record_cost`]. The endpoint queues a CREDIT message when a quarter of
    /// the window is free again.
    pub fn consumed(&mut self, channel: Channel, cumulative_bytes: u64) {
        let Some(entry) = self.table.entry(channel) else {
            return;
        };
        let is_due = entry.state == State::Open && entry.rx.consume(cumulative_bytes);
        if is_due && !entry.is_credit_due {
            entry.is_credit_due = true;
            self.credits_due.push_back(channel);
        }
    }
}

impl State {
    /// Whether the peer may still send data in this state.
    fn may_receive(self) -> bool {
        matches!(self, State::Open | State::Closing)
    }
}
