//! What management counts, and what it has told people already.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};

use super::Management;
use crate::api::Event;

/// Most causes that are remembered; beyond them, only counters grow.
const TOLD_MAX: usize = 1024;

/// Counters by name, and the causes that were told.
#[derive(Debug, Default)]
pub(super) struct Journal {
    counters: BTreeMap<&'static str, u64>,
    told: BTreeSet<String>,
}

impl Journal {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    pub(super) fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    /// True the first time for a cause.
    fn is_news(&mut self, cause: &str) -> bool {
        self.told.len() < TOLD_MAX && self.told.insert(cause.to_string())
    }
}

impl Management {
    /// Says something to people, once per cause.
    pub(super) fn notice(&mut self, cause: &str, text: &str) {
        if self.journal.is_news(&format!("{cause}: {text}")) {
            self.events.push_back(Event::Notice {
                text: text.to_string(),
            });
        }
    }

    /// Counts a message that was discarded, and says so once per peer and cause.
    pub(super) fn discard(&mut self, peer: &str, what: &'static str) {
        self.journal.count(what);
        if self.journal.is_news(&format!("{what} of {peer}")) {
            let text = format!("a message of {peer} was discarded: {what}");
            self.events.push_back(Event::Notice { text });
        }
    }
}
