//! Turns UDFs into SDUs.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use carina_wire::Payload;

use super::counters::AssemblerCounters;
use super::scattered::Scattered;
use super::{
    Delimiting, FIRST, FLAG_FIRST, FLAG_LAST, FLAG_NO_LENGTH, KIND, LAST, ORDERED, ORDERED_HEADER,
    SCATTERED, SCATTERED_HEADER, SEVERAL, WHOLE,
};
use crate::receiver::Delivered;

/// The configuration of an [`Assembler`], which must match the connection's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssemblerConfig {
    /// Delimiting policy, the same as at the sender.
    pub policy: Delimiting,
    /// Whether the connection delivers UDFs in order.
    pub in_order: bool,
    /// Whether the connection loses no UDF. The assembler then hands on pieces of an SDU as they
    /// arrive.
    pub is_reliable: bool,
    /// Whether the assembler hands on the received pieces of an incomplete SDU.
    pub partial_delivery: bool,
    /// Largest number of bytes of incomplete SDUs that the assembler holds.
    pub bytes_max: usize,
}

/// What an [`Assembler`] returns: a whole SDU, or a piece of one.
#[derive(Debug)]
pub struct Piece<P> {
    /// The bytes of the SDU or the piece.
    pub sdu: P,
    /// Whether a further piece of the same SDU follows in a later call.
    pub more: bool,
}

/// Turns the UDFs that a connection delivers into SDUs.
#[derive(Debug)]
pub struct Assembler<P> {
    config: AssemblerConfig,
    out: VecDeque<Piece<P>>,
    out_kept: usize,
    /// Fragments of the current SDU, in order.
    held: Vec<P>,
    held_kept: usize,
    held_bytes: usize,
    scattered: Scattered<P>,
    /// Number that the next fragment of an ordered SDU must have; `None` between SDUs.
    expected: Option<u16>,
    /// Whether pieces of the current SDU were already handed on.
    is_handed_on: bool,
    counters: AssemblerCounters,
}

impl<P: Payload> Assembler<P> {
    /// Makes an assembler that expects the beginning of an SDU.
    #[must_use]
    pub fn new(config: AssemblerConfig) -> Assembler<P> {
        Assembler {
            config,
            out: VecDeque::new(),
            out_kept: 0,
            held: Vec::new(),
            held_kept: 0,
            held_bytes: 0,
            scattered: Scattered::new(config.bytes_max),
            expected: None,
            is_handed_on: false,
            counters: AssemblerCounters::default(),
        }
    }

    /// Returns the counters since the assembler was created.
    #[must_use]
    pub fn counters(&self) -> &AssemblerCounters {
        &self.counters
    }

