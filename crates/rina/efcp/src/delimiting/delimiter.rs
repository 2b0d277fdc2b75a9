//! SDUs in, UDFs out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use carina_wire::Payload;

use super::{
    Delimiting, FLAGS_WHOLE, ORDERED_HEADER, SCATTERED_HEADER, SEVERAL, WHOLE, flag_byte,
    ordered_header, scattered_header,
};

/// The configuration of a delimiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelimiterConfig {
    /// The policy.
    pub policy: Delimiting,
    /// Longest UDF in bytes, its header included; with a header at least 16, and less is taken
    /// for 16.
    pub udf_max: usize,
    /// The connection delivers in order.
    pub in_order: bool,
    /// SDUs stay apart; without, they are a stream.
    pub msg_boundaries: bool,
    /// Small SDUs may share a UDF.
    pub concatenation: bool,
}

/// Why an SDU, or a piece of one, was not taken. Nothing of the piece is sent; of an SDU in pieces
/// the rest is swallowed, so that the other side discards it as incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Longer than the policy allows.
    TooLong,
    /// There is no buffer.
    NoBuffer,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::TooLong => "the SDU is too long",
            Refusal::NoBuffer => "there is no buffer",
        })
    }
}

/// Turns SDUs, whole or in pieces, into UDFs. After a burst call [`Delimiter::flush`].
#[derive(Debug)]
pub struct Delimiter<P> {
    config: DelimiterConfig,
    out: VecDeque<P>,
    out_kept: usize,
    /// A small SDU that waits for company.
    held: Option<P>,
    /// Several small SDUs, with the header of their UDF.
    batch: Option<P>,
    /// Pieces of an SDU that is to go into one UDF.
    pieces: Vec<u8>,
    /// In the middle of an SDU that comes in pieces.
    is_inside: bool,
    /// The rest of the present SDU is dropped.
    is_swallowing: bool,
    /// Fragments of the present SDU so far.
    index: u16,
    /// Its bytes so far.
    offset: u64,
    /// Its number among fragmented SDUs.
    number: u32,
}

impl<P: Payload> Delimiter<P> {
    /// A delimiter at the beginning of an SDU.
    #[must_use]
    pub fn new(mut config: DelimiterConfig) -> Delimiter<P> {
        if config.policy != Delimiting::None {
            config.udf_max = config.udf_max.max(UDF_LEAST);
        }
        Delimiter {
            config,
            out: VecDeque::new(),
            out_kept: 0,
            held: None,
            batch: None,
            pieces: Vec::new(),
            is_inside: false,
            is_swallowing: false,
            index: 0,
            offset: 0,
            number: 0,
        }
    }

