//! **vhost_user**: a guest's network card (virtio-net), connected by the vhost-user socket of its
//! QEMU.
//!
//! - inputs: `input`: frames for the guest
//! - outputs: `output`: frames from the guest
//! - configuration:
//!   - `socket`: path of the socket
//!   - `client`: whether the guest's process creates the socket and the app connects to it
//!     (default: `false`: the app creates it)
//!   - `queues`: number of ring pairs, 1 to 8 (default: 1)
//!   - `packed`, `mergeable`, `indirect`, `event_index`: whether to offer these features (default:
//!     `true`)
//!   - `offload`: accept frames from the guest with checksums missing and, if frames of the pool
//!     are long enough (65554 bytes), with segmentation pending, and note this in their metadata
//!     (default: `false`)
//! - counters: `is_connected`: 1 while a front end is connected; `has_memory`: 1 while the front
//!   end shares a guest's memory; `rings_running`: rings that the guest's driver has started;
//!   `connections`; `announcements`: RARP frames sent on behalf of migrated guests that do not
//!   announce themselves; `refused_messages`: connections closed because of an invalid message;
//!   `ring_faults`: connections closed because of what the guest wrote into a ring, or because a
//!   page of its memory was inaccessible; `pool_empty`: bursts that ended early because the pool
//!   had no frame; `drop_length`: frames from the guest that are shorter than a MAC header or
//!   longer than a frame of the pool; `drop_unsupported`: frames from the guest whose offload
//!   request is unknown or does not fit them; `drop_no_frame`: frames from the guest for which the
//!   pool had no frame; `drop_no_guest`: frames for the guest while none is connected or its driver
//!   has started no ring; `drop_no_room`: frames for a guest that has offered no buffer for so long
//!   that it seems to have stopped; `drop_too_long`: frames for the guest that are longer than its
//!   buffer or than the MTU that its process has set (`host_mtu` of QEMU); `drop_unfinished`:
//!   frames for a guest that accepts no offload work, if the work is unknown or the pool had no
//!   frame for its result
//! - cost: one copy in each direction. No system call per frame; at most one per burst, if the
//!   guest's driver asks for notifications
//!
//! Frames for a guest with several queues are distributed by their addresses and ports, so that the
//! frames of a flow stay in order.
//!
//! If a guest offers no buffers, its frames wait on the link. If this delays no other port (the
//! link has back-pressure: `card.input` is linked to a port, directly or through a filter), the
//! sending port reads no more meanwhile, and new frames wait in that port's queue. After 1 s
//! without a buffer, or 10 ms if several ports send to this one, the app drops the waiting frames,
//! and all that follow until the guest offers buffers again.

use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Opened, Outside, Port, PortList, Ports,
    Sole, WhenFull, made,
};
use carina_sys::Interest;
use carina_time::{Duration, Instant};
use carina_vhost_user::features::{self, net};
use carina_vhost_user::{Half, Offer, Port as Socket, PortConfig, Role};

use self::announcement::announcement;
pub use self::config::VhostUserConfig;
use self::from_guest::FromGuest;
use self::to_guest::ToGuest;
use crate::offload::Intake;

mod announcement;
mod config;
mod from_guest;
mod to_guest;

/// The running app `vhost_user`: connects a graph to the network card of a guest.
pub struct VhostUser {
    socket: Socket,
    from_guest: FromGuest,
    to_guest: ToGuest,
    pairs: Box<[Pair]>,
    queues: usize,
    /// The pair of rings that the next visit serves first.
    first: usize,
    is_armed: bool,
    /// When the app drops waiting frames. `None` unless all of them wait for buffers of the guest.
    gives_up_at: Option<Instant>,
    counters: Counters,
}

/// State of one pair of rings, for frames to the guest.
#[derive(Default)]
struct Pair {
    /// Frames already taken from the link: segments of a longer frame, or frames assigned to this
    /// pair.
    backlog: VecDeque<Frame>,
    /// Since when frames wait because the guest offers no buffer; `None` if none wait for this
    /// reason.
    blocked_since: Option<Instant>,
}

struct Counters {
    is_connected: Counter,
    has_memory: Counter,
    rings_running: Counter,
    connections: Counter,
    announcements: Counter,
    refused_messages: Counter,
    ring_faults: Counter,
    no_guest: Counter,
    no_room: Counter,
}

