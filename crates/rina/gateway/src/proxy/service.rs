//! The service of a gateway that serves the clients of a proxy.

mod start;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use carina_api::{AppName, FlowSpec};
use carina_client::Node;
use carina_sys::Interest;

use crate::connection::prepare_tcp;
use crate::dial::{Dial, Failed, Progress as DialProgress, timeout_text};
use crate::endpoint::{Endpoint, Resolved};
use crate::error::GatewayError;
use crate::internet::{InternetCounters, count};
use crate::proxy::clients::{Arrival, Clients};
use crate::proxy::destination::Host;
use crate::proxy::handshake::Handshake;
use crate::proxy::look_ups::{Found, LookUps};
use crate::proxy::refusal::{Cause, Refusal};
use crate::proxy::relay::{Relay, Turn};
use crate::proxy::routes::{Policy, Route};
use crate::proxy::session::{AllocationRequest, Pending, Progress, Session, State, discard, read};
use crate::proxy::settings::Protocol;
use crate::refusals::Refusals;
use crate::service::{Service, Watch};

/// A running proxy: accepts clients, makes the connections that they request, and copies bytes.
pub(crate) struct ProxyService {
    clients: Clients,
    /// The protocol of all clients. `None`: the first byte of each client selects its protocol.
    protocol: Option<Protocol>,
    policy: Box<dyn Policy>,
    connections_max: usize,
    counters: Arc<InternetCounters>,
    node: Node,
    /// Application name under which the proxy requests flows.
    local: AppName,
    watch: Watch,
    look_ups: LookUps,
    /// Clients whose connections are not established yet, or are being refused, by number.
    sessions: BTreeMap<u32, Session>,
    /// Established connections, by the number that the session had.
    relays: BTreeMap<u32, Relay>,
    last_session: u32,
    /// Number of sessions that wait for the node's answer to a request for a flow.
    asking: usize,
    /// Numbers of the sessions that will request a flow, in order. The clients of some of them may
    /// have disconnected.
    queue: VecDeque<u32>,
    buffer: Vec<u8>,
    refusals: Refusals,
}

