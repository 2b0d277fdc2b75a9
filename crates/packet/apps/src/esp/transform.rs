//! ESP with AES-GCM: in transport mode behind headers that stay, in tunnel mode around a whole
//! packet. (RFC 4303, RFC 4106)
//!
//! ```text
//!   headers that stay | SPI 4 | sequence number 4 | IV 8
//!   | ciphertext of: payload, padding 1 2 3 …, its length 1, next header 1 | ICV 16
//! ```

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use carina_frame::Frame;
use carina_wire::inet::PROTOCOL_ESP;

use super::front::{Front, Other, Place};
use super::window::ReplayWindow;

/// Length of SPI, sequence number and IV, in bytes.
const HEADER: usize = 16;
/// Length of the integrity check value (ICV), in bytes.
const ICV: usize = 16;
/// Padding makes the ciphertext a multiple of this many bytes. (RFC 4303 §2.4)
const ALIGNMENT: usize = 4;

/// The key and the salt of one direction.
pub struct Key {
    key: LessSafeKey,
    salt: [u8; 4],
}

impl Key {
    /// Makes a key; `None` if the library refuses it.
    #[must_use]
    pub fn new(key: &[u8; 16], salt: [u8; 4]) -> Option<Key> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).ok()?);
        Some(Key { key, salt })
    }

    /// The nonce: salt and IV. (RFC 4106 §4)
    fn nonce(&self, iv: [u8; 8]) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&iv);
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The data that is authenticated but not encrypted: SPI and sequence number, all 64 bits of it if
/// it is extended. (RFC 4106 §5)
fn associated(spi: u32, sequence: u64, is_extended: bool) -> ([u8; 12], usize) {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&spi.to_be_bytes());
    if is_extended {
        bytes[4..].copy_from_slice(&sequence.to_be_bytes());
        (bytes, 12)
    } else {
        bytes[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
        (bytes, 8)
    }
}

/// The sending half of a security association: protects packets, and numbers them.
pub struct Sender {
    pub(super) key: Key,
    pub(super) spi: u32,
    pub(super) is_extended: bool,
    /// Sequence number of the last packet.
    pub(super) sequence: u64,
    /// IV of the first packet. With one key no nonce may ever repeat, not even after a restart.
    pub(super) first_iv: u64,
}

/// Why the sender cannot protect a packet with ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unprotected {
    /// The frame is not an IP packet.
    NotIp,
    /// The packet is shorter than its headers say.
    Length,
    /// The packet is a fragment; transport mode protects whole packets. (RFC 4303 §3.1.1)
    Fragment,
    /// The frame has no room for what ESP adds.
    NoRoom,
    /// No sequence number is left. (RFC 4303 §3.3.3)
    Exhausted,
}

impl Sender {
    /// Protects a packet in place, in transport mode.
    ///
    /// # Errors
    /// The packet could not be protected. The frame may have been changed, and must be dropped.
    pub fn protect(&mut self, frame: &mut Frame) -> Result<(), Unprotected> {
        let front = Front::of(frame.bytes(), Place::BehindTheWay)?;
        frame.truncate(front.bytes + front.payload);
        let length = self.protect_behind(frame, front.bytes, front.next)?;
        let has_length = front.say(frame.bytes_mut(), length, PROTOCOL_ESP);
        has_length.then_some(()).ok_or(Unprotected::NoRoom)
    }

