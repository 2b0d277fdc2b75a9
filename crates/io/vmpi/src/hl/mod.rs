//! VMPI-HL: channels multiplexed over one VMPI device ("Reducing Complexity of Virtual Machine
//! Networking", S. Vrijders and others, 2016, section IV and figure 2).
//!
//! [`Endpoint`] is a state machine without I/O. Its input is records and the current time; its
//! output is control messages and events. The endpoint neither reads rings nor copies payload. Its
//! owner does both, and asks the endpoint which channel a record belongs to and how much may be
//! sent. `docs/explanation/vmpi-protocol.md` describes the protocol.
//!
//! What an owner must do: after every call that takes `&mut self`, drain [`Endpoint::poll_event`]
//! and, when the ring has room, [`Endpoint::poll_control`], before it sends more data.

mod config;
mod control;
mod credit;
mod event;
mod pieces;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use carina_time::{Duration, Instant};
use carina_wire::vmpi::{Channel, Control, Hello, Outcome};
use carina_wire::{FlowSpec, NameError, check_name};

pub use config::Config;
pub use credit::record_cost;
pub use event::{CloseReason, Event, Limits, Violation};
pub use pieces::{Rx, RxBundle};

use credit::{RxCredit, TxCredit};
use table::{Entry, State, Table};

/// One of the two sides of a VMPI link. Each opens one half of the channel numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The host, which opens the even channels.
    Host,
    /// The guest, which opens the odd channels.
    Guest,
}

impl Side {
    /// Returns the other side.
    pub const fn peer(self) -> Side {
        match self {
            Side::Host => Side::Guest,
            Side::Guest => Side::Host,
        }
    }
}

/// How long a peer whose node is alive may take to send its HELLO.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Largest number of names that each side may have registered at the same time.
pub const NAMES_MAX: usize = 4096;

/// Largest number of control messages that may wait for room in the ring.
const BACKLOG_MAX: usize = 3 * NAMES_MAX;

/// Counters of an endpoint since it was created: discarded records by reason, control messages, and
/// violations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data records that were discarded because their channel is not open.
    pub unknown_channel: u64,
    /// Data records that arrived for a channel that this side has deallocated.
    pub closing_channel: u64,
    /// Control messages received from the peer.
    pub control_in: u64,
    /// Control messages sent to the peer.
    pub control_out: u64,
    /// Control messages of the peer that were discarded because they do not fit the state, such as
    /// credit for a closed channel or a name that is already registered.
    pub control_ignored: u64,
    /// Times that the link was given up because the peer broke the protocol or the device failed.
    pub violations: u64,
}

/// Why a request was refused on this side, before anything was sent to the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The link is down.
    #[error("the link to the peer is down")]
    LinkDown,
    /// The name is not well formed.
    #[error("`{name}`: {source}")]
    Name {
        /// The invalid name, as the caller gave it.
        name: String,
        /// The rule that the name breaks.
        source: NameError,
    },
    /// All channels that the peer allows are in use.
    #[error("all {max} channels that the peer allows are in use")]
    Channels {
        /// Largest number of channels that the peer allows.
        max: u16,
    },
    /// Too many control messages wait to be sent, or too many names are registered.
    #[error("too many requests wait to be sent, or too many names are registered")]
    Busy,
    /// The channel is not in a state that allows the request.
    #[error("channel {0} is not in a state that allows this request")]
    Channel(Channel),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Down,
    /// The device is connected, but the peer's HELLO has not arrived yet.
    Greeting {
        deadline: Instant,
    },
    Up,
}

/// One side of a VMPI link: its channels, names and control messages, without I/O.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    link: Link,
    limits: Limits,
    table: Table,
    local_names: BTreeSet<String>,
    peer_names: BTreeSet<String>,
    outgoing: VecDeque<Vec<u8>>,
    credits_due: VecDeque<Channel>,
    events: VecDeque<Event>,
    counters: Counters,
}

impl Endpoint {
    /// Creates an endpoint whose link is down.
    ///
    /// # Errors
    /// The name of this system in `config` is not well formed.
    pub fn new(config: Config) -> Result<Endpoint, NameError> {
        check_name(&config.name)?;
        let table = Table::new(config.side);
        Ok(Endpoint {
            limits: config.limits(),
            config,
            link: Link::Down,
            table,
            local_names: BTreeSet::new(),
            peer_names: BTreeSet::new(),
            outgoing: VecDeque::new(),
            credits_due: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        })
    }

