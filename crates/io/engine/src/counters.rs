//! Counters in shared memory: one file, with a row for each IPCP, flow and engine.
//!
//! The data plane adds with plain relaxed stores. A reader of the file sees the values without
//! asking the node, and still sees them after the node has died. One process writes a file and any
//! process reads it; a reader must not trust its contents.
//!
//! ```text
//! file:  [magic 8][version u32][rows u32][row bytes u32]...pad to 4096, then rows
//! row:   [state u32: 0 free, else the kind][changes u32][id u64][name 112, NUL-padded]
//!        [values 64 x u64]
//! ```

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use carina_sys::{Mapping, Memory};

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// The values that each row of the counters has. Values from [`Value::FIRST_DROP`] on are
        /// reasons for discarding: each discarded SDU or piece is counted under exactly one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Value { $($(#[$doc])* $name,)* }

        impl Value {
            /// All values, in the order of the table.
            pub const ALL: &'static [Value] = &[$(Value::$name,)*];

            /// Returns the name by which tools show the value.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self { $(Value::$name => $label,)* }
            }
        }
    };
}

values! {
    /// SDUs received from the peer; in the row of a flow, SDUs received from its application.
    SdusIn = "sdus_in",
    /// Bytes of the SDUs received.
    BytesIn = "bytes_in",
    /// SDUs sent to the peer; in the row of a flow, SDUs delivered to its application.
    SdusOut = "sdus_out",
    /// Bytes of the SDUs sent.
    BytesOut = "bytes_out",
    /// Pieces received that were not the last of their SDU.
    PiecesIn = "pieces_in",
    /// Pieces sent that were not the last of their SDU.
    PiecesOut = "pieces_out",
    /// Control messages received.
    ControlIn = "control_in",
    /// Control messages sent.
    ControlOut = "control_out",
    /// Flows opened.
    FlowsOpened = "flows_opened",
    /// Flows ended.
    FlowsClosed = "flows_closed",
    /// Times that the link came up.
    LinksUp = "links_up",
    /// Times that the link went down.
    LinksDown = "links_down",
    /// Breaths in which something moved.
    Breaths = "breaths",
    /// Times that the engine slept.
    Sleeps = "sleeps",
    /// Doorbells rung.
    Doorbells = "doorbells",
    /// The channel that carries a flow: a number, not a count; 0 before it is known.
    Channel = "channel",
    /// PDUs that a normal IPCP received from its N-1 flows.
    PdusIn = "pdus_in",
    /// PDUs that a normal IPCP sent to its N-1 flows.
    PdusOut = "pdus_out",
    /// PDUs that a normal IPCP relayed from one N-1 flow to another.
    PdusRelayed = "pdus_relayed",
    /// Data for a channel that is not open.
    DropUnknownChannel = "drop_unknown_channel",
    /// Data for a flow that has ended.
    DropFlowEnded = "drop_flow_ended",
    /// Data for an application whose ring was full although the flow had credit.
    DropRingFull = "drop_ring_full",
    /// An SDU that is longer than the sending side of a socket can carry.
    DropTooLong = "drop_too_long",
    /// Data for which no buffer was free.
    DropNoBuffer = "drop_no_buffer",
    /// A record or header that violates the protocol.
    DropMalformed = "drop_malformed",
    /// Data beyond the granted credit.
    DropOverrun = "drop_overrun",
    /// Data that was queued when the link went down.
    DropLinkDown = "drop_link_down",
    /// A protected PDU that is too short for its protection.
    DropProtectionShort = "drop_protection_short",
    /// A protected PDU whose checksum is wrong.
    DropProtectionChecksum = "drop_protection_checksum",
    /// A protected PDU that cannot be decrypted.
    DropProtectionForged = "drop_protection_forged",
    /// A protected PDU that was received before.
    DropProtectionReplayed = "drop_protection_replayed",
    /// A protected PDU whose lifetime has expired.
    DropProtectionExpired = "drop_protection_expired",
    /// A compressed PDU that cannot be decompressed.
    DropProtectionInflated = "drop_protection_inflated",
    /// A PDU for an N-1 flow whose key is exhausted.
    DropProtectionExhausted = "drop_protection_exhausted",
    /// A PDU whose source address is impossible.
    DropForgedSource = "drop_forged_source",
    /// A PDU that has reached its hop limit.
    DropHopLimit = "drop_hop_limit",
    /// A PDU for a destination without a route.
    DropNoRoute = "drop_no_route",
    /// A PDU for a destination with a route, but without an N-1 flow to a neighbour on it.
    DropNoNeighbour = "drop_no_neighbour",
    /// A PDU for an EFCP connection that this IPCP does not have, or that is not complete.
    DropUnknownConnection = "drop_unknown_connection",
    /// A PDU with a QoS-id that the DIF does not have.
    DropUnknownCube = "drop_unknown_cube",
    /// Data that arrived before this IPCP was a member of its DIF.
    DropNotMember = "drop_not_member",
    /// A PDU for an N-1 flow whose queue was full, or that the queue's policy chose to drop.
    DropQueueFull = "drop_queue_full",
    /// A PDU for a full queue of management PDUs.
    DropManagementQueueFull = "drop_management_queue_full",
    /// Data for a reader without room, on a flow without flow control.
    DropNoRoom = "drop_no_room",
    /// A PDU that EFCP discarded: a duplicate, outside the window, or out of order.
    DropEfcp = "drop_efcp",
    /// Fragments of an SDU that do not fit together.
    DropDelimiting = "drop_delimiting",
    /// An SDU of no bytes, which the medium cannot carry.
    DropEmpty = "drop_empty",
    /// Data that the fault layer dropped on purpose.
    DropImpaired = "drop_impaired",
}

