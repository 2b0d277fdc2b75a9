//! What has happened, as much of it as is kept.

use std::collections::VecDeque;

use carina_vnet_host::progress::Event;

/// Events with their numbers, from 1.
#[derive(Debug, Default)]
pub struct EventLog {
    events: VecDeque<Event>,
    last: u64,
}

impl EventLog {
    /// Adds one, at so many ms.
    pub fn add(&mut self, at_ms: u64, what: String) {
        self.last += 1;
        let number = self.last;
        self.events.push_back(Event {
            number,
            at_ms,
            what,
        });
        let excess = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..excess);
    }

    /// The number of the last one, 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Those after a number.
    pub fn since(&self, number: u64) -> Vec<Event> {
        let events = self.events.iter();
        events.filter(|it| it.number > number).cloned().collect()
    }
}

/// Events that are kept.
const EVENTS_MAX: usize = 1000;
