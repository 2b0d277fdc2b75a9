//! Guests on their way between agents, over TLS in which both sides show a certificate.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use carina_vnet_host::Agent;
use carina_vnet_host::guest_wire::{GuestCaller, GuestWire};
use rustls::{ServerConnection, StreamOwned};

use crate::calling::address::Address;
use crate::calling::connection::Callee;
use crate::identity::{Identity, Role};
use crate::keys::{Tls, party_of};
use crate::log::Log;

/// Where the agents of other hosts bring nodes. It ends with this value; a node that is coming
/// comes to its end.
#[derive(Debug)]
pub struct Gate {
    has_ended: Arc<AtomicBool>,
}

/// The way to the agents of other hosts.
#[derive(Debug)]
struct Caller {
    tls: Tls,
}

/// What all connections share.
struct Inner {
    agent: Arc<Agent>,
    tls: Tls,
    log: Log,
    /// Connections that there are.
    guests: AtomicUsize,
}

impl Gate {
    /// Lets an agent send nodes, and take them at an address of TCP if there is one, at which the
    /// agents of other hosts reach it.
    ///
    /// # Errors
    /// The address cannot be listened at, or the system gives no thread.
    pub fn open(
        agent: &Arc<Agent>,
        tls: &Tls,
        at: Option<SocketAddr>,
        log: &Log,
    ) -> io::Result<Gate> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let mut place = None;
        if let Some(at) = at {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            place = Some(listener.local_addr()?.to_string());
            let inner = Arc::new(Inner {
                agent: Arc::clone(agent),
                tls: tls.clone(),
                log: log.clone(),
                guests: AtomicUsize::new(0),
            });
            let ends = Arc::clone(&has_ended);
            let thread = std::thread::Builder::new().name("moves".to_owned());
            thread.spawn(move || inner.accept(&listener, &ends))?;
        }
        agent.serve_moves(place, Arc::new(Caller { tls: tls.clone() }));
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
                // None has come, or the system has no descriptors.
                std::thread::sleep(LOOK);
                continue;
            };
            if self.guests.fetch_add(1, Ordering::Relaxed) >= GUESTS_MAX {
                self.guests.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let inner = Arc::clone(&self);
            let act = move || {
                if let Err(error) = inner.take(stream) {
                    inner.log.say(format_args!("a node from {from}: {error}"));
                }
                inner.guests.fetch_sub(1, Ordering::Relaxed);
            };
            let thread = std::thread::Builder::new().name("guest".to_owned());
            if let Err(error) = thread.spawn(act) {
                self.guests.fetch_sub(1, Ordering::Relaxed);
                self.log.say(format_args!("taking a node: {error}"));
            }
        }
    }

    fn take(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        set_limits(&stream, HANDSHAKE)?;
        let session = ServerConnection::new(self.tls.server());
        let mut session = session.map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let caller = certificate.and_then(party_of);
        let caller = caller.filter(|it| it.role == Role::Agent);
        let caller = caller.ok_or_else(|| io::Error::other("it is not the agent of a host"))?;
        set_limits(&stream, PIECE)?;
        let mut wire = StreamOwned::new(session, stream);
        let taken = self.agent.take_node(&caller.name, &mut wire);
        taken.map_err(io::Error::other)?;
        wire.conn.send_close_notify();
        // The other end may have gone.
        let _ = wire.conn.complete_io(&mut wire.sock);
        Ok(())
    }
}

impl GuestCaller for Caller {
    fn call(&self, host: &str, at: &str) -> io::Result<Box<dyn GuestWire>> {
        let callee = Callee {
            party: Identity {
                role: Role::Agent,
                name: host.to_owned(),
            },
            address: Address::Tcp(at.to_owned()),
            tls: self.tls.clone(),
        };
        let connection = callee.connect().map_err(io::Error::other)?;
        Ok(Box::new(connection.into_stream(PIECE)?))
    }
}

fn set_limits(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))
}

/// Nodes that come at a time.
const GUESTS_MAX: usize = 8;
/// How long a step of the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long the next piece of a guest may take; a QEMU is started meanwhile.
const PIECE: Duration = Duration::from_secs(60);
/// Between two looks at whether an agent calls.
const LOOK: Duration = Duration::from_millis(50);
