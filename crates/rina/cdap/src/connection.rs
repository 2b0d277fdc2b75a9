//! The machine of a CDAP connection.
//!
//! The common application connection establishment phase (CACEP) of the Pouzin Society's *Common
//! Distributed Application Protocol Specification*, then operations, then the release.
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
//! Either side may be the one that sends. A reset goes through NONE to AWAITCON: what was pending
//! is lost.

use alloc::collections::VecDeque;
use core::fmt;

use crate::error::RuleError;
use crate::message::Message;
use crate::opcode::{Flag, Opcode};
use crate::pending::{Lost, Pending, Request};
use crate::rules::Rules;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No connection.
    None,
    /// Asked for, by either side, and not answered.
    AwaitCon,
    /// There: operations may be sent and received.
    Connected,
    /// An end in order was asked for, by either side, and not answered.
    AwaitClose,
}

/// Bounds of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that may wait for their answers, in each direction.
    pub pending_max: usize,
    /// How long a request waits for its answer, in nanoseconds.
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

/// What a message that came is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// A request. When it has an invoke id it must be answered.
    Request,
    /// An answer to a request of this side.
    Answer {
        /// No further answer to that request follows.
        is_last: bool,
    },
    /// The M_CONNECT that is being or has been answered, again: repeat the answer if there is one.
    Repeated,
    /// An M_CONNECT while connected: the other side has begun anew. What was pending is lost
    /// ([`Connection::poll_lost`]); it is to be answered as a first one.
    Reset,
    /// A late answer to a read that was cancelled: to be ignored.
    Cancelled,
}

/// Why a message may not be sent or received now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// Not in this state.
    State,
    /// It answers nothing that was asked.
    Unasked,
    /// A request has the invoke id of one that is not answered yet.
    InvokeId,
    /// Too many requests wait for their answers.
    Backlog,
    /// It breaks a rule of the dialect.
    Rule(RuleError),
}

/// One end of a CDAP connection.
#[derive(Clone, Debug)]
pub struct Connection {
    rules: Rules,
    limits: Limits,
    state: State,
    /// Invoke id of the other side's M_CONNECT, to know it when it comes again.
    their_connect: Option<i32>,
    ours: Pending,
    theirs: Pending,
    lost: VecDeque<Lost>,
    last_id: i32,
}

impl Connection {
    /// An end that is not connected.
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

    /// Numbers requests from this invoke id on, instead of 1. An end that may come back to life on
    /// the flow of one that died begins at a random number: the other side would take an M_CONNECT
    /// with the number of the last one for that one, repeated.
    #[must_use]
    pub fn numbered_from(mut self, invoke_id: i32) -> Connection {
        self.last_id = invoke_id.saturating_sub(1).max(0);
        self
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Requests of this side that wait for an answer.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.ours.len()
    }

    /// A request of this side is about to be sent. When it `wants_answer` it is given an invoke id
    /// (M_CANCELREAD keeps that of the read). M_CONNECT and M_CANCELREAD always want one.
    ///
    /// # Errors
    /// It must not be sent.
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

    /// An answer to a request of the other side is about to be sent.
    ///
    /// # Errors
    /// It must not be sent: nothing that it answers has been asked, or the time to answer is up.
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

    /// A message came, already checked against the rules by [`Rules::decode`].
    ///
    /// # Errors
    /// It may not come now: to be discarded and counted.
    pub fn receive(&mut self, now: u64, message: &Message) -> Result<Receipt, Violation> {
        if message.opcode.is_response() {
            return self.receive_answer(now, message);
        }
        if message.opcode == Opcode::Connect {
            return self.receive_connect(now, message);
        }
        if message.opcode == Opcode::Release && self.state == State::AwaitClose {
            // Both sides release at once: each takes the other's request as its answer.
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

    /// When [`Connection::handle_timeout`] is due, in nanoseconds.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let ours = self.ours.next_timeout();
        let theirs = self.theirs.next_timeout();
        ours.into_iter().chain(theirs).min()
    }

    /// Gives up requests that have waited too long; [`Connection::poll_lost`] returns them.
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

    /// The next request of this side that will have no answer.
    pub fn poll_lost(&mut self) -> Option<Lost> {
        self.lost.pop_front()
    }

    /// The flow below is gone: there is no connection, and what was pending is lost.
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
            // Our own M_CONNECT is under way: the side that allocated the flow connects, not both.
            (State::AwaitCon, None) => return Err(Violation::State),
            _ => Receipt::Reset,
        };
        self.reset();
        self.expect_answer(now, message)?;
        self.their_connect = Some(message.invoke_id);
        self.state = State::AwaitCon;
        Ok(receipt)
    }

    /// The read may be answered completely already; the cancellation is answered all the same.
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
            Violation::Unasked => f.write_str("an answer to nothing that was asked"),
            Violation::InvokeId => f.write_str("the invoke id is in use"),
            Violation::Backlog => f.write_str("too many requests wait for their answers"),
            Violation::Rule(rule) => rule.fmt(f),
        }
    }
}

impl core::error::Error for Violation {}
