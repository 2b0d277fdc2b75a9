//! The connections of one guest, without I/O. (VIRTIO 1.2 §5.10.6)
//!
//! ```text
//!            guest's REQUEST                        accept()
//!  (none) ---------------------> Asked (by guest) ----------+
//!     |                              | refuse(): RST        v
//!     | connect(): REQUEST           v                    Open <--> data, credit
//!     +----------------> Waiting -> (none)                  |
//!                           |  guest's RESPONSE             | close(): SHUTDOWN of both
//!                           +-----------------------------> | directions
//!                                                           v
//!  (none) <------- guest's RST, or reset() ------------- Closing
//! ```
//!
//! The owner passes every packet of the guest to [`Machine::handle`] and acts on the [`Outcome`].
//! It sends what [`Machine::poll_packet`] returns, and data with the header of
//! [`Machine::data_header`]. Every packet of the guest causes at most one packet in return.

use std::collections::{BTreeMap, VecDeque};

use crate::header::{HOST_CID, Header, Op, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};

/// Largest number of connections of one guest.
pub const CONNECTIONS_MAX: usize = 1024;

/// Size of the buffer for what the guest sends on one connection, in bytes.
pub const BUFFER_BYTES: u32 = 128 << 10;

/// Identity of a connection: its two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The port of the host's end.
    pub host_port: u32,
    /// The port of the guest's end.
    pub guest_port: u32,
}

/// What the owner must do after a packet of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: the machine has handled the packet, or dropped it.
    Done,
    /// The guest connects to a port of the host. The owner calls [`Machine::accept`] or
    /// [`Machine::refuse`].
    Incoming(Key),
    /// The guest has accepted a connection of [`Machine::connect`].
    Connected(Key),
    /// The data of the packet belongs to this connection. The owner stores all of it, and calls
    /// [`Machine::forwarded`] when it has passed bytes on.
    Data(Key),
    /// The guest may have more room on this connection, or stopped to receive.
    Changed(Key),
    /// The guest sends nothing more on this connection. The owner passes on what it has stored,
    /// then the end of the stream.
    EndOfData(Key),
    /// The guest has closed both directions. The owner passes on what it has stored, closes its end
    /// and calls [`Machine::reset`].
    Finished(Key),
    /// The connection has ended. The owner must close its own end now.
    Ended(Key),
}

/// The guest has too many connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guest has {CONNECTIONS_MAX} connections already")]
pub struct ConnectError;

/// The connections of one guest.
#[derive(Debug)]
pub struct Machine {
    guest_cid: u64,
    connections: BTreeMap<Key, Connection>,
    packets: VecDeque<Header>,
    next_port: u32,
    dropped: u64,
    violations: u64,
}

#[derive(Debug)]
struct Connection {
    state: State,
    /// Whether the guest has announced that it receives no more bytes.
    is_deaf: bool,
    /// Whether the guest has announced that it sends no more bytes.
    is_mute: bool,
    /// Flags of the SHUTDOWN that the host has sent.
    shut: u32,
    /// Size of the guest's receive buffer, in bytes. All counts of bytes are modulo 2^32.
    room: u32,
    /// Bytes that the guest reports as read from its receive buffer.
    guest_forwarded: u32,
    /// Bytes that the host has sent.
    sent: u32,
    /// Whether the host has sent a CREDIT_REQUEST, and no packet of the guest has arrived since.
    has_asked_credit: bool,
    /// Bytes that the host has received.
    received: u32,
    /// Bytes that the host's program has read.
    forwarded: u32,
    /// The value of `forwarded` in the last packet to the guest.
    shown_forwarded: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The guest has sent a REQUEST for this connection, and the host has not accepted or refused
    /// it yet.
    Asked,
    /// The host has sent a REQUEST for this connection, and waits for the guest's RESPONSE.
    Waiting,
    /// Both directions can carry data.
    Open,
    /// The host has closed both directions and waits for the guest's RST.
    Closing,
}

impl Connection {
    fn new(state: State) -> Connection {
        Connection {
            state,
            is_deaf: false,
            is_mute: false,
            shut: 0,
            room: 0,
            guest_forwarded: 0,
            sent: 0,
            has_asked_credit: false,
            received: 0,
            forwarded: 0,
            shown_forwarded: 0,
        }
    }

    /// Takes over the credit that a packet carries. A guest that shows false counts harms only its
    /// own connection.
    fn note_credit(&mut self, header: &Header) {
        self.room = header.buffer_bytes;
        self.guest_forwarded = header.forwarded;
        self.has_asked_credit = false;
    }

    fn credit(&self) -> u32 {
        let outstanding = self.sent.wrapping_sub(self.guest_forwarded);
        self.room.saturating_sub(outstanding)
    }
}

