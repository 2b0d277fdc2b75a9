//! **af_packet**: an Ethernet interface of the kernel, reached through packet sockets with rings in
//! shared memory (AF_PACKET).
//!
//! The kernel's network stack keeps using the interface: each received frame goes to the stack and
//! to the app. If only the graph shall use the interface, give it no IP address.
//!
//! - inputs: `input`: frames to send
//! - outputs: `output`: received frames, also those for other stations
//! - configuration:
//!   - `interface`: name of the interface
//!   - `promiscuous`: also receive frames for other stations (default: `true`)
//!   - `netns`: file of the network namespace of the interface, `/run/netns/NAME` or
//!     `/proc/PID/ns/net` (default: the namespace of the graph)
//!   - `offload`: accept frames from programs on this host with checksums missing and segmentation
//!     pending, and note this in their metadata; otherwise the app completes and segments them
//!     (default: `false`)
//! - counters: `is_up`: 1 while the interface exists and is up; `pool_empty`: bursts that ended
//!   early because the pool had no frame; `drop_missed`: frames that arrived while the ring was
//!   full; `drop_cut`: frames longer than a slot of the ring; `drop_unsupported`: frames with an
//!   unknown offload request; `drop_no_frame`: received frames for which the pool had no frame;
//!   `drop_length`: frames to send that are shorter than a MAC header or longer than the interface
//!   allows; `drop_down`: frames to send while the interface was down; `drop_no_room`: frames to
//!   send while the interface accepted nothing for 10 ms
//! - cost: one copy in each direction, and one system call for each burst that is sent
//!
//! The first ports of a process have rings of 6 MiB. When the rings of all ports occupy 128 MiB,
//! each further port gets smaller ones, down to 192 KiB.
//!
//! If the interface goes down or is removed and comes back, also as a new interface of the same
//! name, the app uses it again within 100 ms, or with the next frame to send.

mod ring_memory;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use carina_frame::Frame;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Opened, Outside, Port, PortList, Ports,
    WhenFull, made,
};
use carina_netdev::{
    Interface, InterfaceWatch, Layout, MAC_HEADER_BYTES, PacketSocket, TAG_BYTES,
    VNET_HEADER_BYTES, check_interface_name, plain_frames,
};
use carina_sys::{Interest, NetworkNamespace};
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use self::ring_memory::RingMemory;
use crate::offload::{Intake, header_of};

/// The configuration of the app `af_packet`, which connects a graph to an Ethernet interface while
/// the kernel keeps using that interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AfPacketConfig {
    /// Name of the network interface to use, such as `eth1`.
    pub interface: String,
    /// Whether the port receives also frames for MAC addresses other than its own (promiscuous
    /// mode).
    #[serde(default = "yes")]
    pub promiscuous: bool,
    /// Whether received frames keep missing checksums and pending segmentation as metadata. If not,
    /// the app completes and segments them.
    #[serde(default)]
    pub offload: bool,
    /// File of the network namespace of the interface; `None` for the namespace of the calling
    /// thread.
    #[serde(default)]
    pub netns: Option<PathBuf>,
}

fn yes() -> bool {
    true
}

impl AfPacketConfig {
    /// A configuration for this interface, with the default of each other key.
    #[must_use]
    pub fn of(interface: &str) -> AfPacketConfig {
        AfPacketConfig {
            interface: interface.to_owned(),
            promiscuous: true,
            offload: false,
            netns: None,
        }
    }
}

/// The running app `af_packet`: connects a graph to an Ethernet interface while the kernel keeps
/// using that interface.
pub struct AfPacket {
    config: AfPacketConfig,
    elsewhere: Elsewhere,
    interface: Interface,
    watch: InterfaceWatch,
    socket: PacketSocket,
    // Dropped after the socket, which has the memory.
    _rings: RingMemory,
    intake: Intake,
    /// Segments of a long frame for which the link had no room yet.
    backlog: VecDeque<Frame>,
    counters: Counters,
    /// When to offer the kernel the frames again that it did not accept; `None` if it accepted all.
    retry_at: Option<Instant>,
    /// When a frame was last taken from the input.
    moved_at: Instant,
}

struct Counters {
    is_up: Counter,
    pool_empty: Counter,
    missed: Counter,
    cut: Counter,
    unsupported: Counter,
    no_frame: Counter,
    length: Counter,
    down: Counter,
    no_room: Counter,
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    /// Frames of the pool are too short for the interface's MTU.
    #[error(
        "{interface} has frames of up to {needed} bytes (MTU {mtu}), but frames of the pool have \
         {has} bytes; make the pool's frames longer (carina graph run --frame-bytes {needed})"
    )]
    Mtu {
        interface: String,
        mtu: usize,
        needed: usize,
        has: usize,
    },
    /// The interface's namespace cannot be opened or entered.
    #[error("netns = {}: {source}; give the path of a network namespace, such as \
         /run/netns/NAME", path.display())]
    Namespace { path: PathBuf, source: io::Error },
}

