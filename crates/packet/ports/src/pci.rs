//! **pci**: a network card that this process drives itself, without the kernel.
//!
//! - inputs: `input`: frames to send
//! - outputs: `output`: received frames
//! - configuration:
//!   - `address`: PCI address of the card, such as `0000:00:04.0`
//!   - `mtu`: 68 to 9000 (default: 1500)
//!   - `ring`: descriptors per ring, a power of two from 64 to 4096 (default: 512)
//!   - `queues`: number of ring pairs; the card distributes received frames over them by addresses
//!     and ports (default: 1)
//!   - `promiscuous`: also receive frames for other stations (default: `true`)
//!   - `access`: `sysfs`, `vfio` or `auto` (default: `auto`)
//!   - `force`: use the card even if routes of this host lead through it (default: `false`)
//! - counters: `is_up`: 1 while the link is up; `speed_mbps`; `resets`; `missed`: received frames
//!   for which the card had no buffer; `drop_receive_errors`: frames that arrived damaged;
//!   `drop_too_long`: frames longer than the MTU allows, in either direction; `drop_short`: frames
//!   to send without a whole MAC header; `bad_descriptors`: invalid descriptors that the card
//!   wrote; `pool_empty`: bursts that ended early because the pool had no frame; `drop_no_frame`:
//!   received frames for which the pool had no frame; `drop_unsupported`: frames with an unknown
//!   offload request; `drop_down`: frames to send while the link was down; `drop_no_room`: frames
//!   to send while the card sent nothing for 1 s, or for 10 ms if several ports send to this one;
//!   `drop_reset`: frames that were in the card when it was reset
//! - cost: one copy in each direction, and one register write per burst and direction
//!
//! While no frame arrives, the app polls the card after 20 µs, then after twice the interval each
//! time, up to 500 µs. It resets a card that holds frames but sends none for 2 s although its link
//! is up.
//!
//! When the app ends, the kernel driver that had the card gets it back
//! ([docs/reference/nic.md](../../../../docs/reference/nic.md)).

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Opened, Outside, Port, PortList, Ports,
    Sole, WhenFull, made,
};
use carina_netdev::{MAC_HEADER_BYTES, plain_frames};
use carina_nic::pci::parse_address;
use carina_nic::{AccessMethod, Nic, NicConfig};
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};
use std::any::Any;

use crate::offload::header_of;

/// The configuration of the app `pci`, which connects a graph to a network card that this process
/// drives itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciConfig {
    /// PCI address of the card.
    pub address: String,
    /// Length of the longest IP packet, in bytes.
    #[serde(default = "mtu")]
    pub mtu: usize,
    /// Number of descriptors per ring.
    #[serde(default = "ring")]
    pub ring: u16,
    /// Number of ring pairs to use; the card distributes received frames over them.
    #[serde(default = "one")]
    pub queues: usize,
    /// Whether the port receives also frames for MAC addresses other than its own (promiscuous
    /// mode).
    #[serde(default = "yes")]
    pub promiscuous: bool,
    /// The kernel interface by which Carina accesses the card.
    #[serde(default)]
    pub access: PciAccess,
    /// Whether to use the card even if this host routes through it.
    #[serde(default)]
    pub force: bool,
}

/// The kernel interface by which Carina accesses a network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PciAccess {
    /// Access the card through VFIO if it is behind an IOMMU, else through sysfs.
    #[default]
    Auto,
    /// Access the card through its files in sysfs.
    Sysfs,
    /// Access the card through VFIO.
    Vfio,
}

fn mtu() -> usize {
    NicConfig::default().mtu
}

fn ring() -> u16 {
    NicConfig::default().ring
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// Why a configuration of the app `pci` is invalid.
#[derive(Debug, thiserror::Error)]
enum PciError {
    #[error("address = {0:?}: write a PCI address as 0000:00:04.0")]
    Address(String),
    #[error(
        "mtu = {mtu}: frames of the pool have {frame_bytes} bytes, which is too few; give \
         --frame-bytes {needed}"
    )]
    Pool {
        mtu: usize,
        frame_bytes: usize,
        needed: usize,
    },
}

/// The running app `pci`: connects a graph to a network card that this process drives itself.
pub struct Pci {
    nic: Nic,
    pool: Pool,
    counters: Counters,
    is_up: bool,
    /// The queue from which the next visit receives first.
    first: usize,
    /// The queue on which the next frames are sent.
    sender: usize,
    /// Interval until the card is polled again.
    pause: Duration,
    look_at: Instant,
    /// When a frame was last taken from the input.
    moved_at: Instant,
    /// Since when the card has held frames without sending any; `None` while it sends.
    stuck_since: Option<Instant>,
}