impl Machine {
    /// Starts without connections, for the guest with this context id.
    #[must_use]
    pub fn new(guest_cid: u64) -> Machine {
        Machine {
            guest_cid,
            connections: BTreeMap::new(),
            packets: VecDeque::new(),
            next_port: FIRST_PORT,
            dropped: 0,
            violations: 0,
        }
    }

    /// Handles a packet of the guest with `bytes` bytes of data behind the header.
    #[must_use]
    pub fn handle(&mut self, header: &Header, bytes: usize) -> Outcome {
        if header.source_cid != self.guest_cid || header.destination_cid != HOST_CID {
            self.dropped += 1;
            return Outcome::Done;
        }
        let key = Key {
            host_port: header.destination_port,
            guest_port: header.source_port,
        };
        let known = self.connections.get_mut(&key);
        let Some(connection) = known else {
            return self.handle_unknown(key, header);
        };
        connection.note_credit(header);
        let state = connection.state;
        if header.op == Op::Reset {
            self.connections.remove(&key);
            return Outcome::Ended(key);
        }
        match (state, header.op) {
            (State::Waiting, Op::Response) => {
                connection.state = State::Open;
                Outcome::Connected(key)
            }
            (State::Open | State::Closing, Op::Data) => self.take_data(key, header, bytes),
            (State::Open, Op::Shutdown) => self.guest_shuts(key, header.flags),
            (State::Open, Op::CreditUpdate) => Outcome::Changed(key),
            (State::Open, Op::CreditRequest) => {
                self.send(key, Op::CreditUpdate, 0);
                Outcome::Changed(key)
            }
            (State::Closing, Op::Shutdown | Op::CreditUpdate | Op::CreditRequest) => Outcome::Done,
            _ => self.violated(key),
        }
    }

    /// Accepts the connection of [`Outcome::Incoming`].
    pub fn accept(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(&key)
            && connection.state == State::Asked
        {
            connection.state = State::Open;
            self.send(key, Op::Response, 0);
        }
    }

    /// Refuses the connection of [`Outcome::Incoming`].
    pub fn refuse(&mut self, key: Key) {
        self.reset(key);
    }

