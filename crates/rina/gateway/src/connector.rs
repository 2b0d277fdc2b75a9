//! A listening stream socket: each connection that it accepts becomes a flow to an application
//! name.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use carina_api::FlowSpec;
use carina_client::{Node, StreamAllocation};
use carina_sys::Interest;

use crate::connection::{prepare, reset};
use crate::endpoint::Endpoint;
use crate::error::GatewayError;
use crate::listener::Listener;
use crate::live::Live;
use crate::refusals::Refusals;
use crate::service::{Service, Watch};
use crate::settings::Connect;

/// A service that listens on a stream socket and requests a flow to an application name for each
/// connection.
pub(crate) struct Connector {
    settings: Connect,
    node: Node,
    listener: Listener,
    watch: Watch,
    /// Connections for which a flow was requested and the node has not answered, by their item in
    /// the epoll set.
    pending: BTreeMap<u32, Pending>,
    last_item: u32,
    live: Live,
    /// Until this time the connector accepts no connection; further connections wait in the
    /// listener's queue.
    paused_until: Option<Instant>,
    refusals: Refusals,
}

/// A connection for which a flow was requested and the node has not answered.
struct Pending {
    /// The connection; the node has a descriptor of it as well.
    socket: OwnedFd,
    allocation: StreamAllocation,
    until: Instant,
}

impl Connector {
    pub(crate) fn new(
        node: Node,
        settings: Connect,
        watch: Watch,
    ) -> Result<Connector, GatewayError> {
        let listener = Listener::bind(&settings.listen)?;
        let system = || GatewayError::system("waiting for connections");
        watch
            .add(&listener, LISTENER, Interest::Read)
            .map_err(system())?;
        Ok(Connector {
            refusals: Refusals::new(format_args!("{} to {}", settings.listen, settings.name)),
            live: Live::new(settings.connections_max).map_err(system())?,
            settings,
            node,
            listener,
            watch,
            pending: BTreeMap::new(),
            last_item: LISTENER,
            paused_until: None,
        })
    }

    /// Returns the address on which the connector listens.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.listener.endpoint.clone()
    }

    fn accept_some(&mut self, now: Instant) -> Result<(), GatewayError> {
        for _ in 0..ACCEPTS_MAX {
            let is_full = self.pending.len() >= PENDING_MAX;
            if is_full || !self.live.has_room(self.pending.len(), now) {
                self.pause(now);
                return Ok(());
            }
            match self.listener.accept() {
                Ok(Some(socket)) => self.ask(socket, now),
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.refusals.note(format_args!("accepting: {error}"), now);
                    self.pause(now);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn pause(&mut self, now: Instant) {
        if self.paused_until.is_none() {
            self.watch.remove(&self.listener);
        }
        self.paused_until = Some(now + PAUSE);
    }

    /// Requests a flow for a connection; a connection whose request fails is reset.
    fn ask(&mut self, socket: OwnedFd, now: Instant) {
        match self.try_ask(&socket) {
            Ok((item, allocation)) => {
                let until = now + ANSWER_LIMIT;
                let pending = Pending {
                    socket,
                    allocation,
                    until,
                };
                self.pending.insert(item, pending);
            }
            Err(why) => self.refuse(socket, &why, now),
        }
    }

    fn try_ask(&mut self, socket: &OwnedFd) -> Result<(u32, StreamAllocation), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        prepare(socket, self.listener.is_tcp).map_err(|error| text(&error))?;
        let attached = socket.try_clone().map_err(|error| text(&error))?;
        let Connect {
            name, dif, local, ..
        } = &self.settings;
        let spec = FlowSpec::reliable();
        let asked =
            self.node
                .start_allocate_stream(local, name, dif.as_ref(), &spec, Some(attached));
        let allocation = asked.map_err(|error| text(&error))?;
        self.last_item = self.last_item.checked_add(1).unwrap_or(LISTENER + 1);
        let watched = self.watch.add(&allocation, self.last_item, Interest::Read);
        watched.map_err(|error| text(&error))?;
        Ok((self.last_item, allocation))
    }

    fn refuse(&mut self, socket: OwnedFd, why: &dyn std::fmt::Display, now: Instant) {
        self.refusals.note(why, now);
        reset(socket);
    }

    /// Handles the node's answer to a flow request, or the end of the time limit for it.
    fn handle_answer(&mut self, item: u32, now: Instant) {
        let Some(mut pending) = self.pending.remove(&item) else {
            return;
        };
        let answer = pending.allocation.try_finish();
        if matches!(answer, Ok(None)) && now < pending.until {
            self.pending.insert(item, pending);
            return;
        }
        self.watch.remove(&pending.allocation);
        match answer {
            // The node, or the remote application, has the connection now.
            Ok(Some(_)) => {
                if let Err(error) = self.live.add(&pending.socket) {
                    tracing::warn!(target: "carina::gateway", %error, "a connection is not counted");
                }
            }
            Ok(None) => self.refuse(pending.socket, &"the node has not answered", now),
            Err(error) => self.refuse(pending.socket, &error, now),
        }
    }
}

impl Service for Connector {
    fn handle(&mut self, item: u32, now: Instant) -> Result<(), GatewayError> {
        if item == LISTENER {
            return self.accept_some(now);
        }
        self.handle_answer(item, now);
        Ok(())
    }

    fn handle_due(&mut self, now: Instant) -> Result<(), GatewayError> {
        self.refusals.log(now);
        let late = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.until <= now);
        for item in late.map(|(item, _)| *item).collect::<Vec<_>>() {
            self.handle_answer(item, now);
        }
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            let watched = self.watch.add(&self.listener, LISTENER, Interest::Read);
            watched.map_err(GatewayError::system("waiting for connections"))?;
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        // Flows are requested in order, so the first one has the earliest deadline.
        let pending = self.pending.values().next().map(|pending| pending.until);
        let others = [self.paused_until, self.refusals.deadline(), pending];
        others.into_iter().flatten().min()
    }
}

/// Number of the listening socket in the epoll set.
const LISTENER: u32 = 0;

/// Largest number of connections that are accepted in a row, before events of other services are
/// handled.
const ACCEPTS_MAX: usize = 64;

/// Largest number of flow requests that wait for an answer. It is smaller than the number of
/// requests that a node passes to one application before the application answers (64 by default).
/// Further connections wait in the listener's queue.
const PENDING_MAX: usize = 32;

/// For how long the connector accepts no connection after it had reached a limit.
const PAUSE: Duration = Duration::from_millis(20);

/// Longest time that the node may take to answer a flow request; the node itself waits for the
/// remote application.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
