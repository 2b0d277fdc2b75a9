//! The journal: the last events of the node, numbered, for the long poll of `/v1/events`.

use std::collections::VecDeque;
use std::time::Instant;

use carina_api::control::{Event, EventKind, Events};
use tokio::sync::watch;

/// The last [`EVENTS_KEPT`] events.
pub(crate) struct Journal {
    events: VecDeque<Event>,
    last: watch::Sender<u64>,
    start: Instant,
    flow_lines: FlowLines,
}

impl Journal {
    /// Makes an empty journal, and a receiver for the number of its last event.
    pub(crate) fn new(start: Instant) -> (Self, watch::Receiver<u64>) {
        let (last, view) = watch::channel(0);
        (
            Self {
                events: VecDeque::new(),
                last,
                start,
                flow_lines: FlowLines::default(),
            },
            view,
        )
    }

    /// Adds an event, logs it, and wakes the long polls.
    pub(crate) fn note(
        &mut self,
        kind: EventKind,
        subject: impl ToString,
        detail: impl Into<String>,
    ) {
        let seq = *self.last.borrow() + 1;
        if self.events.len() == EVENTS_KEPT {
            self.events.pop_front();
        }
        let at_ms = self.start.elapsed().as_millis() as u64;
        let event = Event {
            seq,
            at_ms,
            kind,
            subject: subject.to_string(),
            detail: detail.into(),
        };
        if is_of_flow(kind) {
            self.log_of_flow(&event);
        } else {
            log(&event);
        }
        self.events.push_back(event);
        self.last.send_replace(seq);
    }

    /// Logs an event of a flow, or only counts it if this second has had its lines.
    fn log_of_flow(&mut self, event: &Event) {
        let line = self.flow_lines.next(event.at_ms);
        if line.skipped > 0 {
            tracing::info!(events = line.skipped, "events of flows were not logged");
        }
        if line.is_shown {
            log(event);
        }
    }

    /// Events after number `since`, at most [`EVENTS_PER_REPLY`].
    ///
    /// A `since` above the last number counts as 0: the client has outlived an earlier node.
    pub(crate) fn since(&self, since: u64) -> Events {
        let last = *self.last.borrow();
        let since = if since > last { 0 } else { since };
        let oldest = last - self.events.len() as u64 + 1;
        let lost = oldest.saturating_sub(since + 1);
        let skip = (since + 1).saturating_sub(oldest) as usize;
        let events: Vec<Event> = self
            .events
            .iter()
            .skip(skip)
            .take(EVENTS_PER_REPLY)
            .cloned()
            .collect();
        let next = events.last().map_or(since, |e| e.seq);
        Events { events, next, lost }
    }
}

fn is_of_flow(kind: EventKind) -> bool {
    use EventKind as Kind;
    matches!(
        kind,
        Kind::FlowAllocated | Kind::FlowRefused | Kind::FlowClosed
    )
}

/// Limits the lines of the log that are about flows to [`FLOW_LINES`] a second: a server may have
/// thousands of connections a second, each a flow.
#[derive(Debug, Default)]
struct FlowLines {
    /// Start of the second that is counted, in milliseconds since the node's start.
    second_ms: u64,
    shown: u32,
    skipped: u64,
}

/// What the log says at an event of a flow.
#[derive(Debug, PartialEq, Eq)]
struct FlowLine {
    is_shown: bool,
    /// Events of an earlier second that were not shown, to be named now.
    skipped: u64,
}

impl FlowLines {
    fn next(&mut self, at_ms: u64) -> FlowLine {
        let mut skipped = 0;
        if at_ms >= self.second_ms + 1000 {
            skipped = self.skipped;
            *self = FlowLines {
                second_ms: at_ms,
                ..FlowLines::default()
            };
        }
        let is_shown = self.shown < FLOW_LINES;
        if is_shown {
            self.shown += 1;
        } else {
            self.skipped += 1;
        }
        FlowLine { is_shown, skipped }
    }
}

/// Writes an event to the log. Its subject is in a field named after its kind: `ipcp`, `flow` (a
/// port-id), `app` or `vm`.
fn log(event: &Event) {
    use EventKind as Kind;
    let (kind, subject, detail) = (event.kind, event.subject.as_str(), event.detail.as_str());
    match kind {
        Kind::AppRegistered
        | Kind::AppUnregistered
        | Kind::PeerRegistered
        | Kind::PeerUnregistered => tracing::info!(?kind, app = subject, "{detail}"),
        Kind::FlowAllocated | Kind::FlowRefused | Kind::FlowClosed => {
            tracing::info!(?kind, flow = subject, "{detail}");
        }
        Kind::VmAttached | Kind::VmDetached => tracing::info!(?kind, vm = subject, "{detail}"),
        Kind::Applied | Kind::Notice | Kind::Unknown => {
            tracing::info!(?kind, subject, "{detail}");
        }
        _ => tracing::info!(?kind, ipcp = subject, "{detail}"),
    }
}

/// Number of lines about flows in one second of the log.
const FLOW_LINES: u32 = 20;

/// Number of events that the journal keeps.
pub(crate) const EVENTS_KEPT: usize = 1024;

/// Largest number of events in one answer.
pub(crate) const EVENTS_PER_REPLY: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_second_has_few_lines_of_flows() {
        let mut lines = FlowLines::default();
        let shown = (0..500).filter(|at_ms| lines.next(*at_ms).is_shown).count();
        assert_eq!(shown, FLOW_LINES as usize);
        let later = FlowLine {
            is_shown: true,
            skipped: 500 - u64::from(FLOW_LINES),
        };
        assert_eq!(lines.next(1000), later);
        let quiet = FlowLine {
            is_shown: true,
            skipped: 0,
        };
        assert_eq!(lines.next(5000), quiet);
    }

    #[test]
    fn readers_learn_what_they_missed() {
        let (mut journal, view) = Journal::new(Instant::now());
        assert_eq!(
            journal.since(0),
            Events {
                events: vec![],
                next: 0,
                lost: 0
            }
        );
        for n in 0..1500 {
            journal.note(EventKind::LinkUp, n, "");
        }
        assert_eq!(*view.borrow(), 1500);
        let events = journal.since(0);
        assert_eq!(
            (events.lost, events.events[0].seq, events.next),
            (476, 477, 732)
        );
        assert_eq!(journal.since(1499).events.len(), 1);
        assert_eq!(
            journal.since(1500),
            Events {
                events: vec![],
                next: 1500,
                lost: 0
            }
        );
        assert_eq!(journal.since(9999).lost, 476);
    }
}
