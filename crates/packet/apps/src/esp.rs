//! **esp**: protects IPv4 and IPv6 packets by ESP in transport mode with AES-128-GCM. (RFC 4303,
//! RFC 4106) Tunnel mode: `esp_tunnel`.
//!
//! - inputs, outputs: `north`, unprotected packets, and `south`, protected packets
//! - configuration:
//!   - `spi`: SPI of both directions, 256 to 4294967295
//!   - `transmit_key`, `receive_key`: 16 bytes in hexadecimal; `transmit_salt`, `receive_salt`: 4
//!     bytes in hexadecimal
//!   - `extended`: use sequence numbers of 64 bits, of which the lower 32 are sent (default:
//!     `true`)
//!   - `resync_threshold`: number of consecutive failures after which the receiver searches for the
//!     sender's sequence number (default: 1024); `resync_attempts`: values of its upper half that
//!     it tries per packet (default: 8)
//! - counters: from `north`: `drop_not_ip`, `drop_short`, `drop_fragment`, `drop_no_room`,
//!   `drop_unfinished`: frames whose segmentation is still pending, `drop_exhausted`: no sequence
//!   number left. From `south`: `drop_not_esp`, `drop_spi`, `drop_length`, `drop_replay`: sequence
//!   numbers that were seen or are older than the last 128, `drop_forged`, `drop_padding`,
//!   `drop_fragment`; `resynchronised`. `arp`: ARP frames in both directions
//! - cost: AES-GCM over the payload: some 80 ns at 64 bytes
//!
//! ARP frames pass unprotected, because ESP protects IP only. IPv4 options stay in front of ESP. So
//! do the IPv6 extension headers that routers on the path read: hop-by-hop options, routing header,
//! and the fragment header of a packet that is whole. Destination options behind these are
//! protected.
//!
//! Each direction needs its own key. The app refuses the same key and salt for both directions, and
//! a graph refuses two apps that send with the same ones: otherwise they would use the same AES-GCM
//! nonces (RFC 4106 §2, §3.1). A key of zeros is refused.
//!
//! Sequence numbers begin at 1. If only the sender restarts with the same keys, the receiver
//! refuses its packets as replays; so restart both ends together, or with new keys. The IV is the
//! sender's start time in nanoseconds plus the sequence number. No nonce therefore repeats, as long
//! as a sender makes less than 10^9 packets per second and its clock is not set back before its
//! last start.

mod front;
mod transform;
mod window;

use std::time::{SystemTime, UNIX_EPOCH};

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, Port, PortList, Ports, Sole};
use carina_wire::ether::ETHERTYPE_ARP;
use serde::Deserialize;

pub use self::transform::{Key, Opened, Receiver, Refused, Sender, Unprotected};
pub use self::window::{ReplayWindow, WINDOW};
use crate::hex_text::SecretHex;
use crate::metadata::{complete, forget};

/// The configuration of the app `esp`, which protects IP packets by ESP in transport mode.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EspConfig {
    /// Security parameters index of both directions.
    pub spi: u32,
    /// Key for packets to `south`.
    pub transmit_key: SecretHex<16>,
    /// Salt for packets to `south`.
    pub transmit_salt: SecretHex<4>,
    /// Key for packets from `south`.
    pub receive_key: SecretHex<16>,
    /// Salt for packets from `south`.
    pub receive_salt: SecretHex<4>,
    /// Whether sequence numbers have 64 bits.
    #[serde(default = "yes")]
    pub extended: bool,
    /// Number of consecutive failures before the receiver searches for the sender's sequence
    /// number.
    #[serde(default = "threshold")]
    pub resync_threshold: u32,
    /// Number of values that a search tries per packet.
    #[serde(default = "attempts")]
    pub resync_attempts: u32,
}

pub(crate) fn yes() -> bool {
    true
}

pub(crate) fn threshold() -> u32 {
    1024
}

pub(crate) fn attempts() -> u32 {
    8
}

/// The running app `esp`: protects IP packets by ESP in transport mode.
pub struct Esp {
    sender: Sender,
    receiver: Receiver,
    unfinished: Counter,
    unprotected: [Counter; 5],
    refused: [Counter; 7],
    resynchronised: Counter,
    arp: Counter,
}

