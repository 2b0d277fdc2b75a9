//! The thread that moves bytes between a guest's queues and Unix sockets.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use carina_sys::{Epoll, Interest, Ready, ask_for_short_slices};
use carina_vhost_user::{Port, RunningRing};

use super::DeviceConfig;
use super::held::Held;
use crate::header::{HEADER_BYTES, Header};
use crate::hybrid::{LINE_BYTES_MAX, ok_line, parse_connect, port_path};
use crate::machine::{Key, Machine, Outcome};
use crate::stream::{Stream, connect};

/// A program of the host that has connected and not yet said to which port of the guest.
struct Dialog {
    socket: OwnedFd,
    line: Vec<u8>,
    until: Instant,
}

/// The thread of a device.
pub(super) struct Server {
    machine: Machine,
    port: Arc<Port>,
    epoll: Epoll,
    listener: UnixListener,
    path: PathBuf,
    streams: HashMap<Key, (u64, Stream)>,
    tokens: HashMap<u64, Key>,
    next_token: u64,
    dialogs: HashMap<u64, Dialog>,
    /// Connections that wait for the guest's RST, and until when.
    closing: Vec<(Key, Instant)>,
    /// Index of the connection that the next round serves first. Each round begins one connection
    /// further, so that no connection is always the first.
    turn: usize,
    held: Held,
    counts: Arc<[AtomicU64; 3]>,
    malformed: u64,
    was_attached: u64,
}

impl Server {
    /// Makes the server of a device. The sockets are in `epoll`, each with its token: [`PORT`],
    /// [`LISTENER`] and [`STOP`].
    pub(super) fn new(
        config: &DeviceConfig,
        port: Arc<Port>,
        epoll: Epoll,
        listener: UnixListener,
        counts: Arc<[AtomicU64; 3]>,
    ) -> Server {
        Server {
            machine: Machine::new(config.guest_cid),
            port,
            epoll,
            listener,
            path: config.path.clone(),
            streams: HashMap::new(),
            tokens: HashMap::new(),
            next_token: FIRST_TOKEN,
            dialogs: HashMap::new(),
            closing: Vec::new(),
            turn: 0,
            held: Held::default(),
            counts,
            malformed: 0,
            was_attached: 0,
        }
    }

