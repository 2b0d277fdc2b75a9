//! The state of a next hop's MAC address, and the times at which to ask for it.
//!
//! The station asks once a second until the next hop answers, and then once a minute. If the next
//! hop stops answering, its last known address is used for three more minutes. (RFC 1122 §2.3.2.1)
//! An address that the next hop announces unasked, as a router does that replaces another one, is
//! used from then on. (RFC 826; RFC 4861 §7.2.5)

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppContext, Port, PortList, Ports};
use carina_time::{Duration, Instant};
use carina_wire::ether::Mac;

use crate::mac_text::MacText;

/// The port to the Ethernet segment of the next hop.
pub const SOUTH: usize = 0;
/// The port of frames that need the next hop's MAC address.
pub const NORTH: usize = 1;
/// Both ports, as inputs and as outputs.
pub const PORTS: PortList = PortList::Named(&[Port::new("south"), Port::optional("north")]);

/// A next hop, and its MAC address as far as it is known.
pub struct NextHop(State);

/// Counters of an app with a next hop: addresses learned, and frames dropped.
pub struct NextHopCounters {
    /// How often the next hop's MAC address was learned.
    pub resolved: Counter,
    unresolved: Counter,
    short: Counter,
}

/// A configured MAC address is a group address.
#[derive(Debug, thiserror::Error)]
#[error("mac = {0}: must be the address of one station, not of a group")]
pub struct GroupMac(Mac);

/// Refuses group addresses.
///
/// # Errors
/// One of the addresses is a group address.
pub fn check_macs(mac: MacText, next_mac: Option<MacText>) -> Result<(), GroupMac> {
    let mut macs = [Some(mac), next_mac].into_iter().flatten();
    match macs.find(|mac| mac.0.is_group()) {
        Some(mac) => Err(GroupMac(mac.0)),
        None => Ok(()),
    }
}

impl NextHopCounters {
    /// Registers the counters.
    #[must_use]
    pub fn new(context: &mut AppContext<'_>) -> NextHopCounters {
        NextHopCounters {
            resolved: context.counter("resolved"),
            unresolved: context.counter("drop_unresolved"),
            short: context.counter("drop_short"),
        }
    }
}

/// What a received message tells about the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The next hop's MAC address, if the message has it.
    pub mac: Option<[u8; 6]>,
    /// Whether the message is an advertisement that this station solicited, or an ARP message whose
    /// target is this station: a reply, or a request for its address.
    pub is_answer: bool,
    /// Whether the MAC address replaces an address that is already known.
    pub is_override: bool,
}

impl Heard {
    /// What an answer to a request of this station tells: the next hop has this MAC address.
    #[must_use]
    pub fn answer(mac: [u8; 6]) -> Heard {
        Heard {
            mac: Some(mac),
            is_answer: true,
            is_override: true,
        }
    }
}

enum State {
    /// The address is configured.
    Fixed([u8; 6]),
    /// The next hop has not answered yet.
    Unknown { asked: Option<Instant> },
    /// The next hop's address was received in a message.
    Known {
        mac: [u8; 6],
        heard: Instant,
        asked: Option<Instant>,
        /// Whether the next hop has answered a request since it got this address. If not, a request
        /// is due.
        is_confirmed: bool,
    },
}

impl NextHop {
    /// A next hop with a configured MAC address; `None`: the address must be resolved.
    #[must_use]
    pub fn new(mac: Option<[u8; 6]>) -> NextHop {
        NextHop(match mac {
            Some(mac) => State::Fixed(mac),
            None => State::Unknown { asked: None },
        })
    }

    /// The next hop's MAC address; `None` while it is unknown.
    #[must_use]
    #[inline]
    pub fn mac(&self) -> Option<[u8; 6]> {
        match &self.0 {
            State::Fixed(mac) | State::Known { mac, .. } => Some(*mac),
            State::Unknown { .. } => None,
        }
    }

    /// Moves frames from `north` to `south`, with the next hop as destination and `own` as source
    /// address.
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