/// Why a configuration of the app `esp` or `esp_tunnel` is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EspError {
    #[error("{name} = {spi}: must be 256 to 4294967295 (RFC 4303 reserves 0 to 255)")]
    Spi { name: &'static str, spi: u32 },
    #[error("resync_attempts = {0}: must be 0 to 64")]
    Attempts(u32),
    #[error(
        "transmit_key and transmit_salt equal receive_key and receive_salt: both ends would use \
         the same nonces, which reveals the plaintext (RFC 4106 §2, §3.1); use a different key \
         for each direction"
    )]
    OneKey,
    #[error("{0} is all zeros: a key must be 16 random bytes, such as openssl rand -hex 16 prints")]
    ZeroKey(&'static str),
    #[error("the cryptographic library refuses transmit_key or receive_key")]
    Key,
    #[error("the system clock is before 1970: nonces are derived from it; set the clock")]
    Clock,
}

/// The SPI and keys of one direction, and whether its sequence numbers have 64 bits.
pub(crate) struct Direction<'a> {
    pub(crate) spi: u32,
    pub(crate) key: &'a SecretHex<16>,
    pub(crate) salt: &'a SecretHex<4>,
    pub(crate) is_extended: bool,
}

/// When and how far a receiver searches for a sender whose sequence number has advanced beyond the
/// window.
#[derive(Clone, Copy)]
pub(crate) struct Search {
    pub(crate) threshold: u32,
    pub(crate) attempts: u32,
}

impl Search {
    pub(crate) fn check(self) -> Result<(), EspError> {
        if self.attempts > 64 {
            Err(EspError::Attempts(self.attempts))
        } else {
            Ok(())
        }
    }
}

/// Refuses a reserved SPI: 1 to 255 are reserved. (RFC 4303 §2.1)
pub(crate) fn check_spi(name: &'static str, spi: u32) -> Result<(), EspError> {
    if spi < 256 {
        Err(EspError::Spi { name, spi })
    } else {
        Ok(())
    }
}

/// Refuses keys that give no protection. An IV must be unique for a key and salt (RFC 4106 §3.1),
/// and each end counts its own IVs: with the same key and salt in both directions, nonces would
/// repeat.
pub(crate) fn check_keys(
    transmit: &Direction<'_>,
    receive: &Direction<'_>,
) -> Result<(), EspError> {
    for (name, direction) in [("transmit_key", transmit), ("receive_key", receive)] {
        if direction.key.bytes() == &[0; 16] {
            return Err(EspError::ZeroKey(name));
        }
    }
    if transmit.key == receive.key && transmit.salt == receive.salt {
        Err(EspError::OneKey)
    } else {
        Ok(())
    }
}

/// The IV of a sender's first packet: the time, so that no IV repeats after a restart.
pub(crate) fn first_iv() -> Result<u64, EspError> {
    // The only clock that continues over a reboot. It is used for nothing else.
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(clock.map_err(|_| EspError::Clock)?.as_nanos() as u64)
}

impl Direction<'_> {
    /// The key and salt, as a resource with which only one app may send.
    pub(crate) fn sole(&self) -> Sole {
        let value = [&self.key.bytes()[..], &self.salt.bytes()[..]].concat();
        let what = "transmit_key and transmit_salt";
        let reason = "their nonces would meet (RFC 4106 §2, §3.1); each needs a key of its own";
        Sole::secret(what, value, reason)
    }

    fn key(&self) -> Result<Key, EspError> {
        Key::new(self.key.bytes(), *self.salt.bytes()).ok_or(EspError::Key)
    }

    /// Makes the sending half of the security association, whose first packet gets the IV
    /// `first_iv`.
    ///
    /// # Errors
    /// The library refuses the key.
    pub(crate) fn sender(&self, first_iv: u64) -> Result<Sender, EspError> {
        Ok(Sender {
            key: self.key()?,
            spi: self.spi,
            is_extended: self.is_extended,
            sequence: 0,
            first_iv,
        })
    }

    /// Makes the receiving half of the security association.
    ///
    /// # Errors
    /// The library refuses the key.
    pub(crate) fn receiver(&self, search: Search) -> Result<Receiver, EspError> {
        Ok(Receiver {
            key: self.key()?,
            spi: self.spi,
            is_extended: self.is_extended,
            window: ReplayWindow::new(),
            resync_threshold: search.threshold,
            resync_attempts: search.attempts,
            failures: 0,
            copy: Vec::new(),
        })
    }
}