    /// Protects the bytes behind the first `front` bytes: a payload of protocol `next`. Returns the
    /// length of the protected payload, with all that ESP adds.
    ///
    /// # Errors
    /// The payload could not be protected. The frame may have been changed, and must be dropped.
    pub fn protect_behind(
        &mut self,
        frame: &mut Frame,
        front: usize,
        next: u8,
    ) -> Result<u16, Unprotected> {
        let payload = frame.len().checked_sub(front).ok_or(Unprotected::Length)?;
        let padding = (ALIGNMENT - (payload + 2) % ALIGNMENT) % ALIGNMENT;
        let length = HEADER + payload + padding + 2 + ICV;
        let length = u16::try_from(length).map_err(|_| Unprotected::NoRoom)?;
        let limit = if self.is_extended {
            u64::MAX
        } else {
            u32::MAX.into()
        };
        if self.sequence >= limit {
            return Err(Unprotected::Exhausted);
        }
        let trailer = [1, 2, 3, 0, 0];
        let mut trailer: [u8; 5] = trailer;
        (trailer[padding], trailer[padding + 1]) = (padding as u8, next);
        let has_room = frame.append(&trailer[..padding + 2])
            && frame.append(&[0; ICV])
            && frame.prepend(&[0; HEADER]);
        if !has_room {
            return Err(Unprotected::NoRoom);
        }
        let iv = self.first_iv.wrapping_add(self.sequence).to_be_bytes();
        self.sequence += 1;
        let bytes = frame.bytes_mut();
        bytes.copy_within(HEADER..HEADER + front, 0);
        let header = &mut bytes[front..];
        header[..4].copy_from_slice(&self.spi.to_be_bytes());
        header[4..8].copy_from_slice(&(self.sequence as u32).to_be_bytes());
        header[8..16].copy_from_slice(&iv);
        let (sealed, icv) = header[HEADER..].split_at_mut(payload + padding + 2);
        let (associated, count) = associated(self.spi, self.sequence, self.is_extended);
        let associated = Aad::from(&associated[..count]);
        let nonce = self.key.nonce(iv);
        let tag = self
            .key
            .key
            .seal_in_place_separate_tag(nonce, associated, sealed);
        icv.copy_from_slice(tag.map_err(|_| Unprotected::NoRoom)?.as_ref());
        Ok(length)
    }
}

/// The receiving half of a security association: checks and decrypts packets.
pub struct Receiver {
    pub(super) key: Key,
    pub(super) spi: u32,
    pub(super) is_extended: bool,
    pub(super) window: ReplayWindow,
    /// Number of consecutive failures after which the receiver searches for the upper half of the
    /// sequence number.
    pub(super) resync_threshold: u32,
    /// Number of upper halves that a search tries per packet.
    pub(super) resync_attempts: u32,
    pub(super) failures: u32,
    /// Buffer for a copy of the packet during a search, because a failed decryption destroys the
    /// packet.
    pub(super) copy: Vec<u8>,
}

/// Why the receiver of ESP packets discards one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The packet is not ESP over IP.
    NotEsp,
    /// The packet belongs to another security association.
    Spi,
    /// The packet is truncated, or its ciphertext is not aligned.
    Length,
    /// The sequence number was seen before, or is too old.
    Replay,
    /// The packet is not authentic.
    Forged,
    /// The padding is malformed.
    Padding,
    /// The packet is a fragment.
    Fragment,
}

impl From<Other> for Unprotected {
    fn from(other: Other) -> Unprotected {
        match other {
            Other::NotIp => Unprotected::NotIp,
            Other::Length => Unprotected::Length,
            Other::Fragment => Unprotected::Fragment,
        }
    }
}

impl From<Other> for Refused {
    fn from(other: Other) -> Refused {
        match other {
            Other::NotIp => Refused::NotEsp,
            Other::Length => Refused::Length,
            Other::Fragment => Refused::Fragment,
        }
    }
}

/// How [`Receiver::open`] has found the sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The number was within the expected range.
    InStep,
    /// A search found the upper half of the number.
    Resynchronised,
}

impl Receiver {
    /// Authenticates and decrypts a packet in place, in transport mode.
    ///
    /// # Errors
    /// The packet is refused. The frame may have been changed, and must be dropped.
    pub fn open(&mut self, frame: &mut Frame) -> Result<Opened, Refused> {
        let front = Front::of(frame.bytes(), Place::BehindAll)?;
        if front.next != PROTOCOL_ESP {
            return Err(Refused::NotEsp);
        }
        frame.truncate(front.bytes + front.payload);
        let (opened, next) = self.open_behind(frame, front.bytes)?;
        let inner = (frame.len() - front.bytes) as u16;
        let has_length = front.say(frame.bytes_mut(), inner, next);
        has_length.then_some(opened).ok_or(Refused::Length)
    }