impl Value {
    /// The first of the values that are reasons for discarding.
    pub const FIRST_DROP: Value = Value::DropUnknownChannel;

    /// Whether the value counts SDUs or pieces that were discarded for a reason.
    #[must_use]
    pub fn is_drop(self) -> bool {
        self as usize >= Value::FIRST_DROP as usize
    }
}

/// The kind of object that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    /// The engine of a data-plane thread.
    Engine = 1,
    /// An IPC process.
    Ipcp = 2,
    /// A flow, and the channel that carries it ([`Value::Channel`]).
    Flow = 3,
}

impl Kind {
    /// Returns the name by which tools show the kind of object.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Kind::Engine => "engine",
            Kind::Ipcp => "ipcp",
            Kind::Flow => "flow",
        }
    }

    fn from_word(word: u32) -> Option<Kind> {
        [Kind::Engine, Kind::Ipcp, Kind::Flow]
            .into_iter()
            .find(|kind| *kind as u32 == word)
    }
}

/// A table of counters in shared memory, for the process that writes it. Clones share the table.
#[derive(Clone)]
pub struct Table {
    shared: Arc<Shared>,
}

struct Shared {
    mapping: Mapping,
    free: Mutex<Vec<u32>>,
}

/// One row of the table: the counters of an IPCP, a flow or an engine. It belongs to one thread;
/// dropping it frees the row.
pub struct Row {
    shared: Arc<Shared>,
    /// `None` if the table was full: the row then counts nothing.
    index: Option<u32>,
    // Rows are written by a load and a store; two threads would lose counts.
    _one_thread: std::marker::PhantomData<Cell<()>>,
}

impl Table {
    /// Creates a table in a file at `path`, and replaces any file there.
    ///
    /// # Errors
    /// Errors of the file system, with the path.
    pub fn create(path: &Path) -> io::Result<Table> {
        if let Err(error) = std::fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            let text = format!("{}: {error}", path.display());
            return Err(io::Error::new(error.kind(), text));
        }
        Table::over(&Memory::file(path, FILE_BYTES)?)
    }

    /// Creates a table that no other process can read.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn private() -> io::Result<Table> {
        Table::over(&Memory::anonymous("carina-counters", FILE_BYTES)?)
    }

    fn over(memory: &Memory) -> io::Result<Table> {
        let mapping = memory.map()?;
        mapping.atomic_u32(8).store(VERSION, Ordering::Relaxed);
        mapping.atomic_u32(12).store(ROWS as u32, Ordering::Relaxed);
        mapping
            .atomic_u32(16)
            .store(ROW_BYTES as u32, Ordering::Relaxed);
        mapping.atomic_u64(0).store(MAGIC, Ordering::Release);
        let free = (0..ROWS as u32).rev().collect();
        Ok(Table {
            shared: Arc::new(Shared {
                mapping,
                free: Mutex::new(free),
            }),
        })
    }

    /// Creates a row of zeros. `id` is an IPCP id or a port-id; `name` is cut to 112 bytes. If the
    /// table is full, the row counts nothing.
    #[must_use]
    pub fn row(&self, kind: Kind, id: u64, name: &str) -> Row {
        let shared = Arc::clone(&self.shared);
        let index = shared.free.lock().ok().and_then(|mut free| free.pop());
        let row = Row {
            shared,
            index,
            _one_thread: std::marker::PhantomData,
        };
        if let Some(at) = row.offset() {
            let mapping = &row.shared.mapping;
            for value in 0..VALUES {
                mapping
                    .atomic_u64(at + VALUES_AT + 8 * value)
                    .store(0, Ordering::Relaxed);
            }
            let mut bytes = [0; NAME_BYTES];
            let cut = name.floor_char_boundary(NAME_BYTES);
            bytes[..cut].copy_from_slice(&name.as_bytes()[..cut]);
            mapping.write(at + NAME_AT, &bytes);
            mapping.atomic_u64(at + 8).store(id, Ordering::Relaxed);
            mapping.atomic_u32(at + 4).fetch_add(1, Ordering::Relaxed);
            mapping.atomic_u32(at).store(kind as u32, Ordering::Release);
        }
        row
    }
}

