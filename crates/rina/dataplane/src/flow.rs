//! The common part of all kinds of flow app: links, counters, and how a flow ends.

use std::collections::VecDeque;

use carina_api::PortId;
use carina_engine::counters::{Row, Value};
use carina_engine::{AppId, Close, LinkId, Links, Packet};
use carina_ring::Sdus;
use carina_wire::Payload;

use crate::event::Event;
use crate::mailbox::Mailbox;
use crate::port_table::{CloseRequest, PortTable};

/// State of a flow app that does not depend on how the application is attached.
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
    /// Link that carries packets to the application.
    pub input: LinkId,
    /// Link that carries packets from the application.
    pub output: LinkId,
    pub row: Row,
    pub name: String,
    pub events: Mailbox<Event>,
    pub ports: PortTable,
    pub close_request: CloseRequest,
    /// What the flow app does with the port-id when the flow ends.
    pub report: Report,
    pub is_done: bool,
    /// Whether the channel that carries the flow is known. Always true for a relay, which has none.
    pub has_channel: bool,
}

/// What an app does with the port-id of its flow when the flow ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// Frees the port-id and reports the end to the manager.
    End,
    /// Frees the port-id. The worker that provides the flow reports the end.
    PortOnly,
    /// Neither frees the port-id nor reports the end. Another app of the same port-id does so.
    Nothing,
}

impl Flow {
    /// Counts an SDU, or a piece of one, that the application sent.
    pub(crate) fn count_in(&self, bytes: usize, more: bool) {
        self.row
            .add(if more { Value::PiecesIn } else { Value::SdusIn }, 1);
        self.row.add(Value::BytesIn, bytes as u64);
    }

    /// Counts whole SDUs that the application sent.
    pub(crate) fn count_sdus_in(&self, sdus: Sdus) {
        self.row.add(Value::SdusIn, u64::from(sdus.count));
        self.row.add(Value::BytesIn, u64::from(sdus.bytes));
    }

    /// Counts whole SDUs that were delivered to the application.
    pub(crate) fn count_sdus_out(&self, sdus: Sdus) {
        self.row.add(Value::SdusOut, u64::from(sdus.count));
        self.row.add(Value::BytesOut, u64::from(sdus.bytes));
    }

    /// Counts an SDU, or a piece of one, that was delivered to the application.
    pub(crate) fn count_out(&self, bytes: usize, more: bool) {
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

    /// Shows the channel that carries the flow in the counters, once the IPCP has set it.
    pub(crate) fn note_channel(&mut self, links: &Links) {
        if !self.has_channel {
            let channel = links.sink_cookie(self.output);
            self.has_channel = channel != 0;
            self.row.set(Value::Channel, u64::from(channel));
        }
    }

    /// Ends the flow: closes the output link with `close`, reports `FlowClosed`, and removes the
    /// app from the engine.
    pub(crate) fn end(&mut self, links: &mut Links, close: Close) {
        if !self.is_done {
            self.end_links(links, close);
            links.finish(self.id);
        }
    }

    /// Ends the flow like [`Flow::end`], but leaves the app in the engine.
    pub(crate) fn end_links(&mut self, links: &mut Links, close: Close) {
        self.is_done = true;
        match self.report {
            Report::End if !matches!(close, Close::Refused(_)) => {
                self.ports.remove(self.port);
                let reason = match close.reason() {
                    "" => "the application closed the flow".to_owned(),
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

/// How to close a flow that its application did not close: as the manager requested, otherwise as
/// failed.
pub(crate) fn requested_close(request: Option<String>) -> Close {
    match request {
        Some(reason) if reason.is_empty() => Close::Graceful(reason),
        Some(reason) => Close::Failed(reason),
        None => Close::Failed("the application failed".to_owned()),
    }
}

/// Splits a packet whose contents are not in a ring into pieces of at most `piece_max` bytes, which
/// share its buffer, and appends them to `pieces`. Returns false if the data plane has no buffer.
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
