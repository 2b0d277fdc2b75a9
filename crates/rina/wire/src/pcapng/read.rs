//! Decodes blocks.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{
    BLOCK_BYTES_MAX, Direction, INTERFACE, INTERFACES_MAX, Interface, LinkType, MAGIC, OLD_PACKET,
    OPTION_DESCRIPTION, OPTION_END, OPTION_FCS, OPTION_FLAGS, OPTION_MISSED, OPTION_NAME,
    OPTION_TIME_OFFSET, OPTION_TIME_UNIT, PACKET, Packet, SECTION, SIMPLE_PACKET, STATISTICS,
    padded,
};

/// Reads a pcapng file, or a stream of the same format that has not ended yet, from bytes that the
/// caller feeds.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: Vec<u8>,
    /// Bytes at the front of the buffer that were already processed.
    done: usize,
    /// Bytes still to be skipped of a long block of an unknown type.
    to_skip: usize,
    /// Byte order of the section; `None` before the first section.
    order: Option<Order>,
    interfaces: Vec<Described>,
    /// Whether the last block read was a statistics block.
    ends_with_statistics: bool,
}

/// An interface, and what else the file states about it.
#[derive(Debug)]
struct Described {
    interface: Interface,
    clock: Clock,
    /// Bytes of the FCS after each packet, unless the packet states another number.
    fcs_bytes: u32,
    missed: u64,
}

/// How an interface encodes times.
#[derive(Clone, Copy, Debug)]
struct Clock {
    unit: Unit,
    /// Seconds to add to each time.
    offset_s: i64,
}

impl Clock {
    /// Converts a time of the file to nanoseconds since 1970, or to the closest value that fits.
    fn to_ns(self, time: u64) -> u64 {
        let offset_ns = i128::from(self.offset_s) * 1_000_000_000;
        let ns = i128::from(self.unit.to_ns(time)) + offset_ns;
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

/// A block of the file that [`Reader::poll`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A section starts: interfaces are numbered from 0 again.
    Section,
    /// The description of a further interface of the section.
    Interface(&'a Interface),
    /// A captured packet.
    Packet(Packet<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

/// Unit of times: 10^-n or 2^-n seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Decimal(u32),
    Binary(u32),
}

impl Unit {
    fn from_option(byte: u8) -> Unit {
        let exponent = u32::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            Unit::Decimal(exponent)
        } else {
            Unit::Binary(exponent)
        }
    }

    /// Converts a time in this unit to nanoseconds, limited to what fits.
    fn to_ns(self, time: u64) -> u64 {
        let ns = match self {
            Unit::Decimal(n) if n <= 9 => u128::from(time) * 10u128.pow(9 - n),
            Unit::Decimal(n) => 10u128
                .checked_pow(n - 9)
                .map_or(0, |unit| u128::from(time) / unit),
            Unit::Binary(n) => (u128::from(time) * 1_000_000_000) >> n.min(127),
        };
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// A cursor over the body of a block.
struct Body<'a> {
    rest: &'a [u8],
    order: Order,
}

impl<'a> Body<'a> {
    fn u16(&mut self) -> Result<u16, CaptureError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(CaptureError::Block)?;
        self.rest = rest;
        Ok(self.order.u16(*bytes))
    }

    fn u32(&mut self) -> Result<u32, CaptureError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(CaptureError::Block)?;
        self.rest = rest;
        Ok(self.order.u32(*bytes))
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], CaptureError> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(padded(length))
            .ok_or(CaptureError::Block)?;
        self.rest = rest;
        Ok(&bytes[..length])
    }

    /// Returns the next option; `None` after the last.
    fn option(&mut self) -> Result<Option<(u16, &'a [u8])>, CaptureError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (code, length) = (self.u16()?, self.u16()?);
        if code == OPTION_END {
            return Ok(None);
        }
        Ok(Some((code, self.bytes(usize::from(length))?)))
    }
}

