//! **af_xdp**: one queue of an Ethernet interface, bypassing the kernel's network stack (AF_XDP).
//!
//! Frames of this queue go to the app and not to the kernel's stack; frames of other queues go to
//! the stack. `ethtool -L eth1 combined 1` gives an interface a single queue. The app attaches an
//! XDP program to the interface that redirects the frames, and removes it when the app ends. Where
//! the driver supports it, the device writes directly into this process's memory (zero copy);
//! otherwise the kernel copies.
//!
//! - inputs: `input`: frames to send
//! - outputs: `output`: received frames
//! - configuration: `interface`: name of the interface; `queue`: number of the queue (default: 0)
//! - counters: `mode`: 2 zero copy, 1 copy in the driver, 0 copy in the kernel's generic path;
//!   `is_up`: 1 while the interface exists and is up; `pool_empty`: bursts that ended early because
//!   the pool had no frame; `drop_no_frame`: received frames for which the pool had no frame;
//!   `drop_unsupported`: frames with an unknown offload request; `drop_length`: frames to send that
//!   are shorter than a MAC header or longer than the interface allows; `drop_down`: frames to send
//!   while the interface was down; `drop_no_room`: frames to send while the interface accepted
//!   nothing for 10 ms
//! - cost: one copy in each direction, and one system call for each burst that is sent
//!
//! If a sender on this host leaves checksums to its interface, they are missing here, and AF_XDP
//! does not report it. `ethtool -K veth1 tx off` at the other end of a veth pair makes the kernel
//! compute them. If the interface comes back after a removal, also as a new interface of the same
//! name, the app uses it again within 100 ms.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd};

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Opened, Outside, Port, PortList, Ports,
    WhenFull, made,
};
use carina_netdev::{
    Interface, InterfaceWatch, MAC_HEADER_BYTES, TAG_BYTES, XDP_FRAME_BYTES_MAX, XdpMode,
    XdpSocket, check_interface_name, plain_frames,
};
use carina_sys::{Epoll, Interest};
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::af_packet::check_mtu;
use crate::offload::header_of;

/// The configuration of the app `af_xdp`, which connects a graph to one queue of an Ethernet
/// interface, bypassing the kernel's stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AfXdpConfig {
    /// Name of the network interface to use, such as `eth1`.
    pub interface: String,
    /// Number of the interface's queue whose frames the app takes, from 0.
    #[serde(default)]
    pub queue: u32,
}

/// The running app `af_xdp`: connects a graph to one queue of an Ethernet interface, bypassing the
/// kernel's stack.
pub struct AfXdp {
    config: AfXdpConfig,
    interface: Interface,
    watch: InterfaceWatch,
    /// The socket; `None` while the interface does not exist.
    socket: Option<XdpSocket>,
    /// Contains the socket. Its file descriptor stays the same when the socket is replaced.
    epoll: Epoll,
    pool: Pool,
    counters: Counters,
    /// When to offer the kernel the frames again that it did not accept; `None` if it accepted all.
    retry_at: Option<Instant>,
    /// When a frame was last taken from the input.
    moved_at: Instant,
}

struct Counters {
    mode: Counter,
    is_up: Counter,
    pool_empty: Counter,
    no_frame: Counter,
    unsupported: Counter,
    length: Counter,
    down: Counter,
    no_room: Counter,
}

/// The interface's frames are too long for AF_XDP.
#[derive(Debug, thiserror::Error)]
#[error(
    "{interface} has frames of up to {bytes} bytes; AF_XDP carries at most {XDP_FRAME_BYTES_MAX}: \
     set its MTU to at most {}", XDP_FRAME_BYTES_MAX - MAC_HEADER_BYTES - TAG_BYTES
)]
struct TooLong {
    interface: String,
    bytes: usize,
}

