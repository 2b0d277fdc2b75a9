//! **vhost_user**: the network card of a guest (virtio-net), by the vhost-user socket of its QEMU.
//!
//! - inputs: `input`: frames for the guest
//! - outputs: `output`: frames from the guest
//! - configuration:
//!   - `socket`: path of the socket
//!   - `client`: the guest's process makes the socket, and the app connects to it; `false` where
//!     nothing is said: the app makes it
//!   - `queues`: pairs of rings, 1 to 8; 1 where nothing is said
//!   - `packed`, `mergeable`, `indirect`, `event_index`: whether these features are offered; `true`
//!     where nothing is said
//!   - `offload`: take frames from the guest without having their checksums filled in, and, where
//!     those of the pool are long enough (65554 bytes), long ones cut; `false` where nothing is
//!     said
//! - counters: `is_connected`: 1 while a front end is; `connections`; `refused_messages` and
//!   `ring_faults`: connections that were cut, because of a message or of what the guest wrote into
//!   a ring; `pool_empty`: bursts cut short because the pool had no frame; `drop_length`: from the
//!   guest, shorter than a MAC header or longer than a frame of the pool; `drop_unsupported`:
//!   offload work that is not known or does not fit the frame; `drop_no_frame`: from the guest, and
//!   the pool had no frame for it; `drop_no_guest`: for a guest that is not there, or whose driver
//!   has no ring; `drop_no_room`: the guest gave no buffer for 1 ms; `drop_too_long`: for the
//!   guest, longer than its buffer; `drop_unfinished`: for a guest that takes no offload work,
//!   which is not known or for which the pool had no frame
//! - cost: one copy each way. No system call for a frame; at most one for a burst, where the
//!   guest's driver asks to be signalled
//!
//! Frames for a guest with several queues are spread by their addresses and ports, so that those of
//! a flow stay in order.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use carina_engine::counter_file::Counter;
use carina_engine::frames::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Port, PortList, Ports,
};
use carina_frame::Frame;
use carina_sys::Interest;
use carina_time::{Duration, Instant};
use carina_vhost_user::features::{self, net};
use carina_vhost_user::{Half, Offer, Port as Socket, PortConfig, Role};
use serde::{Deserialize, Serialize};

use self::from_guest::FromGuest;
use self::to_guest::ToGuest;
use crate::offload::Intake;

mod from_guest;
mod to_guest;

/// The configuration of a guest's card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VhostUserConfig {
    /// Path of the socket.
    pub socket: PathBuf,
    /// The guest's process makes the socket.
    #[serde(default)]
    pub client: bool,
    /// Pairs of rings.
    #[serde(default = "one")]
    pub queues: usize,
    /// Packed rings are offered.
    #[serde(default = "yes")]
    pub packed: bool,
    /// A frame may take several buffers.
    #[serde(default = "yes")]
    pub mergeable: bool,
    /// Tables of descriptors are offered.
    #[serde(default = "yes")]
    pub indirect: bool,
    /// Each end says at which index it wants to be notified.
    #[serde(default = "yes")]
    pub event_index: bool,
    /// Frames keep what is left to be done with them in their metadata.
    #[serde(default)]
    pub offload: bool,
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

impl VhostUserConfig {
    /// A socket that the app makes, with the defaults.
    #[must_use]
    pub fn at(socket: impl Into<PathBuf>) -> VhostUserConfig {
        VhostUserConfig {
            socket: socket.into(),
            client: false,
            queues: 1,
            packed: true,
            mergeable: true,
            indirect: true,
            event_index: true,
            offload: false,
        }
    }

    fn features(&self) -> u64 {
        let chosen = [
            (self.packed, features::RING_PACKED),
            (self.mergeable, net::MRG_RXBUF),
            (self.indirect, features::INDIRECT_DESC),
            (self.event_index, features::EVENT_IDX),
            (self.queues > 1, net::MQ),
        ];
        let chosen = chosen.into_iter().filter(|(is_offered, _)| *is_offered);
        let chosen: u64 = chosen.map(|(_, bit)| bit).sum();
        chosen
            | features::VERSION_1
            | features::IN_ORDER
            | features::ANY_LAYOUT
            | net::CSUM
            | net::GUEST_CSUM
            | net::HOST_TSO4
            | net::HOST_TSO6
            | net::GUEST_TSO4
            | net::GUEST_TSO6
            | net::GUEST_ANNOUNCE
    }
}

/// Why there is no such port.
#[derive(Debug, thiserror::Error)]
enum VhostUserError {
    #[error("queues = {0}: must be 1 to {QUEUES_MAX}")]
    Queues(usize),
}

/// The app.
pub struct VhostUser {
    socket: Socket,
    from_guest: FromGuest,
    to_guest: ToGuest,
    /// Frames for each pair of rings that are off the link: that were made of a longer one, or
    /// that were spread.
    backlogs: Box<[VecDeque<Frame>]>,
    queues: usize,
    /// The pair that is looked at first in the next visit.
    first: usize,
    is_armed: bool,
    /// Since when the guest gives no buffers to frames that wait.
    blocked_since: Option<Instant>,
    counters: Counters,
}

