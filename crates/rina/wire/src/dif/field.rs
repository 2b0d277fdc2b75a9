//! Reads and writes integers of 1, 2, 4 or 8 bytes, in network byte order or little-endian.

/// A cursor that reads fields from the front of untrusted bytes.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline(always)]
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Reads the next field in network byte order. `None` if the bytes end too early or `width` is
    /// not 1, 2, 4 or 8.
    #[inline(always)]
    pub(super) fn take(&mut self, width: u8) -> Option<u64> {
        Some(match width {
            1 => u64::from(u8::from_be_bytes(self.chunk()?)),
            2 => u64::from(u16::from_be_bytes(self.chunk()?)),
            4 => u64::from(u32::from_be_bytes(self.chunk()?)),
            8 => u64::from_be_bytes(self.chunk()?),
            _ => return None,
        })
    }

    /// Like `take`, but in little-endian byte order.
    #[inline(always)]
    pub(super) fn take_le(&mut self, width: u8) -> Option<u64> {
        Some(match width {
            1 => u64::from(u8::from_le_bytes(self.chunk()?)),
            2 => u64::from(u16::from_le_bytes(self.chunk()?)),
            4 => u64::from(u32::from_le_bytes(self.chunk()?)),
            8 => u64::from_le_bytes(self.chunk()?),
            _ => return None,
        })
    }

    #[inline(always)]
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*chunk)
    }
}

/// A cursor that writes fields one after another.
pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    #[inline(always)]
    pub(super) fn new(out: &'a mut [u8]) -> Writer<'a> {
        Writer { out, at: 0 }
    }

    /// Number of bytes written.
    #[inline(always)]
    pub(super) fn written(&self) -> usize {
        self.at
    }

    /// Writes the low `width` bytes of a value in network byte order. `None` if there is no room or
    /// `width` is not 1, 2, 4 or 8.
    #[inline(always)]
    pub(super) fn put(&mut self, width: u8, value: u64) -> Option<()> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the low bytes are asked for"
        )]
        match width {
            1 => self.chunk((value as u8).to_be_bytes()),
            2 => self.chunk((value as u16).to_be_bytes()),
            4 => self.chunk((value as u32).to_be_bytes()),
            8 => self.chunk(value.to_be_bytes()),
            _ => None,
        }
    }

    /// Like `put`, but in little-endian byte order.
    #[inline(always)]
    pub(super) fn put_le(&mut self, width: u8, value: u64) -> Option<()> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the low bytes are asked for"
        )]
        match width {
            1 => self.chunk((value as u8).to_le_bytes()),
            2 => self.chunk((value as u16).to_le_bytes()),
            4 => self.chunk((value as u32).to_le_bytes()),
            8 => self.chunk(value.to_le_bytes()),
            _ => None,
        }
    }

    #[inline(always)]
    fn chunk<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        let end = self.at + N;
        self.out.get_mut(self.at..end)?.copy_from_slice(&bytes);
        self.at = end;
        Some(())
    }
}

/// Truncates a value to its low `width` bytes.
#[inline(always)]
pub(super) const fn cut(value: u64, width: u8) -> u64 {
    if width >= 8 {
        value
    } else {
        value & ((1 << (8 * width as u32)) - 1)
    }
}

/// Whether a value fits in `width` bytes.
#[inline(always)]
pub(super) const fn fits(value: u64, width: u8) -> bool {
    width >= 8 || value >> (8 * width as u32) == 0
}