    /// Takes an SDU, or with `more` a piece that is not its last.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn write(&mut self, sdu: P, more: bool) -> Result<(), Refusal> {
        if self.is_swallowing {
            self.is_swallowing = more;
            return Ok(());
        }
        let written = match self.config.policy {
            Delimiting::None | Delimiting::FlagByte if !self.config.msg_boundaries => {
                self.write_cut(sdu)
            }
            Delimiting::None => self.write_bare(sdu, more),
            Delimiting::FlagByte => self.write_flagged(sdu, more),
            Delimiting::Standard if !self.config.msg_boundaries => self.write_stream(sdu),
            Delimiting::Standard => self.write_sdu(sdu, more),
        };
        if written.is_err() {
            self.is_swallowing = more;
            self.is_inside = false;
            self.pieces.clear();
        }
        written
    }

    /// Longest SDU in bytes that is not refused; [`usize::MAX`] where SDUs are cut.
    #[must_use]
    pub fn sdu_max(&self) -> usize {
        let config = &self.config;
        match config.policy {
            _ if !config.msg_boundaries => usize::MAX,
            Delimiting::None => config.udf_max,
            Delimiting::FlagByte if !config.in_order => config.udf_max - 1,
            Delimiting::FlagByte | Delimiting::Standard => usize::MAX,
        }
    }

    /// The next UDF.
    #[must_use]
    pub fn poll(&mut self) -> Option<P> {
        let udf = self.out.pop_front()?;
        self.out_kept = self.out_kept.saturating_sub(1);
        Some(udf)
    }

    /// UDFs that [`Delimiter::poll`] would return now. Small SDUs that wait to share a UDF with
    /// others do not count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Nothing is left, not even what waits for company.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.held.is_none() && self.batch.is_none()
    }

    /// The burst is over: small SDUs wait no longer.
    ///
    /// # Errors
    /// There is no buffer for them, and they are lost.
    pub fn flush(&mut self) -> Result<(), Refusal> {
        if let Some(mut sdu) = self.held.take() {
            if !sdu.prepend(&[WHOLE]) {
                return Err(Refusal::NoBuffer);
            }
            self.out.push_back(sdu);
        }
        if let Some(mut batch) = self.batch.take() {
            batch.fit();
            self.out.push_back(batch);
        }
        Ok(())
    }

    /// Makes the UDFs that were not taken yet last beyond the burst. Call after `flush`.
    ///
    /// # Errors
    /// There is no buffer for one of them: it is lost, and so is every later one.
    pub fn keep(&mut self) -> Result<(), Refusal> {
        while let Some(udf) = self.out.get_mut(self.out_kept) {
            if !udf.keep() {
                self.out.truncate(self.out_kept);
                return Err(Refusal::NoBuffer);
            }
            self.out_kept += 1;
        }
        Ok(())
    }

    fn write_bare(&mut self, sdu: P, more: bool) -> Result<(), Refusal> {
        let header = self.prefix();
        let most = self.config.udf_max - header.len();
        if self.pieces.len() + sdu.len() > most {
            return Err(Refusal::TooLong);
        }
        if !more && !self.is_inside {
            return self.put(header, sdu);
        }
        sdu.append_to(&mut self.pieces);
        self.is_inside = more;
        if more {
            return Ok(());
        }
        let whole = P::from_vec(core::mem::take(&mut self.pieces)).ok_or(Refusal::NoBuffer)?;
        self.put(header, whole)
    }

    fn write_flagged(&mut self, sdu: P, more: bool) -> Result<(), Refusal> {
        let is_short = sdu.len() < self.config.udf_max && !more && !self.is_inside;
        if is_short || !self.config.in_order {
            return self.write_bare(sdu, more);
        }
        self.fragment(sdu, more)
    }

    /// What goes in front of a whole SDU with policies `none` and `flag-byte`.
    fn prefix(&self) -> &'static [u8] {
        match self.config.policy {
            Delimiting::FlagByte => &[FLAGS_WHOLE],
            _ => &[],
        }
    }

    fn put(&mut self, header: &[u8], udf: P) -> Result<(), Refusal> {
        if header.is_empty() {
            self.out.push_back(udf);
            return Ok(());
        }
        self.push(header, udf)
    }

    /// Without boundaries and without waiting for company: cut where UDFs are full.
    fn write_cut(&mut self, sdu: P) -> Result<(), Refusal> {
        let header = self.prefix();
        let mark = self.out.len();
        let cut = self.cut_stream(sdu, self.config.udf_max - header.len(), header);
        if cut.is_err() {
            self.out.truncate(mark);
        }
        cut
    }

    fn write_sdu(&mut self, sdu: P, more: bool) -> Result<(), Refusal> {
        if self.is_inside || more {
            self.flush()?;
            return self.fragment(sdu, more);
        }
        let len = sdu.len();
        let small = (self.config.udf_max / 2).min(usize::from(u16::MAX));
        if self.config.concatenation && len <= small {
            return self.gather(sdu);
        }
        self.flush()?;
        if len < self.config.udf_max {
            return self.push(&[WHOLE], sdu);
        }
        self.fragment(sdu, false)
    }

    fn push(&mut self, header: &[u8], mut udf: P) -> Result<(), Refusal> {
        if !udf.prepend(header) {
            return Err(Refusal::NoBuffer);
        }
        self.out.push_back(udf);
        Ok(())
    }

    /// A small SDU: into a UDF with others when others come within the burst.
    fn gather(&mut self, sdu: P) -> Result<(), Refusal> {
        let cost = LENGTH + sdu.len();
        let used = match &self.held {
            Some(held) => 1 + LENGTH + held.len(),
            None => self.batch.as_ref().map_or(0, P::len),
        };
        if used > 0 && used + cost > self.config.udf_max {
            self.flush()?;
        }
        if self.held.is_none() && self.batch.is_none() {
            self.held = Some(sdu);
            return Ok(());
        }
        if let Some(first) = &self.held {
            let Some(batch) = begin(self.config.udf_max, first) else {
                // Each alone needs less.
                self.flush()?;
                return self.push(&[WHOLE], sdu);
            };
            self.batch = Some(batch);
            self.held = None;
        }
        let batch = self.batch.as_mut().ok_or(Refusal::NoBuffer)?;
        if !append(batch, &sdu) {
            self.flush()?;
            return self.push(&[WHOLE], sdu);
        }
        Ok(())
    }

    /// Cuts an SDU, or a piece of one, into fragments: all of it, or nothing.
    fn fragment(&mut self, sdu: P, more: bool) -> Result<(), Refusal> {
        let mark = self.out.len();
        let cut = self.cut(sdu, more);
        if cut.is_err() {
            self.out.truncate(mark);
        }
        cut
    }

    fn cut(&mut self, mut sdu: P, more: bool) -> Result<(), Refusal> {
        if !self.is_inside {
            (self.is_inside, self.index, self.offset) = (true, 0, 0);
            self.number = self.number.wrapping_add(1);
        }
        let header = match (self.config.policy, self.config.in_order) {
            (Delimiting::FlagByte, _) => 1,
            (_, true) => ORDERED_HEADER,
            (_, false) => SCATTERED_HEADER,
        };
        let most = self.config.udf_max - header;
        if !self.config.in_order && self.offset + sdu.len() as u64 > u64::from(u32::MAX) {
            return Err(Refusal::TooLong);
        }
        while sdu.len() > most {
            let mut head = sdu.share().ok_or(Refusal::NoBuffer)?;
            head.truncate(most);
            sdu.advance(most);
            self.push_fragment(head, false)?;
        }
        if !(more && sdu.is_empty()) {
            self.push_fragment(sdu, !more)?;
        }
        self.is_inside = more;
        Ok(())
    }

    fn push_fragment(&mut self, udf: P, is_last: bool) -> Result<(), Refusal> {
        let len = udf.len() as u64;
        if self.config.in_order {
            let is_first = self.offset == 0 && self.index == 0;
            let header = ordered_header(is_first, is_last, self.index);
            // Only the low bits go into the header; a wrap must not look like the beginning.
            self.index = match self.index.wrapping_add(1) {
                0 => 4096,
                next => next,
            };
            match self.config.policy {
                Delimiting::FlagByte => self.push(&[flag_byte(is_first, is_last)], udf)?,
                _ => self.push(&header, udf)?,
            }
        } else {
            let offset = u32::try_from(self.offset).map_err(|_| Refusal::TooLong)?;
            self.push(&scattered_header(is_last, self.number, offset), udf)?;
        }
        self.offset += len;
        Ok(())
    }

    /// Without boundaries: as few and as full UDFs as can be had without waiting.
    fn write_stream(&mut self, sdu: P) -> Result<(), Refusal> {
        let most = self.config.udf_max - 1;
        if sdu.len() <= most / 2 && self.config.concatenation {
            let used = self.batch.as_ref().map_or(0, P::len);
            if used + sdu.len() > self.config.udf_max {
                self.flush()?;
            }
            let batch = match self.batch.take() {
                Some(batch) => Some(batch),
                None => P::with_capacity(self.config.udf_max)
                    .and_then(|mut batch| batch.extend(&[WHOLE]).then_some(batch)),
            };
            self.batch = batch;
            let is_taken = |batch: &mut P| batch.extend_with(&sdu);
            return if self.batch.as_mut().is_some_and(is_taken) {
                Ok(())
            } else {
                Err(Refusal::NoBuffer)
            };
        }
        self.flush()?;
        let mark = self.out.len();
        let cut = self.cut_stream(sdu, most, &[WHOLE]);
        if cut.is_err() {
            self.out.truncate(mark);
        }
        cut
    }

    fn cut_stream(&mut self, mut sdu: P, most: usize, header: &[u8]) -> Result<(), Refusal> {
        while sdu.len() > most {
            let mut head = sdu.share().ok_or(Refusal::NoBuffer)?;
            head.truncate(most);
            sdu.advance(most);
            self.put(header, head)?;
        }
        self.put(header, sdu)
    }
}

/// A UDF with several SDUs, of which this is the first. `None` when there is no buffer.
fn begin<P: Payload>(capacity: usize, first: &P) -> Option<P> {
    let mut batch = P::with_capacity(capacity)?;
    (batch.extend(&[SEVERAL]) && append(&mut batch, first)).then_some(batch)
}

fn append<P: Payload>(batch: &mut P, sdu: &P) -> bool {
    // Nothing longer was let in.
    let len = u16::try_from(sdu.len()).unwrap_or(u16::MAX);
    batch.extend(&len.to_be_bytes()) && batch.extend_with(sdu)
}

/// Bytes of a length in a UDF with several SDUs.
const LENGTH: usize = 2;

/// Shortest limit of a UDF that leaves room for anything.
const UDF_LEAST: usize = 16;