impl Reader {
    /// Makes a reader at the beginning of a file.
    #[must_use]
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Adds the next bytes of the file; [`Reader::poll`] then returns the blocks in them.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.done);
        self.done = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Number of unprocessed bytes. If the file ends here, they are a part of a block.
    #[must_use]
    pub fn rest(&self) -> usize {
        self.buffer.len() - self.done
    }

    /// Whether the file may end here: no block is incomplete.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.rest() == 0 && self.to_skip == 0
    }

    /// The complete blocks that were read since the last call of [`Reader::feed`], as they are in
    /// the file.
    #[must_use]
    pub fn whole(&self) -> &[u8] {
        &self.buffer[..self.done]
    }

    /// Whether the last block is a statistics block, with which a writer ends a file that it could
    /// finish.
    #[must_use]
    pub fn ends_with_statistics(&self) -> bool {
        self.ends_with_statistics && self.rest() == 0
    }

    /// Returns interface `number` of the current section; `None` if the section has not described
    /// it.
    #[must_use]
    pub fn interface(&self, number: u32) -> Option<&Interface> {
        let index = usize::try_from(number).ok()?;
        self.interfaces.get(index).map(|known| &known.interface)
    }

    /// Returns the number of packets of the current section that are not in the file, according to
    /// its statistics blocks; limited to `u64::MAX`.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let missed = self.interfaces.iter().map(|known| known.missed);
        missed.fold(0, u64::saturating_add)
    }

    /// Returns the next usable block; `None` when it needs more bytes.
    ///
    /// # Errors
    /// The bytes are not a capture file; nothing after that point can be read.
    pub fn poll(&mut self) -> Result<Option<Item<'_>>, CaptureError> {
        loop {
            self.skip();
            let Some((kind, length, order)) = self.head()? else {
                return Ok(None);
            };
            if length > BLOCK_BYTES_MAX {
                self.to_skip = length;
                continue;
            }
            if self.rest() < length {
                return Ok(None);
            }
            let start = self.done;
            self.done += length;
            let trailer = self.buffer[self.done - 4..self.done].first_chunk();
            if trailer.is_none_or(|bytes| order.u32(*bytes) as usize != length) {
                return Err(CaptureError::Block);
            }
            self.ends_with_statistics = kind == STATISTICS;
            match kind {
                SECTION => {
                    self.order = Some(order);
                    self.interfaces.clear();
                    return Ok(Some(Item::Section));
                }
                INTERFACE => {
                    self.add_interface(start, length, order)?;
                    let added = self.interfaces.last().ok_or(CaptureError::Interface)?;
                    return Ok(Some(Item::Interface(&added.interface)));
                }
                STATISTICS => self.statistics(start, length, order)?,
                PACKET | OLD_PACKET => {
                    let mut body = self.body(start, length, order);
                    let interface = match kind {
                        PACKET => body.u32()?,
                        _ => {
                            let interface = body.u16()?;
                            body.u16()?;
                            interface.into()
                        }
                    };
                    let packet = self.packet(interface, body)?;
                    return Ok(Some(Item::Packet(packet)));
                }
                SIMPLE_PACKET => {
                    let body = self.body(start, length, order);
                    return self.simple(body).map(|packet| Some(Item::Packet(packet)));
                }
                _ => {}
            }
        }
    }

    /// Skips the rest of a long block of an unknown type.
    fn skip(&mut self) {
        let skipped = self.to_skip.min(self.rest());
        self.done += skipped;
        self.to_skip -= skipped;
    }

    /// Type, length and byte order of the block that starts here; `None` until these bytes are
    /// present.
    fn head(&self) -> Result<Option<(u32, usize, Order)>, CaptureError> {
        let bytes = &self.buffer[self.done..];
        let Some(&[t0, t1, t2, t3, l0, l1, l2, l3]) = bytes.first_chunk() else {
            return Ok(None);
        };
        // The type of a section header is the same in both byte orders.
        let is_section = u32::from_le_bytes([t0, t1, t2, t3]) == SECTION;
        let order = match (is_section, self.order) {
            (true, _) => {
                let Some(magic) = bytes.get(8..12).and_then(|magic| magic.first_chunk()) else {
                    return Ok(None);
                };
                match u32::from_le_bytes(*magic) {
                    MAGIC => Order::Little,
                    magic if magic.swap_bytes() == MAGIC => Order::Big,
                    _ => return Err(CaptureError::Foreign),
                }
            }
            (false, Some(order)) => order,
            (false, None) => return Err(CaptureError::Foreign),
        };
        let (kind, length) = (
            order.u32([t0, t1, t2, t3]),
            order.u32([l0, l1, l2, l3]) as usize,
        );
        let is_known = matches!(
            kind,
            SECTION | INTERFACE | STATISTICS | PACKET | OLD_PACKET | SIMPLE_PACKET
        );
        let is_long = length > BLOCK_BYTES_MAX;
        if !length.is_multiple_of(4) || length < 12 || is_long && is_known {
            return Err(CaptureError::Block);
        }
        Ok(Some((kind, length, order)))
    }

    fn body(&self, start: usize, length: usize, order: Order) -> Body<'_> {
        Body {
            rest: &self.buffer[start + 8..start + length - 4],
            order,
        }
    }

    fn add_interface(
        &mut self,
        start: usize,
        length: usize,
        order: Order,
    ) -> Result<(), CaptureError> {
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(CaptureError::Interface);
        }
        let mut body = self.body(start, length, order);
        let link = LinkType(body.u16()?);
        body.u16()?;
        let mut interface = Interface {
            link,
            name: String::new(),
            description: String::new(),
            snap_bytes: body.u32()?,
        };
        let (mut unit, mut offset_s, mut fcs_bytes) = (Unit::Decimal(6), 0, 0);
        while let Some((code, value)) = body.option()? {
            match (code, value) {
                (OPTION_NAME, text) => interface.name = String::from_utf8_lossy(text).into(),
                (OPTION_DESCRIPTION, text) => {
                    interface.description = String::from_utf8_lossy(text).into();
                }
                (OPTION_TIME_UNIT, [byte]) => unit = Unit::from_option(*byte),
                (OPTION_TIME_OFFSET, seconds) => {
                    let seconds = seconds.first_chunk().ok_or(CaptureError::Block)?;
                    offset_s = order.u64(*seconds).cast_signed();
                }
                // The length is in bits, but some writers give it in bytes.
                (OPTION_FCS, [bits]) if *bits >= 16 => fcs_bytes = u32::from(*bits) / 8,
                (OPTION_FCS, [bytes]) => fcs_bytes = u32::from(*bytes),
                _ => {}
            }
        }
        self.interfaces.push(Described {
            interface,
            clock: Clock { unit, offset_s },
            fcs_bytes,
            missed: 0,
        });
        Ok(())
    }

    fn statistics(
        &mut self,
        start: usize,
        length: usize,
        order: Order,
    ) -> Result<(), CaptureError> {
        let mut body = self.body(start, length, order);
        let interface = body.u32()? as usize;
        body.bytes(8)?;
        let mut missed = None;
        while let Some((code, value)) = body.option()? {
            if let (OPTION_MISSED, Some(count)) = (code, value.first_chunk()) {
                missed = Some(order.u64(*count));
            }
        }
        // Statistics of an unknown interface are ignored.
        if let Some(known) = self.interfaces.get_mut(interface) {
            known.missed = missed.unwrap_or(known.missed);
        }
        Ok(())
    }

    fn packet<'a>(&self, interface: u32, mut body: Body<'a>) -> Result<Packet<'a>, CaptureError> {
        let described = self.described(interface)?;
        let time = u64::from(body.u32()?) << 32 | u64::from(body.u32()?);
        let captured = body.u32()? as usize;
        let original_bytes = body.u32()?;
        let bytes = body.bytes(captured)?;
        let (mut direction, mut fcs_bytes) = (Direction::Unknown, described.fcs_bytes);
        while let Some((code, value)) = body.option()? {
            if let (OPTION_FLAGS, Some(flags)) = (code, value.first_chunk()) {
                let flags = body.order.u32(*flags);
                direction = Direction::from_bits(flags);
                fcs_bytes = match flags >> 5 & 0xf {
                    0 => fcs_bytes,
                    bytes => bytes,
                };
            }
        }
        let packet = Packet {
            interface,
            time_ns: described.clock.to_ns(time),
            direction,
            bytes,
            original_bytes,
        };
        Ok(packet.without_fcs(fcs_bytes))
    }

    /// Decodes a simple packet block: it has no interface and no time, so the first interface and
    /// time 0 are used.
    fn simple<'a>(&self, mut body: Body<'a>) -> Result<Packet<'a>, CaptureError> {
        let first = self.described(0)?;
        let original_bytes = body.u32()?;
        let snap = match first.interface.snap_bytes {
            0 => u32::MAX,
            snap => snap,
        };
        let bytes = body.bytes(original_bytes.min(snap) as usize)?;
        let packet = Packet {
            interface: 0,
            time_ns: 0,
            direction: Direction::Unknown,
            bytes,
            original_bytes,
        };
        Ok(packet.without_fcs(first.fcs_bytes))
    }

    fn described(&self, interface: u32) -> Result<&Described, CaptureError> {
        let index = usize::try_from(interface).ok();
        index
            .and_then(|index| self.interfaces.get(index))
            .ok_or(CaptureError::Interface)
    }
}

/// Why bytes are not a valid capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file does not start like pcapng.
    Foreign,
    /// A block is malformed, or longer than [`BLOCK_BYTES_MAX`].
    Block,
    /// A packet refers to an interface that is not described, or there are too many interfaces.
    Interface,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CaptureError::Foreign => "this is no pcapng file",
            CaptureError::Block => "a block of the pcapng file is malformed",
            CaptureError::Interface => "a packet of the pcapng file has no interface",
        })
    }
}

impl core::error::Error for CaptureError {}
