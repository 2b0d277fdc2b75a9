//! What is known of the next hop's MAC address, and when to ask for it.
//!
//! The next hop is asked once a second until it answers, and then once a minute; while it does not
//! answer, the address that it had is used for three minutes more. (RFC 1122 §2.3.2.1)

use carina_time::{Duration, Instant};

/// The MAC address of a next hop.
pub struct NextHop(State);

enum State {
    /// It is configured.
    Fixed([u8; 6]),
    /// It has not answered.
    Unknown { asked: Option<Instant> },
    /// It answered.
    Known {
        mac: [u8; 6],
        answered: Instant,
        asked: Instant,
    },
}

impl NextHop {
    /// A configured address, or one that is to be asked for.
    #[must_use]
    pub fn new(mac: Option<[u8; 6]>) -> NextHop {
        NextHop(match mac {
            Some(mac) => State::Fixed(mac),
            None => State::Unknown { asked: None },
        })
    }

    /// The address, if it is known.
    #[must_use]
    #[inline]
    pub fn mac(&self) -> Option<[u8; 6]> {
        match &self.0 {
            State::Fixed(mac) | State::Known { mac, .. } => Some(*mac),
            State::Unknown { .. } => None,
        }
    }

    /// Notes an answer. False when the address is configured, and stays.
    pub fn answered(&mut self, mac: [u8; 6], now: Instant) -> bool {
        if matches!(self.0, State::Fixed(_)) {
            return false;
        }
        self.0 = State::Known {
            mac,
            answered: now,
            asked: now,
        };
        true
    }

    /// Whether to ask now; the caller does.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if let State::Known { answered, .. } = self.0
            && now.since(answered) >= FORGET_AFTER
        {
            self.0 = State::Unknown { asked: None };
        }
        match &mut self.0 {
            State::Fixed(_) => false,
            State::Unknown { asked } => {
                let is_due = asked.is_none_or(|asked| now.since(asked) >= ASK_EVERY);
                if is_due {
                    *asked = Some(now);
                }
                is_due
            }
            State::Known {
                answered, asked, ..
            } => {
                let is_due =
                    now.since(*answered) >= REFRESH_AFTER && now.since(*asked) >= ASK_EVERY;
                if is_due {
                    *asked = now;
                }
                is_due
            }
        }
    }
}

const ASK_EVERY: Duration = Duration::from_secs(1);
const REFRESH_AFTER: Duration = Duration::from_secs(60);
const FORGET_AFTER: Duration = Duration::from_secs(240);
