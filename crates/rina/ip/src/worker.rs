//! A thread of a member: moves packets between one queue of the TUN interface and the flows that
//! are its own. Workers share no flow, so that packets of a connection keep their order.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_api::DifName;
use carina_client::Node;
use carina_netdev::{Tap, TapResult};
use carina_sys::{Epoll, Interest, Ready, cpus_allowed};

use crate::counters::{Counters, Reason};
use crate::cut::Pieces;
use crate::directory::{Carried, DirectoryAsker};
use crate::error::IpError;
use crate::icmp::ErrorLimit;
use crate::prefix::IpPrefix;
use crate::router::{FlowId, Router};
use crate::status::FlowStatus;

mod direct;
pub(crate) mod inbox;
mod incoming;
mod outgoing;
mod precedence;
mod slots;

use direct::Bulk;
use inbox::{Inbox, Message, Report};
use incoming::Incoming;
use outgoing::Outgoing;
use precedence::Precedence;
use slots::Slots;

/// What all workers of a member know.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub dif: DifName,
    pub tun: String,
    /// MTU of the interface, in bytes.
    pub mtu: usize,
    pub carried: Carried,
    /// Time without packets after which a flow is deallocated.
    pub idle: Duration,
    /// The prefixes that this member has registered.
    pub own: Vec<IpPrefix>,
    /// Number of workers.
    pub workers: usize,
    pub node: Node,
    pub directory: DirectoryAsker,
}

/// Moves packets between one queue of the interface and its own flows.
#[derive(Debug)]
pub(crate) struct Worker {
    link: Link,
    tap: Tap,
    epoll: Epoll,
    ready: Vec<Ready>,
    /// Messages of the member's first worker; `None` for the first worker itself.
    inbox: Option<Arc<Inbox>>,
    /// When the worker must report its state, which has changed; `None` if nothing is to be
    /// reported.
    report_at: Option<Instant>,
    is_stopped: bool,
    pub router: Router,
    outgoing: BTreeMap<FlowId, Outgoing>,
    incoming: BTreeMap<u32, Incoming>,
    last_incoming: u32,
    /// Incoming flows with SDUs that were not read in their turn.
    unread: BTreeSet<u32>,
    /// The flow of long packets, into whose ring the next packet is read.
    bulk: Option<Bulk>,
    /// Until when no packet is read from the kernel, because a flow is full; `None` if packets are
    /// read.
    pause: Option<Instant>,
    sweep_at: Instant,
    precedence: Precedence,
    pub counters: Counters,
    error_limit: ErrorLimit,
    slots: Slots,
    /// The segments of the last packet that was cut.
    pieces: Pieces,
}

impl Worker {
    /// Makes the worker of a queue. `inbox`: messages of the first worker.
    ///
    /// # Errors
    /// The system refuses to wait for the queue.
    pub(crate) fn new(link: Link, tap: Tap, inbox: Option<Arc<Inbox>>) -> Result<Worker, IpError> {
        let failed = || IpError::system(WAITING);
        let epoll = Epoll::new().map_err(failed())?;
        epoll
            .add(&tap, token(TUN, 0), Interest::Read)
            .map_err(failed())?;
        if let Some(inbox) = &inbox {
            epoll
                .add(inbox.arrived(), token(INBOX, 0), Interest::Read)
                .map_err(failed())?;
        }
        Ok(Worker {
            router: Router::new(&link.own, link.idle, link.workers),
            sweep_at: Instant::now() + link.idle / 4,
            error_limit: ErrorLimit::of_worker(link.workers),
            link,
            tap,
            epoll,
            ready: Vec::new(),
            inbox,
            report_at: None,
            is_stopped: false,
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            last_incoming: 0,
            unread: BTreeSet::new(),
            bulk: None,
            pause: None,
            precedence: Precedence::new(cpus_allowed()),
            counters: Counters::default(),
            slots: Slots::new(),
            pieces: Pieces::default(),
        })
    }

    /// The queue of the interface.
    pub(crate) fn tap(&self) -> &Tap {
        &self.tap
    }

