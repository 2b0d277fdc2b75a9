//! What all kinds of flow app share: their links, their counters, their ending.

use std::collections::VecDeque;

use carina_api::PortId;
use carina_engine::counters::{Row, Value};
use carina_engine::{AppId, Close, LinkId, Links, Packet};
use carina_ring::Sdus;
use carina_wire::Payload;

use crate::event::Event;
use crate::mailbox::Mailbox;
use crate::port_table::{CloseRequest, PortTable};

/// The part of a flow that does not depend on how the application is attached.
///
/// ```text
///            application ends,           output link drained
///            or a close request          by its sink
///   Open ------------------> Ending ------------------------> gone
///     |                                                        ^
///     +--- input link closed (peer ended): ring closed, -------+
///          FlowClosed reported
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
    pub ports: PortTable,
    pub close_request: CloseRequest,
    /// What is done with the port-id when the flow ends.
    pub report: Report,
    pub is_done: bool,
    /// The channel is known, or the flow is a relay, which needs no channel.
    pub has_channel: bool,
}

/// What an app does with the port-id of its flow when that ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// It frees the port-id and tells the manager.
    End,
    /// It frees the port-id; the worker that provides the flow tells the manager.
    PortOnly,
    /// The other one of two apps that share the port-id does both.
    Nothing,
}

impl Flow {
    /// Counts a piece that the application sent.
    pub fn count_in(&self, bytes: usize, more: bool) {
        self.row
            .add(if more { Value::PiecesIn } else { Value::SdusIn }, 1);
        self.row.add(Value::BytesIn, bytes as u64);
    }

    /// Counts whole SDUs that the application sent.
    pub fn count_sdus_in(&self, sdus: Sdus) {
        self.row.add(Value::SdusIn, u64::from(sdus.count));
        self.row.add(Value::BytesIn, u64::from(sdus.bytes));
    }

    /// Counts whole SDUs that were given to the application.
    pub fn count_sdus_out(&self, sdus: Sdus) {
        self.row.add(Value::SdusOut, u64::from(sdus.count));
        self.row.add(Value::BytesOut, u64::from(sdus.bytes));
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

    /// Notes the channel that carries the flow once its IPCP has set it.
    pub fn note_channel(&mut self, links: &Links) {
        if !self.has_channel {
            let channel = links.sink_cookie(self.output);
            self.has_channel = channel != 0;
            self.row.set(Value::Channel, u64::from(channel));
        }
    }

    /// Ends the flow: closes the output link with `close`, reports `FlowClosed`, leaves the engine.
    pub fn end(&mut self, links: &mut Links, close: Close) {
        if !self.is_done {
            self.end_links(links, close);
            links.finish(self.id);
        }
    }

    /// The part of [`Flow::end`] after which the app is in the engine still.
    pub fn end_links(&mut self, links: &mut Links, close: Close) {
        self.is_done = true;
        match self.report {
            Report::End if !matches!(close, Close::Refused(_)) => {
                self.ports.remove(self.port);
                let reason = match close.reason() {
                    "" => "the application closed it".to_owned(),
                    reason => reason.to_owned(),
                };
                self.events.put(Event::FlowClosed {
                    port: self.port,
                    reason,
                });
            }
            Report::PortOnly => self.ports.remove_crossed(self.port, self.id),
            Report::End | Report::Nothing => {}
        }
        links.close(self.output, close);
        let lost = links.disconnect(self.input);
        self.row.add(Value::DropFlowEnded, lost as u64);
    }
}

/// How a flow ends that its application did not close: as the manager requests, else as failed.
pub(crate) fn requested_close(request: Option<String>) -> Close {
    match request {
        Some(reason) if reason.is_empty() => Close::Graceful(reason),
        Some(reason) => Close::Failed(reason),
        None => Close::Failed("the application failed".to_owned()),
    }
}

/// Appends a packet that lies in no ring to `pieces`, in pieces of at most `piece_max` bytes that
/// share its buffer. False when the data plane has no buffer.
pub(crate) fn cut(mut packet: Packet, piece_max: usize, pieces: &mut VecDeque<Packet>) -> bool {
    while packet.len() > piece_max && piece_max > 0 {
        let Some(mut piece) = packet.share() else {
            return false;
        };
        Payload::truncate(&mut piece, piece_max);
        piece.set_more(true);
        packet.advance(piece_max);
        pieces.push_back(piece);
    }
    pieces.push_back(packet);
    true
}
