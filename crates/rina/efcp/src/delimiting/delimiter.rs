//! Turns SDUs into UDFs.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use carina_wire::Payload;

use super::{
    Delimiting, FLAGS_WHOLE, ORDERED_HEADER, SCATTERED_HEADER, SEVERAL, WHOLE, flag_byte,
    ordered_header, scattered_header,
};

/// The configuration of a [`Delimiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelimiterConfig {
    /// Delimiting policy, the same as at the receiver.
    pub policy: Delimiting,
    /// Longest UDF in bytes, including its header. With a header, values below 16 count as 16.
    pub udf_max: usize,
    /// Whether the connection delivers UDFs in order.
    pub in_order: bool,
    /// Whether the reader gets the SDUs as they were written. `false`: SDUs form a byte stream.
    pub msg_boundaries: bool,
    /// Whether the delimiter may put several small SDUs into one UDF.
    pub concatenation: bool,
}

/// Why the delimiter refused an SDU, or a piece of one. It sends nothing of the refused piece. It
/// drops the remaining pieces of that SDU, so that the receiver discards the SDU as incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The SDU is longer than the policy allows.
    TooLong,
    /// No buffer is free.
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

/// Turns SDUs, whole or in pieces, into UDFs. Call [`Delimiter::flush`] after each burst.
#[derive(Debug)]
pub struct Delimiter<P> {
    config: DelimiterConfig,
    out: VecDeque<P>,
    out_kept: usize,
    /// A small SDU that waits for others to share its UDF.
    held: Option<P>,
    /// A UDF with its header and several small SDUs, which may still grow.
    batch: Option<P>,
    /// Pieces of an SDU that must go into one UDF.
    pieces: Vec<u8>,
    /// Whether the last piece written was not the last of its SDU.
    is_inside: bool,
    /// Whether the remaining pieces of the current SDU are dropped, after a refusal.
    is_swallowing: bool,
    /// Number of fragments made of the current SDU.
    index: u16,
    /// Number of bytes of the current SDU that were written.
    offset: u64,
    /// Number of the current SDU among the fragmented ones.
    number: u32,
}

impl<P: Payload> Delimiter<P> {
    /// Makes a delimiter that expects the beginning of an SDU.
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

    /// Writes an SDU. With `more`, writes a piece of an SDU that is not the last one.
    ///
    /// # Errors
    /// The reason why the SDU or the piece was refused.
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

    /// Returns the longest SDU in bytes that is accepted; [`usize::MAX`] if the policy fragments
    /// SDUs.
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

    /// Takes the next UDF that is ready; `None` if none is.
    #[must_use]
    pub fn poll(&mut self) -> Option<P> {
        let udf = self.out.pop_front()?;
        self.out_kept = self.out_kept.saturating_sub(1);
        Some(udf)
    }

    /// Number of UDFs that [`Delimiter::poll`] would return now. Small SDUs that wait to share a
    /// UDF do not count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether the delimiter holds nothing: no UDF and no SDU that waits to share a UDF.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.held.is_none() && self.batch.is_none()
    }

    /// Ends a burst: puts the small SDUs that wait to share a UDF into UDFs.
    ///
    /// # Errors
    /// No buffer is free for them; they are lost.
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

    /// Copies the UDFs that were not fetched yet to memory that outlives the burst. Call it after
    /// `flush`.
    ///
    /// # Errors
    /// No buffer is free for one of the UDFs: this one and all later ones are lost.
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
        let payload_max = self.config.udf_max - header.len();
        if self.pieces.len() + sdu.len() > payload_max {
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

    /// The header of a whole SDU under policies `none` and `flag-byte`.
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

    /// Without message boundaries and without concatenation: cuts the stream at full UDFs.
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

    /// Holds a small SDU, to share a UDF with others that arrive within the burst.
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
                // One SDU per UDF needs less room.
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

    /// Cuts an SDU, or a piece of one, into fragments. If one fragment fails, none is sent.
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
        let payload_max = self.config.udf_max - header;
        if !self.config.in_order && self.offset + sdu.len() as u64 > u64::from(u32::MAX) {
            return Err(Refusal::TooLong);
        }
        while sdu.len() > payload_max {
            let mut head = sdu.share().ok_or(Refusal::NoBuffer)?;
            head.truncate(payload_max);
            sdu.advance(payload_max);
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
            // The header contains only the low bits. After a wrap, 0 would mark a first fragment,
            // so the number continues with 4096.
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

    /// Without message boundaries: fills UDFs as far as possible without waiting for more SDUs.
    fn write_stream(&mut self, sdu: P) -> Result<(), Refusal> {
        let payload_max = self.config.udf_max - 1;
        if sdu.len() <= payload_max / 2 && self.config.concatenation {
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
        let cut = self.cut_stream(sdu, payload_max, &[WHOLE]);
        if cut.is_err() {
            self.out.truncate(mark);
        }
        cut
    }

    fn cut_stream(&mut self, mut sdu: P, payload_max: usize, header: &[u8]) -> Result<(), Refusal> {
        while sdu.len() > payload_max {
            let mut head = sdu.share().ok_or(Refusal::NoBuffer)?;
            head.truncate(payload_max);
            sdu.advance(payload_max);
            self.put(header, head)?;
        }
        self.put(header, sdu)
    }
}

/// Starts a UDF for several SDUs with the first of them. `None` when no buffer is free.
fn begin<P: Payload>(capacity: usize, first: &P) -> Option<P> {
    let mut batch = P::with_capacity(capacity)?;
    (batch.extend(&[SEVERAL]) && append(&mut batch, first)).then_some(batch)
}

fn append<P: Payload>(batch: &mut P, sdu: &P) -> bool {
    // Longer SDUs are not put into shared UDFs.
    let len = u16::try_from(sdu.len()).unwrap_or(u16::MAX);
    batch.extend(&len.to_be_bytes()) && batch.extend_with(sdu)
}

/// Bytes of each length field in a UDF with several SDUs.
const LENGTH: usize = 2;

/// Smallest limit of a UDF, in bytes; it leaves room for the longest header and some data.
const UDF_LEAST: usize = 16;
