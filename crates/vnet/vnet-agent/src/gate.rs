//! Sends guests to agents of other hosts and receives them, over TLS in which both sides show a
//! certificate.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_vnet::origin::network_of;
use carina_vnet_host::Agent;
use carina_vnet_host::guest_wire::{GuestCaller, GuestWire};
use carina_vnet_roles::calling::address::Address;
use carina_vnet_roles::calling::connection::Callee;
use carina_vnet_roles::identity::{Identity, Role};
use carina_vnet_roles::keys::{Tls, party_of};
use carina_vnet_roles::log::Log;
use carina_vnet_roles::shares::{Share, Shares};
use carina_vnet_roles::wire::limit_buffers;
use rustls::ServerConnection;

use crate::halves::Session;

/// Accepts nodes from the agents of other hosts until it is dropped; a node that is being received
/// then is still completed.
#[derive(Debug)]
pub struct Gate {
    has_ended: Arc<AtomicBool>,
}

/// Connects to the agents of other hosts.
#[derive(Debug)]
struct AgentConnector {
    tls: Tls,
}

/// What all connections of other agents that bring nodes (`--moves`) share.
struct Inner {
    agent: Arc<Agent>,
    tls: Tls,
    log: Log,
    /// Connections whose peer is not identified yet, per source address and in all.
    pending: Arc<Shares<Option<IpAddr>>>,
    /// Hosts that are sending nodes, each and in all.
    guests: Arc<Shares<Option<String>>>,
}

/// A connection during its handshake, which must end by a deadline: otherwise each byte of a slow
/// peer would start the timeout again.
struct Hurried<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Gate {
    /// Lets an agent send nodes, and receive them at a TCP address if one is given, at which the
    /// agents of other hosts reach it.
    ///
    /// # Errors
    /// The address cannot be listened on, or the system cannot start a thread.
    pub fn open(
        agent: &Arc<Agent>,
        tls: &Tls,
        at: Option<SocketAddr>,
        log: &Log,
    ) -> io::Result<Gate> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let mut place = None;
        if let Some(at) = at {
            let listener = carina_sys::listen_tcp(&[at])?;
            listener.set_nonblocking(true)?;
            place = Some(listener.local_addr()?.to_string());
            let inner = Arc::new(Inner {
                agent: Arc::clone(agent),
                tls: tls.clone(),
                log: log.clone(),
                pending: Arc::default(),
                guests: Arc::default(),
            });
            let ends = Arc::clone(&has_ended);
            let thread = std::thread::Builder::new().name("moves".to_owned());
            thread.spawn(move || inner.accept(&listener, &ends))?;
        }
        agent.serve_moves(place, Arc::new(AgentConnector { tls: tls.clone() }));
        Ok(Gate { has_ended })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    fn accept(self: Arc<Inner>, listener: &TcpListener, has_ended: &AtomicBool) {
        while !has_ended.load(Ordering::Relaxed) {
            let Ok((stream, from)) = listener.accept() else {
                // No connection has come, or the system has no free descriptors.
                std::thread::sleep(LOOK);
                continue;
            };
            let source = Some(network_of(from.ip()));
            let pending = self.pending.both(source, [OF_SOURCE_MAX, PENDING_MAX]);
            let Ok(pending) = pending else {
                continue;
            };
            let inner = Arc::clone(&self);
            let act = move || {
                if let Err(error) = inner.take(stream, pending) {
                    inner
                        .log
                        .say(format_args!("receiving a node from {from}: {error}"));
                }
            };
            let thread = std::thread::Builder::new().name("guest".to_owned());
            if let Err(error) = thread.spawn(act) {
                self.log
                    .say(format_args!("accepting a connection for a node: {error}"));
            }
        }
    }

