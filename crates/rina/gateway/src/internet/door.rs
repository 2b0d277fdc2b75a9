//! The service of an [`Internet`]: its flows, and their connections to servers.

mod connection;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::Instant;

use carina_client::{FlowRequest, Node, Registration, RegistrationEvent};
use carina_sys::{Interest, socketpair_stream};

use self::connection::{Connection, Step};
use super::resolver::Resolver;
use super::rules::{allow_address, allow_host};
use super::{Internet, count};
use crate::error::GatewayError;
use crate::refusals::Refusals;
use crate::service::{Service, Watch};

/// A door to the network of this host.
pub(crate) struct Door {
    settings: Internet,
    registration: Registration,
    watch: Watch,
    resolver: Resolver,
    connections: BTreeMap<u32, Connection>,
    last_number: u32,
    /// Connections that have more to carry without another event.
    unfinished: BTreeSet<u32>,
    refusals: Refusals,
}

/// Why a request is answered with an error.
struct Refusal {
    status: &'static str,
    why: String,
}

impl Door {
    pub(crate) fn new(node: &Node, settings: Internet, watch: Watch) -> Result<Door, GatewayError> {
        let registered = node.register(&settings.name, settings.dif.as_ref());
        let registration = registered.map_err(|source| GatewayError::Register {
            name: settings.name.clone(),
            source,
        })?;
        let system = || GatewayError::system("waiting for flows");
        let resolver = Resolver::new().map_err(system())?;
        watch
            .add(&registration, REGISTRATION, Interest::Read)
            .map_err(system())?;
        watch
            .add(&resolver, RESOLVER, Interest::Read)
            .map_err(system())?;
        Ok(Door {
            refusals: Refusals::new(&settings.name),
            settings,
            registration,
            watch,
            resolver,
            connections: BTreeMap::new(),
            last_number: 0,
            unfinished: BTreeSet::new(),
        })
    }

    fn ended(&self) -> impl FnOnce(carina_client::Error) -> GatewayError + use<> {
        let name = self.settings.name.clone();
        move |source| GatewayError::Ended { name, source }
    }

    /// Accepts a flow, unless there are too many.
    fn begin(&mut self, request: &FlowRequest, now: Instant) -> Result<(), GatewayError> {
        let max = self.settings.connections_max;
        let opened = if self.connections.len() >= max {
            Err(format!("it has {max} connections; that is the limit"))
        } else {
            self.open(now).map_err(|error| error.to_string())
        };
        let answered = match opened {
            Ok(attached) => self
                .registration
                .start_accept_stream(request, Some(attached)),
            Err(why) => {
                count(&self.settings.counters.over_limit);
                self.refusals.note(&why, now);
                self.registration.refuse(request, &why)
            }
        };
        answered.map_err(self.ended())
    }

    /// Adds a connection; gives the socket for the node.
    fn open(&mut self, now: Instant) -> std::io::Result<OwnedFd> {
        let (own, attached) = socketpair_stream()?;
        let number = self.next_number();
        self.watch
            .add(&own, item_of_flow(number), Interest::ReadWriteEdge)?;
        self.connections.insert(number, Connection::new(own, now));
        Ok(attached)
    }

    fn next_number(&mut self) -> u32 {
        loop {
            self.last_number = self.last_number % NUMBER_MAX + 1;
            if !self.connections.contains_key(&self.last_number) {
                return self.last_number;
            }
        }
    }

    /// Takes a connection as far as it goes now.
    fn advance(&mut self, number: u32, now: Instant) {
        self.unfinished.remove(&number);
        loop {
            let Some(connection) = self.connections.get_mut(&number) else {
                return;
            };
            match connection.step(now) {
                Step::Wait => return,
                Step::Continue => {
                    self.unfinished.insert(number);
                    return;
                }
                Step::Asked { host, port } => {
                    if let Err(refusal) = self.find(number, &host, port) {
                        self.refuse(number, refusal, now);
                    }
                }
                Step::Malformed(error) => {
                    let refusal = Refusal::new(BAD_REQUEST, error);
                    count(&self.settings.counters.malformed);
                    self.refuse(number, refusal, now);
                }
                Step::Dialed => {
                    let watched = connection.server().map(|server| {
                        self.watch
                            .add(server, item_of_server(number), Interest::ReadWriteEdge)
                    });
                    match watched {
                        Some(Err(error)) => {
                            self.unreachable(number, BAD_GATEWAY, &error.to_string(), now);
                        }
                        _ => return,
                    }
                }
                Step::Connected => count(&self.settings.counters.connected),
                Step::Unreachable(why) => self.unreachable(number, BAD_GATEWAY, &why, now),
                Step::Silent(why) => self.unreachable(number, GATEWAY_TIMEOUT, &why, now),
                Step::Over => {
                    self.connections.remove(&number);
                    return;
                }
            }
        }
    }

    /// Checks a destination, and begins to look its name up.
    fn find(&mut self, number: u32, host: &str, port: u16) -> Result<(), Refusal> {
        let counters = &self.settings.counters;
        if !allow_host(&self.settings.rules, host, port) {
            return Err(self.outside(host, port));
        }
        if let Ok(address) = host.parse::<std::net::IpAddr>() {
            return self.dial(number, vec![(address, port).into()]);
        }
        let started = if self.resolver.has_room() {
            let started = self.resolver.start(number, host, port);
            started.map_err(|error| error.to_string())
        } else {
            Err("too many look-ups of names at a time".to_owned())
        };
        started.map_err(|why| {
            count(&counters.over_limit);
            Refusal::new(UNAVAILABLE, why)
        })
    }

