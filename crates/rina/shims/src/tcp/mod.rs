//! The shim IPC process over TCP (RFC 9293). Specified in the Pouzin Society's "Shim DIF over
//! TCP/UDP".
//!
//! A TCP connection is a flow, reliable and in order. The flow ends with the connection.
//!
//! In Carina's own framing, the first frame of a connection is a REQUEST that names both
//! applications. The first frame back is an ACCEPT or a REFUSE
//! ([`Frame`](crate::udp::frame::Frame), without flow numbers). Pieces of SDUs of any length
//! follow. In the framing of rlite and IRATI, SDUs are sent from the start, and the address
//! resolver supplies the names.

mod conn;
mod flows;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use carina_api::AppName;
use carina_dataplane::{AppContext, BuildError, IpcpBuilder, QosOffered};
use carina_engine::counters::Value;
use carina_engine::{App, Close, LinkId, Links};
use carina_netdev::{StreamFraming, accept_stream, listen_stream};
use carina_sys::{Epoll, Interest, Ready};
use carina_time::{Duration, Instant};
use carina_wire::pcapng::Direction;

use self::conn::{Conn, Phase};
use crate::address_resolver::AddressResolver;
use crate::error::ShimError;
use crate::flow_table::FlowTable;
use crate::udp::UDP_PORT;

/// Configuration of a shim over TCP: addresses and framing.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// The local address and port on which the shim listens.
    pub listen: SocketAddr,
    /// How SDUs are framed in the byte stream.
    pub framing: StreamFraming,
    /// Addresses of peer applications, as `HOST` or `HOST:PORT` (default port: 3359). The shim
    /// looks up other names in `/etc/hosts` and DNS.
    pub peers: Vec<(AppName, String)>,
    /// How long a connection may take to become a flow before the shim closes it, in ns.
    pub timeout_ns: u64,
}

impl TcpConfig {
    /// Makes the configuration of a shim that listens on `listen`, with defaults for the rest.
    #[must_use]
    pub fn new(listen: SocketAddr, framing: StreamFraming) -> TcpConfig {
        TcpConfig {
            listen,
            framing,
            peers: Vec::new(),
            timeout_ns: 5_000_000_000,
        }
    }

    /// Opens the listening socket. Returns the builder of the shim's app for the data plane, and
    /// the QoS that the shim's flows offer.
    ///
    /// # Errors
    /// What is wrong with the configuration or the socket.
    pub fn open(self) -> Result<(Box<dyn IpcpBuilder>, QosOffered), ShimError> {
        let listener = listen_stream(self.listen)?;
        let resolver = AddressResolver::open(self.peers.clone(), UDP_PORT)
            .map_err(ShimError::system("starting the address resolver"))?;
        let offered = QosOffered {
            sdu_bytes_max: match self.framing {
                StreamFraming::Short => Some(self.framing.piece_bytes_max()),
                StreamFraming::Long => None,
            },
            ..QosOffered::SHARED_MEMORY
        };
        let builder = TcpBuilder {
            config: self,
            listener,
            resolver,
        };
        Ok((Box::new(builder), offered))
    }
}

struct TcpBuilder {
    config: TcpConfig,
    listener: TcpListener,
    resolver: AddressResolver,
}

impl IpcpBuilder for TcpBuilder {
    fn label(&self) -> String {
        format!("tcp {}", self.config.listen)
    }

    fn enforces_credit(&self) -> bool {
        false
    }