    /// Serves the guest until [`STOP`] is signalled.
    pub(super) fn run(mut self) {
        // Whatever an application in the guest waits for passes this thread, on a host that may be
        // busy. If the kernel refuses, the thread waits for its turn like any other.
        let _ = ask_for_short_slices();
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            let more = self.visit();
            self.count();
            let timeout_ns = if more || !self.arm() {
                0
            } else {
                self.timeout_ns()
            };
            if self.epoll.wait(&mut ready, Some(timeout_ns)).is_err() {
                return;
            }
            for event in std::mem::take(&mut ready) {
                match event.token {
                    STOP => return,
                    PORT => self.port.clear_events(),
                    LISTENER => self.accept(),
                    token => self.socket_is_ready(token, event),
                }
            }
            self.expire();
        }
    }

    /// How long an idle device may sleep, in nanoseconds.
    fn timeout_ns(&self) -> u64 {
        let look_ns = if self.closing.is_empty() && self.dialogs.is_empty() {
            LOOK_NS
        } else {
            SHORT_LOOK_NS
        };
        self.held.left_ns(Instant::now()).min(look_ns)
    }

    /// Moves bytes in both directions. Returns whether further bytes can be moved now.
    fn visit(&mut self) -> bool {
        let attached = self.port.counts();
        let port = Arc::clone(&self.port);
        let Some(mut device) = port.try_lock() else {
            return false;
        };
        let runs = device.ring(TO_GUEST).is_some() && device.ring(FROM_GUEST).is_some();
        if attached.connections != self.was_attached || !runs {
            // A guest that has restarted knows none of the connections.
            if self.machine.connections() > 0 {
                self.end_all();
            }
            self.held = Held::default();
            self.was_attached = attached.connections;
        }
        let mut more = false;
        if let Some(ring) = device.ring(FROM_GUEST) {
            match self.receive(ring) {
                Ok(is_busy) => more |= is_busy,
                Err(fault) => device.cut_off(fault),
            }
        }
        self.flush();
        if let Some(ring) = device.ring(TO_GUEST) {
            match self.send(ring) {
                Ok(is_busy) => more |= is_busy,
                Err(fault) => device.cut_off(fault),
            }
        }
        more
    }

    /// Takes packets of the guest.
    fn receive(&mut self, mut running: RunningRing<'_>) -> Result<bool, carina_vring::Fault> {
        let ring = running.half.any();
        // A guest that reads no answers sends no more questions.
        let count = if self.machine.packets() < PACKETS_MAX {
            ring.take(BURST)?
        } else {
            0
        };
        for chain in 0..count {
            let taken = ring.taken();
            let mut header = [0; HEADER_BYTES];
            let read = taken.read(chain, 0, &mut header);
            let bytes = taken.readable(chain) - read;
            match Header::decode(&header[..read]) {
                Ok(header) => match self.machine.handle(&header, bytes) {
                    Outcome::Data(key) => {
                        if let Some((_, stream)) = self.streams.get_mut(&key) {
                            stream.store(taken, chain, HEADER_BYTES, bytes);
                        } else {
                            self.machine.forwarded(key, bytes);
                        }
                    }
                    outcome => self.act(outcome),
                },
                Err(_) => self.malformed += 1,
            }
            ring.complete(0);
        }
        ring.put_back();
        if self.held.is_due(count, Instant::now()) {
            ring.publish();
            running.signal();
        }
        Ok(count == BURST)
    }

    fn act(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Incoming(key) => match connect(&port_path(&self.path, key.host_port)) {
                Ok(socket) => match self.add(key, socket) {
                    Ok(()) => self.machine.accept(key),
                    Err(_) => self.machine.refuse(key),
                },
                Err(_) => self.machine.refuse(key),
            },
            Outcome::Connected(key) => {
                if let Some((_, stream)) = self.streams.get_mut(&key) {
                    stream.answer(ok_line(key.host_port).as_bytes());
                    // The guest gets credit only for bytes that the guest has sent.
                    stream.flush();
                    stream.is_readable = true;
                }
            }
            Outcome::EndOfData(key) | Outcome::Finished(key) => {
                if let Some((_, stream)) = self.streams.get_mut(&key) {
                    stream.end_data();
                }
                if let Outcome::Finished(key) = outcome {
                    let until = Instant::now() + FLUSH;
                    self.closing.push((key, until));
                }
            }
            Outcome::Ended(key) => self.remove(key),
            Outcome::Done | Outcome::Changed(_) | Outcome::Data(_) => {}
        }
    }

    /// Forwards to the sockets the data that the guest has sent, and closes connections that have
    /// ended.
    fn flush(&mut self) {
        let mut ended = Vec::new();
        for (key, (_, stream)) in &mut self.streams {
            let done = stream.flush();
            if done > 0 {
                self.machine.forwarded(*key, done);
            }
            if stream.is_drained() {
                stream.finish_sending();
                if self.closing.iter().any(|(closing, _)| closing == key) {
                    ended.push(*key);
                }
            }
        }
        for key in ended {
            self.machine.reset(key);
            self.remove(key);
        }
    }

    /// Fills buffers of the guest with packets.
    fn send(&mut self, mut running: RunningRing<'_>) -> Result<bool, carina_vring::Fault> {
        let ring = running.half.any();
        let mut sent = 0;
        while sent < BURST {
            if self.machine.packets() == 0 {
                break;
            }
            if ring.take(1)? == 0 {
                break;
            }
            if let Some(header) = self.machine.poll_packet() {
                let written = ring.taken().write(0, 0, &header.encode());
                ring.complete(written as u32);
                sent += 1;
            }
        }
        let mut keys: Vec<Key> = self.streams.keys().copied().collect();
        if !keys.is_empty() {
            self.turn = (self.turn + 1) % keys.len();
            keys.rotate_left(self.turn);
        }
        let mut is_busy = false;
        for key in keys {
            is_busy |= self.send_data(key, ring)?;
        }
        ring.put_back();
        ring.publish();
        running.signal();
        // Data may have asked for credit, and ends of streams are packets without data.
        Ok(is_busy || (self.machine.packets() > 0 && sent == BURST))
    }

    /// Sends data of one connection. Returns whether further data can be sent now.
    fn send_data(
        &mut self,
        key: Key,
        ring: &mut dyn carina_vring::DeviceRing,
    ) -> Result<bool, carina_vring::Fault> {
        let Some((_, stream)) = self.streams.get_mut(&key) else {
            return Ok(false);
        };
        let mut moved = 0;
        while moved < TURN_BYTES {
            if stream.fill(1).is_empty() {
                break;
            }
            let credit = self.machine.credit(key);
            if credit == 0 || ring.take(1)? == 0 {
                return Ok(false);
            }
            let taken = ring.taken();
            let room = taken.writable(0).saturating_sub(HEADER_BYTES);
            let bytes = stream.fill(room.min(credit));
            let len = bytes.len() as u32;
            let Some(header) = self.machine.data_header(key, len).filter(|_| len > 0) else {
                // A buffer without room for data carries nothing.
                ring.complete(0);
                return Ok(false);
            };
            taken.write(0, 0, &header.encode());
            taken.write(0, HEADER_BYTES, bytes);
            let done = bytes.len();
            ring.complete((HEADER_BYTES + done) as u32);
            stream.take(done);
            moved += done;
        }
        let has_ended = stream.has_ended();
        if stream.is_broken() {
            self.machine.close(key);
            if !self.closing.iter().any(|(closing, _)| *closing == key) {
                self.closing.push((key, Instant::now() + FLUSH));
            }
        } else if has_ended {
            self.machine.end_data(key);
        }
        Ok(moved >= TURN_BYTES)
    }

    fn add(&mut self, key: Key, socket: OwnedFd) -> io::Result<()> {
        let token = self.next_token;
        self.next_token += 1;
        self.epoll.add(&socket, token, Interest::ReadWriteEdge)?;
        self.tokens.insert(token, key);
        self.streams.insert(key, (token, Stream::new(socket)));
        Ok(())
    }

    fn remove(&mut self, key: Key) {
        if let Some((token, stream)) = self.streams.remove(&key) {
            // The socket was added when the stream was.
            let _ = self.epoll.del(&stream);
            self.tokens.remove(&token);
        }
        self.closing.retain(|(closing, _)| *closing != key);
    }

    fn end_all(&mut self) {
        let keys: Vec<Key> = self.streams.keys().copied().collect();
        for key in keys {
            self.remove(key);
        }
        self.machine.clear();
    }

    fn socket_is_ready(&mut self, token: u64, event: Ready) {
        if let Some(key) = self.tokens.get(&token) {
            if let Some((_, stream)) = self.streams.get_mut(key) {
                stream.note_ready(event.readable, event.writable);
                if event.hangup {
                    stream.note_hangup();
                }
            }
            return;
        }
        self.talk(token);
    }

    /// Takes a program of the host that connects.
    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            if self.dialogs.len() >= DIALOGS_MAX || socket.set_nonblocking(true).is_err() {
                continue;
            }
            let socket = OwnedFd::from(socket);
            let token = self.next_token;
            self.next_token += 1;
            if self.epoll.add(&socket, token, Interest::Read).is_ok() {
                let dialog = Dialog {
                    socket,
                    line: Vec::new(),
                    until: Instant::now() + HANDSHAKE,
                };
                self.dialogs.insert(token, dialog);
            }
        }
    }

    /// Reads the line by which a program of the host names a port of the guest.
    fn talk(&mut self, token: u64) {
        let Some(dialog) = self.dialogs.get_mut(&token) else {
            return;
        };
        let mut bytes = [0; LINE_BYTES_MAX];
        let read = rustix::io::read(&dialog.socket, &mut bytes);
        let line = match read {
            Ok(0) => None,
            Ok(read) => {
                dialog.line.extend_from_slice(&bytes[..read]);
                match parse_connect(&dialog.line) {
                    Ok(None) => return,
                    Ok(line) => line,
                    Err(_) => None,
                }
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Err(_) => None,
        };
        let Some(dialog) = self.dialogs.remove(&token) else {
            return;
        };
        // The socket was added when the program connected.
        let _ = self.epoll.del(&dialog.socket);
        let Some((port, len)) = line else { return };
        // Without a connection the socket is closed, by which the program sees the refusal.
        if let Ok(key) = self.machine.connect(port) {
            if self.add(key, dialog.socket).is_err() {
                self.machine.reset(key);
                return;
            }
            if let Some((_, stream)) = self.streams.get_mut(&key) {
                stream.put_back(&dialog.line[len..]);
            }
        }
    }

    /// Ends dialogs and connections whose time limit has passed.
    fn expire(&mut self) {
        if self.dialogs.is_empty() && self.closing.is_empty() {
            return;
        }
        let now = Instant::now();
        let epoll = &self.epoll;
        self.dialogs.retain(|_, dialog| {
            let is_kept = now < dialog.until;
            if !is_kept {
                // The socket was added when the program connected.
                let _ = epoll.del(&dialog.socket);
            }
            is_kept
        });
        let closing = self.closing.iter().filter(|(_, until)| *until <= now);
        let over: Vec<Key> = closing.map(|(key, _)| *key).collect();
        for key in over {
            self.machine.reset(key);
            self.remove(key);
        }
    }

    /// Asks the guest for kicks. Returns false if there is work already.
    fn arm(&mut self) -> bool {
        let Some(mut device) = self.port.try_lock() else {
            return true;
        };
        let wants_room = self.machine.packets() > 0
            || self.streams.values().any(|(_, stream)| stream.has_data());
        let may_take = self.machine.packets() < PACKETS_MAX;
        let mut arm = |ring| device.ring(ring).is_none_or(|ring| ring.half.any().arm());
        (!may_take || arm(FROM_GUEST)) && (!wants_room || arm(TO_GUEST) || !may_take)
    }

    fn count(&self) {
        let set = |at: usize, value: u64| self.counts[at].store(value, Ordering::Relaxed);
        set(CONNECTIONS, self.machine.connections() as u64);
        set(VIOLATIONS, self.machine.violations());
        set(DROPPED, self.machine.dropped() + self.malformed);
    }
}

