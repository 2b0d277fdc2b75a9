//! The buffers between an application (or layer management) and EFCP: the SDUs of a flow, the
//! messages of a management channel.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use carina_efcp::delimiting::Delimiter;
use carina_wire::Payload;
use carina_wire::dif::CepId;

use crate::api::FlowKey;
use crate::data_transfer::api::Owner;

/// The SDUs of one flow or the messages of one channel, on their way to and from EFCP.
///
/// ```text
///  on_sdu --> pending --> delimiter --> EFCP        EFCP --> assembler --> ready --> poll_deliver
///             (if EFCP or the                                            (until the reader
///              queue is full)                                             has room)
/// ```
#[derive(Debug)]
pub(super) struct FlowIo<P> {
    pub(super) owner: Owner,
    pub(super) delimiter: Delimiter<P>,
    /// CEP-id of the connection that carries the SDUs that the application writes; 0 before the
    /// first connection.
    pub(super) current: CepId,
    /// The connection that replaces `current` after a rollover; 0 for none.
    pub(super) next: CepId,
    /// `next` becomes `current` as soon as everything given to `current` has been sent.
    pub(super) is_switching: bool,
    /// The connection that was `current` before the last switch; 0 for none.
    pub(super) old: CepId,
    /// SDUs that wait for room in EFCP or in the queue of the N-1 flow, each with its `more` flag.
    pub(super) pending: VecDeque<(P, bool)>,
    pub(super) pending_bytes: usize,
    pending_kept: usize,
    /// The piece delimited last was not the last piece of its SDU.
    pub(super) is_inside: bool,
    /// SDUs and pieces that wait for the reader, each with its `more` flag.
    pub(super) ready: VecDeque<(P, bool)>,
    pub(super) ready_bytes: usize,
    ready_kept: usize,
    /// Bytes that the reader can take; `usize::MAX` until the reader sets a limit.
    pub(super) room: usize,
    /// The message of a channel received so far.
    pub(super) message: Vec<u8>,
    /// The remaining pieces of the current SDU are dropped, for lack of room.
    pub(super) is_skipping: bool,
    /// Why a reliable flow has lost something that was written; nothing written later is sent.
    pub(super) broken: Option<Box<str>>,
    /// Whether the report that an SDU was too long has been made.
    pub(super) is_refusal_reported: bool,
    /// Whether the flow is in the list of flows that have something for their readers.
    pub(super) is_listed: bool,
    /// Whether the flow is in the list of flows whose SDUs may lie in memory of the current burst.
    pub(super) is_unkept: bool,
    /// Whether the flow waits for the queue of an N-1 flow to get shorter.
    pub(super) is_held: bool,
    /// Whether the last report to the writer gave less room than there may be now. The writer waits
    /// for a report of more room.
    pub(super) is_short: bool,
    /// Listed among the flows whose room has grown.
    pub(super) is_room_listed: bool,
    /// Nothing more will be written; management is notified when everything has been sent.
    pub(super) is_finishing: bool,
    /// Management has been notified that everything has been sent.
    pub(super) is_drained: bool,
    /// The flow has ended; only the SDUs in `ready` remain.
    pub(super) is_closed: bool,
}

impl<P: Payload> FlowIo<P> {
    pub(super) fn new(owner: Owner, delimiter: Delimiter<P>) -> FlowIo<P> {
        FlowIo {
            owner,
            delimiter,
            current: CepId(0),
            next: CepId(0),
            is_switching: false,
            old: CepId(0),
            pending: VecDeque::new(),
            pending_bytes: 0,
            pending_kept: 0,
            is_inside: false,
            ready: VecDeque::new(),
            ready_bytes: 0,
            ready_kept: 0,
            room: usize::MAX,
            message: Vec::new(),
            is_skipping: false,
            broken: None,
            is_refusal_reported: false,
            is_listed: false,
            is_unkept: false,
            is_held: false,
            is_short: false,
            is_room_listed: false,
            is_finishing: false,
            is_drained: false,
            is_closed: false,
        }
    }

    /// The connections of the flow: old, current and next, as far as they exist.
    pub(super) fn connections(&self) -> impl Iterator<Item = CepId> + use<P> {
        [self.old, self.current, self.next]
            .into_iter()
            .filter(|cep| cep.0 != 0)
    }

