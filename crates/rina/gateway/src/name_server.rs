//! A name server: questions over UDP and TCP for names of DIFs.
//!
//! ```text
//!  resolver -- UDP, TCP --> NameServer -- Query --> Names -- control.sock --> node
//!                                                     +----- table of names
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use carina_api::control::Client;
use carina_sys::Interest;
use carina_wrap::dns::{Query, QueryError, Records};
use carina_wrap::zones::{Names, Registered};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::endpoint::{Endpoint, Resolved};
use crate::error::GatewayError;
use crate::listener::Listener;
use crate::refusals::Refusals;
use crate::service::{Service, Watch};

/// Settings of a DNS server that answers questions about names of DIFs.
#[derive(Debug)]
pub struct NameServer {
    /// The address on which the server listens, by UDP and by TCP: `udp:HOST:PORT`.
    pub listen: Endpoint,
    /// The domains to serve, names with fixed addresses, and the table of addresses of other names.
    pub names: Names,
    /// Client of the node's `control.sock`, which the server asks for registered names.
    pub node: Client,
}

/// The service of a name server: a UDP socket, a TCP socket on the same port, and the TCP
/// connections of clients.
pub(crate) struct NameService {
    settings: NameServer,
    endpoint: Endpoint,
    udp: UdpSocket,
    tcp: Listener,
    watch: Watch,
    connections: BTreeMap<u32, Connection>,
    last_item: u32,
    /// The names that the node reported last, and when; the names are `None` if the node did not
    /// answer.
    registered: Option<(Instant, Option<Registered>)>,
    refusals: Refusals,
    buffer: Vec<u8>,
}

/// A client's connection over TCP.
struct Connection {
    socket: OwnedFd,
    input: Vec<u8>,
    until: Instant,
}

impl NameService {
    pub(crate) fn new(settings: NameServer, watch: Watch) -> Result<NameService, GatewayError> {
        let endpoint = &settings.listen;
        let failed = |source| GatewayError::Listen {
            endpoint: endpoint.clone(),
            source,
        };
        let address = match endpoint
            .resolve()
            .map_err(GatewayError::resolving(endpoint))?
        {
            Resolved::Udp(address) => address,
            Resolved::Tcp(_) | Resolved::Unix(_) => {
                return Err(GatewayError::Setting {
                    field: "listen",
                    value: endpoint.to_string(),
                    right: "udp:HOST:PORT",
                });
            }
        };
        let mut tries = if address.port() == 0 { TRIES } else { 1 };
        let (udp, address, tcp) = loop {
            let udp = UdpSocket::bind(address).map_err(failed)?;
            let address = udp.local_addr().map_err(failed)?;
            tries -= 1;
            match Listener::bind(&Endpoint::Tcp(address.to_string())) {
                Ok(tcp) => break (udp, address, tcp),
                // The kernel chose a port that a socket of TCP has.
                Err(_) if tries > 0 => {}
                Err(error) => return Err(error),
            }
        };
        udp.set_nonblocking(true).map_err(failed)?;
        let added = watch.add(&udp, UDP, Interest::Read);
        let added = added.and_then(|()| watch.add(&tcp, TCP, Interest::Read));
        added.map_err(GatewayError::system("waiting for questions"))?;
        Ok(NameService {
            endpoint: Endpoint::Udp(address.to_string()),
            refusals: Refusals::new("name server"),
            settings,
            udp,
            tcp,
            watch,
            connections: BTreeMap::new(),
            last_item: TCP,
            registered: None,
            buffer: vec![0; MESSAGE_BYTES_MAX],
        })
    }

