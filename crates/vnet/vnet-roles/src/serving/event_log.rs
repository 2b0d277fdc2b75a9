//! A bounded log of events.

use std::collections::VecDeque;

use carina_vnet::progress::Event;

/// Events with their numbers, from 1. Events of delegates are limited, so that they do not displace
/// others; those of one delegate are limited further.
#[derive(Debug, Default)]
pub struct EventLog {
    events: VecDeque<LoggedEvent>,
    last: u64,
}

#[derive(Debug)]
struct LoggedEvent {
    event: Event,
    /// The delegate who has caused the event, if one has.
    by: Option<String>,
}

impl EventLog {
    /// Adds an event with its time in ms. A long text is truncated.
    pub fn add(&mut self, at_ms: u64, what: String) {
        self.keep(at_ms, what, None);
    }

    /// Adds an event that a delegate has caused.
    pub fn add_of(&mut self, delegate: &str, at_ms: u64, what: String) {
        let is_own = |logged: &LoggedEvent| logged.by.as_deref() == Some(delegate);
        self.leave_room(OF_DELEGATE_MAX, is_own);
        self.leave_room(OF_DELEGATES_MAX, |logged| logged.by.is_some());
        self.keep(at_ms, what, Some(delegate.to_owned()));
    }

    fn keep(&mut self, at_ms: u64, mut what: String, by: Option<String>) {
        self.last += 1;
        if let Some((end, _)) = what.char_indices().nth(WORDS_MAX) {
            what.truncate(end);
        }
        let event = Event {
            number: self.last,
            at_ms,
            what,
        };
        self.events.push_back(LoggedEvent { event, by });
        let excess = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..excess);
    }

    /// If there are `count_max` events of a kind or more, removes the oldest one.
    fn leave_room(&mut self, count_max: usize, is_one: impl Fn(&LoggedEvent) -> bool) {
        if self.events.iter().filter(|logged| is_one(logged)).count() >= count_max
            && let Some(oldest) = self.events.iter().position(is_one)
        {
            self.events.remove(oldest);
        }
    }

    /// The number of the last event; 0 if there was none.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The events with a number greater than `number`.
    pub fn since(&self, number: u64) -> Vec<Event> {
        let events = self.events.iter().map(|kept| &kept.event);
        events
            .filter(|event| event.number > number)
            .cloned()
            .collect()
    }
}

/// Largest number of events that are kept.
const EVENTS_MAX: usize = 1000;
/// Largest number of events of all delegates together that are kept.
const OF_DELEGATES_MAX: usize = 500;
/// Largest number of events of one delegate that are kept.
const OF_DELEGATE_MAX: usize = 200;
/// Largest number of characters of an event.
const WORDS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegates_leave_room_for_what_else_happens() {
        let mut log = EventLog::default();
        log.add(
            0,
            "operator acme lets delegate eve do this: exec".to_owned(),
        );
        log.add_of("bob", 0, "delegate bob runs `who`".to_owned());
        for number in 0..EVENTS_MAX as u64 * 2 {
            log.add_of("eve", number, format!("delegate eve runs `{number}`"));
        }
        let events = log.since(0);
        assert_eq!(events.len(), 2 + OF_DELEGATE_MAX);
        assert!(events[0].what.starts_with("operator acme lets"));
        assert!(events[1].what.starts_with("delegate bob"));
        for name in ["a", "b", "c", "d", "e"] {
            for _ in 0..EVENTS_MAX {
                log.add_of(name, 0, format!("delegate {name} runs `who`"));
            }
        }
        assert_eq!(log.since(0).len(), 1 + OF_DELEGATES_MAX);
        assert!(log.since(0)[0].what.starts_with("operator acme lets"));
        // Other events may use all the room.
        for _ in 0..EVENTS_MAX {
            log.add(0, "it is ready".to_owned());
        }
        assert_eq!(log.since(0).len(), EVENTS_MAX);
    }

    #[test]
    fn words_of_a_peer_are_kept_in_short() {
        let mut log = EventLog::default();
        log.add(0, "ü".repeat(1 << 20));
        assert_eq!(log.since(0)[0].what, "ü".repeat(WORDS_MAX));
    }
}