    /// Reports that the device below has connected both nodes. The endpoint queues its HELLO.
    pub fn link_up(&mut self, now: Instant) {
        self.reset("link restarted");
        self.link = Link::Greeting {
            deadline: now + HELLO_TIMEOUT,
        };
        let hello = Control::Hello(Hello {
            sdu_bytes_max: self.config.sdu_bytes_max,
            piece_bytes_max: self.config.piece_bytes_max,
            channels_max: self.config.channels_max,
            bundle_bytes_max: self.config.bundle_bytes_max,
            name: &self.config.name,
        });
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        self.outgoing.push_back(bytes);
    }

    /// Reports that the device below has lost the peer. The endpoint ends every channel. `code` is
    /// a constant for counters, `reason` a text for people.
    pub fn link_down(&mut self, code: &'static str, reason: &str) {
        if self.link != Link::Down {
            self.reset(reason);
            self.events.push_back(Event::Down {
                code,
                reason: reason.into(),
            });
        }
    }

    /// Whether both HELLO messages have been exchanged, so that flows can be allocated.
    pub fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// When to call [`Endpoint::handle_timeout`]; `None` if no timer runs. The deadline may change
    /// with any call that takes `&mut self`.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.link {
            Link::Greeting { deadline } => Some(deadline),
            _ => None,
        }
    }

    /// Handles a deadline that has passed. The call has no effect before the deadline.
    ///
    /// # Errors
    /// The peer sent no HELLO in time. The endpoint has given up the link.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        match self.link {
            Link::Greeting { deadline } if now >= deadline => {
                Err(self.give_up(Violation::HelloTimeout))
            }
            _ => Ok(()),
        }
    }

    /// Moves the next control message to `out`, which is cleared first; false if no message waits.
    /// The owner puts it into a record of its own, behind the header of channel 0: four zero bytes.
    /// It calls only when the ring has room for [`carina_wire::vmpi::CONTROL_BYTES_MAX`]. Messages
    /// may appear with any call that takes `&mut self`.
    #[must_use]
    pub fn poll_control(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        if let Some(bytes) = self.outgoing.pop_front() {
            out.extend_from_slice(&bytes);
            self.counters.control_out += 1;
            return true;
        }
        while let Some(channel) = self.credits_due.pop_front() {
            let Some(entry) = self.table.entry(channel).filter(|e| e.is_credit_due) else {
                continue;
            };
            entry.is_credit_due = false;
            if entry.state == State::Open {
                Control::Credit {
                    channel,
                    limit_bytes: entry.rx.grant(),
                }
                .encode(out);
                self.counters.control_out += 1;
                return true;
            }
        }
        false
    }

    /// Whether a control message waits, so that [`Endpoint::poll_control`] may return one.
    #[must_use]
    pub fn has_control(&self) -> bool {
        !self.outgoing.is_empty() || !self.credits_due.is_empty()
    }

    /// Takes the oldest event, or returns `None` if none waits. Events may appear with any call
    /// that takes `&mut self`.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Registers an application name to which the peer can allocate flows, now and after restarts.
    ///
    /// # Errors
    /// The name is not well formed, or too many names or messages are queued.
    pub fn register(&mut self, name: &str) -> Result<(), RequestError> {
        named(name)?;
        if self.local_names.len() >= NAMES_MAX || self.outgoing.len() >= BACKLOG_MAX {
            return Err(RequestError::Busy);
        }
        if self.local_names.insert(name.into()) && self.is_up() {
            self.send(Control::Register { name });
        }
        Ok(())
    }

    /// Withdraws the registration of the application name `name`.
    pub fn unregister(&mut self, name: &str) {
        if self.local_names.remove(name) && self.is_up() {
            self.send(Control::Unregister { name });
        }
    }

    /// Returns the names that the peer has registered, sorted.
    pub fn peer_names(&self) -> impl Iterator<Item = &str> {
        self.peer_names.iter().map(String::as_str)
    }

    /// Whether the peer has registered an application under this name.
    pub fn peer_has(&self, name: &str) -> bool {
        self.peer_names.contains(name)
    }

    /// Requests a flow from the peer. [`Event::Allocated`] or [`Event::Denied`] follows, or
    /// [`Event::Closed`] when the link goes down first. `window_bytes` is the ring space that this
    /// side grants for data from the peer; at least [`carina_wire::vmpi::WINDOW_BYTES_MIN`].
    ///
    /// # Errors
    /// The request was not sent.
    pub fn allocate(
        &mut self,
        source: &str,
        destination: &str,
        spec: FlowSpec,
        window_bytes: u32,
    ) -> Result<Channel, RequestError> {
        named(source)?;
        named(destination)?;
        if !self.is_up() {
            return Err(RequestError::LinkDown);
        }
        if self.outgoing.len() >= BACKLOG_MAX {
            return Err(RequestError::Busy);
        }
        let max = self.limits.channels_max;
        let full = RequestError::Channels { max };
        if self.table.in_use().0 >= usize::from(max) {
            return Err(full);
        }
        let channel = self.table.lowest_free().ok_or(full)?;
        let window_bytes = window_bytes.max(carina_wire::vmpi::WINDOW_BYTES_MIN);
        self.table
            .insert(channel, Entry::new(State::Requested, 0, window_bytes));
        self.send(Control::Allocate {
            channel,
            window_bytes,
            spec,
            source,
            destination,
        });
        Ok(channel)
    }

    /// Answers [`Event::Incoming`]. `Ok` accepts the flow and holds the window that this side
    /// grants, in bytes of ring space; `Err` refuses it with an outcome and a reason.
    ///
    /// # Errors
    /// The channel is not waiting for an answer, e.g. because the peer withdrew its request.
    pub fn respond(
        &mut self,
        channel: Channel,
        answer: Result<u32, (Outcome, &str)>,
    ) -> Result<(), RequestError> {
        let wrong = RequestError::Channel(channel);
        let entry = self.table.entry(channel).ok_or(wrong.clone())?;
        if entry.state != State::Offered {
            return Err(wrong);
        }
        match answer {
            Ok(window_bytes) => {
                let window_bytes = window_bytes.max(carina_wire::vmpi::WINDOW_BYTES_MIN);
                entry.state = State::Open;
                entry.rx = RxCredit::new(window_bytes);
                let outcome = Outcome::Accepted;
                self.send(Control::AllocateResponse {
                    channel,
                    window_bytes,
                    outcome,
                    reason: "",
                });
            }
            Err((outcome, reason)) => {
                debug_assert!(outcome != Outcome::Accepted, "a refusal that accepts");
                self.table.remove(channel);
                self.send(Control::AllocateResponse {
                    channel,
                    window_bytes: 0,
                    outcome,
                    reason,
                });
            }
        }
        Ok(())
    }

    /// Ends a flow at the request of this side; no event follows. The peer still gets data sent
    /// before; data that arrives from now on is discarded. Empty `reason`: the application closed.
    pub fn deallocate(&mut self, channel: Channel, reason: &str) {
        match self.table.entry(channel).map(|e| e.state) {
            Some(State::Offered) => {
                let refusal = self.respond(channel, Err((Outcome::Refused, reason)));
                debug_assert!(refusal.is_ok(), "the channel was offered");
            }
            Some(State::Requested | State::Open) => {
                if let Some(entry) = self.table.entry(channel) {
                    entry.state = State::Closing;
                }
                self.send(Control::Deallocate { channel, reason });
            }
            Some(State::Closing) | None => {}
        }
    }

    /// Gives up the link because of an error that the owner found, e.g. a corrupt ring.
    pub fn fail(&mut self, code: &'static str, reason: &str) {
        self.counters.violations += 1;
        self.link_down(code, reason);
    }

    /// Returns the counters since the endpoint was created.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the limits of the link: the smaller of both sides' limits, or this side's own limits
    /// while the link is down.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn give_up(&mut self, violation: Violation) -> Violation {
        self.fail(violation.code(), &violation.to_string());
        violation
    }

    fn send(&mut self, message: Control<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.outgoing.push_back(bytes);
    }

    fn reset(&mut self, reason: &str) {
        self.link = Link::Down;
        self.limits = self.config.limits();
        self.outgoing.clear();
        self.credits_due.clear();
        for (channel, state) in self.table.clear() {
            if state != State::Closing {
                let reason = CloseReason::LinkDown(reason.into());
                self.events.push_back(Event::Closed { channel, reason });
            }
        }
        for name in std::mem::take(&mut self.peer_names) {
            self.events.push_back(Event::PeerUnregistered { name });
        }
    }
}

impl Entry {
    fn new(state: State, tx_window: u32, rx_window: u32) -> Entry {
        Entry {
            state,
            tx: TxCredit::new(tx_window),
            rx: RxCredit::new(rx_window),
            sdu_bytes: 0,
            is_credit_due: false,
            is_answered: false,
        }
    }
}

fn named(name: &str) -> Result<(), RequestError> {
    check_name(name).map_err(|source| RequestError::Name {
        name: name.into(),
        source,
    })
}
