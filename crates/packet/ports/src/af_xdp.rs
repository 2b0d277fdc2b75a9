//! **af_xdp**: one queue of an Ethernet interface, past the kernel's stack (AF_XDP).
//!
//! The frames of the queue come here and do not reach the kernel's stack; those of other queues do.
//! `ethtool -L eth1 combined 1` gives an interface a single queue. A program at the driver
//! redirects them; it goes with the app. Where the driver can, the device writes into memory of
//! this process; else the kernel copies.
//!
//! - inputs: `input`: frames to be sent
//! - outputs: `output`: frames received
//! - configuration: `interface`: its name; `queue`: 0 where nothing is said
//! - counters: `mode`: 2 zero copy, 1 copied at the driver, 0 copied in the generic place; `is_up`:
//!   1 while the interface is there and up; `pool_empty`: bursts cut short because the pool had no
//!   frame; `drop_no_frame`: received, and no frame of the pool for it; `drop_unsupported`: offload
//!   work that is not known; `drop_length`: shorter than a MAC header, or longer than what the
//!   interface sends; `drop_down`: to be sent while the interface was down; `drop_no_room`: the
//!   interface took nothing for 10 ms
//! - cost: one copy each way, and one system call for each burst that is sent
//!
//! Checksums that a sender on this system leaves to its card are missing here, and nothing says so:
//! `ethtool -K veth1 tx off` at the other end of a veth pair has them filled in. An interface that
//! comes back, also as a new one of the same name, is taken up again within 100 ms.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd};

use carina_engine::counter_file::Counter;
use carina_engine::frames::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Opened, Outside, Port, PortList, Ports,
    WhenFull, made,
};
use carina_frame::{Frame, Pool};
use carina_netdev::{
    Interface, InterfaceWatch, MAC_HEADER_BYTES, TAG_BYTES, XDP_FRAME_BYTES_MAX, XdpMode,
    XdpSocket, check_interface_name, plain_frames,
};
use carina_sys::{Epoll, Interest};
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::af_packet::check_mtu;
use crate::offload::header_of;

/// The configuration of the app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AfXdpConfig {
    /// Name of the interface.
    pub interface: String,
    /// Number of the queue.
    #[serde(default)]
    pub queue: u32,
}

/// The app.
pub struct AfXdp {
    config: AfXdpConfig,
    interface: Interface,
    watch: InterfaceWatch,
    /// `None` while the interface is away.
    socket: Option<XdpSocket>,
    /// Holds the socket, which another one replaces.
    epoll: Epoll,
    pool: Pool,
    counters: Counters,
    /// The kernel did not take everything: when it is offered again.
    retry_at: Option<Instant>,
    /// When something was last taken off the input.
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

/// Why there is no such port.
#[derive(Debug, thiserror::Error)]
#[error(
    "{interface} has frames of up to {bytes} bytes; AF_XDP carries at most {XDP_FRAME_BYTES_MAX}: \
     an MTU of {}", XDP_FRAME_BYTES_MAX - MAC_HEADER_BYTES - TAG_BYTES
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
        let mut took = 0;
        for _ in 0..ports.room(0).min(FRAME_BURST) {
            let Some(bytes) = socket.receive() else { break };
            took += 1;
            match self.pool.frame_of(bytes) {
                Some(frame) => ports.transmit(0, frame),
                None => {
                    self.counters.no_frame.add(1);
                    self.counters.pool_empty.add(1);
                    break;
                }
            }
        }
        if took > 0 {
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
            // Frames that were committed wait for a call.
            self.flush(ports.now());
        }
    }

    fn tick(&mut self, _: &mut Ports<'_>) {
        if self.watch.has_changed() {
            self.look();
        }
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.epoll.as_fd(), Interest::ReadEdge))
    }

    fn arm(&mut self) -> bool {
        !self.socket.as_ref().is_some_and(XdpSocket::has_frame)
    }

    fn disarm(&mut self) {
        // What rang is taken note of, so that it can ring again.
        let mut ready = Vec::new();
        let _ = self.epoll.wait(&mut ready, Some(0));
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.retry_at
    }
}

/// Puts a frame into the ring, made plain; returns how many places it took.
fn send(socket: &mut XdpSocket, frame: &Frame, mtu: usize, counters: &Counters) -> usize {
    let header = header_of(frame);
    let mut places = 0;
    let mut put = |bytes: &[u8]| {
        let is_tagged = matches!(bytes.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
        let most = mtu + MAC_HEADER_BYTES + if is_tagged { TAG_BYTES } else { 0 };
        if !(MAC_HEADER_BYTES..=most.min(XDP_FRAME_BYTES_MAX)).contains(&bytes.len()) {
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
                self.look();
            }
        }
    }

    /// Looks at the interface, which may be a new one of the same name.
    fn look(&mut self) {
        match Interface::named(&self.config.interface) {
            Ok(found) => {
                if found.index != self.interface.index || self.socket.is_none() {
                    // The old program goes before the new one comes.
                    self.socket = None;
                    self.socket = XdpSocket::open(&found, self.config.queue).ok();
                    if let Some(socket) = &self.socket {
                        // One that could not be watched would be looked at once in a tick.
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

/// How often the interface is looked at for changes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long frames wait for an interface that takes nothing.
const PATIENCE: Duration = Duration::from_millis(10);
/// When frames that the kernel did not take are offered again.
const RETRY_AFTER: Duration = Duration::from_micros(50);
