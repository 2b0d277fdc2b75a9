//! What the two kinds of flow end have in common: their links, their counters, their ending.

use std::cell::RefCell;
use std::rc::Rc;

use carina_api::PortId;
use carina_engine::counters::{Row, Value};
use carina_engine::{AppId, Close, LinkId, Links};

use crate::command::Event;
use crate::hub::Directory;
use crate::mailbox::Mailbox;

/// The manager's wish that a flow ends, with the reason for the peer.
pub(crate) type CloseOrder = Rc<RefCell<Option<String>>>;

/// The part of a flow that does not depend on how the application is attached.
///
/// ```text
///            application ends,           output link drained
///            or a close order            by its sink
///   Open ------------------> Ending ------------------------> gone
///     |                                                        ^
///     +--- input link closed (peer ended): end told, ----------+
///          FlowClosed said
/// ```
pub(crate) struct Flow {
    pub id: AppId,
    pub port: PortId,
    /// Packets toward the application.
    pub input: LinkId,
    /// Packets from the application.
    pub output: LinkId,
    pub row: Row,
    pub name: String,
    pub events: Mailbox<Event>,
    pub directory: Directory,
    pub order: CloseOrder,
    /// One of two flows that share a port does not speak for it.
    pub is_silent: bool,
    pub is_done: bool,
    pub has_channel: bool,
}

impl Flow {
    /// Counts a piece that the application sent.
    pub fn count_in(&self, bytes: usize, more: bool) {
        self.row
            .add(if more { Value::PiecesIn } else { Value::SdusIn }, 1);
        self.row.add(Value::BytesIn, bytes as u64);
    }

    /// Counts a piece that was given to the application.
    pub fn count_out(&self, bytes: usize, more: bool) {
        self.row.add(
            if more {
                Value::PiecesOut
            } else {
                Value::SdusOut
            },
            1,
        );
        self.row.add(Value::BytesOut, bytes as u64);
    }

    /// Notes which channel carries the flow, as soon as its IPCP has said so.
    pub fn note_channel(&mut self, links: &Links) {
        if !self.has_channel {
            let channel = links.tag(self.output);
            self.has_channel = channel != 0;
            self.row.set(Value::Channel, u64::from(channel));
        }
    }

    /// Ends the flow: closes the output link with `close`, says `FlowClosed`, leaves the engine.
    pub fn end(&mut self, links: &mut Links, close: Close) {
        if self.is_done {
            return;
        }
        self.is_done = true;
        if !self.is_silent && !matches!(close, Close::Refused(_)) {
            self.directory.borrow_mut().remove(&self.port);
            let reason = match close.reason() {
                "" => "the application closed it".to_owned(),
                reason => reason.to_owned(),
            };
            self.events.put(Event::FlowClosed {
                port: self.port,
                reason,
            });
        }
        links.close(self.output, close);
        let lost = links.disconnect(self.input);
        self.row.add(Value::DropFlowEnded, lost as u64);
        links.finish(self.id);
    }
}

/// How a flow ends whose application did not close it: by order, or by dying.
pub(crate) fn ordered_close(order: Option<String>) -> Close {
    match order {
        Some(reason) if reason.is_empty() => Close::Graceful(reason),
        Some(reason) => Close::Failed(reason),
        None => Close::Failed("the application failed".to_owned()),
    }
}