impl Receiver {
    /// Replaces the parameters by which the receiver searches for the sender's sequence number.
    pub(crate) fn search_by(&mut self, search: Search) {
        self.resync_threshold = search.threshold;
        self.resync_attempts = search.attempts;
    }
}

impl EspConfig {
    fn search(&self) -> Search {
        Search {
            threshold: self.resync_threshold,
            attempts: self.resync_attempts,
        }
    }

    fn transmit(&self) -> Direction<'_> {
        Direction {
            spi: self.spi,
            key: &self.transmit_key,
            salt: &self.transmit_salt,
            is_extended: self.extended,
        }
    }

    fn receive(&self) -> Direction<'_> {
        Direction {
            spi: self.spi,
            key: &self.receive_key,
            salt: &self.receive_salt,
            is_extended: self.extended,
        }
    }
}

impl AppConfig for EspConfig {
    const KIND: &'static str = "esp";
    const INPUTS: PortList = PortList::Named(&[Port::new("north"), Port::new("south")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::new("north"), Port::new("south")]);

    type App = Esp;

    fn check(&self) -> Result<(), AppError> {
        check_spi("spi", self.spi)?;
        check_keys(&self.transmit(), &self.receive())?;
        Ok(self.search().check()?)
    }

    fn sole(&self) -> Vec<Sole> {
        vec![self.transmit().sole()]
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Esp, AppError> {
        Ok(Esp {
            sender: self.transmit().sender(first_iv()?)?,
            receiver: self.receive().receiver(self.search())?,
            unfinished: context.counter("drop_unfinished"),
            unprotected: UNPROTECTED.map(|name| context.counter(name)),
            refused: REFUSED.map(|name| context.counter(name)),
            resynchronised: context.counter("resynchronised"),
            arp: context.counter("arp"),
        })
    }

    /// Only the search parameters can change without a new app; keys and sequence numbers stay.
    fn can_apply(&self, old: &EspConfig) -> bool {
        let old = EspConfig {
            resync_threshold: self.resync_threshold,
            resync_attempts: self.resync_attempts,
            ..old.clone()
        };
        *self == old
    }

    fn apply(&self, app: &mut Esp) {
        app.receiver.search_by(self.search());
    }
}

/// Names of the counters, in the order of [`Unprotected`].
const UNPROTECTED: [&str; 5] = [
    "drop_not_ip",
    "drop_short",
    "drop_fragment",
    "drop_no_room",
    "drop_exhausted",
];

/// Names of the counters, in the order of [`Refused`].
const REFUSED: [&str; 7] = [
    "drop_not_esp",
    "drop_spi",
    "drop_length",
    "drop_replay",
    "drop_forged",
    "drop_padding",
    "drop_fragment",
];

const NORTH: usize = 0;
const SOUTH: usize = 1;

impl FrameApp for Esp {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let (mut unfinished, mut unprotected, mut arp) = (0, [0; 5], 0);
        ports.forward(NORTH, SOUTH, |frame| {
            if is_arp(frame.bytes()) {
                arp += 1;
                return true;
            }
            if !complete(frame) {
                unfinished += 1;
                return false;
            }
            match self.sender.protect(frame) {
                Ok(()) => true,
                Err(reason) => {
                    unprotected[reason as usize] += 1;
                    false
                }
            }
        });
        self.unfinished.add(unfinished);
        for (counter, count) in self.unprotected.iter().zip(unprotected) {
            counter.add(count);
        }
        let (mut refused, mut resynchronised) = ([0; 7], 0);
        ports.forward(SOUTH, NORTH, |frame| {
            if is_arp(frame.bytes()) {
                arp += 1;
                return true;
            }
            match self.receiver.open(frame) {
                Ok(opened) => {
                    resynchronised += u64::from(opened == Opened::Resynchronised);
                    forget(frame);
                    true
                }
                Err(reason) => {
                    refused[reason as usize] += 1;
                    false
                }
            }
        });
        for (counter, count) in self.refused.iter().zip(refused) {
            counter.add(count);
        }
        self.resynchronised.add(resynchronised);
        self.arp.add(arp);
    }
}

fn is_arp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&ETHERTYPE_ARP.to_be_bytes())
}

#[cfg(test)]
mod tests;
