//! Limits the events about refused tokens: for each source one event at once, and then at most one,
//! with a count, per interval. A stranger who keeps trying cannot crowd out other events.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use carina_vnet::origin::network_of;

/// The refused tokens of an access point.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    sources: BTreeMap<Source, Counted>,
}

/// Where refused tokens come from, as far as events are counted: one counter for each source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// An IPv4 address, or the /64 network of an IPv6 address.
    Address(IpAddr),
    /// All sources beyond the first [`SOURCES_MAX`].
    Others,
}

/// How many tokens of one source were refused since the last event about this source.
#[derive(Debug)]
struct Counted {
    count: u64,
    last: String,
    /// Time at which the last event about refused tokens of this source was written.
    told: Instant,
    /// Time from the last event to the next one.
    interval: Duration,
}

impl Refusals {
    /// Counts a refusal. Returns an event if the source is not being counted already.
    pub(super) fn note(&mut self, now: Instant, from: IpAddr, why: &str) -> Option<String> {
        let mut source = Source::of(from);
        if !self.sources.contains_key(&source) && self.sources.len() >= SOURCES_MAX {
            source = Source::Others;
        }
        if let Some(counted) = self.sources.get_mut(&source) {
            counted.count += 1;
            why.clone_into(&mut counted.last);
            return None;
        }
        let counted = Counted {
            count: 0,
            last: String::new(),
            told: now,
            interval: INTERVAL_MIN,
        };
        self.sources.insert(source, counted);
        Some(format!("a token from {source} is rejected: {why}"))
    }

    /// The events that are due. The interval of a source doubles each time; a source without
    /// further refusals is forgotten.
    pub(super) fn due(&mut self, now: Instant) -> Vec<String> {
        let mut events = Vec::new();
        self.sources.retain(|source, counted| {
            let passed = now.saturating_duration_since(counted.told);
            if passed < counted.interval {
                return true;
            }
            if counted.count == 0 {
                return false;
            }
            let (count, last) = (counted.count, &counted.last);
            let within = passed.as_secs();
            events.push(match count {
                1 => format!("another token from {source} is rejected: {last}"),
                _ => format!(
                    "{count} more tokens from {source} are rejected within {within} s, the last \
                     one because: {last}"
                ),
            });
            counted.count = 0;
            counted.told = now;
            counted.interval = (counted.interval * 2).min(INTERVAL_MAX);
            true
        });
        events
    }
}

impl Source {
    fn of(address: IpAddr) -> Source {
        Source::Address(network_of(address))
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Address(address @ IpAddr::V4(_)) => address.fmt(f),
            Source::Address(address @ IpAddr::V6(_)) => write!(f, "{address}/64"),
            Source::Others => f.write_str("other addresses"),
        }
    }
}

/// Sources that are counted individually.
const SOURCES_MAX: usize = 16;
/// Shortest and longest interval between two events of a source.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn refusals_of_one_source_are_one_event_with_a_count() {
        let (mut refusals, began) = (Refusals::default(), Instant::now());
        let first = refusals.note(began, address(1), "it has expired");
        assert_eq!(
            first.unwrap(),
            "a token from 192.0.2.1 is rejected: it has expired"
        );
        for _ in 0..1000 {
            assert_eq!(refusals.note(began, address(1), "it is no token"), None);
        }
        assert!(refusals.note(began, address(2), "it was revoked").is_some());
        assert!(refusals.due(began + INTERVAL_MIN / 2).is_empty());
        assert_eq!(
            refusals.due(began + INTERVAL_MIN),
            [
                "1000 more tokens from 192.0.2.1 are rejected within 10 s, the last one because: \
                 it is no token"
            ]
        );
        // The second source has stopped; the first one's next event comes after twice the interval.
        assert_eq!(refusals.sources.len(), 1);
        refusals.note(began + INTERVAL_MIN, address(1), "it is no token");
        assert!(refusals.due(began + INTERVAL_MIN * 2).is_empty());
        assert_eq!(refusals.due(began + INTERVAL_MIN * 3).len(), 1);
        assert!(refusals.due(began + INTERVAL_MIN * 7).is_empty());
        assert!(refusals.sources.is_empty());
    }

    #[test]
    fn sources_without_number_are_counted_together() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let told = (0..=255).filter_map(|number| refusals.note(now, address(number), "no"));
        assert_eq!(told.count(), SOURCES_MAX + 1);
        let network: IpAddr = "2001:db8::1".parse().unwrap();
        assert!(refusals.note(now, network, "no").is_none());
        let due = refusals.due(now + INTERVAL_MIN);
        let count = 256 - SOURCES_MAX;
        assert_eq!(due.len(), 1);
        assert!(
            due[0].starts_with(&format!("{count} more tokens")),
            "{due:?}"
        );
        assert!(due[0].contains("other addresses"), "{due:?}");
        assert!(refusals.sources.len() <= 1);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_source() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let [one, other] = ["2001:db8::1", "2001:db8::ffff:2"].map(|text| text.parse().unwrap());
        let told = refusals.note(now, one, "no").unwrap();
        assert!(told.contains("2001:db8::/64"), "{told}");
        assert!(refusals.note(now, other, "no").is_none());
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert!(refusals.note(now, mapped, "no").is_some());
        assert!(refusals.note(now, address(1), "no").is_none());
    }
}