    /// Handles what a message tells about the next hop. Returns `true` if it confirms or changes
    /// the address; `false` if the address is configured, or the message has nothing new.
    ///
    /// An announced address is used at once, and the next hop is asked to confirm it. (RFC 826; RFC
    /// 4861 §7.2.3, §7.2.5)
    pub fn hear(&mut self, message: Heard, now: Instant) -> bool {
        let is_group = |mac: [u8; 6]| Mac(mac).is_group();
        if message.mac.is_some_and(is_group) {
            return false;
        }
        match &mut self.0 {
            State::Fixed(_) => false,
            State::Unknown { asked } => {
                let Some(mac) = message.mac else {
                    return false;
                };
                self.0 = State::Known {
                    mac,
                    heard: now,
                    asked: *asked,
                    is_confirmed: message.is_answer,
                };
                true
            }
            State::Known {
                mac,
                heard,
                is_confirmed,
                ..
            } => {
                let other = message.mac.filter(|other| other != mac);
                if other.is_some() && !message.is_override {
                    *is_confirmed = false;
                    return false;
                }
                let is_news = message.is_answer || other.is_some();
                if is_news {
                    *mac = other.unwrap_or(*mac);
                    (*heard, *is_confirmed) = (now, message.is_answer);
                }
                is_news
            }
        }
    }

    /// Whether the caller must send a request for the next hop's MAC address now (by ARP or
    /// neighbour discovery). If so, records `now` as the time of the request.
    pub fn is_due(&mut self, now: Instant) -> bool {
        if let State::Known { heard, .. } = self.0
            && now.since(heard) >= FORGET_AFTER
        {
            self.0 = State::Unknown { asked: None };
        }
        let (asked, is_wanted) = match &mut self.0 {
            State::Fixed(_) => return false,
            State::Unknown { asked } => (asked, true),
            State::Known {
                heard,
                asked,
                is_confirmed,
                ..
            } => {
                let is_old = now.since(*heard) >= REFRESH_AFTER;
                (asked, is_old || !*is_confirmed)
            }
        };
        let is_due = is_wanted && asked.is_none_or(|asked| now.since(asked) >= ASK_EVERY);
        if is_due {
            *asked = Some(now);
        }
        is_due
    }
}

const ASK_EVERY: Duration = Duration::from_secs(1);
const REFRESH_AFTER: Duration = Duration::from_secs(60);
const FORGET_AFTER: Duration = Duration::from_secs(240);

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const NEW: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn announced(mac: [u8; 6]) -> Heard {
        Heard {
            is_answer: false,
            ..Heard::answer(mac)
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_secs(seconds)
    }

    fn known() -> NextHop {
        let mut next = NextHop::new(None);
        assert!(next.is_due(at(1)) && next.hear(Heard::answer(OLD), at(1)));
        assert!(!next.is_due(at(60)), "confirmed for a minute");
        next
    }

    #[test]
    fn an_announced_address_is_used_and_asked_for() {
        let mut next = known();
        assert!(next.hear(announced(NEW), at(10)));
        assert_eq!(next.mac(), Some(NEW));
        assert!(next.is_due(at(10)) && !next.is_due(at(10)));
        assert!(next.is_due(at(11)), "until it answers");
        assert!(next.hear(Heard::answer(NEW), at(11)));
        assert!(!next.is_due(at(70)) && next.is_due(at(71)));
        assert!(!next.hear(announced(NEW), at(72)), "nothing new");
    }

    #[test]
    fn an_owner_takes_its_address_back_by_its_answer() {
        let mut next = known();
        assert!(next.hear(announced(NEW), at(10)) && next.is_due(at(10)));
        assert!(next.hear(Heard::answer(OLD), at(10)));
        assert_eq!((next.mac(), next.is_due(at(20))), (Some(OLD), false));
    }

    #[test]
    fn a_message_without_override_is_checked_only() {
        let mut next = known();
        for is_answer in [false, true] {
            let message = Heard {
                is_answer,
                is_override: false,
                ..Heard::answer(NEW)
            };
            assert!(!next.hear(message, at(10)));
            assert_eq!(next.mac(), Some(OLD));
        }
        assert!(next.is_due(at(10)));
        let confirms = Heard {
            mac: None,
            is_override: false,
            ..Heard::answer(OLD)
        };
        assert!(next.hear(confirms, at(11)) && !next.is_due(at(20)));
        assert!(!NextHop::new(None).hear(confirms, at(11)), "no address");
    }

    #[test]
    fn configured_addresses_stay_and_groups_are_no_address() {
        let mut fixed = NextHop::new(Some(OLD));
        assert!(!fixed.hear(Heard::answer(NEW), at(1)) && !fixed.is_due(at(1)));
        assert_eq!(fixed.mac(), Some(OLD));
        let mut next = NextHop::new(None);
        assert!(!next.hear(Heard::answer([0xff; 6]), at(1)));
        assert_eq!(next.mac(), None);
    }
}