impl ProxyService {
    /// The address on which the proxy listens; `None` if its clients come over flows.
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        self.clients.endpoint().cloned()
    }

    fn accept_some(&mut self, now: Instant) -> Result<(), GatewayError> {
        for _ in 0..ACCEPTS_MAX {
            let open = self.sessions.len() + self.relays.len();
            match self.clients.next(open, self.connections_max, now)? {
                Arrival::Client(client) => self.begin(client, now),
                Arrival::OverLimit(why) => {
                    count(&self.counters.over_limit);
                    self.refusals.note(why, now);
                }
                Arrival::Failed(why) => self.refusals.note(why, now),
                Arrival::None => break,
            }
        }
        Ok(())
    }

    fn begin(&mut self, client: OwnedFd, now: Instant) {
        let number = self.next_number();
        let item = client_item(number);
        if let Err(error) = self.watch.add(&client, item, Interest::ReadWriteEdge) {
            return self.refusals.note(error, now);
        }
        let handshake = Handshake::new(self.protocol);
        let session = Session::new(client, handshake, now);
        self.sessions.insert(number, session);
    }

    /// Returns a number that no session or relay has.
    fn next_number(&mut self) -> u32 {
        loop {
            self.last_session = self.last_session % SESSION_MAX + 1;
            let number = self.last_session;
            if !self.sessions.contains_key(&number) && !self.relays.contains_key(&number) {
                return number;
            }
        }
    }

    fn put(&mut self, number: u32, state: State, until: Option<Instant>) {
        self.sessions.insert(number, Session { state, until });
    }

    /// Handles the event that a socket of a session or relay is ready.
    fn advance(&mut self, number: u32, now: Instant) {
        if let Some(relay) = self.relays.remove(&number) {
            return self.turn(number, relay);
        }
        let Some(Session { state, until }) = self.sessions.remove(&number) else {
            return;
        };
        match state {
            State::Reading {
                client,
                handshake,
                input,
            } => match read(client, handshake, input, &mut self.buffer) {
                (Progress::Asked(pending), _) => self.route(number, pending, now),
                (Progress::Wrong(client, answer, why), _) => {
                    count(&self.counters.malformed);
                    self.end(number, client, &answer, &why, now);
                }
                (Progress::Waiting, Some(state)) => self.put(number, state, until),
                (Progress::Waiting | Progress::Gone, _) => {}
            },
            State::Asking(pending, mut allocation) => match allocation.try_finish() {
                Ok(None) => self.put(number, State::Asking(pending, allocation), until),
                answer => {
                    self.asking -= 1;
                    self.watch.remove(&allocation);
                    match answer.map(|flow| flow.and_then(|flow| flow.socket)) {
                        Ok(Some(flow)) => self.relay(number, pending, flow, now),
                        Ok(None) => {
                            let text = "the node gave a flow without a socket";
                            self.refuse(number, pending, Refusal::new(Cause::Refused, text), now);
                        }
                        Err(error) => {
                            self.refuse(number, pending, Refusal::of_node(&error), now);
                        }
                    }
                    self.ask_queued(now);
                }
            },
            State::Dialing(pending, dial, others) => {
                let progress = dial.progress();
                self.dialed(number, pending, dial, progress, others, now);
            }
            State::Closing(client) => {
                if discard(&client, &mut self.buffer) {
                    self.put(number, State::Closing(client), until);
                }
            }
            // The client may have sent more, or closed: that is seen when it is connected.
            state @ (State::LookingUp(_) | State::Queued(..)) => self.put(number, state, until),
        }
    }

    /// Starts to connect a client that has named its destination: looks up the host, requests a
    /// flow, dials, or refuses.
    fn route(&mut self, number: u32, pending: Pending, now: Instant) {
        let route = self.policy.of(&pending.asked.to);
        match (route, &pending.asked.to.host) {
            (Ok(Route::LookUp), Host::Name(host)) => {
                self.look_ups.start(number, host);
                let until = Some(now + LOOK_UP_LIMIT);
                self.put(number, State::LookingUp(pending), until);
            }
            (route, _) => self.follow(number, pending, route, now),
        }
    }

    fn follow(
        &mut self,
        number: u32,
        pending: Pending,
        route: Result<Route, Refusal>,
        now: Instant,
    ) {
        match route {
            Ok(Route::Flow { dif, name }) => {
                let state = State::Queued(pending, AllocationRequest { dif, name });
                self.put(number, state, Some(now + ANSWER_LIMIT));
                self.queue.push_back(number);
                self.ask_queued(now);
            }
            Ok(Route::Tcp(addresses)) => {
                let others = addresses.iter().copied().rev();
                let others: Vec<_> = others.filter(|to| !self.clients.is_at(*to)).collect();
                if others.is_empty() && !addresses.is_empty() {
                    let text = format!("{} is this proxy itself", pending.asked.to);
                    let refusal = Refusal::new(Cause::OutsideRules, text);
                    return self.refuse(number, pending, refusal, now);
                }
                self.dial(number, pending, others, None, now);
            }
            Ok(Route::LookUp) => {
                let text = format!("{}: only an address decides", pending.asked.to);
                self.refuse(
                    number,
                    pending,
                    Refusal::new(Cause::OutsideRules, text),
                    now,
                );
            }
            Err(refusal) => self.refuse(number, pending, refusal, now),
        }
    }

    fn found(&mut self, found: Found, now: Instant) {
        let Some(session) = self.sessions.remove(&found.session) else {
            return;
        };
        let Session { state, until } = session;
        let State::LookingUp(pending) = state else {
            return self.put(found.session, state, until);
        };
        let to = &pending.asked.to;
        let route = match &found.addresses {
            Ok(addresses) => self.policy.of_addresses(to, addresses),
            Err(error) => {
                let text = format!("looking up {to}: {error}");
                Err(Refusal::new(Cause::Unreachable, text))
            }
        };
        self.follow(found.session, pending, route, now);
    }

    /// Requests the flows of queued sessions, up to [`ASKING_MAX`] at a time.
    fn ask_queued(&mut self, now: Instant) {
        while self.asking < ASKING_MAX
            && let Some(number) = self.queue.pop_front()
        {
            let Some(Session { state, until }) = self.sessions.remove(&number) else {
                continue;
            };
            let State::Queued(pending, wanted) = state else {
                self.put(number, state, until);
                continue;
            };
            let spec = FlowSpec::reliable();
            let AllocationRequest { dif, name } = &wanted;
            let local = &self.local;
            let asked = self
                .node
                .start_allocate_stream(local, name, dif.as_ref(), &spec, None);
            match asked {
                Ok(allocation) => {
                    let item = server_item(number);
                    if let Err(error) = self.watch.add(&allocation, item, Interest::Read) {
                        let refusal = Refusal::new(Cause::Busy, error.to_string());
                        self.refuse(number, pending, refusal, now);
                        continue;
                    }
                    self.asking += 1;
                    self.put(number, State::Asking(pending, allocation), until);
                }
                Err(error) => self.refuse(number, pending, Refusal::of_node(&error), now),
            }
        }
    }

    /// Connects to the last of the addresses; `before` is why the one before failed.
    fn dial(
        &mut self,
        number: u32,
        pending: Pending,
        mut addresses: Vec<SocketAddr>,
        before: Option<Failed>,
        now: Instant,
    ) {
        let Some(address) = addresses.pop() else {
            let mut refusal = match before {
                Some(Failed::System(error)) => Refusal::of_system(error),
                Some(Failed::Silent) => Refusal::new(Cause::TimedOut, timeout_text()),
                None => Refusal::new(Cause::Unreachable, "the host has no address"),
            };
            refusal.text = format!("{}: {}", pending.asked.to, refusal.text);
            return self.refuse(number, pending, refusal, now);
        };
        match Dial::start(&Resolved::Tcp(address), (), now) {
            Ok((dial, progress)) => {
                let item = server_item(number);
                if let Err(error) = self.watch.add(&dial, item, Interest::Write) {
                    let refusal = Refusal::new(Cause::Busy, error.to_string());
                    return self.refuse(number, pending, refusal, now);
                }
                self.dialed(number, pending, dial, progress, addresses, now);
            }
            Err(error) => self.dial(number, pending, addresses, Some(Failed::System(error)), now),
        }
    }

    fn dialed(
        &mut self,
        number: u32,
        pending: Pending,
        dial: Dial<()>,
        progress: DialProgress,
        others: Vec<SocketAddr>,
        now: Instant,
    ) {
        match progress {
            DialProgress::Waiting => {
                let until = Some(dial.until);
                self.put(number, State::Dialing(pending, dial, others), until);
            }
            DialProgress::Connected => {
                self.watch.remove(&dial);
                let (server, ()) = dial.into_parts();
                self.relay(number, pending, server, now);
            }
            DialProgress::Failed(why) => {
                self.watch.remove(&dial);
                self.dial(number, pending, others, Some(why), now);
            }
        }
    }

    /// Turns a session whose connection to the server is established into a relay.
    fn relay(&mut self, number: u32, pending: Pending, server: OwnedFd, now: Instant) {
        // Of the socket of a flow the options fail, which it does not need.
        let _ = prepare_tcp(&server);
        let item = server_item(number);
        if let Err(error) = self.watch.add(&server, item, Interest::ReadWriteEdge) {
            let refusal = Refusal::new(Cause::Busy, error.to_string());
            return self.refuse(number, pending, refusal, now);
        }
        match pending.connected(server) {
            Ok(relay) => {
                count(&self.counters.connected);
                self.turn(number, relay);
            }
            Err(why) => {
                count(&self.counters.malformed);
                self.refusals.note(why, now);
            }
        }
    }

    fn turn(&mut self, number: u32, mut relay: Relay) {
        let ends = match relay.turn(&mut self.buffer) {
            Turn::Ended => true,
            Turn::Waiting => false,
            Turn::Busy => {
                let (client, server) = (client_item(number), server_item(number));
                let again = self.watch.report_again(relay.server(), server);
                again
                    .and_then(|()| self.watch.report_again(relay.client(), client))
                    .is_err()
            }
        };
        if ends {
            return relay.close();
        }
        self.relays.insert(number, relay);
    }

    fn refuse(&mut self, number: u32, pending: Pending, refusal: Refusal, now: Instant) {
        count(counter(&self.counters, refusal.cause));
        let answer = pending.handshake.refuse(&refusal);
        self.end(number, pending.client, &answer, &refusal.text, now);
    }

    /// Sends a client the refusal, and keeps the socket open for a while so that the client can
    /// read it.
    fn end(&mut self, number: u32, client: OwnedFd, answer: &[u8], why: &str, now: Instant) {
        self.refusals.note(why, now);
        if let Some(session) = Session::closing(client, answer, now) {
            // It may have sent what has not been read yet, without another event.
            let _ = self
                .watch
                .report_again(session.client(), client_item(number));
            self.sessions.insert(number, session);
        }
    }

    /// Ends a session whose time limit has passed.
    fn expire(&mut self, number: u32, now: Instant) {
        let Some(Session { state, .. }) = self.sessions.remove(&number) else {
            return;
        };
        match state {
            State::Reading { .. } => {
                self.refusals
                    .note("a client did not say where it wants to go", now);
            }
            State::LookingUp(pending) => {
                self.look_ups.forget(number);
                let limit = LOOK_UP_LIMIT.as_secs();
                let text = format!("looking up {}: no answer in {limit} s", pending.asked.to);
                self.refuse(number, pending, Refusal::new(Cause::TimedOut, text), now);
            }
            State::Queued(pending, _) => self.unanswered(number, pending, now),
            State::Asking(pending, allocation) => {
                self.asking -= 1;
                self.watch.remove(&allocation);
                self.unanswered(number, pending, now);
                self.ask_queued(now);
            }
            State::Dialing(pending, dial, others) => {
                self.watch.remove(&dial);
                self.dial(number, pending, others, Some(Failed::Silent), now);
            }
            State::Closing(_) => {}
        }
    }

    fn unanswered(&mut self, number: u32, pending: Pending, now: Instant) {
        let refusal = Refusal::new(Cause::TimedOut, "the node has not answered");
        self.refuse(number, pending, refusal, now);
    }
}