    /// Has [`Worker::turn`] report a descriptor of the caller under number `item` when it is
    /// readable.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn watch(&self, fd: impl AsFd, item: u32) -> Result<(), IpError> {
        let added = self.epoll.add(fd, token(CALLER, item), Interest::Read);
        added.map_err(IpError::system(WAITING))
    }

    /// Ends what [`Worker::watch`] began.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn unwatch(&self, fd: impl AsFd) -> Result<(), IpError> {
        self.epoll.del(fd).map_err(IpError::system(WAITING))
    }

    /// Moves packets until the message to stop arrives.
    ///
    /// # Errors
    /// The interface was removed, or the system refuses to wait.
    pub(crate) fn run(&mut self) -> Result<(), IpError> {
        self.is_stopped = false;
        let mut items = Vec::new();
        while !self.is_stopped {
            self.turn(None, &mut items)?;
        }
        Ok(())
    }

    /// Waits until packets or other events have arrived, or until `wake_at`, and handles them.
    /// Appends the numbers of the caller's descriptors that are readable to `items`. Returns the
    /// time at which the wait ended.
    ///
    /// # Errors
    /// The interface was removed, or the system refuses to wait.
    pub(crate) fn turn(
        &mut self,
        wake_at: Option<Instant>,
        items: &mut Vec<u32>,
    ) -> Result<Instant, IpError> {
        let wait = self.wait_ns(wake_at, Instant::now());
        let mut ready = std::mem::take(&mut self.ready);
        let waited = self.epoll.wait(&mut ready, wait);
        waited.map_err(IpError::system(WAITING))?;
        let now = Instant::now();
        let received = self.counters.bytes_received;
        for ready in &ready {
            let (kind, item) = ((ready.token >> 32) as u32, ready.token as u32);
            match kind {
                TUN => self.read_packets(now)?,
                INBOX => self.take_messages(),
                OUTGOING => self.progress(item, now),
                SPACE => self.flush(item, now),
                INCOMING => self.receive(item)?,
                _ => items.push(item),
            }
        }
        self.ready = ready;
        for id in std::mem::take(&mut self.unread) {
            self.receive(id)?;
        }
        self.precedence
            .note_received(self.counters.bytes_received - received, now);
        self.handle_due(now)?;
        Ok(now)
    }

    /// Nanoseconds until something is due although no descriptor is ready.
    fn wait_ns(&self, wake_at: Option<Instant>, now: Instant) -> Option<u64> {
        if !self.unread.is_empty() {
            return Some(0);
        }
        let deadlines = [wake_at, self.pause, self.report_at, Some(self.sweep_at)];
        let deadline = deadlines.into_iter().flatten().min()?;
        // Not before the deadline: the loop would find nothing due, and wait for no time again.
        Some(deadline.saturating_duration_since(now).as_nanos() as u64 + 1)
    }

    fn take_messages(&mut self) {
        let Some(inbox) = self.inbox.clone() else {
            return;
        };
        for message in inbox.take() {
            match message {
                Message::Members(members, is_complete) => {
                    self.router
                        .set_members(members.iter().copied(), is_complete);
                }
                Message::Flow(accepted) => self.adopt(*accepted),
                Message::Stop => self.is_stopped = true,
            }
        }
    }

    fn handle_due(&mut self, now: Instant) -> Result<(), IpError> {
        if self.pause.is_some_and(|until| until <= now) {
            let full = self.outgoing.values_mut();
            full.for_each(Outgoing::note_pause_ended);
            self.resume();
        }
        if self.sweep_at <= now {
            for id in self.router.poll_idle(now) {
                self.outgoing.remove(&id);
            }
            self.sweep_at = now + self.link.idle / 4;
            if !self.tap.is_attached() {
                return Err(self.removed());
            }
        }
        self.report(now);
        Ok(())
    }

    /// Reports the state after it has changed, but not for each burst of packets.
    fn report(&mut self, now: Instant) {
        let Some(inbox) = &self.inbox else {
            return;
        };
        match self.report_at {
            None => self.report_at = Some(now + REPORT_AFTER),
            Some(at) if at <= now => {
                inbox.put_report(self.state());
                self.report_at = None;
            }
            Some(_) => {}
        }
    }

    /// Reads a burst of packets from the kernel and sends each.
    fn read_burst(&mut self, now: Instant) -> Result<(), IpError> {
        let mut slots = std::mem::take(&mut self.slots);
        let lengths = slots.read(&mut self.tap);
        let mut is_removed = false;
        for (n, result) in lengths.iter().enumerate() {
            match result {
                TapResult::Done(length) => self.send_packet(slots.packet(n, *length), now),
                TapResult::Gone => is_removed = true,
                _ => {}
            }
        }
        slots.put_back(lengths);
        self.slots = slots;
        if is_removed {
            return Err(self.removed());
        }
        Ok(())
    }

    fn removed(&self) -> IpError {
        IpError::Removed(self.link.tun.clone())
    }

    /// Stops to read packets from the kernel for a moment, so that a fast sender waits instead of
    /// losing packets.
    fn pause(&mut self, now: Instant) {
        if self.pause.is_none() && self.epoll.del(&self.tap).is_ok() {
            self.pause = Some(now + PAUSE_MAX);
        }
    }

    fn resume(&mut self) {
        if self.pause.take().is_some() {
            let added = self.epoll.add(&self.tap, token(TUN, 0), Interest::Read);
            if let Err(error) = added {
                tracing::error!(target: "carina::ip", "{}: {error}", self.link.tun);
            }
        }
    }

    fn drop_packet(&mut self, reason: Reason) {
        self.counters.drop(reason);
    }

    /// Returns the flows and the counters.
    pub(crate) fn state(&self) -> Report {
        let outgoing = self.outgoing.iter().filter_map(|(id, flow)| {
            let key = self.router.key(*id)?;
            Some(FlowStatus {
                local: key.local,
                remote: key.remote,
                class: Some(key.class),
                is_outgoing: true,
                is_open: flow.is_open(),
                packets: flow.packets,
                bytes: flow.bytes,
                waiting: flow.waiting(),
            })
        });
        let incoming = self.incoming.values().map(Incoming::status);
        Report {
            flows: outgoing.chain(incoming).collect(),
            counters: self.counters.clone(),
        }
    }
}

/// The epoll token of a descriptor: its kind, and its number among the descriptors of this kind.
fn token(kind: u32, item: u32) -> u64 {
    u64::from(kind) << 32 | u64::from(item)
}

const CALLER: u32 = 0;
const TUN: u32 = 1;
const INBOX: u32 = 2;
const OUTGOING: u32 = 3;
const SPACE: u32 = 4;
const INCOMING: u32 = 5;

/// Longest time for which a full flow holds up packets to other destinations.
const PAUSE_MAX: Duration = Duration::from_millis(5);
/// Time between a change of the state and its report.
const REPORT_AFTER: Duration = Duration::from_millis(50);

pub(crate) const WAITING: &str = "waiting for packets";