impl Row {
    fn offset(&self) -> Option<usize> {
        Some(HEADER_BYTES + self.index? as usize * ROW_BYTES)
    }

    fn value(&self, value: Value) -> Option<&AtomicU64> {
        Some(
            self.shared
                .mapping
                .atomic_u64(self.offset()? + VALUES_AT + 8 * value as usize),
        )
    }

    /// Adds `count` to one of the row's values.
    #[inline]
    pub fn add(&self, value: Value, count: u64) {
        if let Some(cell) = self.value(value) {
            // Only one thread writes, so no locked instruction is needed.
            cell.store(
                cell.load(Ordering::Relaxed).wrapping_add(count),
                Ordering::Relaxed,
            );
        }
    }

    /// Sets one of the row's values, for a value that is a state and not a count.
    pub fn set(&self, value: Value, to: u64) {
        if let Some(cell) = self.value(value) {
            cell.store(to, Ordering::Relaxed);
        }
    }

    /// Reads one of the row's values; 0 if the table was full when the row was made.
    #[must_use]
    pub fn read(&self, value: Value) -> u64 {
        self.value(value)
            .map_or(0, |cell| cell.load(Ordering::Relaxed))
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        let (Some(at), Some(index)) = (self.offset(), self.index) else {
            return;
        };
        self.shared
            .mapping
            .atomic_u32(at)
            .store(0, Ordering::Release);
        if let Ok(mut free) = self.shared.free.lock() {
            free.push(index);
        }
    }
}

/// The contents of a row at the moment at which a reader read the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Kind of the object that the row belongs to.
    pub kind: Kind,
    /// IPCP id or port-id of the object that the row belongs to.
    pub id: u64,
    /// Name of the object that the row belongs to.
    pub name: String,
    /// Number that changes when the row is given to another owner. A rate may be computed only from
    /// snapshots with the same number.
    pub changes: u32,
    values: [u64; VALUES],
}

impl Snapshot {
    /// Returns one of the row's values.
    #[must_use]
    pub fn get(&self, value: Value) -> u64 {
        self.values[value as usize]
    }

    /// Returns the sum of all values that are reasons for discarding.
    #[must_use]
    pub fn drops(&self) -> u64 {
        let drops = Value::ALL.iter().filter(|value| value.is_drop());
        drops.fold(0, |sum, value| sum.wrapping_add(self.get(*value)))
    }
}

/// Reads every row in use from the file at `path`.
///
/// # Errors
/// The file cannot be read, or is not a table of counters of this version.
pub fn read(path: &Path) -> io::Result<Vec<Snapshot>> {
    let wrong = |text: String| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{}: {text}", path.display()),
        )
    };
    let bytes = std::fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    if bytes.len() < HEADER_BYTES || word64(&bytes, 0) != MAGIC {
        return Err(wrong("not a table of counters".to_owned()));
    }
    let (version, row_bytes) = (word32(&bytes, 8), word32(&bytes, 16));
    if version != VERSION || row_bytes as usize != ROW_BYTES {
        return Err(wrong(format!(
            "the table of counters has version {version}; this program reads version {VERSION}"
        )));
    }
    Ok(bytes[HEADER_BYTES..]
        .chunks_exact(ROW_BYTES)
        .filter_map(snapshot)
        .collect())
}

fn snapshot(row: &[u8]) -> Option<Snapshot> {
    let kind = Kind::from_word(word32(row, 0))?;
    let name = &row[NAME_AT..VALUES_AT];
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(NAME_BYTES);
    let mut values = [0; VALUES];
    for (index, value) in values.iter_mut().enumerate() {
        *value = word64(row, VALUES_AT + 8 * index);
    }
    let name = String::from_utf8_lossy(&name[..end]).into_owned();
    Some(Snapshot {
        kind,
        id: word64(row, 8),
        name,
        changes: word32(row, 4),
        values,
    })
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

const MAGIC: u64 = u64::from_le_bytes(*b"CARINACT");
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4096;
const NAME_AT: usize = 16;
const NAME_BYTES: usize = 112;
const VALUES_AT: usize = NAME_AT + NAME_BYTES;
const VALUES: usize = 64;
const ROW_BYTES: usize = VALUES_AT + 8 * VALUES;
/// Number of rows of a table, enough for tens of thousands of flows. The file takes memory only for
/// rows that were used.
const ROWS: usize = 32_768;
const FILE_BYTES: usize = HEADER_BYTES + ROWS * ROW_BYTES;

const _: () = assert!(Value::ALL.len() <= VALUES);
const _: () = assert!(FILE_BYTES.is_multiple_of(4096));

#[cfg(test)]
mod tests;
