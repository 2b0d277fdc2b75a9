//! Sessions: a pair of applications, the flow that they want, and how far each end has come.

use carina_ipcp::FlowKey;
use carina_wire::FlowSpec;

use crate::model::SlotId;
use crate::stream::{Lengths, Promise, Stream};

/// A flow that a pair of applications wants to have.
#[derive(Clone, Debug)]
pub struct FlowRequest {
    /// Where the calling application is.
    pub from: SlotId,
    /// Name of the called application.
    pub to: String,
    /// Requirements on the flow.
    pub spec: FlowSpec,
    /// SDUs that the calling side writes, then the called side.
    pub sdus: [u64; 2],
    /// How long they are.
    pub lengths: Lengths,
    /// Pause between two bursts of a writer, in ns; at most.
    pub pause_ns: u64,
    /// How each side reads: the calling one, then the called one.
    pub readers: [Reader; 2],
    /// What the calling side does when it has written everything.
    pub ending: Ending,
    /// The called application says no.
    pub is_refused: bool,
}

/// When the calling side deallocates the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// When both sides have written everything and, on a reliable flow, read everything.
    WhenDone,
    /// As soon as it has written everything itself.
    WhenWritten,
    /// Never.
    Never,
}

/// How an application reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Bytes that may wait to be read.
    pub capacity: usize,
    /// Stops after so many bytes, again and again; 0: never.
    pub stops_every: u64,
    /// For so long, in ns.
    pub stops_ns: u64,
}

impl Reader {
    /// Reads everything at once.
    #[must_use]
    pub const fn eager() -> Reader {
        Reader {
            capacity: 256 * 1024,
            stops_every: 0,
            stops_ns: 0,
        }
    }
}

/// A pair of applications with a flow.
#[derive(Debug)]
pub struct Session {
    pub(crate) request: FlowRequest,
    pub(crate) promise: Promise,
    /// By end: the calling one, then the called one.
    pub(crate) ends: [Option<End>; 2],
    /// By writer.
    pub(crate) streams: [Stream; 2],
    /// Called ends that the caller knows nothing about, because it died or gave up.
    pub(crate) strays: u32,
    pub(crate) is_closing: bool,
    /// When something last happened to one end of which the other has to be notified.
    pub(crate) said_at: u64,
    /// When an application last wrote or read a piece.
    pub(crate) moved_at: u64,
    /// By writer: when each SDU was begun, in ns.
    pub(crate) written_at: [Vec<u64>; 2],
    /// By end: its member left the DIF after the application had ended the flow.
    pub(crate) has_left: [bool; 2],
}

impl Session {
    /// Whether one end may have given up some of what was written there: it left the DIF, or an
    /// SDU has been under way for `patience_ns`.
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

/// How far an end has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Requesting,
    Open,
    /// This side ended it in order.
    Ended,
    /// The IPCP said that it is over; gracefully or not.
    Over(bool),
    /// The request was denied.
    Denied(String),
    /// The system died.
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