struct Counters {
    is_up: Counter,
    speed: Counter,
    resets: Counter,
    missed: Counter,
    receive_errors: Counter,
    too_long: Counter,
    short: Counter,
    bad_descriptors: Counter,
    pool_empty: Counter,
    no_frame: Counter,
    unsupported: Counter,
    down: Counter,
    no_room: Counter,
    reset: Counter,
    /// The card's own count of frames that did not fit into a buffer, when it was last read.
    cards_too_long: u64,
}

impl PciConfig {
    /// The PCI address, with its domain.
    fn place(&self) -> Result<String, PciError> {
        let address = parse_address(&self.address);
        address.ok_or_else(|| PciError::Address(self.address.clone()))
    }

    /// The configuration of the driver.
    fn card(&self) -> NicConfig {
        NicConfig {
            mtu: self.mtu,
            ring: self.ring,
            queues: self.queues,
            is_promiscuous: self.promiscuous,
            access_method: match self.access {
                PciAccess::Auto => AccessMethod::Auto,
                PciAccess::Sysfs => AccessMethod::Sysfs,
                PciAccess::Vfio => AccessMethod::Vfio,
            },
            is_forced: self.force,
        }
    }
}

impl AppConfig for PciConfig {
    const KIND: &'static str = "pci";
    const INPUTS: PortList = PortList::Named(&[Port::optional("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("output")]);
    const TICK: Option<Duration> = Some(LOOK_EVERY);
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;
    const OPENS: bool = true;

    type App = Pci;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn check(&self) -> Result<(), AppError> {
        self.place()?;
        Ok(self.card().check()?)
    }

    fn outside(&self) -> Outside {
        Outside::Something
    }

    fn frame_bytes(&self) -> usize {
        self.mtu + MAC_HEADER_BYTES + carina_netdev::TAG_BYTES
    }

    fn sole(&self) -> Vec<Sole> {
        let address = self.place().unwrap_or_else(|_| self.address.clone());
        vec![Sole::new("card", address, "only one app can drive a card")]
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<Pci, AppError> {
        let pool = context.pool().clone();
        let needed = self.frame_bytes();
        if pool.frame_bytes() < needed {
            let (mtu, frame_bytes) = (self.mtu, pool.frame_bytes());
            return Err(PciError::Pool {
                mtu,
                frame_bytes,
                needed,
            }
            .into());
        }
        let nic = Nic::open(&self.place()?, &self.card())?;
        let counters = Counters {
            is_up: context.counter("is_up"),
            speed: context.counter("speed_mbps"),
            resets: context.counter("resets"),
            missed: context.counter("missed"),
            receive_errors: context.counter("drop_receive_errors"),
            too_long: context.counter("drop_too_long"),
            short: context.counter("drop_short"),
            bad_descriptors: context.counter("bad_descriptors"),
            pool_empty: context.counter("pool_empty"),
            no_frame: context.counter("drop_no_frame"),
            unsupported: context.counter("drop_unsupported"),
            down: context.counter("drop_down"),
            no_room: context.counter("drop_no_room"),
            reset: context.counter("drop_reset"),
            cards_too_long: 0,
        };
        let mut app = Pci {
            nic,
            pool,
            counters,
            is_up: false,
            first: 0,
            sender: 0,
            pause: PAUSE_MIN,
            look_at: Instant::ZERO,
            moved_at: Instant::ZERO,
            stuck_since: None,
        };
        app.wait_for_link();
        Ok(app)
    }
}

impl FrameApp for Pci {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        let queues = self.nic.queues();
        let mut room = ports.room(0).min(FRAME_BURST);
        let mut came = 0;
        for turn in 0..queues {
            if room == 0 {
                break;
            }
            let queue = (self.first + turn) % queues;
            let (pool, counters) = (&self.pool, &self.counters);
            let mut taken = 0;
            self.nic.receive(queue, room, |received| {
                taken += 1;
                if received.len() < MAC_HEADER_BYTES {
                    counters.short.add(1);
                    return true;
                }
                let Some(mut frame) = pool.take() else {
                    counters.no_frame.add(1);
                    counters.pool_empty.add(1);
                    return false;
                };
                if received.len() > pool.frame_bytes() || !frame.set_len(received.len()) {
                    counters.too_long.add(1);
                    return true;
                }
                received.copy_to(frame.bytes_mut());
                frame.set_hash(received.hash());
                ports.transmit(0, frame);
                true
            });
            came += taken;
            room = room.saturating_sub(taken);
        }
        self.first = (self.first + 1) % queues;
        self.note_activity(came > 0, ports.now());
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        if !self.is_up {
            let down = &self.counters.down;
            return ports.drain(0, |_| down.add(1));
        }
        let queue = self.sender;
        self.sender = (queue + 1) % self.nic.queues();
        let (mut room, mut taken) = (self.nic.room(queue), 0);
        while room > 0 {
            let Some(frame) = ports.receive(0) else {
                break;
            };
            room = room.saturating_sub(send(&mut self.nic, queue, room, &frame, &self.counters));
            taken += 1;
        }
        self.nic.flush(queue);
        if taken > 0 {
            self.moved_at = now;
            self.note_activity(true, now);
        } else {
            let patience = if ports.has_back_pressure(0) {
                PATIENCE
            } else {
                PATIENCE_SHARED
            };
            if now.since(self.moved_at) > patience {
                let no_room = &self.counters.no_room;
                ports.drain(0, |_| no_room.add(1));
            }
        }
    }

    fn tick(&mut self, ports: &mut Ports<'_>) {
        self.read_state();
        self.find_stuck(ports.now());
    }

    fn arm(&mut self) -> bool {
        // The card raises no event; the worker polls it by time.
        true
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.look_at)
    }
}

/// Writes a frame into the card's ring, with checksums completed and segmented; returns the number
/// of slots used.
fn send(nic: &mut Nic, queue: usize, room: usize, frame: &Frame, counters: &Counters) -> usize {
    let bytes_max = nic.frame_bytes_max();
    let mut places = 0;
    let mut put = |bytes: &[u8]| match bytes.len() {
        0..MAC_HEADER_BYTES => counters.short.add(1),
        len if len > bytes_max => counters.too_long.add(1),
        _ if places >= room => counters.no_room.add(1),
        _ => {
            nic.put(queue, bytes);
            places += 1;
        }
    };
    let header = header_of(frame);
    if header.checksum.is_none() && header.segments.is_none() {
        put(frame.bytes());
    } else {
        let made = plain_frames(&header.bytes(), frame.bytes(), put);
        counters.unsupported.add(u64::from(made.is_err()));
    }
    places
}

impl Pci {
    /// Waits until the link is up, which takes some time after the reset when the card was opened.
    fn wait_for_link(&mut self) {
        let begin = std::time::Instant::now();
        self.read_state();
        while !self.is_up && begin.elapsed() < LINK_PATIENCE {
            std::thread::sleep(std::time::Duration::from_millis(10));
            self.read_state();
        }
    }

    #[inline]
    fn note_activity(&mut self, is_active: bool, now: Instant) {
        if is_active {
            self.pause = PAUSE_MIN;
            self.look_at = now;
        } else if now >= self.look_at {
            self.look_at = now + self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// Reads the link state and the card's own counters.
    fn read_state(&mut self) {
        let (link, counts) = (self.nic.link(), self.nic.counts());
        self.is_up = link.is_up;
        let counters = &mut self.counters;
        counters.is_up.set(u64::from(link.is_up));
        counters.speed.set(u64::from(link.speed_mbps));
        counters.missed.set(counts.missed);
        counters.receive_errors.set(counts.receive_errors);
        counters.bad_descriptors.set(counts.bad_descriptors);
        let before = std::mem::replace(&mut counters.cards_too_long, counts.too_long);
        counters.too_long.add(counts.too_long - before);
        if self.nic.is_broken() {
            self.reset();
        }
    }

    /// Resets the card if it has a link and holds frames, but has sent none for [`STUCK`].
    fn find_stuck(&mut self, now: Instant) {
        let queues = 0..self.nic.queues();
        let before: usize = queues.clone().map(|queue| self.nic.in_flight(queue)).sum();
        queues.clone().for_each(|queue| {
            self.nic.room(queue);
        });
        let after: usize = queues.map(|queue| self.nic.in_flight(queue)).sum();
        if after == 0 || after < before || !self.is_up {
            self.stuck_since = None;
            return;
        }
        let since = *self.stuck_since.get_or_insert(now);
        if now.since(since) >= STUCK {
            self.reset();
        }
    }

    fn reset(&mut self) {
        self.stuck_since = None;
        // If the reset fails, the next attempt comes when the card has been stuck for another 2 s.
        if let Ok(lost) = self.nic.reset() {
            self.counters.reset.add(lost as u64);
        }
        self.counters.resets.add(1);
    }
}

/// How often to read link state and counters.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long frames wait for a card that accepts none, if this delays no other port.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long frames wait for a card that accepts none, if this delays other ports: waiting frames
/// occupy links and frames of the pool.
const PATIENCE_SHARED: Duration = Duration::from_millis(10);
/// How long a card may hold frames without sending any before it is reset.
const STUCK: Duration = Duration::from_secs(2);
/// Shortest and longest interval between two polls of an idle card.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_micros(500);
/// How long to wait for the link when the card is opened.
const LINK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