    /// Opens a connection to a port of the guest. [`Outcome::Connected`] or [`Outcome::Ended`]
    /// follows when the guest answers.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, guest_port: u32) -> Result<Key, ConnectError> {
        if self.connections.len() >= CONNECTIONS_MAX {
            return Err(ConnectError);
        }
        let key = loop {
            let host_port = self.next_port;
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            let key = Key {
                host_port,
                guest_port,
            };
            // Fewer connections exist than ports, so this ends.
            if !self.connections.contains_key(&key) {
                break key;
            }
        };
        self.connections
            .insert(key, Connection::new(State::Waiting));
        self.send(key, Op::Request, 0);
        Ok(key)
    }

    /// Number of bytes that may be sent to the guest on a connection now. Asks the guest for credit
    /// if the credit is 0.
    pub fn credit(&mut self, key: Key) -> usize {
        let Some(connection) = self.connections.get_mut(&key) else {
            return 0;
        };
        if connection.state != State::Open
            || connection.is_deaf
            || connection.shut & SHUTDOWN_SEND != 0
        {
            return 0;
        }
        let credit = connection.credit();
        if credit == 0 && !std::mem::replace(&mut connection.has_asked_credit, true) {
            self.send(key, Op::CreditRequest, 0);
        }
        credit as usize
    }

    /// Returns the header of a packet with `bytes` bytes of data, at most [`Machine::credit`], and
    /// counts the bytes as sent. `None` if the connection is not open.
    #[must_use]
    pub fn data_header(&mut self, key: Key, bytes: u32) -> Option<Header> {
        let connection = self.connections.get_mut(&key)?;
        if connection.state != State::Open {
            return None;
        }
        connection.sent = connection.sent.wrapping_add(bytes);
        let mut header = self.header(key, Op::Data, 0)?;
        header.len = bytes;
        Some(header)
    }

    /// Records that `bytes` bytes of [`Outcome::Data`] have been passed on, and grants the guest
    /// new credit when enough have been.
    pub fn forwarded(&mut self, key: Key, bytes: usize) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        connection.forwarded = connection.forwarded.wrapping_add(bytes as u32);
        let hidden = connection
            .forwarded
            .wrapping_sub(connection.shown_forwarded);
        if hidden >= BUFFER_BYTES / 4 && connection.state == State::Open {
            self.send(key, Op::CreditUpdate, 0);
        }
    }

    /// Announces that the host's end sends nothing more.
    pub fn end_data(&mut self, key: Key) {
        self.shut(key, SHUTDOWN_SEND);
    }

    /// Announces that the host's end is closed. [`Outcome::Ended`] follows when the guest answers;
    /// the owner may call [`Machine::reset`] when the guest does not.
    pub fn close(&mut self, key: Key) {
        self.shut(key, SHUTDOWN_SEND | SHUTDOWN_RECEIVE);
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.state = State::Closing;
        }
    }

    /// Ends a connection by a reset. Data that waits is dropped.
    pub fn reset(&mut self, key: Key) {
        if self.connections.contains_key(&key) {
            self.send(key, Op::Reset, 0);
            self.connections.remove(&key);
        }
    }

    /// Ends all connections, because the guest has restarted.
    pub fn clear(&mut self) {
        self.connections.clear();
        self.packets.clear();
    }

    /// Returns the next packet without data for the guest.
    #[must_use]
    pub fn poll_packet(&mut self) -> Option<Header> {
        self.packets.pop_front()
    }

    /// Number of packets that wait for [`Machine::poll_packet`]. An owner that stops to take
    /// packets of the guest at a bound also bounds this number.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// Number of connections, those that are not open yet included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Number of packets that were dropped because of their context ids.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Number of connections that were ended because the guest broke the protocol.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.violations
    }

    fn handle_unknown(&mut self, key: Key, header: &Header) -> Outcome {
        match header.op {
            Op::Request if self.connections.len() < CONNECTIONS_MAX => {
                let mut connection = Connection::new(State::Asked);
                connection.note_credit(header);
                self.connections.insert(key, connection);
                return Outcome::Incoming(key);
            }
            // A reset is never answered by a reset.
            Op::Reset => {}
            _ => self.push(key, Op::Reset, 0, 0),
        }
        Outcome::Done
    }

    fn take_data(&mut self, key: Key, header: &Header, bytes: usize) -> Outcome {
        let Some(connection) = self.connections.get_mut(&key) else {
            return Outcome::Done;
        };
        let outstanding = connection.received.wrapping_sub(connection.forwarded);
        let is_within = outstanding.checked_add(header.len);
        let is_within = is_within.is_some_and(|all| all <= BUFFER_BYTES);
        if header.len as usize != bytes || !is_within || connection.is_mute {
            return self.violated(key);
        }
        connection.received = connection.received.wrapping_add(header.len);
        if connection.state == State::Closing {
            // The host's end is closed, so the data is dropped and its room is free again.
            connection.forwarded = connection.received;
            return Outcome::Done;
        }
        Outcome::Data(key)
    }

    fn guest_shuts(&mut self, key: Key, flags: u32) -> Outcome {
        let Some(connection) = self.connections.get_mut(&key) else {
            return Outcome::Done;
        };
        connection.is_deaf |= flags & SHUTDOWN_RECEIVE != 0;
        connection.is_mute |= flags & SHUTDOWN_SEND != 0;
        if connection.is_deaf && connection.is_mute {
            Outcome::Finished(key)
        } else if connection.is_mute {
            Outcome::EndOfData(key)
        } else {
            Outcome::Changed(key)
        }
    }

    /// Ends a connection whose guest broke the protocol.
    fn violated(&mut self, key: Key) -> Outcome {
        self.violations += 1;
        self.reset(key);
        Outcome::Ended(key)
    }

    fn shut(&mut self, key: Key, flags: u32) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        if connection.state == State::Open && connection.shut | flags != connection.shut {
            connection.shut |= flags;
            let all = connection.shut;
            self.send(key, Op::Shutdown, all);
        }
    }

    fn send(&mut self, key: Key, op: Op, flags: u32) {
        if let Some(header) = self.header(key, op, flags) {
            self.packets.push_back(header);
        }
    }

    /// The header of a packet of a known connection, which shows the credit of this end.
    fn header(&mut self, key: Key, op: Op, flags: u32) -> Option<Header> {
        let connection = self.connections.get_mut(&key)?;
        connection.shown_forwarded = connection.forwarded;
        let forwarded = connection.forwarded;
        Some(self.packet(key, op, flags, forwarded))
    }

    fn push(&mut self, key: Key, op: Op, flags: u32, forwarded: u32) {
        let packet = self.packet(key, op, flags, forwarded);
        self.packets.push_back(packet);
    }

    fn packet(&self, key: Key, op: Op, flags: u32, forwarded: u32) -> Header {
        Header {
            source_cid: HOST_CID,
            destination_cid: self.guest_cid,
            source_port: key.host_port,
            destination_port: key.guest_port,
            len: 0,
            op,
            flags,
            buffer_bytes: BUFFER_BYTES,
            forwarded,
        }
    }
}

/// First port of the host's end of connections that the host opens. Firecracker begins there, too.
const FIRST_PORT: u32 = 1 << 30;