    fn take(&self, stream: TcpStream, pending: [Share<Option<IpAddr>>; 2]) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let session = ServerConnection::new(self.tls.server());
        let mut session = session.map_err(io::Error::other)?;
        let mut hurried = Hurried {
            stream: &stream,
            until: Instant::now() + HANDSHAKE,
        };
        while session.is_handshaking() {
            session.complete_io(&mut hurried)?;
        }
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.filter(|certificate| self.tls.is_good(certificate));
        let caller = certificate.and_then(party_of);
        let caller = caller.filter(|caller| caller.role == Role::Agent);
        let caller = caller.ok_or_else(|| {
            io::Error::other("the peer's certificate is not that of an agent of a host")
        })?;
        drop(pending);
        let host = Some(caller.name.clone());
        let guest = self.guests.both(host, [OF_HOST_MAX, GUESTS_MAX]);
        let _guest = guest.map_err(|has| {
            io::Error::other(format!(
                "{has} nodes are arriving already, which is the limit"
            ))
        })?;
        set_limits(&stream, PIECE)?;
        limit_buffers(&stream, BUFFER_BYTES)?;
        let sockets = [stream.try_clone()?, stream.try_clone()?];
        let (mut wire, session) = Session::split(session.into(), sockets);
        let taken = self.agent.take_node(&caller.name, &mut wire);
        taken.map_err(io::Error::other)?;
        // The peer may have closed the connection.
        let _ = session.close(stream);
        Ok(())
    }
}

impl GuestCaller for AgentConnector {
    fn call(&self, host: &str, at: &str) -> io::Result<GuestWire> {
        let callee = Callee {
            party: Identity {
                role: Role::Agent,
                name: host.to_owned(),
            },
            address: Address::Tcp(at.to_owned()),
            tls: self.tls.clone(),
        };
        let connection = callee.connect().map_err(io::Error::other)?;
        let stream = connection.into_stream(PIECE)?;
        stream.sock.limit_buffers(BUFFER_BYTES)?;
        let sockets = {
            let other = stream.sock.duplicate()?;
            [stream.sock, other]
        };
        Ok(Session::split(stream.conn.into(), sockets).0)
    }
}

impl Hurried<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "the TLS handshake did not complete within {} s",
                    HANDSHAKE.as_secs()
                ),
            ))
        } else {
            Ok(left)
        }
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn set_limits(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))
}

/// Largest number of nodes that are received at a time, in all and from one host.
const GUESTS_MAX: usize = 8;
const OF_HOST_MAX: usize = 4;
/// Largest number of connections with unidentified peers, in all and from one source address.
const PENDING_MAX: usize = 64;
const OF_SOURCE_MAX: usize = 8;
/// Longest time for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Longest time until the next piece of a guest; a QEMU is started meanwhile.
const PIECE: Duration = Duration::from_secs(60);
/// Most bytes of a guest that wait at either end of the connection. The last bytes are sent while
/// the guest is paused, and come after those that wait: longer buffers pause it longer.
const BUFFER_BYTES: usize = 256 << 10;
/// Time between two checks for new connections.
const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_of_one_who_drips_bytes_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let begin = Instant::now();
        let mut hurried = Hurried {
            stream: &stream,
            until: begin + Duration::from_millis(200),
        };
        let drips = std::thread::spawn(move || {
            while slow.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let error = loop {
            match hurried.read(&mut [0]) {
                Ok(count) => assert_eq!(count, 1),
                Err(error) => break error,
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it goes on");
        };
        // The system's own error, if the last wait was cut short.
        let is_over = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(is_over.contains(&error.kind()), "{error}");
        drop(stream);
        drips.join().unwrap();
    }

    #[test]
    fn strangers_at_one_address_keep_no_other_out() {
        let pending = Arc::<Shares<Option<IpAddr>>>::default();
        let from = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        let limits = [OF_SOURCE_MAX, PENDING_MAX];
        let held: Vec<_> = (0..OF_SOURCE_MAX)
            .map(|_| pending.both(from(1), limits).unwrap())
            .collect();
        assert_eq!(pending.both(from(1), limits).unwrap_err(), OF_SOURCE_MAX);
        assert!(pending.both(from(2), limits).is_ok());
        drop(held);
        assert!(pending.is_empty());
    }
}