    /// True when a UDF can be sent now. Small SDUs that wait to share a PDU do not count.
    #[inline]
    #[expect(
        clippy::len_zero,
        reason = "`is_empty` counts what waits for company too"
    )]
    pub(super) fn has_udfs(&self) -> bool {
        self.delimiter.len() > 0
    }

    pub(super) fn push_pending(&mut self, sdu: P, more: bool) {
        self.pending_bytes += sdu.len();
        self.pending.push_back((sdu, more));
    }

    pub(super) fn pop_pending(&mut self) -> Option<(P, bool)> {
        let (sdu, more) = self.pending.pop_front()?;
        self.pending_bytes -= sdu.len();
        self.pending_kept = self.pending_kept.saturating_sub(1);
        Some((sdu, more))
    }

    /// Bytes that the reader can take beyond those already in `ready`.
    #[inline]
    pub(super) fn room_left(&self) -> usize {
        self.room.saturating_sub(self.ready_bytes)
    }

    #[inline]
    pub(super) fn push_ready(&mut self, sdu: P, more: bool) {
        self.ready_bytes += sdu.len();
        self.ready.push_back((sdu, more));
    }

    /// Takes the next SDU if the reader has room for it.
    #[inline]
    pub(super) fn pop_ready(&mut self) -> Option<(P, bool)> {
        if self.ready.front()?.0.len() > self.room {
            return None;
        }
        let (sdu, more) = self.ready.pop_front()?;
        self.ready_bytes -= sdu.len();
        self.ready_kept = self.ready_kept.saturating_sub(1);
        if self.room != usize::MAX {
            self.room -= sdu.len();
        }
        Some((sdu, more))
    }

    /// Copies everything that waits out of the burst's memory. Returns how many SDUs (or pieces)
    /// were lost for lack of buffers.
    pub(super) fn keep(&mut self) -> u64 {
        let mut lost = u64::from(self.delimiter.keep().is_err());
        lost += keep_all(&mut self.pending, &mut self.pending_kept);
        lost += keep_all(&mut self.ready, &mut self.ready_kept);
        if lost > 0 {
            self.pending_bytes = self.pending.iter().map(|(sdu, _)| sdu.len()).sum();
            self.ready_bytes = self.ready.iter().map(|(sdu, _)| sdu.len()).sum();
        }
        lost
    }
}

fn keep_all<P: Payload>(queue: &mut VecDeque<(P, bool)>, kept: &mut usize) -> u64 {
    let before = queue.len();
    if *kept == before {
        return 0;
    }
    let mut index = 0;
    queue.retain_mut(|(sdu, _)| {
        index += 1;
        index <= *kept || sdu.keep()
    });
    *kept = queue.len();
    (before - queue.len()) as u64
}

/// All flow I/Os of an IPCP.
#[derive(Debug)]
pub(super) struct FlowIoTable<P> {
    flows: Vec<Option<Box<FlowIo<P>>>>,
    channels: BTreeMap<u32, Box<FlowIo<P>>>,
    count: usize,
}

/// Bound of the flow numbers.
const FLOWS_MAX: usize = 1 << 22;

impl<P: Payload> FlowIoTable<P> {
    pub(super) fn new() -> FlowIoTable<P> {
        FlowIoTable {
            flows: Vec::new(),
            channels: BTreeMap::new(),
            count: 0,
        }
    }

    /// Number of flows in the table.
    pub(super) fn flow_count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn flow(&mut self, key: FlowKey) -> Option<&mut FlowIo<P>> {
        self.flows.get_mut(key.0 as usize)?.as_deref_mut()
    }

    pub(super) fn peek_flow(&self, key: FlowKey) -> Option<&FlowIo<P>> {
        self.flows.get(key.0 as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn get(&mut self, owner: Owner) -> Option<&mut FlowIo<P>> {
        match owner {
            Owner::Flow(key) => self.flow(key),
            Owner::Channel(channel) => self.channels.get_mut(&channel).map(|io| &mut **io),
        }
    }

    /// Adds a flow I/O, in place of one with the same owner. Returns false when the flow's number
    /// is too large.
    pub(super) fn insert(&mut self, io: FlowIo<P>) -> bool {
        let io = Box::new(io);
        match io.owner {
            Owner::Flow(key) => {
                let index = key.0 as usize;
                if index >= FLOWS_MAX {
                    return false;
                }
                if self.flows.len() <= index {
                    self.flows.resize_with(index + 1, || None);
                }
                self.count += usize::from(self.flows[index].is_none());
                self.flows[index] = Some(io);
            }
            Owner::Channel(channel) => {
                self.channels.insert(channel, io);
            }
        }
        true
    }

    pub(super) fn remove(&mut self, owner: Owner) -> Option<Box<FlowIo<P>>> {
        match owner {
            Owner::Flow(key) => {
                let io = self.flows.get_mut(key.0 as usize)?.take()?;
                self.count -= 1;
                Some(io)
            }
            Owner::Channel(channel) => self.channels.remove(&channel),
        }
    }
}
