//! The state machine of a CDAP connection.
//!
//! A connection starts with the common application connection establishment phase (CACEP) of the
//! Pouzin Society's *Common Distributed Application Protocol Specification*. Operations and the
//! release follow.
//!
//! ```text
//!                 send or receive M_CONNECT
//!      +------+ --------------------------------> +----------+
//!      | NONE |                                   | AWAITCON |---+ M_CONNECT again,
//!      +------+ <-------------------------------- +----------+<--+ same invoke id
//!        ^  ^      M_CONNECT_R with an error,          |
//!        |  |      time is up                          | M_CONNECT_R with result 0
//!        |  |                                          v
//!        |  |      M_RELEASE without invoke id    +-----------+---+ operations;
//!        |  +------------------------------------ | CONNECTED |   | receive M_CONNECT again:
//!        |                                        +-----------+<--+ same id: repeated,
//!        |                                             |            another: reset
//!        |                                             |
//!        |   M_RELEASE_R, M_RELEASE,                   | M_RELEASE with invoke id
//!        |   time is up            +------------+      |
//!        +------------------------ | AWAITCLOSE | <----+
//!                                  +------------+
//! ```
//!
//! Either side may send first. A reset goes through NONE to AWAITCON and loses pending requests.

use alloc::collections::VecDeque;
use core::fmt;

use crate::error::RuleError;
use crate::message::Message;
use crate::opcode::{Flag, Opcode};
use crate::pending::{Lost, Pending, Request};
use crate::rules::Rules;

/// State of a CDAP connection: which messages may be sent and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no connection.
    None,
    /// One side has sent M_CONNECT and the other has not answered yet.
    AwaitCon,
    /// The connection exists: operations may be sent and received.
    Connected,
    /// One side has sent M_RELEASE and the other has not answered yet.
    AwaitClose,
}

/// Limits of a CDAP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of unanswered requests in each direction.
    pub pending_max: usize,
    /// How long a request may wait for its answer, in nanoseconds.
    pub timeout: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            pending_max: 256,
            timeout: 15_000_000_000,
        }
    }
}

/// What a received message is, and so what the receiver must do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// A request. It must be answered if it has an invoke id.
    Request,
    /// An answer to a request of this side.
    Answer {
        /// Whether this is the last answer to that request.
        is_last: bool,
    },
    /// The peer repeats its M_CONNECT. Repeat the answer, if it was sent already.
    Repeated,
    /// An M_CONNECT while connected: the peer has restarted. Pending requests are lost
    /// ([`Connection::poll_lost`]). Answer it like a first M_CONNECT.
    Reset,
    /// A late answer to a cancelled read; ignore it.
    Cancelled,
}

/// Why a message may not be sent now, or was received when it was not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The message is not allowed in the current state.
    State,
    /// The message answers no pending request.
    Unasked,
    /// The invoke id of the request is already used by another unanswered request.
    InvokeId,
    /// Too many requests are unanswered.
    Backlog,
    /// The message violates a rule of the dialect.
    Rule(RuleError),
}

/// One end of a CDAP connection: it checks the order of messages and matches answers to requests.
#[derive(Clone, Debug)]
pub struct Connection {
    rules: Rules,
    limits: Limits,
    state: State,
    /// Invoke id of the peer's M_CONNECT, to recognize a repetition.
    their_connect: Option<i32>,
    ours: Pending,
    theirs: Pending,
    lost: VecDeque<Lost>,
    last_id: i32,
}

impl Connection {
    /// Makes one end, without a connection yet.
    #[must_use]
    pub fn new(rules: Rules, limits: Limits) -> Connection {
        Connection {
            rules,
            limits,
            state: State::None,
            their_connect: None,
            ours: Pending::new(limits.pending_max),
            theirs: Pending::new(limits.pending_max),
            lost: VecDeque::new(),
            last_id: 0,
        }
    }

    /// Sets the first invoke id (default: 1). An end that may be a restarted one on the same flow
    /// must start at a random number. Otherwise the peer would take its M_CONNECT for a repetition
    /// if it has the same number as the earlier one.
    #[must_use]
    pub fn numbered_from(mut self, invoke_id: i32) -> Connection {
        self.last_id = invoke_id.saturating_sub(1).max(0);
        self
    }

