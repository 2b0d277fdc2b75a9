//! Events of layer management in their order, its counters, and notices once per cause.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};

use crate::api::Event;

/// Most causes that are remembered; beyond them, only counters grow.
const CAUSES_MAX: usize = 1024;

/// Events that [`EventLog::poll`] has not given yet, counters by name, and the causes of which a
/// notice has been given.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: VecDeque<Event>,
    counters: BTreeMap<&'static str, u64>,
    noticed: BTreeSet<String>,
}

impl EventLog {
    /// Appends an event.
    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// The oldest event that has not been given yet.
    pub(crate) fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Adds one to the counter of this name.
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    /// All counters by name.
    pub(crate) fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    /// Appends [`Event::Notice`], once per cause and text.
    pub(crate) fn notice(&mut self, cause: &str, text: &str) {
        if self.is_news(format!("{cause}: {text}")) {
            let text = text.to_string();
            self.push(Event::Notice { text });
        }
    }

    /// Counts a message that was discarded, with a notice once per peer and cause.
    pub(crate) fn discard(&mut self, peer: &str, what: &'static str) {
        self.count(what);
        if self.is_news(format!("{what} of {peer}")) {
            let text = format!("a message of {peer} was discarded: {what}");
            self.push(Event::Notice { text });
        }
    }

    /// True the first time for a cause.
    fn is_news(&mut self, cause: String) -> bool {
        self.noticed.len() < CAUSES_MAX && self.noticed.insert(cause)
    }
}