    /// Authenticates and decrypts the bytes behind the first `front` bytes. Leaves the payload
    /// there, and returns its protocol.
    ///
    /// # Errors
    /// The packet is refused. The frame may have been changed, and must be dropped.
    pub fn open_behind(
        &mut self,
        frame: &mut Frame,
        front: usize,
    ) -> Result<(Opened, u8), Refused> {
        let payload = frame.len().saturating_sub(front);
        if payload < HEADER + ALIGNMENT + ICV || !payload.is_multiple_of(ALIGNMENT) {
            return Err(Refused::Length);
        }
        let bytes = frame.bytes();
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if u32::from_be_bytes(word(front)) != self.spi {
            return Err(Refused::Spi);
        }
        let low = u32::from_be_bytes(word(front + 4));
        let sequence = if self.is_extended {
            self.window.extended(low)
        } else {
            low.into()
        };
        let is_searching = self.is_extended && self.failures >= self.resync_threshold;
        if !self.window.is_new(sequence) && !is_searching {
            return Err(Refused::Replay);
        }
        if is_searching {
            self.copy.clear();
            self.copy.extend_from_slice(&bytes[front..]);
        }
        let mut found = None;
        if self.window.is_new(sequence) {
            let opened = self.decrypt(sequence, &mut frame.bytes_mut()[front..]);
            found = opened.map(|()| Opened::InStep);
        }
        if found.is_none() && is_searching {
            found = self.search(sequence, &mut frame.bytes_mut()[front..]);
        }
        let Some(opened) = found else {
            self.failures = self.failures.saturating_add(1);
            return Err(Refused::Forged);
        };
        self.failures = 0;
        let next = unwrap(frame, front)?;
        Ok((opened, next))
    }

    /// Decrypts the bytes from the ESP header on, and records the sequence number if they are
    /// authentic.
    fn decrypt(&mut self, sequence: u64, packet: &mut [u8]) -> Option<()> {
        let (header, sealed) = packet.split_first_chunk_mut::<HEADER>()?;
        let iv = header.last_chunk::<8>()?;
        let (associated, count) = associated(self.spi, sequence, self.is_extended);
        let associated = Aad::from(&associated[..count]);
        let nonce = self.key.nonce(*iv);
        self.key.key.open_in_place(nonce, associated, sealed).ok()?;
        self.window.accept(sequence);
        Some(())
    }

    /// Tries to decrypt with the next values of the sequence number's upper half. (RFC 4303,
    /// appendix A3)
    fn search(&mut self, from: u64, packet: &mut [u8]) -> Option<Opened> {
        let copy = std::mem::take(&mut self.copy);
        let mut sequence = from;
        let mut found = None;
        for _ in 0..self.resync_attempts {
            sequence = sequence.checked_add(1 << 32)?;
            packet.copy_from_slice(&copy);
            if self.decrypt(sequence, packet).is_some() {
                found = Some(Opened::Resynchronised);
                break;
            }
        }
        self.copy = copy;
        found
    }
}

/// Removes ESP header, trailer and ICV of a decrypted packet, behind the first `front` bytes;
/// returns the protocol of the payload.
fn unwrap(frame: &mut Frame, front: usize) -> Result<u8, Refused> {
    let bytes = frame.bytes_mut();
    let end = bytes.len() - ICV;
    let (padding, next) = (usize::from(bytes[end - 2]), bytes[end - 1]);
    let inner = (end - front - HEADER - 2)
        .checked_sub(padding)
        .ok_or(Refused::Padding)?;
    let pad = &bytes[front + HEADER + inner..end - 2];
    if pad.iter().zip(1..).any(|(byte, wanted)| *byte != wanted) {
        return Err(Refused::Padding);
    }
    bytes.copy_within(..front, HEADER);
    frame.truncate(front + HEADER + inner);
    frame.advance(HEADER);
    Ok(next)
}
