//! Flows between applications, from the call to the end.

mod sdus;

use carina_ipcp::{Command, FlowKey, Reason};

use crate::dialect::FlowEnds;
use crate::model::{FlowOwner, Scheduled, SlotId, SystemId};
use crate::session::{End, Ending, FlowRequest, Session, State};
use crate::stream::{Promise, Stream};
use crate::world::World;
use carina_random::mix;

impl World {
    /// Lets an application request a flow. Returns the number of the session; `None` if the IPCP is
    /// dead or refuses at once.
    pub fn call(&mut self, request: FlowRequest) -> Option<usize> {
        let now = self.now();
        let number = self.sessions.len();
        let incarnation = self.slots[request.from.0].incarnation;
        let local = caller_name(number);
        let instance = self.instance(request.from)?;
        let key = instance
            .member
            .allocate(now, &local, &request.to, request.spec)
            .ok()?;
        self.touch(request.from);
        let words = format_args!("{local} to {} {:?}", request.to, request.spec);
        self.trace.note(
            now,
            request.from.0 as u64,
            "call",
            request.to.as_bytes(),
            words,
        );
        let promise = Promise {
            loses_nothing: request.spec.max_loss == 0,
            in_order: request.spec.in_order,
            has_boundaries: request.spec.msg_boundaries,
        };
        let seed = mix(self.seed(), 0xf10a + number as u64);
        let stream = |side: usize| {
            Stream::new(
                mix(seed, side as u64),
                request.sdus[side],
                request.lengths,
                promise,
            )
        };
        let end = End::new(
            request.from,
            incarnation,
            key,
            State::Requesting,
            &request.readers[0],
        );
        let from = request.from;
        self.sessions.push(Session {
            streams: [stream(0), stream(1)],
            request,
            promise,
            ends: [Some(end), None],
            strays: 0,
            is_closing: false,
            notified_at: now,
            moved_at: now,
            written_at: [Vec::new(), Vec::new()],
            has_left: [false; 2],
        });
        self.hold(from, key, FlowOwner::Session(number, 0));
        Some(number)
    }

    /// Handles a request for a flow to an application of this system.
    pub(crate) fn session_incoming(&mut self, id: SlotId, flow: FlowKey, remote: &str) {
        let incarnation = self.slots[id.0].incarnation;
        let number = remote
            .strip_prefix('c')
            .and_then(|digits| digits.parse::<usize>().ok());
        let Some(number) = number.filter(|number| *number < self.sessions.len()) else {
            return self.fail(format!(
                "{} says that {remote} calls, a name that does not exist",
                self.name(id)
            ));
        };
        let name = self.name(id).to_owned();
        let session = &mut self.sessions[number];
        if session.ends[1].as_ref().is_some_and(End::is_live) {
            let is_asking = session.ends[0].as_ref().is_some_and(End::is_live);
            if is_asking {
                return self.fail(format!("{name}: session {number} is offered twice"));
            }
        }
        // A repeated request may also reach the member that replaced a dead one.
        if session.ends[1].as_ref().is_some_and(End::is_live) {
            session.strays += 1;
        }
        if session.ends[1].is_some() {
            session.streams[1].begin_again();
            session.written_at[1].clear();
            session.has_left[1] = false;
        }
        let reader = session.request.readers[1];
        session.ends[1] = Some(End::new(id, incarnation, flow, State::Requesting, &reader));
        self.hold(id, flow, FlowOwner::Session(number, 1));
        let after = mix(self.seed(), number as u64) % 20_000_000;
        let at = self.now() + after;
        self.queue.put(at, Scheduled::Respond(number, incarnation));
    }

    /// Lets the called application accept or refuse the flow.
    pub(crate) fn respond(&mut self, number: usize, incarnation: u32) {
        let now = self.now();
        let session = &mut self.sessions[number];
        let is_refused = session.request.is_refused;
        let asking =
            |end: &&mut End| end.incarnation == incarnation && end.state == State::Requesting;
        let Some(end) = session.ends[1].as_mut().filter(asking) else {
            return;
        };
        let (slot, flow) = (end.slot, end.key);
        session.notified_at = now;
        if is_refused {
            end.state = State::Denied("no".into());
            if let Some(instance) = self.instance(slot) {
                instance.let_go(flow);
            }
            let answer = Err("no".into());
            return self.command(slot, Command::Respond { flow, answer });
        }
        end.state = State::Open;
        self.command(
            slot,
            Command::Respond {
                flow,
                answer: Ok(()),
            },
        );
        self.offer_room(number, 1);
        self.write_later(number, 1, 0);
    }

