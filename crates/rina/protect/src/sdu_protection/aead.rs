//! Authenticated encryption of PDUs.
//!
//! Keys are derived from the shared secret by HKDF-SHA256, one for each direction and each epoch of
//! 2^32 PDUs. So no key is used for too long, and no two PDUs share a nonce.

use aws_lc_rs::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use carina_ipcp::security::Reject;

use super::replay::Replay;
use crate::crypto_error::CryptoError;

/// The algorithm that encrypts and authenticates PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM: fast on processors with AES instructions.
    Aes256Gcm,
    /// ChaCha20-Poly1305: fast on all processors.
    ChaCha20Poly1305,
}

impl Cipher {
    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    fn label(self) -> &'static [u8] {
        match self {
            Cipher::Aes256Gcm => b"aes-256-gcm",
            Cipher::ChaCha20Poly1305 => b"chacha20-poly1305",
        }
    }
}

/// Authenticated encryption and decryption of PDUs at one end of an N-1 flow.
pub struct Aead {
    sending: Direction,
    receiving: Direction,
    /// Counter of the next PDU to send.
    next: u64,
    replay: Replay,
    epoch_bits: u32,
}

/// Derives the keys of one direction.
struct Direction {
    prk: Prk,
    label: &'static [u8],
    cipher: Cipher,
    /// Keys of two consecutive epochs, indexed by the last bit of the epoch.
    keys: [Option<(u64, EpochKey)>; 2],
}

struct EpochKey {
    key: LessSafeKey,
    iv: [u8; IV_LEN],
}

impl Aead {
    /// Creates the initiator's or the responder's end of an N-1 flow from the shared secret.
    ///
    /// # Errors
    /// A key could not be derived.
    pub fn new(cipher: Cipher, secret: &[u8; 32], is_initiator: bool) -> Result<Aead, CryptoError> {
        Aead::with_epochs_of(EPOCH_BITS, cipher, secret, is_initiator)
    }

    pub(super) fn with_epochs_of(
        epoch_bits: u32,
        cipher: Cipher,
        secret: &[u8; 32],
        is_initiator: bool,
    ) -> Result<Aead, CryptoError> {
        let direction = |label: &'static [u8]| Direction {
            prk: Salt::new(HKDF_SHA256, b"carina sdu-protection").extract(secret),
            label,
            cipher,
            keys: [None, None],
        };
        let (to_responder, to_initiator) = (direction(b"to responder"), direction(b"to initiator"));
        let (mut sending, receiving) = if is_initiator {
            (to_responder, to_initiator)
        } else {
            (to_initiator, to_responder)
        };
        // Derive the first key now, to report a failure to the caller.
        sending.key(0).map_err(|_| CryptoError::Key)?;
        Ok(Aead {
            sending,
            receiving,
            next: 0,
            replay: Replay::default(),
            epoch_bits,
        })
    }

    /// Encrypts a PDU in place, and appends tag and counter. The error tells that the key is used
    /// up.
    pub fn protect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        let counter = self.next;
        if counter == u64::MAX {
            return Err(Reject::Exhausted);
        }
        let key = self.sending.key(counter >> self.epoch_bits)?;
        let tag = key
            .key
            .seal_in_place_separate_tag(key.nonce(counter), Aad::empty(), pdu)
            .map_err(|_| Reject::Exhausted)?;
        self.next += 1;
        pdu.extend_from_slice(tag.as_ref());
        pdu.extend_from_slice(&counter.to_be_bytes());
        Ok(())
    }

    /// Checks and decrypts, in place, a PDU that [`Aead::protect`] of the other side has made. The
    /// error tells why the PDU must be dropped.
    pub fn unprotect(&mut self, pdu: &mut Vec<u8>) -> Result<(), Reject> {
        let protected = pdu.len().checked_sub(COUNTER_LEN).ok_or(Reject::Short)?;
        if protected < TAG_LEN {
            return Err(Reject::Short);
        }
        let mut counter = [0; COUNTER_LEN];
        counter.copy_from_slice(&pdu[protected..]);
        let counter = u64::from_be_bytes(counter);
        if counter == u64::MAX {
            return Err(Reject::Forged);
        }
        if !self.replay.is_new(counter) {
            return Err(Reject::Replayed);
        }
        let epoch = counter >> self.epoch_bits;
        // A forged counter must not make this end derive keys of distant epochs. At most the next
        // epoch is accepted.
        if epoch > (self.replay.end() >> self.epoch_bits) + 1 {
            return Err(Reject::Forged);
        }
        let key = self.receiving.key(epoch)?;
        let plain = key
            .key
            .open_in_place(key.nonce(counter), Aad::empty(), &mut pdu[..protected])
            .map_err(|_| Reject::Forged)?
            .len();
        self.replay.accept(counter);
        pdu.truncate(plain);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn skip_to(&mut self, counter: u64) {
        self.next = counter;
    }
}

impl Direction {
    fn key(&mut self, epoch: u64) -> Result<&EpochKey, Reject> {
        let slot = (epoch & 1) as usize;
        if self.keys[slot]
            .as_ref()
            .is_none_or(|(held, _)| *held != epoch)
        {
            let key = self.derive(epoch).map_err(|_| Reject::Exhausted)?;
            self.keys[slot] = Some((epoch, key));
        }
        self.keys[slot]
            .as_ref()
            .map(|(_, key)| key)
            .ok_or(Reject::Exhausted)
    }

    fn derive(&self, epoch: u64) -> Result<EpochKey, aws_lc_rs::error::Unspecified> {
        let epoch = epoch.to_be_bytes();
        let info = [self.cipher.label(), b" ", self.label, b" ", &epoch];
        let mut material = [0; KEY_LEN + IV_LEN];
        self.prk.expand(&info, Material)?.fill(&mut material)?;
        let (key, rest) = material.split_at(KEY_LEN);
        let key = UnboundKey::new(self.cipher.algorithm(), key)?;
        let mut iv = [0; IV_LEN];
        iv.copy_from_slice(rest);
        Ok(EpochKey {
            key: LessSafeKey::new(key),
            iv,
        })
    }
}

impl EpochKey {
    /// The secret initialization vector XORed with the counter, as in TLS 1.3 (RFC 8446, section
    /// 5.3).
    fn nonce(&self, counter: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, more) in nonce[IV_LEN - COUNTER_LEN..]
            .iter_mut()
            .zip(counter.to_be_bytes())
        {
            *byte ^= more;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

struct Material;

impl KeyType for Material {
    fn len(&self) -> usize {
        KEY_LEN + IV_LEN
    }
}

/// Bytes that encryption adds to a PDU.
pub(super) const OVERHEAD: usize = TAG_LEN + COUNTER_LEN;

/// Number of PDUs under one key, as a power of two. With PDUs of 1500 bytes, 2^32 PDUs give an
/// attacker on AES-GCM an advantage of about 2^-51 (blocks squared over 2^129).
const EPOCH_BITS: u32 = 32;

const TAG_LEN: usize = 16;
const COUNTER_LEN: usize = 8;
const KEY_LEN: usize = 32;
const IV_LEN: usize = 12;