    fn build(self: Box<Self>, context: AppContext) -> Result<Box<dyn App>, BuildError> {
        let failed = |error| ShimError::system("the TCP socket")(error);
        let address = self.listener.local_addr().map_err(failed)?;
        let epoll = Epoll::new().map_err(failed)?;
        epoll
            .add(&self.listener, LISTENER, Interest::ReadEdge)
            .map_err(failed)?;
        epoll
            .add(&self.resolver, RESOLVER, Interest::ReadEdge)
            .map_err(failed)?;
        Ok(Box::new(Tcp {
            name: format!("ipcp-{}", context.ipcp),
            label: address.to_string(),
            flows: FlowTable::new(context),
            framing: self.config.framing,
            timeout_ns: self.config.timeout_ns,
            listener: self.listener,
            resolver: self.resolver,
            epoll,
            ready: Vec::new(),
            conns: Vec::new(),
            free: Vec::new(),
            may_accept: true,
            resume_at: None,
            is_announced: false,
            is_removed: false,
            now: Instant::ZERO,
        }))
    }
}

/// The app of a TCP shim. Its connections come and go, so the engine waits for one epoll set that
/// contains all of them.
pub(super) struct Tcp {
    name: String,
    label: String,
    /// The flows of this shim. Each has the index of its TCP connection; `None` before the
    /// connection exists.
    flows: FlowTable<Option<usize>>,
    framing: StreamFraming,
    timeout_ns: u64,
    listener: TcpListener,
    resolver: AddressResolver,
    epoll: Epoll,
    ready: Vec<Ready>,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    may_accept: bool,
    /// Time at which the shim runs again after a pause; `None` if it does not pause.
    resume_at: Option<Instant>,
    is_announced: bool,
    is_removed: bool,
    now: Instant,
}

impl Tcp {
    fn conn(&mut self, id: usize) -> Option<&mut Conn> {
        self.conns.get_mut(id)?.as_mut()
    }

    /// Adds a connection and returns its index.
    fn admit(&mut self, stream: TcpStream, phase: Phase) -> Option<usize> {
        let id = self.free.pop().unwrap_or_else(|| {
            self.conns.push(None);
            self.conns.len() - 1
        });
        let token = id as u64 + FIRST_CONN;
        if self
            .epoll
            .add(&stream, token, Interest::ReadWriteEdge)
            .is_err()
        {
            self.free.push(id);
            return None;
        }
        let mut conn = Conn::new(stream, self.framing, phase);
        conn.until = Some(self.now + Duration::from_nanos(self.timeout_ns));
        conn.is_writable = phase != Phase::Connecting;
        self.conns[id] = Some(conn);
        Some(id)
    }

    /// Removes a connection and counts its lost frames.
    fn drop_conn(&mut self, id: usize) {
        if let Some(mut conn) = self.conns.get_mut(id).and_then(Option::take) {
            self.flows.row.add(Value::DropFlowEnded, conn.lost());
            let _ = self.epoll.del(&conn.stream);
            self.free.push(id);
        }
    }

