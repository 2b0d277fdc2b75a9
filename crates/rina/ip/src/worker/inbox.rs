//! What the thread that talks to the node and another worker of a member tell each other.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carina_client::Flow;
use carina_sys::EventFd;

use crate::admission::Admission;
use crate::counters::Counters;
use crate::prefix::IpPrefix;
use crate::status::FlowStatus;

/// Messages to a worker, and the state that the worker reports.
#[derive(Debug)]
pub(crate) struct Inbox {
    arrived: EventFd,
    state: Mutex<InboxState>,
}

#[derive(Debug, Default)]
struct InboxState {
    messages: Vec<Message>,
    report: Report,
}

/// A message to a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// The prefixes of the other members, and whether the list is complete.
    Members(Arc<[IpPrefix]>, bool),
    /// A flow of another member, which the worker reads from now on.
    Flow(Box<Accepted>),
    /// The worker must end.
    Stop,
}

/// A flow of another member that was accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub flow: Flow,
    pub local: IpPrefix,
    pub remote: IpPrefix,
    pub admission: Admission,
}

/// The state of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub flows: Vec<FlowStatus>,
    pub counters: Counters,
}

impl Inbox {
    /// Makes an empty inbox.
    ///
    /// # Errors
    /// The kernel refuses an event descriptor.
    pub(crate) fn new() -> io::Result<Inbox> {
        Ok(Inbox {
            arrived: EventFd::new()?,
            state: Mutex::default(),
        })
    }

    /// Becomes readable when a message has arrived.
    pub(crate) fn arrived(&self) -> &EventFd {
        &self.arrived
    }

    /// Sends a message to the worker. Flows are bounded by their admission; a list of members
    /// replaces one that the worker has not read.
    pub(crate) fn send(&self, message: Message) {
        let mut state = self.lock();
        if let (Message::Members(..), Some(last)) = (&message, state.messages.last_mut())
            && matches!(last, Message::Members(..))
        {
            *last = message;
        } else {
            state.messages.push(message);
        }
        drop(state);
        self.arrived.signal();
    }

    /// Takes the messages in order.
    pub(crate) fn take(&self) -> Vec<Message> {
        self.arrived.drain();
        std::mem::take(&mut self.lock().messages)
    }

    /// Replaces the state that the worker reports.
    pub(crate) fn put_report(&self, report: Report) {
        self.lock().report = report;
    }

    /// Returns what the worker reported last.
    pub(crate) fn report(&self) -> Report {
        self.lock().report.clone()
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