impl AppConfig for AfXdpConfig {
    const KIND: &'static str = "af_xdp";
    const INPUTS: PortList = PortList::Named(&[Port::optional("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("output")]);
    const TICK: Option<Duration> = Some(LOOK_EVERY);
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;
    const OPENS: bool = true;

    type App = AfXdp;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn check(&self) -> Result<(), AppError> {
        Ok(check_interface_name(&self.interface)?)
    }

    fn outside(&self) -> Outside {
        Outside::Something
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<AfXdp, AppError> {
        let watch = InterfaceWatch::new()?;
        let interface = Interface::named(&self.interface)?;
        let bytes = interface.mtu + MAC_HEADER_BYTES + TAG_BYTES;
        if bytes > XDP_FRAME_BYTES_MAX {
            let interface = interface.name;
            return Err(TooLong { interface, bytes }.into());
        }
        check_mtu(&interface.name, interface.mtu, context.pool().frame_bytes())?;
        let socket = XdpSocket::open(&interface, self.queue)?;
        let epoll = Epoll::new()?;
        epoll.add(socket.as_fd(), 0, Interest::ReadEdge)?;
        let counters = Counters {
            mode: context.counter("mode"),
            is_up: context.counter("is_up"),
            pool_empty: context.counter("pool_empty"),
            no_frame: context.counter("drop_no_frame"),
            unsupported: context.counter("drop_unsupported"),
            length: context.counter("drop_length"),
            down: context.counter("drop_down"),
            no_room: context.counter("drop_no_room"),
        };
        let app = AfXdp {
            config: self.clone(),
            interface,
            watch,
            socket: Some(socket),
            epoll,
            pool: context.pool().clone(),
            counters,
            retry_at: None,
            moved_at: Instant::ZERO,
        };
        app.show();
        Ok(app)
    }
}

impl FrameApp for AfXdp {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        let mut frame_count = 0;
        for _ in 0..ports.room(0).min(FRAME_BURST) {
            let Some(bytes) = socket.receive() else { break };
            frame_count += 1;
            match self.pool.frame_of(bytes) {
                Some(frame) => ports.transmit(0, frame),
                None => {
                    self.counters.no_frame.add(1);
                    self.counters.pool_empty.add(1);
                    break;
                }
            }
        }
        if frame_count > 0 {
            socket.release();
        }
        let now = ports.now();
        if self.retry_at.is_some_and(|at| now >= at) {
            self.flush(now);
        }
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let (counters, is_up) = (&self.counters, self.interface.is_up);
        let Some(socket) = self.socket.as_mut().filter(|_| is_up) else {
            return ports.drain(0, |_| counters.down.add(1));
        };
        let (mut free, mut taken) = (socket.free_frames(), 0);
        while free > 0 {
            let Some(frame) = ports.receive(0) else {
                break;
            };
            free = free.saturating_sub(send(socket, &frame, self.interface.mtu, counters).max(1));
            taken += 1;
        }
        if taken > 0 {
            self.moved_at = ports.now();
            self.flush(ports.now());
        } else if ports.now().since(self.moved_at) > PATIENCE {
            ports.drain(0, |_| counters.no_room.add(1));
        } else if self.retry_at.is_none() {
            // Committed frames leave only with a system call.
            self.flush(ports.now());
        }
    }

    fn tick(&mut self, _: &mut Ports<'_>) {
        if self.watch.has_changed() {
            self.check_interface();
        }
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.epoll.as_fd(), Interest::ReadEdge))
    }

    fn arm(&mut self) -> bool {
        !self.socket.as_ref().is_some_and(XdpSocket::has_frame)
    }

    fn disarm(&mut self) {
        // Consumes the event, so that the next one can wake the worker.
        let mut ready = Vec::new();
        let _ = self.epoll.wait(&mut ready, Some(0));
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.retry_at
    }
}

/// Writes a frame into the ring, with checksums completed and segmented; returns the number of
/// slots used.
fn send(socket: &mut XdpSocket, frame: &Frame, mtu: usize, counters: &Counters) -> usize {
    let header = header_of(frame);
    let mut places = 0;
    let mut put = |bytes: &[u8]| {
        let is_tagged = matches!(bytes.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
        let bytes_max = mtu + MAC_HEADER_BYTES + if is_tagged { TAG_BYTES } else { 0 };
        if !(MAC_HEADER_BYTES..=bytes_max.min(XDP_FRAME_BYTES_MAX)).contains(&bytes.len()) {
            return counters.length.add(1);
        }
        match socket.reserve(bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                socket.commit(bytes.len());
                places += 1;
            }
            None => counters.no_room.add(1),
        }
    };
    if header.checksum.is_none() && header.segments.is_none() {
        put(frame.bytes());
    } else {
        let made = plain_frames(&header.bytes(), frame.bytes(), put);
        counters.unsupported.add(u64::from(made.is_err()));
    }
    places
}

impl AfXdp {
    fn flush(&mut self, now: Instant) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        match socket.flush() {
            Ok(is_through) => self.retry_at = (!is_through).then(|| now + RETRY_AFTER),
            Err(_) => {
                self.retry_at = None;
                self.check_interface();
            }
        }
    }

    /// Checks the state of the interface, which may by now be a new one of the same name.
    fn check_interface(&mut self) {
        match Interface::named(&self.config.interface) {
            Ok(found) => {
                if found.index != self.interface.index || self.socket.is_none() {
                    // The old XDP program must be detached before the new one is attached.
                    self.socket = None;
                    self.socket = XdpSocket::open(&found, self.config.queue).ok();
                    if let Some(socket) = &self.socket {
                        // If this fails, received frames are found at the next tick.
                        let _ = self.epoll.add(socket.as_fd(), 0, Interest::ReadEdge);
                    }
                }
                self.interface = found;
            }
            Err(_) => {
                self.socket = None;
                self.interface.is_up = false;
            }
        }
        self.show();
    }

    fn show(&self) {
        let mode = self.socket.as_ref().map(XdpSocket::mode);
        self.counters.mode.set(match mode {
            Some(XdpMode::ZeroCopy) => 2,
            Some(XdpMode::Native) => 1,
            Some(XdpMode::Generic) | None => 0,
        });
        let is_up = self.interface.is_up && mode.is_some();
        self.counters.is_up.set(u64::from(is_up));
    }
}

/// How often to check the interface for changes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long frames wait for an interface that accepts none.
const PATIENCE: Duration = Duration::from_millis(10);
/// When to offer frames again that the kernel did not accept.
const RETRY_AFTER: Duration = Duration::from_micros(50);
