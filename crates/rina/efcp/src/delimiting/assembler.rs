//! UDFs in, SDUs out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use carina_wire::Payload;

use super::scattered::Scattered;
use super::{
    Delimiting, FIRST, FLAG_FIRST, FLAG_LAST, FLAG_NO_LENGTH, KIND, LAST, ORDERED, ORDERED_HEADER,
    SCATTERED, SCATTERED_HEADER, SEVERAL, WHOLE,
};
use crate::receiver::Delivered;

/// The configuration of an assembler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssemblerConfig {
    /// The policy.
    pub policy: Delimiting,
    /// The connection delivers in order.
    pub in_order: bool,
    /// The connection loses nothing: pieces of an SDU are handed on as they come.
    pub is_reliable: bool,
    /// An incomplete SDU is handed on as far as it came.
    pub partial_delivery: bool,
    /// Most bytes of incomplete SDUs that are held.
    pub bytes_max: usize,
}

/// An SDU, or a piece of one.
#[derive(Debug)]
pub struct Piece<P> {
    /// The bytes.
    pub sdu: P,
    /// A further piece of the same SDU follows.
    pub more: bool,
}

/// What an assembler counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblerCounters {
    /// SDUs handed on whole.
    pub sdus: u64,
    /// SDUs handed on in part (with partial delivery).
    pub partial: u64,
    /// SDUs discarded because a fragment is missing.
    pub incomplete: u64,
    /// SDUs discarded because they are longer than may be held.
    pub too_long: u64,
    /// UDFs discarded because their header or their place is wrong.
    pub malformed: u64,
    /// UDFs discarded because there is no buffer.
    pub no_buffer: u64,
}

/// Turns UDFs into SDUs.
#[derive(Debug)]
pub struct Assembler<P> {
    config: AssemblerConfig,
    out: VecDeque<Piece<P>>,
    out_kept: usize,
    /// Fragments of the present SDU, in order.
    held: Vec<P>,
    held_kept: usize,
    held_bytes: usize,
    scattered: Scattered<P>,
    /// The number that the next ordered fragment must have; none between SDUs.
    expected: Option<u16>,
    /// Pieces of the present SDU were handed on.
    is_handed_on: bool,
    counters: AssemblerCounters,
}

impl<P: Payload> Assembler<P> {
    /// An assembler at the beginning of an SDU.
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

    /// Counters since birth.
    #[must_use]
    pub fn counters(&self) -> &AssemblerCounters {
        &self.counters
    }

    /// Bytes of incomplete SDUs that are held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.scattered.bytes()
    }

    /// Takes a UDF as the connection delivers it.
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

    /// A UDF with policy `none` or `flag-byte`.
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

    /// The next SDU, or the next piece of one.
    #[must_use]
    pub fn poll(&mut self) -> Option<Piece<P>> {
        let piece = self.out.pop_front()?;
        self.out_kept = self.out_kept.saturating_sub(1);
        Some(piece)
    }

    /// The burst is over: what is held must last. What cannot is discarded, counted.
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
                // Its neighbours may be pieces of the same SDU: empty, it keeps them apart.
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

    /// An SDU or a stretch of the stream in a UDF of its own.
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
        // Shares of what is kept are no copies.
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

    /// A UDF whose first byte says what it is of its SDU. That one before it is missing shows in
    /// the sequence numbers only.
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

    /// A fragment with this number in its SDU, without its header.
    fn on_fragment(&mut self, udf: P, is_first: bool, is_last: bool, index: u16) -> bool {
        if is_first || self.expected.is_some_and(|expected| expected != index) {
            self.abandon();
        }
        if !is_first && self.expected.is_none() && !self.config.partial_delivery {
            // The rest of an SDU whose loss is counted already, or whose beginning is lost.
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

    /// A fragment of an SDU that is handed on only when it is complete.
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

    /// The present SDU will not be completed.
    fn abandon(&mut self) {
        if core::mem::take(&mut self.is_handed_on) {
            // The reader has a part of it already: an empty piece ends it.
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

/// Most fragments of one SDU that are held.
const PIECES_MAX: usize = 1 << 16;
