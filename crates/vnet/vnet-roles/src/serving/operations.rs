//! A VNO with the events of its networks, which its operators follow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use carina_api::{ErrorBody, ErrorCode};
use carina_time::Instant;
use carina_vnet::document::Document;
use carina_vnet::grant::Grant;
use carina_vnet::message::{Condition, FromVnp, Standing};
use carina_vnet::progress::Event;
use carina_vnet::store::{Store, StoreError};
use carina_vnet::vno::{Seen, Vno, WishError};
use tokio::sync::Notify;

use super::event_log::EventLog;
use crate::identity::{Identity, Role};
use crate::machine::{Machine, no_right, party, read, text};

/// A VNO's state machine, with an event log for each of its networks.
#[derive(Debug)]
pub struct Operations<S> {
    vno: Vno<S>,
    vnp: String,
    histories: BTreeMap<String, History>,
    happened: Arc<Notify>,
}

/// The events of a network since this process began.
#[derive(Debug)]
struct History {
    began: Instant,
    seen: Option<Seen>,
    events: EventLog,
}

impl<S: Store> Operations<S> {
    /// Adds event logs to the state machine of a VNO whose VNP has the name `vnp`.
    pub fn new(vno: Vno<S>, vnp: &str) -> Operations<S> {
        Operations {
            vno,
            vnp: vnp.to_owned(),
            histories: BTreeMap::new(),
            happened: Arc::default(),
        }
    }

    /// The notifier that wakes all waiting tasks when an event is added.
    pub fn happened(&self) -> Arc<Notify> {
        Arc::clone(&self.happened)
    }

    /// Requests a network: a new one if `is_new`, else a change of an existing one.
    ///
    /// # Errors
    /// The network exists already, or does not exist; it is being removed; or the store does not
    /// answer.
    pub fn want(
        &mut self,
        now: Instant,
        document: Document,
        is_new: bool,
    ) -> Result<Seen, ErrorBody> {
        let name = document.vnet.name.clone();
        self.vno.refresh(now).map_err(store_refusal)?;
        match (self.vno.seen(&name).is_some(), is_new) {
            (true, true) => {
                let what = format!(
                    "network {name} already exists: `carina vnet apply` changes it, `carina vnet \
                     down {name}` removes it"
                );
                return Err(ErrorBody::new(ErrorCode::DuplicateName, what));
            }
            (false, false) => return Err(self.unknown(&name)),
            _ => {}
        }
        self.vno.apply(now, document).map_err(wish_refusal)?;
        self.note(now);
        self.seen(&name)
    }

    /// Requests the removal of a network.
    ///
    /// # Errors
    /// No network has this name, or the store does not answer.
    pub fn remove(&mut self, now: Instant, name: &str) -> Result<(), ErrorBody> {
        let removed = self.vno.remove(now, name);
        removed.map(drop).map_err(|error| match error {
            WishError::Unknown(_) => self.unknown(name),
            other => wish_refusal(other),
        })
    }

    /// All networks, sorted by name.
    pub fn list(&self) -> Vec<Seen> {
        let names: BTreeSet<&str> = self.vno.names().collect();
        names
            .iter()
            .filter_map(|name| self.vno.seen(name))
            .collect()
    }

    /// The state of a network.
    ///
    /// # Errors
    /// No network has this name.
    pub fn seen(&self, name: &str) -> Result<Seen, ErrorBody> {
        self.vno.seen(name).ok_or_else(|| self.unknown(name))
    }

    /// The document of a network.
    ///
    /// # Errors
    /// No network has this name.
    pub fn document(&self, name: &str) -> Result<Document, ErrorBody> {
        let document = self.vno.document(name).cloned();
        document.ok_or_else(|| self.unknown(name))
    }

    /// The grants for a network, by delegate.
    ///
    /// # Errors
    /// No network has this name.
    pub fn grants(&self, name: &str) -> Result<&BTreeMap<String, Grant>, ErrorBody> {
        self.vno.grants(name).ok_or_else(|| self.unknown(name))
    }

    /// Gives a delegate a grant for a network; `None` withdraws the delegate's grant.
    ///
    /// # Errors
    /// No network has this name, the grant is invalid, or the store does not answer.
    pub fn grant(
        &mut self,
        now: Instant,
        name: &str,
        to: &str,
        grant: Option<Grant>,
    ) -> Result<(), ErrorBody> {
        let granted = self.vno.grant(now, name, to, grant);
        granted.map_err(|error| match error {
            WishError::Unknown(_) => self.unknown(name),
            other => wish_refusal(other),
        })
    }

    /// A network with its document, and the time since it became known to this process, ms: times
    /// of events count from then.
    ///
    /// # Errors
    /// No network has this name.
    pub fn whole(&self, now: Instant, name: &str) -> Result<(Seen, Document, u64), ErrorBody> {
        let history = self.histories.get(name);
        let age = history.map_or(0, |history| now.since(history.began).as_millis());
        Ok((self.seen(name)?, self.document(name)?, age))
    }

    /// The events of a network with a number greater than `since`.
    ///
    /// # Errors
    /// No network has this name.
    pub fn events(&self, name: &str, since: u64) -> Result<Vec<Event>, ErrorBody> {
        let history = self.histories.get(name).ok_or_else(|| self.unknown(name))?;
        Ok(history.events.since(since))
    }

    /// Adds the event `what` to the log of the network `name`, and wakes all callers that wait for
    /// events. Does nothing if the network has no log.
    pub fn tell(&mut self, now: Instant, name: &str, what: String) {
        if let Some(history) = self.histories.get_mut(name) {
            history.add(now, what);
            self.happened.notify_waiters();
        }
    }