impl Service for ProxyService {
    fn handle(&mut self, item: u32, now: Instant) -> Result<(), GatewayError> {
        match item {
            CLIENTS => self.accept_some(now)?,
            WAKE => {
                for found in self.look_ups.take() {
                    self.found(found, now);
                }
            }
            item => self.advance(item / 2, now),
        }
        Ok(())
    }

    fn handle_due(&mut self, now: Instant) -> Result<(), GatewayError> {
        self.refusals.log(now);
        let is_due = |session: &Session| session.until.is_some_and(|until| until <= now);
        let due = self.sessions.iter().filter(|(_, session)| is_due(session));
        for number in due.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.expire(number, now);
        }
        self.clients.resume(now)
    }

    fn deadline(&self) -> Option<Instant> {
        let sessions = self.sessions.values().filter_map(|session| session.until);
        let others = [self.clients.deadline(), self.refusals.deadline()];
        sessions.chain(others.into_iter().flatten()).min()
    }
}

/// The counter of refusals with a cause.
fn counter(counters: &InternetCounters, cause: Cause) -> &AtomicU64 {
    match cause {
        Cause::OutsideRules => &counters.outside_rules,
        Cause::Busy => &counters.over_limit,
        Cause::Forbidden
        | Cause::Unreachable
        | Cause::NetworkDown
        | Cause::Refused
        | Cause::TimedOut => &counters.unreachable,
    }
}

fn client_item(session: u32) -> u32 {
    2 * session
}

fn server_item(session: u32) -> u32 {
    2 * session + 1
}

/// Number of the source of new clients in the epoll set.
const CLIENTS: u32 = 0;

/// Number of the event in the epoll set that look-ups have results.
const WAKE: u32 = 1;

/// The highest number of a session: its items are twice that, and one more.
const SESSION_MAX: u32 = (u32::MAX - 1) / 2;

/// Largest number of clients that are accepted in a row, before events of other services.
const ACCEPTS_MAX: usize = 64;

/// Largest number of flow requests that wait for an answer: fewer than a node passes to one
/// application before the application answers (64 by default).
const ASKING_MAX: usize = 32;

/// Longest time that the node may take to answer a flow request; the node itself waits for the
/// remote application.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Longest time that a look-up may take.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(10);