    /// Returns the number of bytes of incomplete SDUs that the assembler holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.scattered.bytes()
    }

    /// Processes a UDF that the connection delivered. [`Assembler::poll`] then returns the SDUs
    /// that it completes.
    pub fn on_udf(&mut self, delivered: Delivered<P>) {
        let Delivered {
            udf, gap_before, ..
        } = delivered;
        if self.config.policy != Delimiting::Standard {
            return self.on_plain(udf, gap_before);
        }
        if gap_before {
            self.abandon();
        }
        let mut header = [0; SCATTERED_HEADER];
        let count = udf.copy_prefix(&mut header);
        let kind = header[0] & KIND;
        let is_taken = match kind {
            _ if count == 0 => false,
            WHOLE => self.on_whole(udf, header[0]),
            SEVERAL => self.on_several(udf, header[0]),
            ORDERED => count >= ORDERED_HEADER && self.on_ordered(udf, [header[0], header[1]]),
            _ => count == SCATTERED_HEADER && self.on_scattered(udf, &header),
        };
        if !is_taken {
            self.counters.malformed += 1;
        }
    }

    /// Processes a UDF under policy `none` or `flag-byte`.
    fn on_plain(&mut self, udf: P, gap_before: bool) {
        if self.config.policy == Delimiting::None {
            return self.push(udf);
        }
        if gap_before {
            self.abandon();
        }
        let mut flags = [0];
        let count = udf.copy_prefix(&mut flags);
        if count == 0 || !self.on_flagged(udf, flags[0]) {
            self.counters.malformed += 1;
        }
    }

    /// Takes the next SDU, or the next piece of one; `None` if more UDFs are needed.
    #[must_use]
    pub fn poll(&mut self) -> Option<Piece<P>> {
        let piece = self.out.pop_front()?;
        self.out_kept = self.out_kept.saturating_sub(1);
        Some(piece)
    }

    /// Ends a burst: held payloads are copied to memory that outlives the burst. Payloads that
    /// cannot be copied are discarded and counted.
    pub fn keep(&mut self) {
        while self.held_kept < self.held.len() {
            if !self.held[self.held_kept].keep() {
                self.counters.no_buffer += 1;
                self.abandon();
                break;
            }
            self.held_kept += 1;
        }
        while let Some(piece) = self.out.get_mut(self.out_kept) {
            if piece.sdu.keep() {
                self.out_kept += 1;
            } else {
                // The pieces around it may belong to the same SDU. An empty piece in its place
                // keeps them from being joined.
                self.counters.no_buffer += 1;
                piece.sdu.truncate(0);
                self.out_kept += 1;
            }
        }
    }

    fn push(&mut self, sdu: P) {
        self.counters.sdus += 1;
        self.out.push_back(Piece { sdu, more: false });
    }

    /// Processes a UDF that contains one whole SDU, or a part of the stream.
    fn on_whole(&mut self, mut udf: P, first: u8) -> bool {
        if first != WHOLE {
            return false;
        }
        self.abandon();
        udf.advance(1);
        self.push(udf);
        true
    }

    fn on_several(&mut self, mut udf: P, first: u8) -> bool {
        if first != SEVERAL {
            return false;
        }
        self.abandon();
        udf.advance(1);
        // After `keep`, taking parts of the UDF copies no bytes.
        if !udf.keep() {
            self.counters.no_buffer += 1;
            return true;
        }
        while !udf.is_empty() {
            let mut length = [0; 2];
            let count = udf.copy_prefix(&mut length);
            udf.advance(2);
            let length = usize::from(u16::from_be_bytes(length));
            if count < 2 || length > udf.len() {
                return false;
            }
            if length == udf.len() {
                self.push(udf);
                return true;
            }
            let Some(mut sdu) = udf.share() else {
                self.counters.no_buffer += 1;
                return true;
            };
            sdu.truncate(length);
            udf.advance(length);
            self.push(sdu);
        }
        false
    }

    fn on_ordered(&mut self, mut udf: P, header: [u8; ORDERED_HEADER]) -> bool {
        let (is_first, is_last) = (header[0] & FIRST != 0, header[0] & LAST != 0);
        let index = u16::from_be_bytes([header[0] & 0x0f, header[1]]);
        if !self.config.in_order || (is_first && index != 0) {
            return false;
        }
        udf.advance(ORDERED_HEADER);
        self.on_fragment(udf, is_first, is_last, index)
    }

    /// Processes a UDF whose first byte has the flags *first* and *last*. The header has no number,
    /// so a missing UDF before it shows only as a gap in sequence numbers.
    fn on_flagged(&mut self, mut udf: P, flags: u8) -> bool {
        let (is_first, is_last) = (flags & FLAG_FIRST != 0, flags & FLAG_LAST != 0);
        if flags & !(FLAG_FIRST | FLAG_LAST) != FLAG_NO_LENGTH {
            return false;
        }
        udf.advance(1);
        if is_first && is_last {
            self.abandon();
            self.push(udf);
            return true;
        }
        let index = self.expected.unwrap_or(0);
        self.config.in_order && self.on_fragment(udf, is_first, is_last, index)
    }

    /// Processes a fragment without its header; `index` is its number within its SDU.
    fn on_fragment(&mut self, udf: P, is_first: bool, is_last: bool, index: u16) -> bool {
        if is_first || self.expected.is_some_and(|expected| expected != index) {
            self.abandon();
        }
        if !is_first && self.expected.is_none() && !self.config.partial_delivery {
            // The fragment belongs to an SDU whose beginning is lost, or whose loss is already
            // counted.
            if is_last {
                self.counters.incomplete += 1;
            }
            return !self.config.is_reliable;
        }
        self.expected = (!is_last).then_some((index + 1) & 0x0fff);
        if self.config.is_reliable || self.config.partial_delivery {
            self.is_handed_on = !is_last;
            self.counters.sdus += u64::from(is_last);
            self.out.push_back(Piece {
                sdu: udf,
                more: !is_last,
            });
            return true;
        }
        self.hold(udf, is_last);
        true
    }

    /// Adds a fragment to an SDU that is handed on only when it is complete.
    fn hold(&mut self, udf: P, is_last: bool) {
        self.held_bytes += udf.len();
        if self.held_bytes > self.config.bytes_max || self.held.len() >= PIECES_MAX {
            self.counters.too_long += 1;
            self.drop_held();
            return;
        }
        self.held.push(udf);
        if is_last {
            self.counters.sdus += 1;
            self.hand_on_held(false);
        }
    }

    fn hand_on_held(&mut self, more_follow: bool) {
        let count = self.held.len();
        for (index, sdu) in self.held.drain(..).enumerate() {
            let more = more_follow || index + 1 < count;
            self.out.push_back(Piece { sdu, more });
        }
        self.drop_held();
    }

    fn drop_held(&mut self) {
        self.held.clear();
        (self.held_kept, self.held_bytes) = (0, 0);
        self.expected = None;
    }

    /// Gives up the current SDU, because it will not be completed.
    fn abandon(&mut self) {
        if core::mem::take(&mut self.is_handed_on) {
            // The reader already has a part of the SDU: an empty last piece ends it.
            self.counters.partial += 1;
            if let Some(sdu) = P::from_vec(Vec::new()) {
                self.out.push_back(Piece { sdu, more: false });
            } else if let Some(last) = self.out.back_mut() {
                last.more = false;
            }
            self.expected = None;
        } else if self.expected.is_some() {
            self.counters.incomplete += 1;
            self.drop_held();
        }
    }

    fn on_scattered(&mut self, mut udf: P, header: &[u8; SCATTERED_HEADER]) -> bool {
        let (is_first, is_last) = (header[0] & FIRST != 0, header[0] & LAST != 0);
        let [first, s0, s1, s2, s3, o0, o1, o2, o3] = *header;
        let number = u32::from_be_bytes([s0, s1, s2, s3]);
        let offset = u32::from_be_bytes([o0, o1, o2, o3]);
        let is_odd = first & !(KIND | FIRST | LAST) != 0 || is_first != (offset == 0);
        if self.config.in_order || first & KIND != SCATTERED || is_odd {
            return false;
        }
        udf.advance(SCATTERED_HEADER);
        if !udf.keep() {
            self.counters.no_buffer += 1;
            return true;
        }
        let (scattered, counters) = (&mut self.scattered, &mut self.counters);
        let Some(pieces) = scattered.add(number, offset, is_last, udf, counters) else {
            return true;
        };
        let count = pieces.len();
        for (index, sdu) in pieces.into_iter().enumerate() {
            let more = index + 1 < count;
            self.out.push_back(Piece { sdu, more });
        }
        self.counters.sdus += 1;
        true
    }
}

/// Largest number of fragments of one SDU that the assembler holds.
const PIECES_MAX: usize = 1 << 16;