/// The namespace of the interface; `None` if it is the namespace of the thread.
struct Elsewhere(Option<NetworkNamespace>);

impl Elsewhere {
    fn open(path: Option<&Path>) -> Result<Elsewhere, PortError> {
        let open = |path: &Path| {
            NetworkNamespace::open(path).map_err(|source| PortError::Namespace {
                path: path.to_owned(),
                source,
            })
        };
        path.map(open).transpose().map(Elsewhere)
    }

    fn within<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        match &self.0 {
            None => Ok(act()),
            Some(namespace) => namespace.within(act),
        }
    }
}

/// Refuses an interface whose frames, with the MTU `mtu`, do not fit into `has` bytes.
pub(crate) fn check_mtu(interface: &str, mtu: usize, has: usize) -> Result<(), PortError> {
    let needed = mtu + MAC_HEADER_BYTES + TAG_BYTES;
    if needed > has {
        return Err(PortError::Mtu {
            interface: interface.to_owned(),
            mtu,
            needed,
            has,
        });
    }
    Ok(())
}

impl AppConfig for AfPacketConfig {
    const KIND: &'static str = "af_packet";
    const INPUTS: PortList = PortList::Named(&[Port::optional("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("output")]);
    const TICK: Option<Duration> = Some(LOOK_EVERY);
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;
    const OPENS: bool = true;

    type App = AfPacket;

    /// Opening takes some 20 ms, because the kernel waits while it sets up a socket's rings.
    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn check(&self) -> Result<(), AppError> {
        Ok(check_interface_name(&self.interface)?)
    }

    fn outside(&self) -> Outside {
        Outside::Something
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<AfPacket, AppError> {
        let Taken { elsewhere, opened } = self.taken()?;
        let OpenPort {
            watch,
            interface,
            socket,
            rings,
        } = opened;
        check_mtu(&interface.name, interface.mtu, context.pool().frame_bytes())?;
        let counters = Counters {
            is_up: context.counter("is_up"),
            pool_empty: context.counter("pool_empty"),
            missed: context.counter("drop_missed"),
            cut: context.counter("drop_cut"),
            unsupported: context.counter("drop_unsupported"),
            no_frame: context.counter("drop_no_frame"),
            length: context.counter("drop_length"),
            down: context.counter("drop_down"),
            no_room: context.counter("drop_no_room"),
        };
        counters.is_up.set(u64::from(interface.is_up));
        Ok(AfPacket {
            config: self.clone(),
            elsewhere,
            interface,
            watch,
            socket,
            _rings: rings,
            intake: Intake {
                pool: context.pool().clone(),
                keeps_offload: self.offload,
            },
            backlog: VecDeque::new(),
            counters,
            retry_at: None,
            moved_at: Instant::ZERO,
        })
    }
}

/// The system resources of the app.
struct Taken {
    elsewhere: Elsewhere,
    opened: OpenPort,
}

/// What the app opens in the namespace of its interface.
struct OpenPort {
    watch: InterfaceWatch,
    interface: Interface,
    socket: PacketSocket,
    rings: RingMemory,
}

impl AfPacketConfig {
    fn taken(&self) -> Result<Taken, AppError> {
        let elsewhere = Elsewhere::open(self.netns.as_deref())?;
        let opened = elsewhere.within(|| self.open_here());
        let opened = opened.map_err(|source| PortError::Namespace {
            path: self.netns.clone().unwrap_or_default(),
            source,
        })??;
        Ok(Taken { elsewhere, opened })
    }

    /// Opens the interface in the namespace of the calling thread.
    fn open_here(&self) -> Result<OpenPort, AppError> {
        let watch = InterfaceWatch::new()?;
        let interface = Interface::named(&self.interface)?;
        let layout = Layout {
            has_vnet_header: true,
            takes_long: true,
            ..Layout::for_mtu(interface.mtu)
        };
        let (rings, layout) = RingMemory::reserve(layout);
        let socket = PacketSocket::open(&interface, layout, None)?;
        if self.promiscuous {
            socket.be_promiscuous(&interface)?;
        }
        Ok(OpenPort {
            watch,
            interface,
            socket,
            rings,
        })
    }
}

impl FrameApp for AfPacket {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        let (mut room, mut frame_count) = (ports.room(0).min(FRAME_BURST), 0);
        while room > 0 {
            if let Some(frame) = self.backlog.pop_front() {
                ports.transmit(0, frame);
                room -= 1;
                continue;
            }
            let Some(received) = self.socket.receive() else {
                break;
            };
            frame_count += 1;
            if received.is_cut {
                self.counters.cut.add(1);
                continue;
            }
            let tag = received.tag.map(|tag| {
                let ([a, b], [c, d]) = (tag.ethertype.to_be_bytes(), tag.control.to_be_bytes());
                [a, b, c, d]
            });
            let backlog = &mut self.backlog;
            let (header, bytes) = (received.vnet_header, received.frame);
            let taken = self.intake.take(header, bytes, tag, |frame| match room {
                0 => backlog.push_back(frame),
                _ => {
                    ports.transmit(0, frame);
                    room -= 1;
                }
            });
            self.counters
                .unsupported
                .add(u64::from(taken.is_unsupported));
            self.counters.no_frame.add(taken.no_frame);
            if taken.no_frame > 0 {
                self.counters.pool_empty.add(1);
                break;
            }
        }
        if frame_count > 0 {
            self.socket.release();
        }
        let now = ports.now();
        if self.retry_at.is_some_and(|at| now >= at) {
            self.flush(now);
        }
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        // Checks for an interface that has just come up, so that no frame is dropped until the next
        // tick.
        if !self.interface.is_up && self.watch.has_changed() {
            self.check_interface();
        }
        if !self.interface.is_up {
            let counters = &self.counters;
            return ports.drain(0, |_| counters.down.add(1));
        }
        let mut taken = 0;
        let mut free = self.socket.free_frames();
        while free > 0 {
            let Some(frame) = ports.receive(0) else {
                break;
            };
            free = free.saturating_sub(self.send(&frame).max(1));
            taken += 1;
        }
        if taken > 0 {
            self.moved_at = ports.now();
            self.flush(ports.now());
        } else if ports.now().since(self.moved_at) > PATIENCE {
            let counters = &self.counters;
            ports.drain(0, |_| counters.no_room.add(1));
        }
    }

    fn tick(&mut self, _: &mut Ports<'_>) {
        let missed = self.socket.take_missed();
        self.counters.missed.add(u64::from(missed));
        if self.watch.has_changed() {
            self.check_interface();
        }
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.as_fd(), Interest::ReadEdge))
    }

    fn arm(&mut self) -> bool {
        self.backlog.is_empty() && !self.socket.has_frame()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.retry_at
    }
}

impl AfPacket {
    /// Writes a frame into the send ring, in segments if it needs segmentation; returns the number
    /// of slots used.
    fn send(&mut self, frame: &Frame) -> usize {
        let header = header_of(frame);
        if header.segments.is_none() {
            return self.put(&header.bytes(), frame.bytes());
        }
        // A slot of the ring holds a frame of the MTU only.
        let (mut places, header) = (0, header.bytes());
        let plain = [0; VNET_HEADER_BYTES];
        let cut = plain_frames(&header, frame.bytes(), |bytes| {
            places += self.put(&plain, bytes);
        });
        self.counters.unsupported.add(u64::from(cut.is_err()));
        places
    }