impl AppConfig for VhostUserConfig {
    const KIND: &'static str = "vhost_user";
    const INPUTS: PortList = PortList::Named(&[Port::optional("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("output")]);
    const TICK: Option<Duration> = Some(COUNT_EVERY);
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;
    const OPENS: bool = true;

    type App = VhostUser;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn check(&self) -> Result<(), AppError> {
        Ok(self.check_limits()?)
    }

    fn outside(&self) -> Outside {
        Outside::Something
    }

    fn sole(&self) -> Vec<Sole> {
        let socket = self.socket.as_os_str().as_bytes();
        vec![Sole::new(
            "socket",
            socket,
            "a socket belongs to one guest's card",
        )]
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<VhostUser, AppError> {
        let socket = Socket::new(&PortConfig {
            path: self.socket.clone(),
            role: if self.client {
                Role::Client
            } else {
                Role::Server
            },
            offer: Offer {
                features: self.features(),
                rings: 2 * self.queues,
                mtu_max: mtu_max(context.pool()),
                config: None,
            },
        })?;
        let intake = || Intake {
            pool: context.pool().clone(),
            keeps_offload: self.offload,
        };
        Ok(VhostUser {
            socket,
            from_guest: FromGuest::new(intake(), context),
            to_guest: ToGuest::new(intake(), context),
            pairs: (0..self.queues).map(|_| Pair::default()).collect(),
            queues: self.queues,
            first: 0,
            is_armed: false,
            gives_up_at: None,
            counters: Counters {
                is_connected: context.counter("is_connected"),
                has_memory: context.counter("has_memory"),
                rings_running: context.counter("rings_running"),
                connections: context.counter("connections"),
                announcements: context.counter("announcements"),
                refused_messages: context.counter("refused_messages"),
                ring_faults: context.counter("ring_faults"),
                no_guest: context.counter("drop_no_guest"),
                no_room: context.counter("drop_no_room"),
            },
        })
    }
}

impl FrameApp for VhostUser {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        let mut room = self.from_guest.put_backlog(ports);
        if let Some(mut device) = self.socket.try_lock() {
            if room > 0
                && let Some(mac) = device.take_announcement()
            {
                let frame = self.from_guest.pool().frame_of(&announcement(mac));
                let mut frame = frame.into_iter();
                let sent = ports.fill(0, 1, || frame.next());
                self.counters.announcements.add(sent as u64);
                room -= sent;
            }
            let features = device.features();
            for at in 0..self.queues {
                let pair = (self.first + at) % self.queues;
                let Some(mut ring) = device.ring(2 * pair + FROM_GUEST) else {
                    continue;
                };
                let taken = match &mut ring.half {
                    Half::Split(half) => self.from_guest.take(half, features, ports, room),
                    Half::Packed(half) => self.from_guest.take(half, features, ports, room),
                };
                match taken {
                    Ok(0) => continue,
                    Ok(count) => room -= count.min(room),
                    Err(fault) => {
                        device.cut_off(fault);
                        break;
                    }
                }
                ring.signal();
                if room == 0 {
                    break;
                }
            }
        }
        self.first = (self.first + 1) % self.queues;
        if self.has_backlog() {
            self.send(ports);
        }
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        self.send(ports);
    }

    fn tick(&mut self, _: &mut Ports<'_>) {
        if let Some(mut device) = self.socket.try_lock() {
            self.counters.has_memory.set(u64::from(device.has_memory()));
            let rings = (0..2 * self.queues).filter(|ring| device.ring(*ring).is_some());
            self.counters.rings_running.set(rings.count() as u64);
        }
        let counts = self.socket.counts();
        self.counters.is_connected.set(counts.is_connected);
        self.counters.connections.set(counts.connections);
        self.counters.refused_messages.set(counts.refused);
        self.counters.ring_faults.set(counts.faults);
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.wait_fd(), Interest::ReadEdge))
    }

    fn arm(&mut self) -> bool {
        self.is_armed = true;
        self.socket.clear_events();
        let is_busy = self.has_backlog() && !self.is_blocked();
        if self.from_guest.has_backlog() || is_busy {
            return false;
        }
        let Some(mut device) = self.socket.try_lock() else {
            return false;
        };
        let mut arm = |ring| device.ring(ring).is_none_or(|ring| ring.half.any().arm());
        let mut pairs = self.pairs.iter().enumerate();
        let is_armed = pairs.all(|(pair, state)| {
            let has_no_buffer = state.blocked_since.is_none() || arm(2 * pair);
            has_no_buffer && arm(2 * pair + FROM_GUEST)
        });
        // If the guest's memory is inaccessible, the next visit must close the connection. No event
        // would wake the app for it, so it must not sleep.
        is_armed && !device.is_memory_lost()
    }

    fn disarm(&mut self) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        if let Some(mut device) = self.socket.try_lock() {
            for ring in 0..2 * self.queues {
                if let Some(ring) = device.ring(ring) {
                    ring.half.any().disarm();
                }
            }
        }
    }

    fn is_blocked(&self) -> bool {
        self.gives_up_at.is_some()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.gives_up_at
    }
}

impl VhostUser {
    fn has_backlog(&self) -> bool {
        self.pairs.iter().any(|pair| !pair.backlog.is_empty())
    }