    /// The address on which the server listens; if the settings have port 0, with the port that the
    /// kernel chose.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    fn answer_datagrams(&mut self, now: Instant) {
        for _ in 0..BURST {
            match self.udp.recv_from(&mut self.buffer) {
                Ok((bytes, from)) => {
                    let message = self.buffer[..bytes].to_vec();
                    if let Some(answer) = self.answer(&message, Query::answer_datagram, now)
                        && let Err(error) = self.udp.send_to(&answer, from)
                    {
                        self.refusals
                            .note(format_args!("answering {from}: {error}"), now);
                    }
                }
                // What a client refused earlier is reported here.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
    }

    /// Returns the response to a message, in the form for UDP or TCP; `None` if the server must
    /// drop the message.
    fn answer(
        &mut self,
        message: &[u8],
        form: fn(&Query, &Records) -> Vec<u8>,
        now: Instant,
    ) -> Option<Vec<u8>> {
        let query = match Query::read(message) {
            Ok(query) => query,
            Err(QueryError::NoQuery) => {
                self.refusals.note("a message that is no query", now);
                return None;
            }
            Err(QueryError::Wrong(answer)) => {
                self.refusals.note("a malformed query", now);
                return Some(answer);
            }
        };
        self.refresh(now);
        let registered = self
            .registered
            .as_ref()
            .and_then(|(_, known)| known.as_ref());
        let records = self.settings.names.records(&query, registered);
        let records = records.unwrap_or_else(|error| {
            self.refusals.note(&error, now);
            Records::Failed
        });
        Some(form(&query, &records))
    }

    /// Asks the node for the registered names, unless the last answer is recent.
    fn refresh(&mut self, now: Instant) {
        let is_fresh = |(at, _): &(Instant, Option<Registered>)| now < *at + REFRESH_INTERVAL;
        if self.registered.as_ref().is_some_and(is_fresh) {
            return;
        }
        let known = match Registered::read(&self.settings.node) {
            Ok(registered) => Some(registered),
            Err(error) => {
                self.refusals
                    .note(format_args!("asking the node: {error}"), now);
                None
            }
        };
        self.registered = Some((Instant::now(), known));
    }

    fn accept_some(&mut self, now: Instant) {
        for _ in 0..BURST {
            let socket = match self.tcp.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => return self.refusals.note(format_args!("accepting: {error}"), now),
            };
            if self.connections.len() >= CONNECTIONS_MAX {
                // The oldest has had the most time.
                if let Some((_, oldest)) = self.connections.pop_first() {
                    self.watch.remove(&oldest.socket);
                }
            }
            self.last_item = self.last_item.checked_add(1).unwrap_or(TCP + 1);
            match self.watch.add(&socket, self.last_item, Interest::Read) {
                Ok(()) => {
                    let connection = Connection {
                        socket,
                        input: Vec::new(),
                        until: now + CONNECTION_LIMIT,
                    };
                    self.connections.insert(self.last_item, connection);
                }
                Err(error) => self.refusals.note(error, now),
            }
        }
    }

    /// Reads from a TCP connection that is ready, and answers complete messages. Each message has
    /// its length in front (RFC 7766 §8).
    fn advance(&mut self, item: u32, now: Instant) {
        let Some(mut connection) = self.connections.remove(&item) else {
            return;
        };
        let read = recv(
            &connection.socket,
            &mut self.buffer[..],
            RecvFlags::DONTWAIT,
        );
        match read {
            Ok((_, 0)) => return,
            Ok((_, bytes)) => connection.input.extend_from_slice(&self.buffer[..bytes]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return,
        }
        while let Some((length, rest)) = connection.input.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some(message) = rest.get(..length) else {
                break;
            };
            let message = message.to_vec();
            connection.input.drain(..2 + length);
            let Some(answer) = self.answer(&message, Query::answer, now) else {
                return;
            };
            let framed = [&(answer.len() as u16).to_be_bytes()[..], &answer].concat();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if send(&connection.socket, &framed, flags) != Ok(framed.len()) {
                // It reads no answers.
                return;
            }
        }
        self.connections.insert(item, connection);
    }
}

impl Service for NameService {
    fn handle(&mut self, item: u32, now: Instant) -> Result<(), GatewayError> {
        match item {
            UDP => self.answer_datagrams(now),
            TCP => self.accept_some(now),
            item => self.advance(item, now),
        }
        Ok(())
    }

    fn handle_due(&mut self, now: Instant) -> Result<(), GatewayError> {
        self.refusals.log(now);
        self.connections
            .retain(|_, connection| now < connection.until);
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        let connections = self.connections.values().map(|connection| connection.until);
        connections.chain(self.refusals.deadline()).min()
    }
}

/// Number of the UDP socket in the epoll set.
const UDP: u32 = 0;

/// Number of the listening TCP socket in the epoll set.
const TCP: u32 = 1;

/// Largest number of questions or connections that are handled in a row, before events of other
/// services.
const BURST: usize = 64;

/// How often the kernel may choose a port, of which UDP and TCP must be free.
const TRIES: usize = 16;

/// Largest number of TCP connections at a time.
const CONNECTIONS_MAX: usize = 64;

/// Time after which the server closes a TCP connection.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);

/// Age up to which the server uses the node's last answer.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// Longest message over UDP, and largest number of bytes read from a connection at a time.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