    fn put(&mut self, header: &[u8; VNET_HEADER_BYTES], bytes: &[u8]) -> usize {
        let all = VNET_HEADER_BYTES + bytes.len();
        let is_tagged = matches!(bytes.get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
        let bytes_max =
            self.interface.mtu + MAC_HEADER_BYTES + if is_tagged { TAG_BYTES } else { 0 };
        let bytes_max = bytes_max.min(self.socket.frame_bytes_max());
        if !(MAC_HEADER_BYTES + 1..=bytes_max).contains(&bytes.len()) {
            self.counters.length.add(1);
            return 0;
        }
        match self.socket.reserve(all) {
            Some(place) => {
                place[..VNET_HEADER_BYTES].copy_from_slice(header);
                place[VNET_HEADER_BYTES..].copy_from_slice(bytes);
                self.socket.commit(all);
                1
            }
            None => {
                self.counters.no_room.add(1);
                0
            }
        }
    }

    fn flush(&mut self, now: Instant) {
        match self.socket.flush() {
            Ok(is_through) => self.retry_at = (!is_through).then(|| now + RETRY_AFTER),
            Err(_) => {
                self.retry_at = None;
                self.counters.down.add(self.socket.discard() as u64);
                self.check_interface();
            }
        }
    }

    /// Checks the state of the interface, which may by now be a new one of the same name.
    fn check_interface(&mut self) {
        let found = self
            .elsewhere
            .within(|| Interface::named(&self.config.interface));
        match found {
            Ok(Ok(found)) => {
                let is_new = found.index != self.interface.index;
                let is_bound = !is_new || self.socket.bind(&found).is_ok();
                if is_new && self.config.promiscuous {
                    // This worked when the app was opened. Without it, frames for this station
                    // still arrive.
                    let _ = self.socket.be_promiscuous(&found);
                }
                self.interface = Interface {
                    is_up: found.is_up && is_bound,
                    // With index 0, the next check tries to bind again.
                    index: if is_bound { found.index } else { 0 },
                    ..found
                };
            }
            _ => self.interface.is_up = false,
        }
        self.counters.is_up.set(u64::from(self.interface.is_up));
    }
}

/// How often to check the interface for changes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long frames wait for an interface that accepts none.
const PATIENCE: Duration = Duration::from_millis(10);
/// When to offer frames again that the kernel did not accept.
const RETRY_AFTER: Duration = Duration::from_micros(50);
