//! Delimiting: turns SDUs into user-data fields (UDFs), and UDFs into SDUs.
//!
//! Specified in the Pouzin Society's *Delimiting Specification*. The headers of policy `standard`
//! are Carina's own.
//!
//! [`Delimiter`] is the sending end, [`Assembler`] the receiving end. With policy `standard` every
//! UDF begins with a header; numbers are in network byte order:
//!
//! ```text
//! whole SDU          0x00, SDU
//! several SDUs       0x40, then for each: length (2 bytes), SDU
//! fragment, ordered  10FLiiii iiiiiiii, bytes
//! fragment, any      11F L0000, SDU number (4 bytes), offset in the SDU in bytes (4), bytes
//!   order
//!
//! F  the first fragment of its SDU      i  number of the fragment in its SDU, modulo 4096
//! L  the last one
//! ```
//!
//! Ordered fragments have consecutive sequence numbers. A gap in the sequence numbers, or in `i`,
//! shows that the SDU is incomplete. If UDFs are delivered in any order, the SDU number identifies
//! the fragments of one SDU; it counts fragmented SDUs modulo 2^32.
//!
//! Without message boundaries every UDF is of the kind *whole*, and contains a part of the stream.
//!
//! With policy `none` one SDU is one UDF without a header. With `flag-byte` every UDF begins with
//! one byte, and only a connection that delivers in order can carry fragments:
//!
//! ```text
//! 0000 01LF, bytes      L  the last fragment of its SDU      F  the first one
//! ```

mod assembler;
mod counters;
mod delimiter;
mod scattered;

use alloc::collections::BTreeMap;
use alloc::string::String;

pub use assembler::{Assembler, AssemblerConfig, Piece};
pub use counters::AssemblerCounters;
pub use delimiter::{Delimiter, DelimiterConfig, Refusal};

use crate::catalogue::{PolicyInfo, check_names, unknown_policy};
use crate::error::PolicyError;

/// The policies of delimiting: how SDUs are put into UDFs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delimiting {
    /// `standard`: headers, fragmentation and concatenation (default).
    #[default]
    Standard,
    /// `none`: one SDU is one UDF, without a header.
    None,
    /// `flag-byte`: a header of one byte with flags. SDUs are fragmented if UDFs are delivered in
    /// order.
    FlagByte,
}

impl Delimiting {
    /// Returns the policy `name`. No policy of delimiting has parameters.
    ///
    /// # Errors
    /// There is no such policy, or a parameter was given.
    pub fn by_name(
        name: &str,
        params: &BTreeMap<String, String>,
    ) -> Result<Delimiting, PolicyError> {
        check_names("delimiting", LIST, name, params)?;
        match name {
            "standard" => Ok(Delimiting::Standard),
            "none" => Ok(Delimiting::None),
            "flag-byte" => Ok(Delimiting::FlagByte),
            _ => Err(unknown_policy("delimiting", LIST, name)),
        }
    }

    /// Returns descriptions of all policies of delimiting; the first is the default.
    #[must_use]
    pub fn list() -> &'static [PolicyInfo] {
        LIST
    }
}

const LIST: &[PolicyInfo] = &[
    PolicyInfo {
        name: "standard",
        help: "Fragments long SDUs, and puts several small ones into one UDF.",
        params: &[],
    },
    PolicyInfo {
        name: "none",
        help: "Each SDU is one UDF without a header; an SDU that does not fit into one PDU is \
            refused.",
        params: &[],
    },
    PolicyInfo {
        name: "flag-byte",
        help: "Each UDF begins with a byte of flags, which mark the first and the last fragment \
            of an SDU, as in IRATI.",
        params: &[],
    },
];

/// Mask of the kind of a UDF: the two high bits of its first byte.
const KIND: u8 = 0xc0;
const WHOLE: u8 = 0x00;
const SEVERAL: u8 = 0x40;
const ORDERED: u8 = 0x80;
const SCATTERED: u8 = 0xc0;
const FIRST: u8 = 0x20;
const LAST: u8 = 0x10;

/// Length of the longest header of a UDF, in bytes.
pub const HEADER_MAX: usize = SCATTERED_HEADER;

/// Length of the header of a UDF that holds a whole SDU, in bytes.
pub const WHOLE_HEADER: usize = 1;

const ORDERED_HEADER: usize = 2;
const SCATTERED_HEADER: usize = 9;

/// Flags in the first byte of policy `flag-byte`: first and last fragment. `FLAG_NO_LENGTH` says
/// that no length follows. A higher bit would announce numbers, which no known implementation
/// sends.
const FLAG_FIRST: u8 = 0x01;
const FLAG_LAST: u8 = 0x02;
const FLAG_NO_LENGTH: u8 = 0x04;
const FLAGS_WHOLE: u8 = FLAG_NO_LENGTH | FLAG_FIRST | FLAG_LAST;

fn flag_byte(is_first: bool, is_last: bool) -> u8 {
    let first = if is_first { FLAG_FIRST } else { 0 };
    let last = if is_last { FLAG_LAST } else { 0 };
    FLAG_NO_LENGTH | first | last
}

fn ordered_header(is_first: bool, is_last: bool, index: u16) -> [u8; ORDERED_HEADER] {
    let [high, low] = (index & 0x0fff).to_be_bytes();
    [ORDERED | flags(is_first, is_last) | high, low]
}

fn scattered_header(is_last: bool, sdu: u32, offset: u32) -> [u8; SCATTERED_HEADER] {
    let [s0, s1, s2, s3] = sdu.to_be_bytes();
    let [o0, o1, o2, o3] = offset.to_be_bytes();
    let first = SCATTERED | flags(offset == 0, is_last);
    [first, s0, s1, s2, s3, o0, o1, o2, o3]
}

fn flags(is_first: bool, is_last: bool) -> u8 {
    (if is_first { FIRST } else { 0 }) | (if is_last { LAST } else { 0 })
}