    /// Begins to connect to those of the addresses that the rules allow.
    fn dial(&mut self, number: u32, addresses: Vec<std::net::SocketAddr>) -> Result<(), Refusal> {
        let Some(connection) = self.connections.get_mut(&number) else {
            return Ok(());
        };
        let first = addresses.first().copied();
        let mut allowed = addresses;
        allowed.retain(|address| allow_address(&self.settings.rules, *address));
        match (allowed.is_empty(), first) {
            (true, Some(address)) => {
                let (host, port) = connection.destination();
                let ip = address.ip();
                let what = if host == ip.to_string() {
                    host
                } else {
                    format!("{host}, which is {ip},")
                };
                let why = format!(
                    "{what} leads to the host of the VM or to its link; only a rule with such an \
                     address, as {}, allows it",
                    std::net::SocketAddr::new(ip, port)
                );
                count(&self.settings.counters.outside_rules);
                Err(Refusal::new(FORBIDDEN, why))
            }
            (true, None) => {
                count(&self.settings.counters.unreachable);
                Err(Refusal::new(BAD_GATEWAY, "the host has no address"))
            }
            _ => {
                connection.dial(allowed);
                Ok(())
            }
        }
    }

    fn outside(&self, host: &str, port: u16) -> Refusal {
        count(&self.settings.counters.outside_rules);
        let rules = self.settings.rules.iter().map(ToString::to_string);
        let rules: Vec<String> = rules.collect();
        let rules = match rules.len() {
            0 => "there is none".to_owned(),
            _ => rules.join(", "),
        };
        Refusal::new(
            FORBIDDEN,
            format!("{host}:{port} is outside the rules of --internet ({rules})"),
        )
    }

    fn unreachable(&mut self, number: u32, status: &'static str, why: &str, now: Instant) {
        count(&self.settings.counters.unreachable);
        let place = self.connections.get(&number);
        let (host, port) = place.map(Connection::destination).unwrap_or_default();
        let why = format!("{host}:{port}: {why}");
        self.refuse(number, Refusal { status, why }, now);
    }

    fn refuse(&mut self, number: u32, refusal: Refusal, now: Instant) {
        self.refusals.note(&refusal.why, now);
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.answer(&refusal.text(), now);
        }
    }

    fn take_found(&mut self, now: Instant) {
        while let Some(found) = self.resolver.take() {
            // The connection may have ended, and another may have its number.
            let waits = self.connections.get(&found.number);
            if !waits.is_some_and(Connection::is_looked_up) {
                continue;
            }
            match found.addresses {
                Ok(addresses) => {
                    if let Err(refusal) = self.dial(found.number, addresses) {
                        self.refuse(found.number, refusal, now);
                    }
                }
                Err(error) => {
                    let why = error.to_string();
                    self.unreachable(found.number, BAD_GATEWAY, &why, now);
                }
            }
            self.advance(found.number, now);
        }
    }
}

impl Refusal {
    fn new(status: &'static str, why: impl ToString) -> Refusal {
        Refusal {
            status,
            why: why.to_string(),
        }
    }

    /// The answer to the program. Many programs show the first line alone.
    fn text(&self) -> String {
        let Refusal { status, why } = self;
        let length = why.len() + "carina: \n".len();
        format!(
            "HTTP/1.1 {status}: {why}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\ncarina: {why}\n"
        )
    }
}

impl Service for Door {
    fn handle(&mut self, item: u32, now: Instant) -> Result<(), GatewayError> {
        match item {
            REGISTRATION => {
                for _ in 0..EVENTS_MAX {
                    let event = self.registration.try_next_event();
                    match event.map_err(self.ended())? {
                        Some(RegistrationEvent::Request(request)) => self.begin(&request, now)?,
                        Some(RegistrationEvent::NotAccepted { error, .. }) => {
                            self.refusals.note(error, now);
                        }
                        // The node has its end of the connection.
                        Some(_) => {}
                        None => return Ok(()),
                    }
                }
            }
            RESOLVER => self.take_found(now),
            item => self.advance(item / 2, now),
        }
        Ok(())
    }

    fn handle_due(&mut self, now: Instant) -> Result<(), GatewayError> {
        self.refusals.log(now);
        let late = self.connections.iter();
        let late = late.filter(|(_, one)| one.deadline().is_some_and(|at| at <= now));
        let mut due: BTreeSet<u32> = late.map(|(number, _)| *number).collect();
        due.append(&mut self.unfinished);
        for number in due {
            self.advance(number, now);
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        let connections = self.connections.values().filter_map(Connection::deadline);
        let unfinished = (!self.unfinished.is_empty()).then(Instant::now);
        connections
            .chain(unfinished)
            .chain(self.refusals.deadline())
            .min()
    }
}

fn item_of_flow(number: u32) -> u32 {
    2 * number
}

fn item_of_server(number: u32) -> u32 {
    2 * number + 1
}

const REGISTRATION: u32 = 0;
const RESOLVER: u32 = 1;

/// Highest number of a connection: twice that must be a number, too.
const NUMBER_MAX: u32 = i32::MAX as u32 - 1;

/// Events handled in a row, before those of other services.
const EVENTS_MAX: usize = 64;

const BAD_REQUEST: &str = "400 Bad Request";
const FORBIDDEN: &str = "403 Forbidden";
const BAD_GATEWAY: &str = "502 Bad Gateway";
const UNAVAILABLE: &str = "503 Service Unavailable";
const GATEWAY_TIMEOUT: &str = "504 Gateway Timeout";