    /// Like [`Operations::tell`], for an action of a caller.
    pub fn tell_of(&mut self, now: Instant, name: &str, caller: &Identity, what: String) {
        match (caller.role, self.histories.get_mut(name)) {
            (Role::Delegate, Some(history)) => {
                let at_ms = now.since(history.began).as_millis();
                history.events.add_of(&caller.name, at_ms, what);
                self.happened.notify_waiters();
            }
            _ => self.tell(now, name, what),
        }
    }

    fn unknown(&self, name: &str) -> ErrorBody {
        if !self.vno.has_read() {
            let what = "the store of the VNO has not answered since the VNO started; try again";
            return ErrorBody::new(ErrorCode::TimedOut, what);
        }
        let known: BTreeSet<&str> = self.vno.names().collect();
        let known: Vec<&str> = known.into_iter().collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        let name: String = name.chars().take(64).collect();
        let what = format!("there is no network {name}; there are: {known}");
        ErrorBody::new(ErrorCode::NotFound, what)
    }

    /// Adds events for everything that has changed since the last call.
    fn note(&mut self, now: Instant) {
        let all = self.list();
        let names: BTreeSet<&str> = all.iter().map(|seen| seen.name.as_str()).collect();
        let before = self.histories.len();
        self.histories
            .retain(|name, _| names.contains(name.as_str()));
        let mut has_changed = self.histories.len() != before;
        for seen in all {
            let history = self.histories.entry(seen.name.clone());
            let history = history.or_insert_with(|| History {
                began: now,
                seen: None,
                events: EventLog::default(),
            });
            if history.seen.as_ref() != Some(&seen) {
                has_changed |= history.note(now, &seen);
                history.seen = Some(seen);
            }
        }
        if has_changed {
            self.happened.notify_waiters();
        }
    }
}

impl History {
    /// Adds an event for each change; returns whether there are any.
    fn note(&mut self, now: Instant, seen: &Seen) -> bool {
        let nothing = Standing::default();
        let before = self.seen.as_ref();
        let same = before.filter(|before| before.generation == seen.generation);
        let mut lines = Vec::new();
        if same.is_none() {
            lines.push(format!("generation {} is wanted", seen.generation));
        }
        let old = same.map_or(&nothing, |before| &before.standing);
        for condition in seen.standing.holds.difference(&old.holds) {
            lines.push(words_of(*condition).to_owned());
        }
        for condition in old.holds.difference(&seen.standing.holds) {
            lines.push(format!("no longer: {}", words_of(*condition)));
        }
        if let Some(reason) = &seen.standing.reason
            && old.reason.as_ref() != Some(reason)
        {
            let refused = if seen.standing.is_refused {
                "refused: "
            } else {
                ""
            };
            lines.push(format!("{refused}{}", reason.message));
        }
        let is_new = !lines.is_empty();
        for what in lines {
            self.add(now, what);
        }
        is_new
    }

    fn add(&mut self, now: Instant, what: String) {
        let at_ms = now.since(self.began).as_millis();
        self.events.add(at_ms, what);
    }
}

/// A text for a condition that holds.
fn words_of(condition: Condition) -> &'static str {
    match condition {
        Condition::Admitted => "it is admitted",
        Condition::Reserved => "its resources are held",
        Condition::Provisioned => "all nodes run",
        Condition::LinksUp => "probes have passed all links",
        Condition::ConsoleReady => "all consoles answer",
        Condition::Ready => "it is ready",
    }
}

impl<S: Store + Send + 'static> Machine for Operations<S> {
    const ROLE: Role = Role::Vno;
    const CALLERS: &'static [Role] = &[];

    fn handle(&mut self, now: Instant, from: &Identity, messages: &[u8]) -> Result<(), ErrorBody> {
        if from.role != Role::Vnp || from.name != self.vnp {
            return Err(no_right(Self::ROLE, from, Self::CALLERS));
        }
        for message in read::<FromVnp>(messages)? {
            self.vno.handle_vnp(now, message);
        }
        self.note(now);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.vno.handle_timeout(now);
        self.note(now);
    }

    fn poll_timeout(&self) -> Instant {
        self.vno.poll_timeout()
    }

    fn poll_transmit(&mut self) -> Option<(Identity, String)> {
        let message = self.vno.poll_transmit()?;
        Some((party(Role::Vnp, self.vnp.clone()), text(&message)))
    }

    fn discarded(&self) -> &BTreeMap<&'static str, u64> {
        self.vno.discarded()
    }
}

fn wish_refusal(error: WishError) -> ErrorBody {
    match error {
        WishError::Store(error) => store_refusal(error),
        WishError::Unknown(_) | WishError::NotGranted(_) => {
            ErrorBody::new(ErrorCode::NotFound, error.to_string())
        }
        WishError::Grant(_) => ErrorBody::new(ErrorCode::BadRequest, error.to_string()),
        WishError::Grants(_) => ErrorBody::new(ErrorCode::LimitReached, error.to_string()),
        _ => ErrorBody::new(ErrorCode::Conflict, error.to_string()),
    }
}

fn store_refusal(error: StoreError) -> ErrorBody {
    let code = match &error {
        StoreError::Full(_) => ErrorCode::LimitReached,
        _ => ErrorCode::Internal,
    };
    ErrorBody::new(code, format!("the request cannot be stored: {error}"))
}
