//! The common interface of all roles' state machines: messages of parties in, messages to parties
//! out.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use carina_api::{ErrorBody, ErrorCode};
use carina_time::Instant;
use carina_vnet::message::{FromAgent, FromPip, ToPip, ToVnp};
use carina_vnet::pip::{self, Pip};
use carina_vnet::store::Store;
use carina_vnet::vnp::{self, Vnp};
use serde::Serialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, SeqAccess, Visitor};

use crate::identity::{Identity, Role};
use crate::mailbox::MESSAGES_MAX;

/// The state machine of a role without I/O: the caller passes messages and the time in, and sends
/// the messages that come out.
pub trait Machine: Send + 'static {
    /// The role that this state machine is.
    const ROLE: Role;

    /// The roles of parties that may send messages to this role.
    const CALLERS: &'static [Role];

    /// Processes a party's messages, a JSON list.
    ///
    /// # Errors
    /// The list is invalid, or the party has no right to send one of the messages; those before it
    /// were processed.
    fn handle(&mut self, now: Instant, from: &Identity, messages: &[u8]) -> Result<(), ErrorBody>;

    /// Does what is due at this time.
    fn handle_timeout(&mut self, now: Instant);

    /// When [`Machine::handle_timeout`] is due.
    fn poll_timeout(&self) -> Instant;

    /// The next message to send, with its receiver, as JSON.
    fn poll_transmit(&mut self) -> Option<(Identity, String)>;

    /// The next line for the role's log.
    fn poll_note(&mut self) -> Option<String> {
        None
    }

    /// Number of discarded messages and failed operations, by reason.
    fn discarded(&self) -> &BTreeMap<&'static str, u64>;
}

impl<S: Store + Send + 'static> Machine for Pip<S> {
    const ROLE: Role = Role::Pip;
    const CALLERS: &'static [Role] = &[Role::Vnp, Role::Agent];

    fn handle(&mut self, now: Instant, from: &Identity, messages: &[u8]) -> Result<(), ErrorBody> {
        match from.role {
            Role::Vnp => {
                for message in read::<ToPip>(messages)? {
                    if let Some(owner) = vnet_of(&message).and_then(|vnet| self.owner(now, vnet))
                        && owner != from.name
                    {
                        return Err(of_another());
                    }
                    self.handle_vnp(now, &from.name, message);
                }
            }
            Role::Agent => {
                for report in read::<FromAgent>(messages)? {
                    if report.host != from.name {
                        let (host, name) = (brief(&report.host), &from.name);
                        let what = format!("the agent of {name} may not speak for {host}");
                        return Err(ErrorBody::new(ErrorCode::AccessDenied, what));
                    }
                    if !self.has_host(&report.host) {
                        let what = format!("host {} is not in the inventory", report.host);
                        return Err(ErrorBody::new(ErrorCode::NotFound, what));
                    }
                    self.handle_agent(now, report);
                }
            }
            _ => return Err(no_right(Self::ROLE, from, Self::CALLERS)),
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        Pip::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Instant {
        Pip::poll_timeout(self)
    }

    fn poll_transmit(&mut self) -> Option<(Identity, String)> {
        Some(match Pip::poll_transmit(self)? {
            pip::Output::ToVnp { vnp, message } => (party(Role::Vnp, vnp), text(&message)),
            pip::Output::ToAgent { host, message } => (party(Role::Agent, host), text(&message)),
        })
    }

    fn poll_note(&mut self) -> Option<String> {
        Pip::poll_note(self)
    }

    fn discarded(&self) -> &BTreeMap<&'static str, u64> {
        Pip::discarded(self)
    }
}

impl<S: Store + Send + 'static> Machine for Vnp<S> {
    const ROLE: Role = Role::Vnp;
    const CALLERS: &'static [Role] = &[Role::Vno];

    fn handle(&mut self, now: Instant, from: &Identity, messages: &[u8]) -> Result<(), ErrorBody> {
        match from.role {
            Role::Vno => {
                for message in read::<ToVnp>(messages)? {
                    let (ToVnp::Want { vnet, .. } | ToVnp::Remove { vnet }) = &message;
                    if self
                        .owner(now, *vnet)
                        .is_some_and(|owner| owner != from.name)
                    {
                        return Err(of_another());
                    }
                    self.handle_vno(now, &from.name, message);
                }
            }
            Role::Pip => {
                for message in read::<FromPip>(messages)? {
                    self.handle_pip(now, &from.name, message);
                }
            }
            _ => return Err(no_right(Self::ROLE, from, Self::CALLERS)),
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        Vnp::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Instant {
        Vnp::poll_timeout(self)
    }

    fn poll_transmit(&mut self) -> Option<(Identity, String)> {
        Some(match Vnp::poll_transmit(self)? {
            vnp::Output::ToPip { pip, message } => (party(Role::Pip, pip), text(&message)),
            vnp::Output::ToVno { vno, message } => (party(Role::Vno, vno), text(&message)),
        })
    }

    fn discarded(&self) -> &BTreeMap<&'static str, u64> {
        Vnp::discarded(self)
    }
}

/// The refusal of a caller whose role has no right to call.
pub(crate) fn no_right(callee: Role, caller: &Identity, may: &[Role]) -> ErrorBody {
    let may: Vec<&str> = may.iter().map(|role| role.word()).collect();
    let what = if may.is_empty() {
        format!("the certificate of {caller} gives no right to call this party")
    } else {
        format!(
            "{caller} may not call a {callee}; that needs a certificate of role {}",
            may.join(" or ")
        )
    };
    ErrorBody::new(ErrorCode::AccessDenied, what)
}

/// Parses a list of messages.
pub(crate) fn read<T: DeserializeOwned>(messages: &[u8]) -> Result<Vec<T>, ErrorBody> {
    let mut json = serde_json::Deserializer::from_slice(messages);
    let list = json.deserialize_seq(List(PhantomData));
    list.and_then(|list| json.end().map(|()| list))
        .map_err(|error| {
            let what = format!("the body must be a JSON list of messages: {error}");
            ErrorBody::new(ErrorCode::BadRequest, what)
        })
}

/// Deserializes a list of at most as many messages as a mailbox holds.
struct List<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the list must have at most {MESSAGES_MAX} messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(message) = list.next_element()? {
            if all.len() == MESSAGES_MAX {
                return Err(A::Error::invalid_length(all.len() + 1, &self));
            }
            all.push(message);
        }
        Ok(all)
    }
}

/// Serializes a message as JSON.
pub(crate) fn text<T: Serialize>(message: &T) -> String {
    serde_json::to_string(message).expect("messages have no keys but texts and numbers")
}

/// A party whose name comes from a certificate or a configuration and needs no check.
pub(crate) fn party(role: Role, name: String) -> Identity {
    Identity { role, name }
}

fn vnet_of(message: &ToPip) -> Option<carina_vnet::host_part::VnetId> {
    match message {
        ToPip::Advertise | ToPip::Renew { .. } => None,
        ToPip::Reserve { key, .. }
        | ToPip::Commit { key, .. }
        | ToPip::Cancel { key }
        | ToPip::Release { key } => Some(key.vnet),
        ToPip::Repoint(it) => Some(it.key.vnet),
        ToPip::RepointAnswer(it) => Some(it.key.vnet),
    }
}

pub(crate) fn of_another() -> ErrorBody {
    ErrorBody::new(
        ErrorCode::AccessDenied,
        "the network belongs to another party",
    )
}

fn brief(text: &str) -> String {
    text.chars().take(64).collect()
}
