//! What a management has to say: events in their order, counters, and notices once per cause.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};

use crate::api::Event;

/// Most causes that are remembered; beyond them, only counters grow.
const TOLD_MAX: usize = 1024;

/// Events that wait for their reader, counters by name, and the causes that were told.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    events: VecDeque<Event>,
    counters: BTreeMap<&'static str, u64>,
    told: BTreeSet<String>,
}

impl Journal {
    /// Something happened.
    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// The next event.
    pub(crate) fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counts under a name.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    /// All counters by name.
    pub(crate) fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    /// Says something to people, once per cause.
    pub(crate) fn notice(&mut self, cause: &str, text: &str) {
        if self.is_news(format!("{cause}: {text}")) {
            let text = text.to_string();
            self.tell(Event::Notice { text });
        }
    }

    /// Counts a message that was discarded, and says so once per peer and cause.
    pub(crate) fn discard(&mut self, peer: &str, what: &'static str) {
        self.count(what);
        if self.is_news(format!("{what} of {peer}")) {
            let text = format!("a message of {peer} was discarded: {what}");
            self.tell(Event::Notice { text });
        }
    }

    fn is_news(&mut self, cause: String) -> bool {
        self.told.len() < TOLD_MAX && self.told.insert(cause)
    }
}
