//! Where the clients of a proxy come from: a listening socket, or a registration with its flows.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use carina_api::{AppName, DifName};
use carina_client::{FlowRequest, Node, Registration, RegistrationEvent};
use carina_sys::{Interest, socketpair_stream};
use carina_wrap::addresses::is_of_this_host;

use crate::connection::prepare;
use crate::endpoint::Endpoint;
use crate::error::GatewayError;
use crate::listener::Listener;
use crate::service::Watch;

/// The source of a proxy's clients: a listening socket or a registered name. The service watches it
/// under the number `item`.
pub(crate) struct Clients {
    source: Source,
    watch: Watch,
    item: u32,
    /// Until this time the proxy accepts no connection; further connections wait in the listener's
    /// queue.
    paused_until: Option<Instant>,
}

enum Source {
    Socket(Listener),
    Flows(AppName, Registration),
}

/// The result of looking for the next client; does not wait.
pub(crate) enum Arrival {
    /// A client has connected; this is its stream socket.
    Client(OwnedFd),
    /// A client was refused, because there are too many.
    OverLimit(String),
    /// A client could not be accepted, for this reason.
    Failed(String),
    /// No client waits to be accepted.
    None,
}

impl Clients {
    /// Listens on an address for clients that connect to it.
    pub(crate) fn listen(at: &Endpoint, watch: Watch, item: u32) -> Result<Clients, GatewayError> {
        Clients::new(Source::Socket(Listener::bind(at)?), watch, item)
    }

    /// Registers a name for clients that request flows to it.
    pub(crate) fn register(
        node: &Node,
        name: &AppName,
        dif: Option<&DifName>,
        watch: Watch,
        item: u32,
    ) -> Result<Clients, GatewayError> {
        let registration = node.register(name, dif);
        let registration = registration.map_err(|source| GatewayError::Register {
            name: name.clone(),
            source,
        })?;
        Clients::new(Source::Flows(name.clone(), registration), watch, item)
    }

    fn new(source: Source, watch: Watch, item: u32) -> Result<Clients, GatewayError> {
        let clients = Clients {
            source,
            watch,
            item,
            paused_until: None,
        };
        clients.observe()?;
        Ok(clients)
    }

    fn observe(&self) -> Result<(), GatewayError> {
        let watched = match &self.source {
            Source::Socket(listener) => self.watch.add(listener, self.item, Interest::Read),
            Source::Flows(_, registration) => {
                self.watch.add(registration, self.item, Interest::Read)
            }
        };
        watched.map_err(GatewayError::system("waiting for clients"))
    }

    /// The address to which clients connect; `None` if they request flows to a name.
    pub(crate) fn endpoint(&self) -> Option<&Endpoint> {
        match &self.source {
            Source::Socket(listener) => Some(&listener.endpoint),
            Source::Flows(..) => None,
        }
    }

    /// Whether a TCP connection to this address would be one of these clients.
    pub(crate) fn is_at(&self, to: SocketAddr) -> bool {
        let Some(Endpoint::Tcp(at)) = self.endpoint() else {
            return false;
        };
        at.parse::<SocketAddr>().is_ok_and(|at| leads_to(to, at))
    }

    /// Returns the next client that waits. While there are `max` clients, further connections wait
    /// in the socket's queue, and further flow requests are refused.
    ///
    /// # Errors
    /// The registration has ended.
    pub(crate) fn next(
        &mut self,
        count: usize,
        max: usize,
        now: Instant,
    ) -> Result<Arrival, GatewayError> {
        let is_full = count >= max;
        let failed = match &mut self.source {
            _ if self.paused_until.is_some() => return Ok(Arrival::None),
            Source::Flows(name, registration) => {
                let next = next_flow(registration, is_full.then_some(max));
                let name = name.clone();
                return next.map_err(|source| GatewayError::Ended { name, source });
            }
            Source::Socket(_) if is_full => None,
            Source::Socket(listener) => match listener.accept() {
                Ok(None) => return Ok(Arrival::None),
                Ok(Some(client)) => match prepare(&client, true) {
                    Ok(()) => return Ok(Arrival::Client(client)),
                    Err(error) => return Ok(Arrival::Failed(error.to_string())),
                },
                Err(error) => Some(error),
            },
        };
        self.pause(now);
        Ok(match failed {
            Some(error) => Arrival::Failed(format!("accepting: {error}")),
            None => Arrival::None,
        })
    }

    fn pause(&mut self, now: Instant) {
        if let Source::Socket(listener) = &self.source {
            self.watch.remove(listener);
            self.paused_until = Some(now + PAUSE);
        }
    }

    /// Accepts connections again if the pause has ended.
    pub(crate) fn resume(&mut self, now: Instant) -> Result<(), GatewayError> {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            self.observe()?;
        }
        Ok(())
    }

    /// Time at which [`Clients::resume`] must be called; `None` if there is no pause.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.paused_until
    }
}

/// Whether a connection to `to` reaches a socket of this host that listens on `at`.
fn leads_to(to: SocketAddr, at: SocketAddr) -> bool {
    let [to_ip, at_ip] = [to, at].map(|address| address.ip().to_canonical());
    let is_reached = match (at_ip.is_unspecified(), to_ip.is_unspecified()) {
        (true, _) => is_of_this_host(to_ip),
        // The kernel takes an unspecified destination for the loopback.
        (false, true) => at_ip.is_loopback(),
        (false, false) => to_ip == at_ip,
    };
    to.port() == at.port() && is_reached
}

/// Accepts the next requested flow. If `full` is the limit that is reached, refuses the flow
/// instead.
fn next_flow(
    registration: &mut Registration,
    full: Option<usize>,
) -> Result<Arrival, carina_client::Error> {
    loop {
        return match registration.try_next_event()? {
            Some(RegistrationEvent::Request(request)) => take(registration, &request, full),
            Some(RegistrationEvent::NotAccepted { error, .. }) => {
                Ok(Arrival::Failed(error.to_string()))
            }
            // The node has its end of the connection.
            Some(_) => continue,
            None => Ok(Arrival::None),
        };
    }
}

/// Accepts a flow: makes a pair of sockets, gives one to the node as its end of the flow, and
/// returns the other as the client.
fn take(
    registration: &mut Registration,
    request: &FlowRequest,
    full: Option<usize>,
) -> Result<Arrival, carina_client::Error> {
    let pair = match full {
        Some(max) => Err(format!("it has {max} connections; that is the limit")),
        None => socketpair_stream().map_err(|error| error.to_string()),
    };
    match pair {
        Ok((client, attached)) => {
            registration.start_accept_stream(request, Some(attached))?;
            Ok(Arrival::Client(client))
        }
        Err(why) => {
            registration.refuse(request, &why)?;
            Ok(Arrival::OverLimit(why))
        }
    }
}

/// Time for which the proxy accepts no connection after it has reached its limit.
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_reached_by_its_own_addresses_only() {
        let leads = |to: &str, at: &str| leads_to(to.parse().unwrap(), at.parse().unwrap());
        for (to, at) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1"),
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("127.0.0.9:1", "0.0.0.0:1"),
            ("127.0.0.1:1", "[::]:1"),
        ] {
            assert!(leads(to, at), "{to} {at}");
        }
        for (to, at) in [
            ("127.0.0.1:2", "127.0.0.1:1"),
            ("127.0.0.2:1", "127.0.0.1:1"),
            ("192.0.2.77:1", "0.0.0.0:1"),
        ] {
            assert!(!leads(to, at), "{to} {at}");
        }
    }
}
