//! What the shim knows of other stations: the flow that each requested by ARP, and flows that have
//! ended.

use std::collections::HashMap;

use carina_time::{Duration, Instant};
use carina_wire::ether::Mac;

use crate::flow_table::Names;

/// State of other stations. Its size is limited, because a sender can invent stations.
#[derive(Default)]
pub(super) struct ArpCache {
    requests: HashMap<Mac, Names>,
    /// For stations whose flow has ended: until when their SDUs count as late ones of that flow.
    ended: HashMap<Mac, Instant>,
}

impl ArpCache {
    /// Notes that a station requests a flow. SDUs that it sends from now on belong to the new flow.
    pub(super) fn note_request(&mut self, mac: Mac, caller: Names) {
        self.ended.remove(&mac);
        if self.requests.len() >= STATIONS_MAX && !self.requests.contains_key(&mac) {
            self.requests.clear();
        }
        self.requests.insert(mac, caller);
    }

    /// The flow that a station requested last.
    pub(super) fn requester(&self, mac: Mac) -> Option<&Names> {
        self.requests.get(&mac)
    }

    /// Notes that a flow has ended on this side. The station does not know that.
    pub(super) fn flow_ended(&mut self, mac: Mac, now: Instant) {
        if self.ended.len() >= STATIONS_MAX {
            self.ended.retain(|_, until| *until > now);
            if self.ended.len() >= STATIONS_MAX {
                self.ended.clear();
            }
        }
        self.ended.insert(mac, now + LATE);
    }

    /// Notes that a flow with the station starts.
    pub(super) fn flow_begins(&mut self, mac: Mac) {
        self.ended.remove(&mac);
    }

    /// Whether an SDU of this station is a late one of an ended flow.
    pub(super) fn is_late(&self, mac: Mac, now: Instant) -> bool {
        self.ended.get(&mac).is_some_and(|until| now < *until)
    }

    /// Removes all state.
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.ended.clear();
    }
}

/// Largest number of stations that the cache remembers.
const STATIONS_MAX: usize = 4096;

/// How long SDUs of a station belong to a flow that has ended on this side, unless the station
/// requests a new one. The station detects the end only because nothing arrives any more.
const LATE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use carina_api::AppName;

    use super::*;

    #[test]
    fn stations_are_bounded_and_a_new_question_ends_lateness() {
        let name = |text: &str| AppName::new(text).unwrap();
        let caller = Names {
            remote: name("a"),
            local: name("b"),
        };
        let mut cache = ArpCache::default();
        for n in 0..2 * STATIONS_MAX as u32 {
            let [a, b, c, d] = n.to_be_bytes();
            let mac = Mac([2, 0, a, b, c, d]);
            cache.note_request(mac, caller.clone());
            cache.flow_ended(mac, Instant::ZERO);
        }
        assert!(cache.requests.len() <= STATIONS_MAX && cache.ended.len() <= STATIONS_MAX);
        let mac = Mac([2, 1, 1, 1, 1, 1]);
        let at = Instant::from_nanos(10);
        cache.flow_ended(mac, at);
        assert!(cache.is_late(mac, at) && !cache.is_late(mac, at + LATE));
        cache.note_request(mac, caller.clone());
        assert!(!cache.is_late(mac, at));
        assert_eq!(cache.requester(mac), Some(&caller));
    }
}