    fn accept(&mut self) {
        while self.may_accept {
            match accept_stream(&self.listener) {
                Ok(Some((stream, from))) => {
                    if self.conns.len() - self.free.len() >= CONNS_MAX {
                        self.flows.row.add(Value::DropNoBuffer, 1);
                        continue;
                    }
                    if self.admit(stream, Phase::Expecting).is_none() {
                        self.flows.row.add(Value::DropNoBuffer, 1);
                    } else if self.framing == StreamFraming::Short {
                        self.resolver.reverse(from.ip());
                    }
                }
                Ok(None) => self.may_accept = false,
                // All descriptors are in use, so no connection can be accepted until another one
                // ends. The epoll set reports a waiting connection only once, so the app must try
                // again later.
                Err(_) => {
                    self.may_accept = false;
                    self.pause(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Schedules a run of the app after `pause`, for cases where no descriptor wakes it.
    pub(super) fn pause(&mut self, pause: Duration) {
        let at = self.now + pause;
        self.resume_at = Some(self.resume_at.map_or(at, |before| before.min(at)));
    }

    /// Collects events of the connections from the epoll set.
    fn poll_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        while self.epoll.wait(&mut ready, Some(0)).is_ok() && !ready.is_empty() {
            for event in &ready {
                match event.token {
                    LISTENER => self.may_accept = true,
                    RESOLVER => {}
                    token => {
                        let id = (token - FIRST_CONN) as usize;
                        let Some(conn) = self.conn(id) else { continue };
                        conn.is_readable |= event.readable || event.hangup;
                        conn.is_writable |= event.writable || event.hangup;
                    }
                }
            }
        }
        self.ready = ready;
    }

    /// Fails connections whose time limit has passed.
    fn expire(&mut self, links: &mut Links) {
        for id in 0..self.conns.len() {
            let now = self.now;
            let is_late = |conn: &mut Conn| conn.until.is_some_and(|until| until <= now);
            if self.conn(id).is_some_and(is_late) {
                self.fail(id, "the other side did not answer in time", links);
            }
        }
    }

    /// Removes a connection that has failed or violated the protocol, and ends its flow.
    fn fail(&mut self, id: usize, reason: &str, links: &mut Links) {
        tracing::debug!(target: "carina::shim::ip", ipcp = %self.flows.ipcp, reason,
            "connection failed");
        let place = self.conn(id).and_then(|conn| conn.place.take());
        if let Some(at) = place {
            self.flows
                .close(at, Close::Failed(reason.to_owned()), links);
        }
        self.drop_conn(id);
    }

    /// Processes the pending events of a connection. Returns whether anything moved.
    fn work(&mut self, id: usize, links: &mut Links) -> bool {
        let Some(conn) = self.conn(id) else {
            return false;
        };
        if conn.phase == Phase::Connecting {
            if !conn.is_writable {
                return false;
            }
            if let Ok(Some(error)) = conn.stream.take_error() {
                let reason = error.to_string();
                self.fail(id, &reason, links);
                return true;
            }
            self.connected(id, links);
        }
        let mut moved = false;
        for _ in 0..READS {
            let taken = self.take_frames(id, links);
            moved |= taken;
            let Some(conn) = self.conn(id) else {
                return true;
            };
            // Frames for which the application has no room wait in the buffer, and further ones in
            // the kernel, so that TCP holds the sender back.
            let is_full = conn.deframer.left() > 0 && matches!(conn.deframer.frame(), Ok(Some(_)));
            if is_full || conn.phase == Phase::Connecting {
                break;
            }
            match conn.read() {
                Ok(true) => moved = true,
                Ok(false) => break,
                Err(error) => {
                    let reason = error.to_string();
                    self.fail(id, &reason, links);
                    return true;
                }
            }
        }
        self.look_for_end(id, links);
        moved
    }

    /// Writes the waiting bytes of a connection.
    fn write(&mut self, id: usize, links: &mut Links) {
        let Some(conn) = self.conn(id) else { return };
        let before = conn.queued();
        if let Err(error) = conn.write() {
            let reason = error.to_string();
            return self.fail(id, &reason, links);
        }
        if conn.queued() < before {
            conn.wants_credit = true;
        }
        if conn.phase == Phase::Closing && conn.queued() == 0 {
            self.drop_conn(id);
        }
    }

    /// Gives flows new credit. Called only when their links are empty.
    fn grant(&mut self, links: &mut Links) {
        for conn in self.conns.iter_mut().flatten() {
            if !std::mem::take(&mut conn.wants_credit) || conn.phase != Phase::Open {
                continue;
            }
            let room = OUT_BYTES_MAX.saturating_sub(conn.queued());
            if let Some(at) = conn.place {
                let credit = (room as u64, self.framing.piece_bytes_max());
                self.flows.set_credit(at, credit, links);
            }
        }
    }
}

impl App for Tcp {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&mut self, now: Instant, links: &mut Links) {
        self.now = now;
        if self.is_removed {
            return;
        }
        if !std::mem::replace(&mut self.is_announced, true) {
            self.flows.link_up(self.label.clone());
        }
        self.handle_requests(links);
        if self.is_removed {
            return;
        }
        self.poll_ready();
        if self.resume_at.take_if(|at| *at <= now).is_some() {
            self.may_accept = true;
        }
        self.accept();
        self.handle_answers(links);
        self.expire(links);
        while links.next_return(self.flows.id).is_some() {}
        self.grant(links);
        links.set_room(self.flows.id, u64::MAX / 2);
    }

    fn pull(&mut self, now: Instant, links: &mut Links) -> bool {
        self.now = now;
        if self.is_removed {
            return false;
        }
        let mut moved = false;
        for id in 0..self.conns.len() {
            moved |= self.work(id, links);
        }
        moved
    }

    fn push(&mut self, now: Instant, links: &mut Links) -> bool {
        // A link may wake an app within a breath, after `prepare` of this breath.
        self.now = now;
        let mut moved = false;
        while let Some(link) = links.next_ready(self.flows.id) {
            moved |= self.drain(link, links);
            if links.queued(link) == 0 && links.closed(link).is_some() {
                self.flow_ended(link, links);
                links.wake(self.flows.id);
            }
        }
        moved
    }

    fn release_burst(&mut self, _now: Instant, links: &mut Links) {
        for id in 0..self.conns.len() {
            self.write(id, links);
        }
        if self.conns.iter().flatten().any(|conn| conn.wants_credit) {
            links.wake(self.flows.id);
        }
    }

    fn arm(&mut self, _now: Instant, _links: &mut Links) -> bool {
        self.is_removed || !self.flows.has_requests()
    }

    fn disarm(&mut self) {}

    fn next_deadline(&self) -> Option<Instant> {
        if self.is_removed {
            return None;
        }
        let conns = self.conns.iter().flatten().filter_map(|c| c.until);
        conns.chain(self.resume_at).min()
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![(self.epoll.as_fd(), Interest::ReadEdge)]
    }
}

impl Tcp {
    /// Moves the packets on a flow's link into the output buffer of its connection.
    fn drain(&mut self, link: LinkId, links: &mut Links) -> bool {
        let Some(at) = self.flows.index_of_link(link, links) else {
            return false;
        };
        let Some(id) = self.flows.get_mut(at).and_then(|flow| flow.peer) else {
            return false;
        };
        let framing = self.framing;
        let mut moved = false;
        while let Some(packet) = links.pop(link) {
            moved = true;
            let is_too_long = match framing {
                StreamFraming::Short => !self.flows.fits(at, &packet, framing.piece_bytes_max()),
                StreamFraming::Long => packet.len() > framing.piece_bytes_max(),
            };
            let Some(conn) = self.conn(id).filter(|conn| conn.phase == Phase::Open) else {
                self.flows.row.add(Value::DropFlowEnded, 1);
                continue;
            };
            if is_too_long {
                // A reliable flow cannot skip an SDU, so it fails.
                let limit = framing.piece_bytes_max();
                let reason =
                    format!("an SDU of more than {limit} bytes, the most this shim carries");
                self.fail(id, &reason, links);
                break;
            }
            framing.put_head(conn.out(), packet.len(), packet.more());
            packet.append_to(conn.out());
            conn.wants_credit = true;
            // Short frames were captured when their length was checked.
            if framing == StreamFraming::Long {
                self.flows.taps.note(Direction::Out, &[], &packet);
            }
            if packet.more() {
                self.flows.row.add(Value::PiecesOut, 1)
            } else {
                self.flows.row.add(Value::SdusOut, 1)
            }
            self.flows.row.add(Value::BytesOut, packet.len() as u64);
        }
        moved
    }
}

/// Tokens of the epoll set.
const LISTENER: u64 = 0;
const RESOLVER: u64 = 1;
const FIRST_CONN: u64 = 2;

/// Largest number of connections of one shim.
const CONNS_MAX: usize = 4096;

/// How long to wait for a free descriptor before the next attempt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long to wait for a free buffer before the next attempt.
const BUFFER_PAUSE: Duration = Duration::from_millis(1);

/// Largest number of bytes that wait to be written on one connection.
const OUT_BYTES_MAX: usize = 512 << 10;

/// Largest number of reads from one connection in one breath.
const READS: usize = 8;
