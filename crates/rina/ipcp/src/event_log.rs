//! Events and counters of layer management, and notices. A notice is reported at once for a new
//! cause, then at growing intervals with the number of repetitions.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};

use carina_time::{Duration, Instant};

use crate::api::Event;
use crate::trace::{TraceEvent, Tracer};

/// Largest number of causes that are remembered; further causes are only counted.
const CAUSES_MAX: usize = 1024;

/// First pause before the same cause is reported again. Each pause is four times the one before.
const REPEAT_FIRST: Duration = Duration::from_secs(60);
/// Longest pause before the same cause is reported again.
const REPEAT_MAX: Duration = Duration::from_secs(3_600);

/// Repetitions of a cause since its last notice, and the pause until the next notice.
#[derive(Clone, Copy, Debug)]
struct Repetitions {
    count: u64,
    since: Instant,
    pause: Duration,
}

/// Events that wait for [`EventLog::poll`], counters by name, and the causes already reported.
#[derive(Debug, Default)]
pub struct EventLog {
    events: VecDeque<Event>,
    counters: BTreeMap<&'static str, u64>,
    noticed: BTreeMap<String, Repetitions>,
    tracer: Tracer,
    now: Instant,
}

impl EventLog {
    /// Sets the tracer that receives control events from now on.
    pub fn set_tracer(&mut self, tracer: Tracer) {
        self.tracer = tracer;
    }

    /// Sets the time that later control events carry.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Reports the control event that `make` builds, if tracing is on.
    pub fn trace<'a>(&self, make: impl FnOnce() -> TraceEvent<'a>) {
        self.tracer.emit(self.now, make);
    }

    /// Appends an event, and traces the control event that corresponds to it, if any.
    pub fn push(&mut self, event: Event) {
        if self.tracer.is_on()
            && let Some(traced) = traced(&event)
        {
            self.trace(|| traced);
        }
        self.events.push_back(event);
    }

    /// Takes the oldest event, or returns `None` if none waits.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Adds one to the counter of layer management named `what`.
    pub fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    /// Returns all counters of layer management, by name.
    pub fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    /// Appends [`Event::Notice`] when this cause and text first occur, and at growing intervals
    /// when they repeat.
    pub fn notice(&mut self, cause: &str, text: &str) {
        self.notice_of(format!("{cause}: {text}"), text);
    }

    /// Counts a discarded message, and reports it once per peer and cause, as [`EventLog::notice`]
    /// does.
    pub fn discard(&mut self, peer: &str, what: &'static str) {
        self.count(what);
        let text = format!("a message of {peer} was discarded: {what}");
        self.notice_of(format!("{what} of {peer}"), &text);
    }

    fn notice_of(&mut self, cause: String, text: &str) {
        let now = self.now;
        let is_full = self.noticed.len() >= CAUSES_MAX;
        let text = match self.noticed.get_mut(&cause) {
            None if is_full => return,
            None => {
                let first = Repetitions {
                    count: 0,
                    since: now,
                    pause: REPEAT_FIRST,
                };
                self.noticed.insert(cause, first);
                text.to_string()
            }
            Some(again) => {
                again.count += 1;
                let elapsed = now.since(again.since);
                if elapsed < again.pause {
                    return;
                }
                let count = core::mem::take(&mut again.count);
                again.since = now;
                again.pause = (again.pause * 4).min(REPEAT_MAX);
                let times = if count == 1 { "time" } else { "times" };
                format!(
                    "{text} ({count} {times} in the last {} s)",
                    elapsed.as_secs()
                )
            }
        };
        self.push(Event::Notice { text });
    }
}

/// The control event for an event. [`Event::Allocated`] has none, because it does not carry the QoS
/// cube.
fn traced(event: &Event) -> Option<TraceEvent<'_>> {
    Some(match event {
        Event::Enrolled { address, .. } => TraceEvent::Enrolled { address: *address },
        Event::EnrollFailed { n1, reason } | Event::EnrollRefused { n1, reason } => {
            TraceEvent::EnrollmentFailed { n1: *n1, reason }
        }
        Event::Left { reason } => TraceEvent::Left { reason },
        Event::NeighbourUp { name, address, n1 } => TraceEvent::NeighbourAdded {
            name,
            address: *address,
            n1: *n1,
        },
        Event::NeighbourDown { name, reason, .. } => TraceEvent::NeighbourLost { name, reason },
        Event::Registered {
            name,
            result: Ok(()),
        } => TraceEvent::NameRegistered { name },
        Event::Incoming {
            flow,
            local,
            remote,
            ..
        } => TraceEvent::FlowRequested {
            flow: *flow,
            local,
            remote,
            is_initiator: false,
        },
        Event::Allocated {
            flow,
            result: Err(reason),
        } => TraceEvent::FlowRefused {
            flow: *flow,
            reason,
        },
        Event::Closed { flow, reason, .. } => TraceEvent::FlowEnded {
            flow: *flow,
            reason,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn notices(log: &mut EventLog) -> Vec<String> {
        core::iter::from_fn(|| log.poll())
            .filter_map(|event| match event {
                Event::Notice { text } => Some(text),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn repeated_notice_comes_again_with_a_count() {
        let mut log = EventLog::default();
        let mut heard = Vec::new();
        for round in 0..40 {
            log.set_now(Instant::from_secs(1 + 10 * round));
            log.notice("peer", "refused");
            heard.extend(notices(&mut log));
        }
        assert_eq!(
            heard,
            [
                "refused",
                "refused (6 times in the last 60 s)",
                "refused (24 times in the last 240 s)"
            ]
        );
        // Another text is a new cause.
        log.notice("peer", "refused for another reason");
        assert_eq!(notices(&mut log), ["refused for another reason"]);
    }

    #[test]
    fn causes_beyond_the_limit_are_only_counted() {
        let mut log = EventLog::default();
        for number in 0..CAUSES_MAX + 5 {
            log.discard(&format!("peer {number}"), "object");
        }
        assert_eq!(notices(&mut log).len(), CAUSES_MAX);
        assert_eq!(log.counters()["object"], CAUSES_MAX as u64 + 5);
    }
}
