//! **af_packet**: an Ethernet interface of the kernel, through rings in shared memory (AF_PACKET).
//!
//! The kernel's own stack goes on to use the interface: what comes in goes to both. An interface
//! for a graph alone has no IP address.
//!
//! - inputs: `input`: frames to be sent
//! - outputs: `output`: frames received, also those for other stations
//! - configuration:
//!   - `interface`: its name
//!   - `promiscuous`: take frames for other stations too; `true` where nothing is said
//!   - `netns`: file of the network namespace that has the interface, `/run/netns/NAME` or
//!     `/proc/PID/ns/net`; that of the graph where nothing is said
//!   - `offload`: take frames from programs of this system without having their checksums filled in
//!     and long ones cut; `false` where nothing is said
//! - counters: `is_up`: 1 while the interface is there and up; `pool_empty`: bursts cut short
//!   because the pool had no frame; `drop_missed`: received while the ring was full; `drop_cut`:
//!   longer than a place of the ring; `drop_unsupported`: offload work that is not known;
//!   `drop_no_frame`: received, and no frame of the pool for it; `drop_length`: shorter than a MAC
//!   header or longer than what the interface sends; `drop_down`: to be sent while the interface
//!   was down; `drop_no_room`: the interface took nothing for 10 ms
//! - cost: one copy each way, and one system call for each burst that is sent
//!
//! An interface that goes down or away and comes back, also as a new one of the same name, is taken
//! up again within 100 ms, or with the first frame that is to be sent.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use carina_engine::counter_file::Counter;
use carina_engine::frames::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Opened, Outside, Port, PortList, Ports,
    WhenFull, made,
};
use carina_frame::Frame;
use carina_netdev::{
    Interface, InterfaceWatch, Layout, MAC_HEADER_BYTES, PacketSocket, TAG_BYTES,
    VNET_HEADER_BYTES, check_interface_name, plain_frames,
};
use carina_sys::{Interest, NetworkNamespace};
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::offload::{Intake, header_of};

/// The configuration of a packet socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AfPacketConfig {
    /// Name of the interface.
    pub interface: String,
    /// Frames for other stations are taken too.
    #[serde(default = "yes")]
    pub promiscuous: bool,
    /// Frames keep what is left to be done with them in their metadata.
    #[serde(default)]
    pub offload: bool,
    /// File of the network namespace that has the interface; that of this thread otherwise.
    #[serde(default)]
    pub netns: Option<PathBuf>,
}

fn yes() -> bool {
    true
}

impl AfPacketConfig {
    /// An interface with the defaults.
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

/// The app.
pub struct AfPacket {
    config: AfPacketConfig,
    elsewhere: Elsewhere,
    interface: Interface,
    watch: InterfaceWatch,
    socket: PacketSocket,
    intake: Intake,
    /// Frames of a long one that was cut, for which the link had no room.
    backlog: VecDeque<Frame>,
    counters: Counters,
    /// The kernel did not take everything: when it is offered again.
    retry_at: Option<Instant>,
    /// When something was last taken off the input.
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

/// Why there is no such port.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    /// Frames of the pool are shorter than those of the interface.
    #[error(
        "{interface} has frames of up to {needed} bytes (MTU {mtu}), and frames of the pool have \
         {has}; a pool with longer ones is needed (carina graph run --frame-bytes {needed})"
    )]
    Mtu {
        interface: String,
        mtu: usize,
        needed: usize,
        has: usize,
    },
    /// The namespace of the interface cannot be opened or entered.
    #[error("netns = {}: {source}; a network namespace is /run/netns/NAME", path.display())]
    Namespace { path: PathBuf, source: io::Error },
}

/// The namespace that has the interface, if it is another one.
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

/// Refuses an interface whose frames do not fit into those of the pool.
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

    /// The kernel sets up the rings of a socket in some 20 ms, in which it waits.
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
        let Taken {
            elsewhere,
            watch,
            interface,
            socket,
        } = self.taken()?;
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

/// What an app has of the system.
struct Taken {
    elsewhere: Elsewhere,
    watch: InterfaceWatch,
    interface: Interface,
    socket: PacketSocket,
}

impl AfPacketConfig {
    fn taken(&self) -> Result<Taken, AppError> {
        let elsewhere = Elsewhere::open(self.netns.as_deref())?;
        let taken = elsewhere.within(|| self.taken_here());
        let (watch, interface, socket) = taken.map_err(|source| PortError::Namespace {
            path: self.netns.clone().unwrap_or_default(),
            source,
        })??;
        Ok(Taken {
            elsewhere,
            watch,
            interface,
            socket,
        })
    }

    /// Opens the interface in the namespace of this thread.
    fn taken_here(&self) -> Result<(InterfaceWatch, Interface, PacketSocket), AppError> {
        let watch = InterfaceWatch::new()?;
        let interface = Interface::named(&self.interface)?;
        let layout = Layout {
            has_vnet_header: true,
            takes_long: true,
            ..Layout::for_mtu(interface.mtu)
        };
        let socket = PacketSocket::open(&interface, layout, None)?;
        if self.promiscuous {
            socket.be_promiscuous(&interface)?;
        }
        Ok((watch, interface, socket))
    }
}

impl FrameApp for AfPacket {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        let (mut room, mut took) = (ports.room(0).min(FRAME_BURST), 0);
        while room > 0 {
            if let Some(frame) = self.backlog.pop_front() {
                ports.transmit(0, frame);
                room -= 1;
                continue;
            }
            let Some(received) = self.socket.receive() else {
                break;
            };
            took += 1;
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
        if took > 0 {
            self.socket.release();
        }
        let now = ports.now();
        if self.retry_at.is_some_and(|at| now >= at) {
            self.flush(now);
        }
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        // One that has come up a moment ago loses no frame to the time until the next tick.
        if !self.interface.is_up && self.watch.has_changed() {
            self.look();
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
            self.look();
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
    /// Puts a frame into the send ring; returns how many places it took.
    fn send(&mut self, frame: &Frame) -> usize {
        let header = header_of(frame);
        if header.segments.is_none() {
            return self.put(&header.bytes(), frame.bytes());
        }
        // The ring has places for frames of the MTU.
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
        let most = self.interface.mtu + MAC_HEADER_BYTES + if is_tagged { TAG_BYTES } else { 0 };
        let most = most.min(self.socket.frame_bytes_max());
        if !(MAC_HEADER_BYTES + 1..=most).contains(&bytes.len()) {
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
                self.look();
            }
        }
    }

    /// Looks at the interface, which may be a new one of the same name.
    fn look(&mut self) {
        let found = self
            .elsewhere
            .within(|| Interface::named(&self.config.interface));
        match found {
            Ok(Ok(found)) => {
                let is_new = found.index != self.interface.index;
                let is_bound = !is_new || self.socket.bind(&found).is_ok();
                if is_new && self.config.promiscuous {
                    // It was possible before; without it frames for this station still come.
                    let _ = self.socket.be_promiscuous(&found);
                }
                self.interface = Interface {
                    is_up: found.is_up && is_bound,
                    // One that could not be bound is tried again.
                    index: if is_bound { found.index } else { 0 },
                    ..found
                };
            }
            _ => self.interface.is_up = false,
        }
        self.counters.is_up.set(u64::from(self.interface.is_up));
    }
}

/// How often the interface is looked at for changes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long frames wait for an interface that takes nothing.
const PATIENCE: Duration = Duration::from_millis(10);
/// When frames that the kernel did not take are offered again.
const RETRY_AFTER: Duration = Duration::from_micros(50);