    /// The calling application gets the answer to its request.
    pub(crate) fn session_allocated(
        &mut self,
        number: usize,
        side: usize,
        result: Result<(), Reason>,
    ) {
        let now = self.now();
        let session = &mut self.sessions[number];
        // Without a flow the called side may only hear that the request was abandoned.
        if result.is_ok() || self.flow_ends.include_abandoned {
            session.notified_at = now;
        }
        let Some(end) = &mut session.ends[side] else {
            return;
        };
        if end.state != State::Requesting || side == 1 {
            let text = format!(
                "session {number} side {side} is answered in {:?}",
                end.state
            );
            return self.fail(text);
        }
        match result {
            Ok(()) => {
                end.state = State::Open;
                self.tallies.flows += 1;
                self.offer_room(number, side);
                self.write_later(number, side, 0);
            }
            Err(reason) => {
                end.state = State::Denied(reason.into());
                let (slot, key) = (end.slot, end.key);
                if let Some(instance) = self.instance(slot) {
                    instance.flows.remove(&key);
                }
            }
        }
    }

    /// The IPCP reports that a flow has ended.
    pub(crate) fn session_closed(
        &mut self,
        number: usize,
        side: usize,
        is_graceful: bool,
        why: &str,
    ) {
        let now = self.now();
        let session = &mut self.sessions[number];
        // This end cannot reach the other one, so it does not notify it; the other may even be in
        // another DIF.
        if !why.ends_with(UNREACHABLE) {
            session.notified_at = now;
        }
        let Some(end) = &mut session.ends[side] else {
            return;
        };
        end.state = State::Over(is_graceful);
        // An end is in order if everything arrived that the other side wrote before it ended.
        let other_ended = session.ends[1 - side]
            .as_ref()
            .is_some_and(|end| end.state == State::Ended);
        let stream = &session.streams[1 - side];
        let is_first = session.strays == 0;
        let FlowEnds {
            report_failures,
            patience_ns,
            ..
        } = self.flow_ends;
        let is_in_order = report_failures || !session.may_have_given_up(now, 1 - side, patience_ns);
        if is_graceful
            && other_ended
            && is_first
            && is_in_order
            && session.promise.loses_nothing
            && !stream.is_complete()
        {
            let [written, bytes, got, got_bytes] = stream.progress();
            self.fail(format!(
                "session {number} ends in order, but side {side} has read {got} of {written} SDUs, {got_bytes} of {bytes} bytes"
            ));
        }
    }

    /// Marks all ends on a crashed system as dead.
    pub(crate) fn lose_sessions(&mut self, system: SystemId) {
        let now = self.now();
        for session in &mut self.sessions {
            for end in session.ends.iter_mut().flatten() {
                if self.slots[end.slot.0].system == system && end.is_live() {
                    end.state = State::Dead;
                    session.notified_at = now;
                }
            }
        }
    }

    /// A member leaves: data of flows that applications there have already ended may no longer be
    /// delivered.
    pub(crate) fn abandon_sessions(&mut self, slot: SlotId) {
        for session in &mut self.sessions {
            for (end, has_left) in session.ends.iter().zip(&mut session.has_left) {
                let has_ended = |end: &End| end.slot == slot && end.state == State::Ended;
                *has_left |= end.as_ref().is_some_and(has_ended);
            }
        }
    }

    /// Lets the calling side end the flow if the time for it has come.
    fn maybe_close(&mut self, number: usize) {
        let session = &mut self.sessions[number];
        let is_done = match session.request.ending {
            Ending::Never => false,
            Ending::WhenWritten => session.streams[0].is_written(),
            Ending::WhenDone => session.streams.iter().all(|stream| {
                stream.is_written() && (stream.is_complete() || !session.promise.loses_nothing)
            }),
        };
        if is_done && !std::mem::replace(&mut session.is_closing, true) {
            // SDUs of an unreliable flow may still be on their way.
            let linger = if session.promise.loses_nothing {
                self.random.below(50_000_000)
            } else {
                5_000_000_000
            };
            let at = self.now() + linger;
            self.queue.put(at, Scheduled::Close(number, 0));
        }
    }

    /// Deallocates the flow of a session from one side (0: the calling side, 1: the called side).
    pub fn close(&mut self, number: usize, side: usize) {
        let now = self.now();
        let Some((slot, flow)) = self.open_end(number, side) else {
            return;
        };
        self.sessions[number].notified_at = now;
        if let Some(end) = &mut self.sessions[number].ends[side] {
            end.state = State::Ended;
        }
        if let Some(instance) = self.instance(slot) {
            instance.let_go(flow);
        }
        let words = format_args!("session {number} side {side}");
        self.trace
            .note(now, slot.0 as u64, "deallocate", &[side as u8], words);
        let reason = String::new();
        self.command(slot, Command::Deallocate { flow, reason });
    }

    /// Deallocates the flows of all open sessions, at both of their ends.
    pub fn close_all(&mut self) {
        for number in 0..self.sessions.len() {
            self.close(number, 0);
            if self.open_end(number, 0).is_none() {
                self.close(number, 1);
            }
        }
    }

    /// Whether a session has an end that has neither finished nor failed.
    #[must_use]
    pub fn is_busy(&self, number: usize) -> bool {
        self.sessions[number]
            .ends
            .iter()
            .flatten()
            .any(End::is_live)
    }
}

/// Name of the calling application of a session.
fn caller_name(number: usize) -> String {
    format!("c{number}")
}

/// The end of the reason that an IPCP gives when the other end of a flow has become unreachable.
const UNREACHABLE: &str = "cannot be reached any more";
