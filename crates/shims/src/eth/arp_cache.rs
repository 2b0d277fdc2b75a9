//! What is known of the other arp_cache: who asked for what, and whose flow has ended here.

use std::collections::HashMap;

use carina_wire::ether::Mac;

use crate::flow_table::Names;

/// ArpCache, bounded: whoever can send frames can invent them.
#[derive(Default)]
pub(super) struct ArpCache {
    callers: HashMap<Mac, Names>,
    /// Until when SDUs of a station are late ones of a flow that has ended, in ns.
    ended: HashMap<Mac, u64>,
}

impl ArpCache {
    /// A station asks. What it sends from here on is for a new flow.
    pub fn called(&mut self, mac: Mac, caller: Names) {
        self.ended.remove(&mac);
        if self.callers.len() >= STATIONS_MAX && !self.callers.contains_key(&mac) {
            self.callers.clear();
        }
        self.callers.insert(mac, caller);
    }

    /// What a station has asked for last.
    pub fn caller(&self, mac: Mac) -> Option<&Names> {
        self.callers.get(&mac)
    }

    /// A flow with a station has ended here; the station does not know.
    pub fn flow_ended(&mut self, mac: Mac, now: u64) {
        if self.ended.len() >= STATIONS_MAX {
            self.ended.retain(|_, until| *until > now);
            if self.ended.len() >= STATIONS_MAX {
                self.ended.clear();
            }
        }
        self.ended.insert(mac, now.saturating_add(LATE_NS));
    }

    /// A flow with a station begins at the wish of this side.
    pub fn flow_begins(&mut self, mac: Mac) {
        self.ended.remove(&mac);
    }

    /// True when what a station sends is late.
    pub fn is_late(&self, mac: Mac, now: u64) -> bool {
        self.ended.get(&mac).is_some_and(|until| now < *until)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.callers.clear();
        self.ended.clear();
    }
}

/// ArpCache that are remembered.
const STATIONS_MAX: usize = 4096;

/// How long SDUs of a station belong to a flow that has ended here, unless it asks for a new one,
/// in ns. The other side learns of the end only by silence.
const LATE_NS: u64 = 30_000_000_000;

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
        let mut stations = ArpCache::default();
        for n in 0..2 * STATIONS_MAX as u32 {
            let [a, b, c, d] = n.to_be_bytes();
            let mac = Mac([2, 0, a, b, c, d]);
            stations.called(mac, caller.clone());
            stations.flow_ended(mac, 0);
        }
        assert!(stations.callers.len() <= STATIONS_MAX && stations.ended.len() <= STATIONS_MAX);
        let mac = Mac([2, 1, 1, 1, 1, 1]);
        stations.flow_ended(mac, 10);
        assert!(stations.is_late(mac, 10) && !stations.is_late(mac, 10 + LATE_NS));
        stations.called(mac, caller.clone());
        assert!(!stations.is_late(mac, 10));
        assert_eq!(stations.caller(mac), Some(&caller));
    }
}