/// Numbers of the queues. QEMU keeps the third, for events, to itself. (VIRTIO 1.2 §5.10.2)
const TO_GUEST: usize = 0;
const FROM_GUEST: usize = 1;

pub(super) const CONNECTIONS: usize = 0;
pub(super) const VIOLATIONS: usize = 1;
pub(super) const DROPPED: usize = 2;

pub(super) const PORT: u64 = 0;
pub(super) const LISTENER: u64 = 1;
pub(super) const STOP: u64 = 2;
const FIRST_TOKEN: u64 = 3;

/// Largest number of packets that are taken or sent in one visit.
const BURST: usize = 64;

/// Number of bytes that one connection sends before the next connection sends.
const TURN_BYTES: usize = 32 << 10;

/// Largest number of packets without data that wait for buffers of the guest.
const PACKETS_MAX: usize = 256;

/// Largest number of programs of the host whose line has not arrived.
const DIALOGS_MAX: usize = 64;

/// Time for the line of a program of the host.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Time for the last bytes of a connection, and for the guest's RST.
const FLUSH: Duration = Duration::from_secs(2);

/// Interval at which an idle device checks whether QEMU has disconnected, in nanoseconds.
const LOOK_NS: u64 = 500_000_000;
/// Interval of this check while programs connect or connections close, which have deadlines, in
/// nanoseconds.
const SHORT_LOOK_NS: u64 = 50_000_000;