    /// Returns the current state of the connection.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the number of this side's requests that are not answered yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.ours.len()
    }

    /// Checks and notes a request that is about to be sent. If `wants_answer`, sets its invoke id;
    /// M_CANCELREAD keeps the invoke id of the read. M_CONNECT and M_CANCELREAD always want an
    /// answer.
    ///
    /// # Errors
    /// The request must not be sent.
    pub fn send_request(
        &mut self,
        now: u64,
        message: &mut Message,
        wants_answer: bool,
    ) -> Result<(), Violation> {
        let opcode = message.opcode;
        if opcode.is_response() {
            return Err(Violation::Unasked);
        }
        self.check_state(opcode)?;
        if opcode == Opcode::CancelRead {
            return self.cancel(now, message);
        }
        let wants_answer = wants_answer || opcode == Opcode::Connect;
        if wants_answer && self.ours.is_full() {
            return Err(Violation::Backlog);
        }
        message.invoke_id = if wants_answer { self.free_id() } else { 0 };
        self.rules.check(message).map_err(Violation::Rule)?;
        if wants_answer {
            let until = now.saturating_add(self.limits.timeout);
            self.ours.add(message.invoke_id, opcode, until);
            self.last_id = message.invoke_id;
        }
        match opcode {
            Opcode::Connect => self.state = State::AwaitCon,
            Opcode::Release if wants_answer => self.state = State::AwaitClose,
            Opcode::Release => self.reset(),
            _ => {}
        }
        Ok(())
    }

    /// Checks and notes an answer that is about to be sent.
    ///
    /// # Errors
    /// The answer must not be sent: it answers no pending request, or the time to answer has
    /// passed.
    pub fn send_answer(&mut self, now: u64, message: &Message) -> Result<(), Violation> {
        let opcode = message.opcode;
        self.rules.check(message).map_err(Violation::Rule)?;
        let asked = self.theirs.get(message.invoke_id).copied();
        let asked = asked.ok_or(Violation::Unasked)?;
        let answer = if asked.is_cancelled {
            Opcode::CancelReadR
        } else {
            asked.opcode.response()
        };
        if opcode != answer {
            return Err(Violation::Unasked);
        }
        if message.flag == Flag::ReadIncomplete {
            if let Some(request) = self.theirs.get_mut(message.invoke_id) {
                request.until = now.saturating_add(self.limits.timeout);
            }
            return Ok(());
        }
        self.theirs.remove(message.invoke_id);
        match opcode {
            Opcode::ConnectR if message.result == 0 => self.state = State::Connected,
            Opcode::ConnectR | Opcode::ReleaseR => self.reset(),
            _ => {}
        }
        Ok(())
    }

    /// Processes a received message, which [`Rules::decode`] has already checked.
    ///
    /// # Errors
    /// The message is not allowed now: discard and count it.
    pub fn receive(&mut self, now: u64, message: &Message) -> Result<Receipt, Violation> {
        if message.opcode.is_response() {
            return self.receive_answer(now, message);
        }
        if message.opcode == Opcode::Connect {
            return self.receive_connect(now, message);
        }
        if message.opcode == Opcode::Release && self.state == State::AwaitClose {
            // Both sides release at the same time: each takes the other's request as its answer.
            self.reset();
            return Ok(Receipt::Answer { is_last: true });
        }
        self.check_state(message.opcode)?;
        if message.opcode == Opcode::CancelRead {
            return self.receive_cancel(now, message);
        }
        if message.invoke_id != 0 {
            self.expect_answer(now, message)?;
        }
        if message.opcode == Opcode::Release {
            if message.invoke_id == 0 {
                self.reset();
            } else {
                self.state = State::AwaitClose;
            }
        }
        Ok(Receipt::Request)
    }

    /// Returns when [`Connection::handle_timeout`] is due, in nanoseconds; `None` if no request
    /// waits.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let ours = self.ours.next_timeout();
        let theirs = self.theirs.next_timeout();
        ours.into_iter().chain(theirs).min()
    }

    /// Gives up requests that have waited too long. [`Connection::poll_lost`] returns them.
    pub fn handle_timeout(&mut self, now: u64) {
        while let Some((id, _)) = self.theirs.take_expired(now) {
            if self.state == State::AwaitCon && self.their_connect == Some(id) {
                self.reset();
            }
        }
        while let Some((id, request)) = self.ours.take_expired(now) {
            self.lose(id, request, true);
            if matches!(request.opcode, Opcode::Connect | Opcode::Release) {
                self.reset();
            }
        }
    }

    /// Returns the next request that this side has sent and that will get no answer, because its
    /// time limit has passed or the connection has ended. `None` if there is no such request.
    pub fn poll_lost(&mut self) -> Option<Lost> {
        self.lost.pop_front()
    }

    /// Ends the connection, because the flow below has ended. All pending requests are lost.
    pub fn reset(&mut self) {
        self.state = State::None;
        self.their_connect = None;
        while self.theirs.take_any().is_some() {}
        while let Some((id, request)) = self.ours.take_any() {
            self.lose(id, request, false);
        }
    }

    fn lose(&mut self, invoke_id: i32, request: Request, is_timeout: bool) {
        if !request.is_complete {
            self.lost.push_back(Lost {
                invoke_id,
                opcode: request.opcode,
                is_timeout,
            });
        }
    }

    fn check_state(&self, opcode: Opcode) -> Result<(), Violation> {
        let is_allowed = match self.state {
            State::None => opcode == Opcode::Connect,
            State::AwaitCon => opcode.has_object() && self.rules.operations_while_connecting,
            State::Connected => opcode != Opcode::Connect,
            State::AwaitClose => false,
        };
        if is_allowed {
            Ok(())
        } else {
            Err(Violation::State)
        }
    }

    fn free_id(&self) -> i32 {
        let mut id = self.last_id;
        loop {
            id = id.checked_add(1).unwrap_or(1);
            if self.ours.get(id).is_none() {
                return id;
            }
        }
    }

    fn cancel(&mut self, now: u64, message: &Message) -> Result<(), Violation> {
        self.rules.check(message).map_err(Violation::Rule)?;
        let until = now.saturating_add(self.limits.timeout);
        match self.ours.get_mut(message.invoke_id) {
            Some(read) if read.opcode == Opcode::Read && !read.is_cancelled => {
                read.is_cancelled = true;
                read.until = until;
                Ok(())
            }
            _ => Err(Violation::Unasked),
        }
    }

    fn expect_answer(&mut self, now: u64, message: &Message) -> Result<(), Violation> {
        if self.theirs.get(message.invoke_id).is_some() {
            return Err(Violation::InvokeId);
        }
        let until = now.saturating_add(self.limits.timeout);
        if self.theirs.add(message.invoke_id, message.opcode, until) {
            Ok(())
        } else {
            Err(Violation::Backlog)
        }
    }

    fn receive_connect(&mut self, now: u64, message: &Message) -> Result<Receipt, Violation> {
        if self.their_connect == Some(message.invoke_id) {
            return Ok(Receipt::Repeated);
        }
        let receipt = match (self.state, self.their_connect) {
            (State::None, _) => Receipt::Request,
            // This side has sent an M_CONNECT. Only the side that allocated the flow may connect.
            (State::AwaitCon, None) => return Err(Violation::State),
            _ => Receipt::Reset,
        };
        self.reset();
        self.expect_answer(now, message)?;
        self.their_connect = Some(message.invoke_id);
        self.state = State::AwaitCon;
        Ok(receipt)
    }

    /// Processes M_CANCELREAD. It must be answered even if the read was already answered
    /// completely.
    fn receive_cancel(&mut self, now: u64, message: &Message) -> Result<Receipt, Violation> {
        match self.theirs.get_mut(message.invoke_id) {
            Some(read) if read.opcode == Opcode::Read && !read.is_cancelled => {
                read.is_cancelled = true;
            }
            Some(_) => return Err(Violation::InvokeId),
            None => self.expect_answer(now, message)?,
        }
        Ok(Receipt::Request)
    }

    fn receive_answer(&mut self, now: u64, message: &Message) -> Result<Receipt, Violation> {
        let id = message.invoke_id;
        let timeout = self.limits.timeout;
        let request = self.ours.get_mut(id).ok_or(Violation::Unasked)?;
        if message.opcode == Opcode::CancelReadR {
            if !request.is_cancelled {
                return Err(Violation::Unasked);
            }
            self.ours.remove(id);
            return Ok(Receipt::Answer { is_last: true });
        }
        if message.opcode != request.opcode.response() || request.is_complete {
            return Err(Violation::Unasked);
        }
        let is_last = message.flag != Flag::ReadIncomplete;
        if request.is_cancelled {
            request.is_complete = is_last;
            return Ok(Receipt::Cancelled);
        }
        if !is_last {
            request.until = now.saturating_add(timeout);
            return Ok(Receipt::Answer { is_last });
        }
        self.ours.remove(id);
        match message.opcode {
            Opcode::ConnectR if message.result == 0 => self.state = State::Connected,
            Opcode::ConnectR | Opcode::ReleaseR => self.reset(),
            _ => {}
        }
        Ok(Receipt::Answer { is_last })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::State => f.write_str("the CDAP connection is not in the right state"),
            Violation::Unasked => f.write_str("an answer without a request"),
            Violation::InvokeId => f.write_str("the invoke id is in use"),
            Violation::Backlog => f.write_str("too many requests wait for their answers"),
            Violation::Rule(rule) => rule.fmt(f),
        }
    }
}

impl core::error::Error for Violation {}
