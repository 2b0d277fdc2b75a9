//! The compiled form of a binding table: its contents, in the order of the slots.
//!
//! ```text
//!   "CarLwT01" | ranges 4 | BR addresses 4 | softwires 8
//!   | ranges: first 4, last 4, offset bits 1, PSID bits 1, 0 2
//!   | BR addresses 16 each | softwires: address 4, PSID 2, 0 2, BR address's number 4, B4 16
//!   | CRC-32 of all before 4
//! ```
//!
//! Numbers are little-endian. The reader checks everything, and refuses a file that was altered.
//! Reading needs no sorting, and fills the slots from first to last.

use super::{PortSets, Range, SOFTWIRES_MAX, Table};

/// Why bytes are not a valid compiled table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompiledError {
    /// The bytes do not begin with the magic number of this version.
    #[error("not a binding table that this version of carina compiled: compile the text again")]
    Magic,
    /// The length does not match the header.
    #[error(
        "the compiled table has {found} bytes, but its header says {expected}: the file is \
         truncated; compile the text again"
    )]
    Length {
        /// Length that the bytes have, in bytes.
        found: u64,
        /// Length in bytes that the header implies.
        expected: u64,
    },
    /// The checksum does not match.
    #[error(
        "the checksum of the compiled table is wrong: the file is damaged; compile the text again"
    )]
    Checksum,
    /// A value is one that no table can have; the text names it.
    #[error("the compiled table is invalid ({0}): compile the text again")]
    Content(&'static str),
}

const MAGIC: &[u8; 8] = b"CarLwT01";
const HEADER: usize = 24;
const RANGE: usize = 12;
const SOFTWIRE: usize = 28;

impl Table {
    /// Writes the table in compiled form.
    #[must_use]
    pub fn compile(&self) -> Vec<u8> {
        let bytes = HEADER + self.ranges.len() * RANGE + self.brs.len() * 16 + self.len * SOFTWIRE;
        let mut out = Vec::with_capacity(bytes + 4);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&(self.ranges.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.brs.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.len as u64).to_le_bytes());
        for range in &self.ranges {
            out.extend_from_slice(&range.first.to_le_bytes());
            out.extend_from_slice(&range.last.to_le_bytes());
            out.extend_from_slice(&[range.ports.offset_bits, range.ports.psid_bits, 0, 0]);
        }
        for br in &self.brs {
            out.extend_from_slice(br);
        }
        for slot in self.slots.iter().filter(|slot| slot.key != super::EMPTY) {
            out.extend_from_slice(&((slot.key >> 16) as u32).to_le_bytes());
            out.extend_from_slice(&(slot.key as u16).to_le_bytes());
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&slot.br.to_le_bytes());
            out.extend_from_slice(&slot.b4);
        }
        let sum = crc32fast::hash(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads a compiled table. `as_snabb`: see [`PortSets::first_port`].
    ///
    /// # Errors
    /// The bytes are not a valid compiled table.
    pub fn from_compiled(file: &[u8], as_snabb: bool) -> Result<Table, CompiledError> {
        let (body, sum) = file.split_last_chunk().ok_or(CompiledError::Magic)?;
        let header = body
            .first_chunk::<HEADER>()
            .filter(|header| header.starts_with(MAGIC))
            .ok_or(CompiledError::Magic)?;
        let (ranges, brs) = (u64::from(word(header, 8)), u64::from(word(header, 12)));
        let softwires = u64::from(word(header, 16)) | u64::from(word(header, 20)) << 32;
        if softwires > SOFTWIRES_MAX as u64 || ranges > softwires || brs > softwires {
            return Err(CompiledError::Content("the number of softwires"));
        }
        let wanted = HEADER as u64 + ranges * RANGE as u64 + brs * 16 + softwires * SOFTWIRE as u64;
        if wanted != body.len() as u64 {
            return Err(CompiledError::Length {
                found: file.len() as u64,
                expected: wanted + 4,
            });
        }
        if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return Err(CompiledError::Checksum);
        }
        let (range_bytes, rest) = body[HEADER..].split_at(ranges as usize * RANGE);
        let (br_bytes, softwire_bytes) = rest.split_at(brs as usize * 16);
        let ranges = read_ranges(range_bytes, as_snabb)?;
        let brs = br_bytes.as_chunks::<16>().0.to_vec();
        let mut table = Table::with_room(softwires as usize, ranges, brs);
        for entry in softwire_bytes.as_chunks::<SOFTWIRE>().0 {
            table.put_compiled(entry)?;
        }
        Ok(table)
    }

    fn put_compiled(&mut self, entry: &[u8; SOFTWIRE]) -> Result<(), CompiledError> {
        let (address, br) = (word(entry, 0), word(entry, 8));
        let psid = u16::from_le_bytes([entry[4], entry[5]]);
        if br as usize >= self.brs.len() {
            return Err(CompiledError::Content("the BR address of a softwire"));
        }
        let range = self.range(address);
        let range = range.ok_or(CompiledError::Content("the address of a softwire"))?;
        if u32::from(psid) >= 1 << range.ports.psid_bits {
            return Err(CompiledError::Content("the PSID of a softwire"));
        }
        let b4 = *entry.last_chunk().unwrap_or(&[0; 16]);
        let key = u64::from(address) << 16 | u64::from(psid);
        if self.put(key, b4, br) {
            Ok(())
        } else {
            Err(CompiledError::Content("a softwire that occurs twice"))
        }
    }
}

fn read_ranges(bytes: &[u8], as_snabb: bool) -> Result<Vec<Range>, CompiledError> {
    let mut ranges: Vec<Range> = Vec::with_capacity(bytes.len() / RANGE);
    for entry in bytes.as_chunks::<RANGE>().0 {
        let ports = PortSets {
            offset_bits: entry[8],
            psid_bits: entry[9],
        };
        let (first, last) = (word(entry, 0), word(entry, 4));
        let is_behind = ranges.last().is_none_or(|before| before.last < first);
        if !ports.is_valid() || first > last || !is_behind {
            return Err(CompiledError::Content("a range of addresses"));
        }
        ranges.push(Range {
            first,
            last,
            ports,
            first_port: ports.first_port(as_snabb),
        });
    }
    Ok(ranges)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
