//! SDU protection of an N-1 flow.
//!
//! Specified in the Pouzin Society's *SDU Protection Specification*: integrity, confidentiality and
//! a limit on the lifetime of PDUs. The format is Carina's own.
//!
//! All fields are in a trailer, so that a PDU is protected without moving it:
//!
//! ```text
//!  | PDU, or LZ4 block | inflated: u16 | padding | sent: u32     | info: u8 | outer             |
//!  |                   | if compressed | 0 to 45 | with lifetime |          |                   |
//!  |<-------------- under the checksum, or encrypted ----------------------->| CRC-32: u32, or   |
//!                                                                            | tag, counter: u64 |
//! ```
//!
//! `info`: bit 7 is set if the PDU is compressed, bit 6 is zero, bits 0 to 5 are the number of
//! padding bytes. All numbers are in network byte order.

mod aead;
mod lifetime;
mod replay;

use carina_ipcp::security::{Reject, SduProtection};
use carina_time::Instant;

pub use aead::{Aead, Cipher};
pub use lifetime::Lifetime;
pub use replay::WINDOW;

/// SDU protection at one end of an N-1 flow, made of layers: compression, lifetime, and checksum or
/// encryption.
pub struct Protection {
    outer: Outer,
    lifetime: Option<Lifetime>,
    is_compressing: bool,
    /// Buffer for compression, reused so that no PDU needs an allocation.
    scratch: Vec<u8>,
}

/// The outermost layer of protection, which is removed first on receipt.
pub enum Outer {
    /// No checksum and no encryption.
    Plain,
    /// CRC-32 (IEEE 802.3) over all bytes before it. It detects accidental damage, not attacks.
    Crc32,
    /// Authenticated encryption.
    Aead(Box<Aead>),
}

impl Protection {
    /// Creates the protection from its layers, the outermost first.
    pub fn new(outer: Outer, lifetime: Option<Lifetime>, is_compressing: bool) -> Protection {
        Protection {
            outer,
            lifetime,
            is_compressing,
            scratch: Vec::new(),
        }
    }

    fn outer_len(&self) -> usize {
        match self.outer {
            Outer::Plain => 0,
            Outer::Crc32 => CRC_LEN,
            Outer::Aead(_) => aead::OVERHEAD,
        }
    }

    /// Compresses the PDU if that makes it shorter. Returns whether it was compressed.
    fn deflate(&mut self, pdu: &mut Vec<u8>) -> bool {
        let Ok(inflated) = u16::try_from(pdu.len()) else {
            return false;
        };
        if !self.is_compressing || pdu.len() < COMPRESS_MIN {
            return false;
        }
        let room = lz4_flex::block::get_maximum_output_size(pdu.len());
        if self.scratch.len() < room {
            self.scratch.resize(room, 0);
        }
        let deflated = lz4_flex::block::compress_into(pdu, &mut self.scratch);
        let Some(len) = deflated.ok().filter(|len| len + LEN_LEN < pdu.len()) else {
            return false;
        };
        pdu.clear();
        pdu.extend_from_slice(&self.scratch[..len]);
        pdu.extend_from_slice(&inflated.to_be_bytes());
        true
    }

    /// Decompresses the PDU. The length field in the PDU, which is below 64 KiB, limits the result.
    fn inflate(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        let inflated = usize::from(u16::from_be_bytes(take(pdu)?));
        if self.scratch.len() < inflated {
            self.scratch.resize(inflated, 0);
        }
        let out = &mut self.scratch[..inflated];
        match lz4_flex::block::decompress_into(pdu, out) {
            Ok(len) if len == inflated => {
                pdu.clear();
                pdu.extend_from_slice(&self.scratch[..inflated]);
                Ok(())
            }
            _ => Err(Reject::Inflated),
        }
    }

    fn unprotect_outer(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        match &mut self.outer {
            Outer::Plain => Ok(()),
            Outer::Crc32 => {
                let sum = u32::from_be_bytes(take(pdu)?);
                if crc32fast::hash(pdu) == sum {
                    Ok(())
                } else {
                    Err(Reject::Checksum)
                }
            }
            Outer::Aead(aead) => aead.unprotect(pdu),
        }
    }
}

impl SduProtection for Protection {
    fn overhead(&self) -> usize {
        let sent = if self.lifetime.is_some() { SENT_LEN } else { 0 };
        sent + INFO_LEN + self.outer_len()
    }

    fn set_now(&mut self, now: Instant) {
        if let Some(lifetime) = &mut self.lifetime {
            lifetime.set_now(now);
        }
    }

    fn protect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        let is_compressed = self.deflate(pdu);
        let padding = PROTECTED_MIN.saturating_sub(pdu.len() + self.overhead());
        pdu.resize(pdu.len() + padding, 0);
        if let Some(lifetime) = &self.lifetime {
            pdu.extend_from_slice(&lifetime.stamp().to_be_bytes());
        }
        let flag = if is_compressed { COMPRESSED } else { 0 };
        pdu.push(flag | padding as u8);
        match &mut self.outer {
            Outer::Plain => {}
            Outer::Crc32 => {
                let sum = crc32fast::hash(pdu);
                pdu.extend_from_slice(&sum.to_be_bytes());
            }
            Outer::Aead(aead) => aead.protect(pdu)?,
        }
        Ok(())
    }

    fn unprotect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        self.unprotect_outer(pdu)?;
        let [info] = take(pdu)?;
        if let Some(lifetime) = &mut self.lifetime {
            let sent = u32::from_be_bytes(take(pdu)?);
            if !lifetime.is_alive(sent) {
                return Err(Reject::Expired);
            }
        }
        let padding = usize::from(info & PADDING);
        let len = pdu.len().checked_sub(padding).ok_or(Reject::Short)?;
        if info & RESERVED != 0 || pdu[len..].iter().any(|byte| *byte != 0) {
            // Only a peer with the key can cause this; without a MAC, any peer can.
            return Err(Reject::Forged);
        }
        pdu.truncate(len);
        if info & COMPRESSED != 0 {
            // Both sides have the same parameters, so the peer may not compress either.
            if !self.is_compressing {
                return Err(Reject::Inflated);
            }
            self.inflate(pdu)?;
        }
        Ok(())
    }
}

/// Removes and returns the last `N` bytes.
fn take<const N: usize>(pdu: &mut Vec<u8>) -> Result<[u8; N], Reject> {
    let (rest, last) = pdu.split_last_chunk::<N>().ok_or(Reject::Short)?;
    let (len, last) = (rest.len(), *last);
    pdu.truncate(len);
    Ok(last)
}

/// Shortest protected PDU in bytes: the shortest payload of an Ethernet frame. A network card would
/// pad a shorter one, and the receiver could not find its end.
pub const PROTECTED_MIN: usize = 46;

/// PDUs below this length are not compressed, because it would gain nothing.
const COMPRESS_MIN: usize = 64;

const COMPRESSED: u8 = 0x80;
const RESERVED: u8 = 0x40;
const PADDING: u8 = 0x3f;

const CRC_LEN: usize = 4;
const LEN_LEN: usize = 2;
const SENT_LEN: usize = 4;
const INFO_LEN: usize = 1;

#[cfg(test)]
mod tests;
