//! Sessions: two applications, the flow between them, and the progress of each end.

use carina_ipcp::FlowKey;
use carina_wire::FlowSpec;

use crate::model::SlotId;
use crate::stream::{Lengths, Promise, Stream};

/// A flow that one simulated application requests to another, and how the two use it.
#[derive(Clone, Debug)]
pub struct FlowRequest {
    /// Slot of the calling application.
    pub from: SlotId,
    /// Name of the application that is called.
    pub to: String,
    /// Requirements on the flow.
    pub spec: FlowSpec,
    /// Number of SDUs that the calling side writes, and that the called side writes.
    pub sdus: [u64; 2],
    /// Lengths of the SDUs.
    pub lengths: Lengths,
    /// Longest pause of a writer between two bursts, in ns.
    pub pause_ns: u64,
    /// How each side reads: the calling side, then the called side.
    pub readers: [Reader; 2],
    /// When the calling side ends the flow.
    pub ending: Ending,
    /// Whether the called application refuses the flow.
    pub is_refused: bool,
}

/// When the calling side deallocates the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// When both sides have written everything and, on a reliable flow, have read everything.
    WhenDone,
    /// As soon as the calling side has written everything.
    WhenWritten,
    /// The calling side never deallocates the flow.
    Never,
}

/// How fast a simulated application reads from its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Number of delivered bytes that may wait for the application to read them.
    pub capacity: usize,
    /// The reader stops for `stops_ns` each time it has read this number of bytes; 0: it never
    /// stops.
    pub stops_every: u64,
    /// How long the reader stops, in ns.
    pub stops_ns: u64,
}

impl Reader {
    /// A reader that never stops: it reads all delivered bytes as soon as they arrive.
    #[must_use]
    pub const fn eager() -> Reader {
        Reader {
            capacity: 256 * 1024,
            stops_every: 0,
            stops_ns: 0,
        }
    }
}

/// Two simulated applications and the flow between them, with the progress of each end.
#[derive(Debug)]
pub struct Session {
    pub(crate) request: FlowRequest,
    pub(crate) promise: Promise,
    /// The two ends: the calling one, then the called one.
    pub(crate) ends: [Option<End>; 2],
    /// What each end writes.
    pub(crate) streams: [Stream; 2],
    /// Number of called ends that the caller does not know, because it crashed or gave up.
    pub(crate) strays: u32,
    pub(crate) is_closing: bool,
    /// Time in ns of the last change at one end that the other end has to be notified of.
    pub(crate) notified_at: u64,
    /// Time in ns at which an application last wrote or read a piece.
    pub(crate) moved_at: u64,
    /// For each end: the time in ns at which it began to write each SDU.
    pub(crate) written_at: [Vec<u64>; 2],
    /// For each end: whether its member left the DIF after the application had ended the flow.
    pub(crate) has_left: [bool; 2],
}

impl Session {
    /// Whether an end may have given up some of the data written there: its member left the DIF, or
    /// an SDU has not arrived after `patience_ns`.
    pub(crate) fn may_have_given_up(&self, now: u64, writer: usize, patience_ns: u64) -> bool {
        let missing = self.streams[writer].first_missing();
        let since = missing.and_then(|number| self.written_at[writer].get(number as usize));
        self.has_left[writer] || since.is_some_and(|at| now - at >= patience_ns)
    }
}

/// One end of a session.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub slot: SlotId,
    pub incarnation: u32,
    pub key: FlowKey,
    pub state: State,
    pub held: usize,
    pub until_stop: u64,
    pub is_stopped: bool,
    pub writes_at: Option<u64>,
}

/// State of the flow as one end of a session sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Requesting,
    Open,
    /// This side has ended the flow in order.
    Ended,
    /// The IPCP reported the end of the flow; true if it was in order.
    Over(bool),
    /// The request was refused, for this reason.
    Denied(String),
    /// The system of this end crashed.
    Dead,
}

impl End {
    pub(crate) fn new(
        slot: SlotId,
        incarnation: u32,
        key: FlowKey,
        state: State,
        reader: &Reader,
    ) -> End {
        End {
            slot,
            incarnation,
            key,
            state,
            held: 0,
            until_stop: reader.stops_every,
            is_stopped: false,
            writes_at: None,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, State::Requesting | State::Open)
    }
}
