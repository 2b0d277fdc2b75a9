//! How an [`Endpoint`] handles the control messages that its peer sends.

use carina_wire::FlowSpec;
use carina_wire::vmpi::{Channel, Control, DecodeError, Hello, Outcome};

use super::credit::TxCredit;
use super::event::{CloseReason, Event, Limits, Violation};
use super::table::{Entry, State};
use super::{BACKLOG_MAX, Endpoint, Link, NAMES_MAX};

impl Endpoint {
    /// Handles one control message. `bytes` is a private copy of a record's payload.
    ///
    /// # Errors
    /// The peer broke the protocol. The endpoint has then given up the link and queued events about
    /// it; the owner must also call `VmpiImpl::fail` on the device below.
    pub fn handle_control(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.counters.control_in += 1;
        if self.link == Link::Down {
            self.counters.control_ignored += 1;
            return Ok(());
        }
        let result = match Control::decode(bytes) {
            Ok(message) => self.dispatch(message),
            Err(DecodeError::Version(peer)) => Err(Violation::WrongVersion { peer }),
            Err(error) => Err(Violation::Control(error)),
        };
        let result = match result {
            Ok(()) if self.outgoing.len() > BACKLOG_MAX => Err(Violation::Backlog),
            other => other,
        };
        result.map_err(|violation| self.give_up(violation))
    }

    fn dispatch(&mut self, message: Control<'_>) -> Result<(), Violation> {
        match (self.link, message) {
            (Link::Greeting { .. }, Control::Hello(hello)) => {
                self.greet(&hello);
                Ok(())
            }
            (_, Control::Hello(_)) => Err(Violation::SecondHello),
            (Link::Greeting { .. }, _) => Err(Violation::NoHello),
            (_, Control::Register { name }) => self.peer_registers(name),
            (_, Control::Unregister { name }) => {
                self.peer_unregisters(name);
                Ok(())
            }
            (
                _,
                Control::Allocate {
                    channel,
                    window_bytes,
                    spec,
                    source,
                    destination,
                },
            ) => self.peer_allocates(channel, window_bytes, spec, source, destination),
            (
                _,
                Control::AllocateResponse {
                    channel,
                    window_bytes,
                    outcome,
                    reason,
                },
            ) => self.peer_answers(channel, window_bytes, outcome, reason),
            (_, Control::Deallocate { channel, reason }) => {
                self.peer_deallocates(channel, reason);
                Ok(())
            }
            (
                _,
                Control::Credit {
                    channel,
                    limit_bytes,
                },
            ) => self.peer_credits(channel, limit_bytes),
        }
    }

    fn greet(&mut self, hello: &Hello<'_>) {
        self.link = Link::Up;
        self.limits = Limits {
            sdu_bytes_max: self.config.sdu_bytes_max.min(hello.sdu_bytes_max),
            piece_bytes_max: self.config.piece_bytes_max.min(hello.piece_bytes_max),
            channels_max: hello.channels_max,
            bundle_bytes_max: self.config.bundle_bytes_max.min(hello.bundle_bytes_max),
        };
        let peer = hello.name.into();
        self.events.push_back(Event::Up {
            peer,
            limits: self.limits,
        });
        for name in std::mem::take(&mut self.local_names) {
            self.send(Control::Register { name: &name });
            self.local_names.insert(name);
        }
    }

    fn peer_registers(&mut self, name: &str) -> Result<(), Violation> {
        if self.peer_names.contains(name) {
            self.counters.control_ignored += 1;
            return Ok(());
        }
        if self.peer_names.len() >= NAMES_MAX {
            return Err(Violation::TooManyNames);
        }
        self.peer_names.insert(name.into());
        self.events
            .push_back(Event::PeerRegistered { name: name.into() });
        Ok(())
    }

    fn peer_unregisters(&mut self, name: &str) {
        if self.peer_names.remove(name) {
            self.events
                .push_back(Event::PeerUnregistered { name: name.into() });
        } else {
            self.counters.control_ignored += 1;
        }
    }

    fn peer_allocates(
        &mut self,
        channel: Channel,
        window_bytes: u32,
        spec: FlowSpec,
        source: &str,
        destination: &str,
    ) -> Result<(), Violation> {
        if self.table.is_own(channel) || self.table.peek(channel).is_some() {
            return Err(Violation::BadChannel { channel });
        }
        let max = usize::from(self.config.channels_max);
        // A peer that always takes its lowest free channel never exceeds twice the limit. The check
        // bounds the size of the table.
        let refusal = if self.table.in_use().1 >= max || channel.index() > 2 * max {
            Some((
                Outcome::NoResources,
                format!("all {max} channels are in use"),
            ))
        } else if !self.local_names.contains(destination) {
            let name = &self.config.name;
            Some((
                Outcome::UnknownName,
                format!("`{destination}` is not registered at {name}"),
            ))
        } else {
            None
        };
        if let Some((outcome, reason)) = refusal {
            let reason = reason.as_str();
            self.send(Control::AllocateResponse {
                channel,
                window_bytes: 0,
                outcome,
                reason,
            });
            return Ok(());
        }
        self.table
            .insert(channel, Entry::new(State::Offered, window_bytes, 0));
        self.events.push_back(Event::Incoming {
            channel,
            spec,
            source: source.into(),
            destination: destination.into(),
        });
        Ok(())
    }

    fn peer_answers(
        &mut self,
        channel: Channel,
        window_bytes: u32,
        outcome: Outcome,
        reason: &str,
    ) -> Result<(), Violation> {
        let unexpected = Violation::UnexpectedResponse { channel };
        let entry = self.table.entry(channel).ok_or(unexpected)?;
        match (entry.state, outcome) {
            (State::Requested, Outcome::Accepted) => {
                entry.state = State::Open;
                entry.tx = TxCredit::new(window_bytes);
                self.events.push_back(Event::Allocated { channel });
            }
            (State::Requested, _) => {
                self.table.remove(channel);
                self.events.push_back(Event::Denied {
                    channel,
                    outcome,
                    reason: reason.into(),
                });
            }
            // The peer's answer and this side's DEALLOCATE crossed; the peer also answers the
            // DEALLOCATE.
            (State::Closing, _) if !entry.is_answered => entry.is_answered = true,
            _ => return Err(unexpected),
        }
        Ok(())
    }

    fn peer_deallocates(&mut self, channel: Channel, reason: &str) {
        let state = self.table.peek(channel).map(|e| e.state);
        self.table.remove(channel);
        match state {
            Some(State::Closing) => return,
            Some(State::Requested) => self.events.push_back(Event::Denied {
                channel,
                outcome: Outcome::Refused,
                reason: reason.into(),
            }),
            Some(State::Open | State::Offered) => self.events.push_back(Event::Closed {
                channel,
                reason: CloseReason::Peer(reason.into()),
            }),
            // The peer deallocated a channel whose request this side had already refused.
            None => self.counters.control_ignored += 1,
        }
        self.send(Control::Deallocate {
            channel,
            reason: "",
        });
    }

    fn peer_credits(&mut self, channel: Channel, limit_bytes: u64) -> Result<(), Violation> {
        match self.table.entry(channel) {
            Some(entry) if entry.state == State::Open => {
                if !entry.tx.raise(limit_bytes) {
                    return Err(Violation::BadCredit { channel });
                }
                self.events.push_back(Event::Credit { channel });
            }
            _ => self.counters.control_ignored += 1,
        }
        Ok(())
    }
}
