//! Events of layer management in their order, its counters, and notices once per cause.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};

use carina_time::Instant;

use crate::api::Event;
use crate::trace::{TraceEvent, Tracer};

/// Most causes that are remembered; beyond them, only counters grow.
const CAUSES_MAX: usize = 1024;

/// Events that [`EventLog::poll`] has not given yet, counters by name, and the causes of which a
/// notice has been given.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: VecDeque<Event>,
    counters: BTreeMap<&'static str, u64>,
    noticed: BTreeSet<String>,
    tracer: Tracer,
    now: Instant,
}

impl EventLog {
    /// Reports control events to `tracer` from here on.
    pub(crate) fn set_tracer(&mut self, tracer: Tracer) {
        self.tracer = tracer;
    }

    /// What is traced from here on happens at `now`, in nanoseconds.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Reports the control event that `make` builds, when a sink is set.
    pub(crate) fn trace<'a>(&self, make: impl FnOnce() -> TraceEvent<'a>) {
        self.tracer.emit(self.now, make);
    }

    /// Appends an event, and reports the control event that it stands for.
    pub(crate) fn push(&mut self, event: Event) {
        if self.tracer.is_on()
            && let Some(traced) = traced(&event)
        {
            self.trace(|| traced);
        }
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

/// The control event that an event stands for. An allocated flow is not among them: its event does
/// not have the QoS cube.
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
