//! What is known of the next hop's MAC address, and when to ask for it.
//!
//! The next hop is asked once a second until it answers, and then once a minute; while it does not
//! answer, the address that it had is used for three minutes more. (RFC 1122 §2.3.2.1)

use carina_engine::counter_file::Counter;
use carina_engine::frames::{AppContext, Port, PortList, Ports};
use carina_time::{Duration, Instant};
use carina_wire::ether::Mac;

use crate::mac_text::MacText;

/// The port of the Ethernet segment where the next hop is.
pub const SOUTH: usize = 0;
/// The port of frames that need its MAC address.
pub const NORTH: usize = 1;
/// Both, as inputs and as outputs.
pub const PORTS: PortList = PortList::Named(&[Port::new("south"), Port::optional("north")]);

/// The MAC address of a next hop.
pub struct NextHop(State);

/// Counters of frames to the next hop.
pub struct NextHopCounters {
    /// How often its MAC address was learned.
    pub resolved: Counter,
    unresolved: Counter,
    short: Counter,
}

/// A MAC address that no station can have.
#[derive(Debug, thiserror::Error)]
#[error("mac = {0}: must be the address of one station, not of a group")]
pub struct GroupMac(Mac);

/// Refuses addresses of groups.
///
/// # Errors
/// One is that of a group.
pub fn check_macs(mac: MacText, next_mac: Option<MacText>) -> Result<(), GroupMac> {
    let mut macs = [Some(mac), next_mac].into_iter().flatten();
    match macs.find(|mac| mac.0.is_group()) {
        Some(mac) => Err(GroupMac(mac.0)),
        None => Ok(()),
    }
}

impl NextHopCounters {
    /// Registers them.
    #[must_use]
    pub fn new(context: &mut AppContext<'_>) -> NextHopCounters {
        NextHopCounters {
            resolved: context.counter("resolved"),
            unresolved: context.counter("drop_unresolved"),
            short: context.counter("drop_short"),
        }
    }
}

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

    /// Moves frames from the north to the south, to the next hop from the station `own`.
    pub fn forward(&self, own: [u8; 6], ports: &mut Ports<'_>, counters: &NextHopCounters) {
        let Some(mac) = self.mac() else {
            counters.unresolved.add(ports.waiting(NORTH) as u64);
            return ports.drain(NORTH, drop);
        };
        let mut short = 0;
        ports.forward(NORTH, SOUTH, |frame| {
            let Some(addresses) = frame.bytes_mut().first_chunk_mut::<12>() else {
                short += 1;
                return false;
            };
            addresses[..6].copy_from_slice(&mac);
            addresses[6..].copy_from_slice(&own);
            true
        });
        counters.short.add(short);
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
