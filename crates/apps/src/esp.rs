//! **esp**: protects packets of IPv6 by ESP in transport mode with AES-128-GCM. (RFC 4303, RFC
//! 4106)
//!
//! - inputs, outputs: `north`, packets as they are, and `south`, protected ones
//! - configuration:
//!   - `spi`: of both directions, 256 to 4294967295
//!   - `transmit_key`, `receive_key`: 16 bytes in hexadecimal; `transmit_salt`, `receive_salt`: 4
//!   - `extended`: sequence numbers have 64 bits, of which 32 are sent; true where nothing is said
//!   - `resync_threshold`, `resync_attempts`: after so many failures in a row, a packet is tried
//!     with so many further values of the number's upper half; 1024 and 8 where nothing is said
//! - counters: to the south `drop_not_ipv6`, `drop_short`, `drop_no_room`, `drop_unfinished`,
//!   `drop_exhausted`. From the south `drop_not_esp`, `drop_spi`, `drop_length`, `drop_replay`,
//!   seen or older than the last 128, `drop_forged`, `drop_padding`; `resynchronised`
//! - cost: AES-GCM over the payload: some 80 ns at 64 bytes
//!
//! Sequence numbers begin with 1. A receiver refuses the numbers of a sender that began anew with
//! the same keys as a replay: both ends begin together, or with new keys. The IV is the time of the
//! start in nanoseconds plus the number, so that no nonce returns while a sender makes less than
//! 10^9 packets a second, and its clock is not set back beyond its last start.

mod transform;
mod window;

use std::time::{SystemTime, UNIX_EPOCH};

use carina_engine::counter_file::Counter;
use carina_engine::frames::{AppConfig, AppContext, AppError, FrameApp, Port, PortList, Ports};
use serde::Deserialize;

pub use self::transform::{Key, Opened, Receiver, Refused, Sender, Unprotected};
pub use self::window::{ReplayWindow, WINDOW};
use crate::hex_text::SecretHex;
use crate::metadata::{complete, forget};

/// The configuration of the app.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EspConfig {
    /// Security parameters index of both directions.
    pub spi: u32,
    /// Key of packets to the south.
    pub transmit_key: SecretHex<16>,
    /// Salt of packets to the south.
    pub transmit_salt: SecretHex<4>,
    /// Key of packets from the south.
    pub receive_key: SecretHex<16>,
    /// Salt of packets from the south.
    pub receive_salt: SecretHex<4>,
    /// Sequence numbers have 64 bits.
    #[serde(default = "yes")]
    pub extended: bool,
    /// Failures before a search.
    #[serde(default = "threshold")]
    pub resync_threshold: u32,
    /// Values that a search tries.
    #[serde(default = "attempts")]
    pub resync_attempts: u32,
}

fn yes() -> bool {
    true
}

fn threshold() -> u32 {
    1024
}

fn attempts() -> u32 {
    8
}

/// The app.
pub struct Esp {
    sender: Sender,
    receiver: Receiver,
    unfinished: Counter,
    unprotected: [Counter; 4],
    refused: [Counter; 6],
    resynchronised: Counter,
}

/// Why there is no such app.
#[derive(Debug, thiserror::Error)]
enum EspError {
    #[error("spi = {0}: must be 256 to 4294967295; those below are reserved")]
    Spi(u32),
    #[error("resync_attempts = {0}: must be 0 to 64")]
    Attempts(u32),
    #[error("the library of cryptography refuses a key")]
    Key,
    #[error("the clock of the system stands before 1970, and no nonce can be made of it")]
    Clock,
}

impl EspConfig {
    fn check(&self) -> Result<(), EspError> {
        // 1 to 255 are reserved. (RFC 4303 §2.1)
        if self.spi < 256 {
            return Err(EspError::Spi(self.spi));
        }
        if self.resync_attempts > 64 {
            return Err(EspError::Attempts(self.resync_attempts));
        }
        Ok(())
    }

    /// The sending direction, with this first IV.
    ///
    /// # Errors
    /// The key is refused.
    fn sender(&self, first_iv: u64) -> Result<Sender, EspError> {
        let (key, salt) = (&self.transmit_key, *self.transmit_salt.bytes());
        Ok(Sender {
            key: Key::new(key.bytes(), salt).ok_or(EspError::Key)?,
            spi: self.spi,
            is_extended: self.extended,
            sequence: 0,
            first_iv,
        })
    }

    fn receiver(&self) -> Result<Receiver, EspError> {
        let (key, salt) = (&self.receive_key, *self.receive_salt.bytes());
        Ok(Receiver {
            key: Key::new(key.bytes(), salt).ok_or(EspError::Key)?,
            spi: self.spi,
            is_extended: self.extended,
            window: ReplayWindow::new(),
            resync_threshold: self.resync_threshold,
            resync_attempts: self.resync_attempts,
            failures: 0,
            copy: Vec::new(),
        })
    }
}

impl AppConfig for EspConfig {
    const KIND: &'static str = "esp";
    const INPUTS: PortList = PortList::Named(&[Port::new("north"), Port::new("south")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::new("north"), Port::new("south")]);

    type App = Esp;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Esp, AppError> {
        self.check()?;
        // The one clock that goes on over a reboot; it decides no more than the first IV.
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        let first_iv = clock.map_err(|_| EspError::Clock)?.as_nanos() as u64;
        Ok(Esp {
            sender: self.sender(first_iv)?,
            receiver: self.receiver()?,
            unfinished: context.counter("drop_unfinished"),
            unprotected: UNPROTECTED.map(|name| context.counter(name)),
            refused: REFUSED.map(|name| context.counter(name)),
            resynchronised: context.counter("resynchronised"),
        })
    }

    /// Keys and numbers stay while the search changes.
    fn can_apply(&self, old: &EspConfig) -> bool {
        let old = EspConfig {
            resync_threshold: self.resync_threshold,
            resync_attempts: self.resync_attempts,
            ..old.clone()
        };
        *self == old && self.check().is_ok()
    }

    fn apply(&self, app: &mut Esp) {
        app.receiver.resync_threshold = self.resync_threshold;
        app.receiver.resync_attempts = self.resync_attempts;
    }
}

/// Names of counters, in the order of [`Unprotected`].
const UNPROTECTED: [&str; 4] = [
    "drop_not_ipv6",
    "drop_short",
    "drop_no_room",
    "drop_exhausted",
];

/// Names of counters, in the order of [`Refused`].
const REFUSED: [&str; 6] = [
    "drop_not_esp",
    "drop_spi",
    "drop_length",
    "drop_replay",
    "drop_forged",
    "drop_padding",
];

const NORTH: usize = 0;
const SOUTH: usize = 1;

impl FrameApp for Esp {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let (mut unfinished, mut unprotected) = (0, [0; 4]);
        ports.forward(NORTH, SOUTH, |frame| {
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
        let (mut refused, mut resynchronised) = ([0; 6], 0);
        ports.forward(SOUTH, NORTH, |frame| match self.receiver.open(frame) {
            Ok(opened) => {
                resynchronised += u64::from(opened == Opened::Resynchronised);
                forget(frame);
                true
            }
            Err(reason) => {
                refused[reason as usize] += 1;
                false
            }
        });
        for (counter, count) in self.refused.iter().zip(refused) {
            counter.add(count);
        }
        self.resynchronised.add(resynchronised);
    }
}

#[cfg(test)]
mod tests;