struct Counters {
    is_connected: Counter,
    connections: Counter,
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

    type App = VhostUser;

    fn build(&self, context: &mut AppContext<'_>) -> Result<VhostUser, AppError> {
        if !(1..=QUEUES_MAX).contains(&self.queues) {
            return Err(VhostUserError::Queues(self.queues).into());
        }
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
            backlogs: (0..self.queues).map(|_| VecDeque::new()).collect(),
            queues: self.queues,
            first: 0,
            is_armed: false,
            blocked_since: None,
            counters: Counters {
                is_connected: context.counter("is_connected"),
                connections: context.counter("connections"),
                refused_messages: context.counter("refused_messages"),
                ring_faults: context.counter("ring_faults"),
                no_guest: context.counter("drop_no_guest"),
                no_room: context.counter("drop_no_room"),
            },
        })
    }
}

impl FrameApp for VhostUser {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let mut room = self.from_guest.put_backlog(ports);
        if let Some(mut device) = self.socket.try_lock() {
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
        self.socket.silence();
        if self.from_guest.has_backlog() || self.has_backlog() {
            return false;
        }
        let Some(mut device) = self.socket.try_lock() else {
            return false;
        };
        (0..self.queues).all(|pair| {
            let ring = device.ring(2 * pair + FROM_GUEST);
            ring.is_none_or(|ring| ring.half.any().arm())
        })
    }

    fn disarm(&mut self) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        if let Some(mut device) = self.socket.try_lock() {
            for pair in 0..self.queues {
                if let Some(ring) = device.ring(2 * pair + FROM_GUEST) {
                    ring.half.any().disarm();
                }
            }
        }
    }
}

impl VhostUser {
    fn has_backlog(&self) -> bool {
        self.backlogs.iter().any(|backlog| !backlog.is_empty())
    }

    /// Gives the guest the frames of the backlogs, and then those that wait at the input.
    fn send(&mut self, ports: &mut Ports<'_>) {
        let Some(mut device) = self.socket.try_lock() else {
            return;
        };
        let features = device.features();
        let running = (0..self.queues).filter(|pair| device.ring(2 * pair).is_some());
        let running = running.count();
        if running == 0 {
            drop(device);
            return self.discard(ports, |counters| &counters.no_guest);
        }
        if running > 1 {
            let (backlogs, no_room) = (&mut self.backlogs, &self.counters.no_room);
            ports.drain(0, |frame| {
                let backlog = &mut backlogs[to_guest::flow(&frame) as usize % running];
                if backlog.len() < to_guest::BURST_TO_GUEST {
                    backlog.push_back(frame);
                } else {
                    no_room.add(1);
                }
            });
        }
        let mut moved = 0;
        for pair in 0..running {
            let Some(mut ring) = device.ring(2 * pair) else {
                continue;
            };
            let source = to_guest::Source {
                backlog: &mut self.backlogs[pair],
                link: (running == 1).then_some(&mut *ports),
            };
            let sent = match &mut ring.half {
                Half::Split(half) => self.to_guest.send(half, features, source),
                Half::Packed(half) => self.to_guest.send(half, features, source),
            };
            match sent {
                Ok(0) => {}
                Ok(count) => {
                    moved += count;
                    ring.signal();
                }
                Err(fault) => {
                    device.cut_off(fault);
                    break;
                }
            }
        }
        drop(device);
        let now = ports.now();
        if moved > 0 {
            self.blocked_since = None;
        } else if now.since(*self.blocked_since.get_or_insert(now)) > PATIENCE {
            self.discard(ports, |counters| &counters.no_room);
        }
    }

    /// Drops what waits for the guest.
    #[cold]
    fn discard(&mut self, ports: &mut Ports<'_>, reason: fn(&Counters) -> &Counter) {
        let counter = reason(&self.counters);
        for backlog in &mut self.backlogs {
            counter.add(backlog.len() as u64);
            backlog.clear();
        }
        ports.drain(0, |_| counter.add(1));
    }
}

/// Of a pair of rings, that from the guest is the second. (VIRTIO 1.2 §5.1.2)
const FROM_GUEST: usize = 1;

/// The most pairs of rings.
const QUEUES_MAX: usize = 8;

/// How old counts of the socket may be.
const COUNT_EVERY: Duration = Duration::from_millis(100);

/// How long frames wait for a guest that gives no buffers.
const PATIENCE: Duration = Duration::from_millis(1);

/// Bytes of the header in front of a frame. (VIRTIO 1.2 §5.1.6)
fn header_bytes(features: u64) -> usize {
    match features & (features::VERSION_1 | net::MRG_RXBUF) {
        0 => HEADER_BYTES - 2,
        _ => HEADER_BYTES,
    }
}

const HEADER_BYTES: usize = 12;

/// At most a burst is taken in a visit.
const BURST: usize = FRAME_BURST;