    /// Sends the guest the frames of the backlogs, then those at the input.
    fn send(&mut self, ports: &mut Ports<'_>) {
        self.gives_up_at = None;
        let Some(mut device) = self.socket.try_lock() else {
            return;
        };
        let (features, mtu) = (device.features(), device.mtu());
        let running = (0..self.queues).filter(|pair| device.ring(2 * pair).is_some());
        let running = running.count();
        if running == 0 {
            drop(device);
            for pair in &mut self.pairs {
                pair.discard(&self.counters.no_guest);
                pair.blocked_since = None;
            }
            return discard_all(ports, &self.counters.no_guest);
        }
        if running > 1 {
            to_guest::spread(ports, &mut self.pairs[..running], &self.counters.no_room);
        }
        for pair in 0..running {
            let Some(mut ring) = device.ring(2 * pair) else {
                continue;
            };
            let source = to_guest::Source {
                bytes_max: bytes_max(mtu),
                backlog: &mut self.pairs[pair].backlog,
                link: (running == 1).then_some(&mut *ports),
            };
            let sent = match &mut ring.half {
                Half::Split(half) => self.to_guest.send(half, features, source),
                Half::Packed(half) => self.to_guest.send(half, features, source),
            };
            match sent {
                Ok(0) => {
                    let on_link = if running == 1 { ports.waiting(0) } else { 0 };
                    self.pairs[pair].found_no_buffer(on_link, ports.now());
                }
                Ok(_) => {
                    self.pairs[pair].blocked_since = None;
                    ring.signal();
                }
                Err(fault) => {
                    device.cut_off(fault);
                    break;
                }
            }
        }
        drop(device);
        self.wait(ports, running);
    }

    /// Drops frames that have waited too long for buffers, and sets the time at which the others
    /// are dropped.
    fn wait(&mut self, ports: &mut Ports<'_>, running: usize) {
        let patience = if ports.has_back_pressure(0) {
            PATIENCE
        } else {
            PATIENCE_SHARED
        };
        let (now, mut is_blocked, mut first) = (ports.now(), true, None);
        for pair in &mut self.pairs[..running] {
            let on_link = if running == 1 { ports.waiting(0) } else { 0 };
            let Some(since) = pair.blocked_since else {
                is_blocked &= pair.backlog.len() + on_link == 0;
                continue;
            };
            if now.since(since) >= patience {
                pair.discard(&self.counters.no_room);
                if running == 1 {
                    discard_all(ports, &self.counters.no_room);
                }
            } else {
                first = Some(first.map_or(since, |first: Instant| first.min(since)));
            }
        }
        self.gives_up_at = first.filter(|_| is_blocked).map(|since| since + patience);
    }
}

impl Pair {
    /// Notes that nothing could be sent, if frames wait in the backlog or on the link.
    fn found_no_buffer(&mut self, on_link: usize, now: Instant) {
        if self.backlog.len() + on_link > 0 {
            self.blocked_since.get_or_insert(now);
        }
    }

    /// Drops all frames of the backlog.
    #[cold]
    fn discard(&mut self, counter: &Counter) {
        counter.add(self.backlog.len() as u64);
        self.backlog.clear();
    }
}

/// Drops all frames at the input.
#[cold]
fn discard_all(ports: &mut Ports<'_>, counter: &Counter) {
    counter.add(ports.waiting(0) as u64);
    ports.drain(0, drop);
}

/// The largest MTU with which frames fit into the pool, with a MAC header and a tag.
fn mtu_max(pool: &Pool) -> u16 {
    let bytes = pool.frame_bytes().saturating_sub(ETHER_TAGGED_BYTES);
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// Length of the longest frame for a driver with this MTU, in bytes.
fn bytes_max(mtu: Option<u16>) -> usize {
    mtu.map_or(usize::MAX, |mtu| usize::from(mtu) + ETHER_TAGGED_BYTES)
}

/// Length of a MAC header with a VLAN tag, which the MTU does not include. (IEEE 802.1Q §9)
const ETHER_TAGGED_BYTES: usize = 18;

/// Position of the ring from the guest within its pair. (VIRTIO 1.2 §5.1.2)
const FROM_GUEST: usize = 1;

/// How often the counters of the socket are updated.
const COUNT_EVERY: Duration = Duration::from_millis(100);

/// How long frames wait for a guest that offers no buffers, if this delays no other port.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long frames wait for a guest that offers no buffers, if this delays other ports: waiting
/// frames occupy links and frames of the pool. Long enough for a guest whose virtual processor is
/// preempted for one time slice.
const PATIENCE_SHARED: Duration = Duration::from_millis(10);

/// Length of the header in front of a frame, in bytes. (VIRTIO 1.2 §5.1.6)
fn header_bytes(features: u64) -> usize {
    match features & (features::VERSION_1 | net::MRG_RXBUF) {
        0 => HEADER_BYTES - 2,
        _ => HEADER_BYTES,
    }
}

const HEADER_BYTES: usize = 12;

/// Largest number of frames that a visit takes from a ring.
const BURST: usize = FRAME_BURST;
