//! A member at work: one thread moves packets between the TUN interface and the flows.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use carina_api::control::Client;
use carina_api::paths::RunDir;
use carina_client::{FlowRequest, Node, Registration};
use carina_netdev::TapResult;
use carina_sys::{Epoll, Interest, Ready};

use crate::counters::{Counters, Reason};
use crate::directory::{self, Carried, Directory};
use crate::error::IpError;
use crate::icmp::ErrorLimit;
use crate::interface::{self, TunInterface};
use crate::prefix::IpPrefix;
use crate::router::{FlowId, Router};
use crate::settings::IpSettings;
use crate::status::{FlowStatus, Status, StatusSocket};

mod direct;
mod incoming;
mod outgoing;
mod slots;

use direct::Bulk;
use incoming::Incoming;
use outgoing::Outgoing;
use slots::Slots;

/// A TUN interface whose packets travel over flows of a DIF.
#[derive(Debug)]
pub struct Member {
    settings: IpSettings,
    mtu: usize,
    carried: Carried,
    node: Node,
    epoll: Epoll,
    interface: TunInterface,
    router: Router,
    own: Vec<IpPrefix>,
    members: BTreeSet<IpPrefix>,
    registrations: Vec<Registration>,
    directory: Directory,
    status: StatusSocket,
    outgoing: BTreeMap<FlowId, Outgoing>,
    incoming: BTreeMap<u32, Incoming>,
    last_incoming: u32,
    /// Flow requests of members whose prefix the directory does not have yet.
    early: Vec<EarlyRequest>,
    /// Incoming flows with SDUs that were not read in their turn.
    unread: BTreeSet<u32>,
    /// The flow of long packets, into whose ring the next packet is read.
    bulk: Option<Bulk>,
    /// Until when no packet is read from the kernel, because a flow is full.
    pause: Option<Instant>,
    sweep_at: Instant,
    counters: Counters,
    error_limit: ErrorLimit,
    slots: Slots,
}

/// A flow request whose caller is not in the directory yet.
#[derive(Debug)]
struct EarlyRequest {
    registration: usize,
    request: FlowRequest,
    until: Instant,
}

impl Member {
    /// Registers the prefixes of the settings in the DIF, and makes the interface. `run` is the run
    /// directory of the node.
    ///
    /// # Errors
    /// A setting is wrong, no node runs, this system is not in the DIF, the node refuses a name, or
    /// the kernel refuses the interface.
    pub fn start(node: Node, run: &RunDir, settings: IpSettings) -> Result<Member, IpError> {
        settings.check()?;
        let control = || Client::new(run.control_sock()).with_answer_limit(NODE_LIMIT);
        let carried = directory::carried(&control(), &settings.dif)?;
        let mtu = settings.mtu.unwrap_or(carried.mtu);
        let own = settings.own();
        let interface = interface::open(&settings, mtu)?;
        let registrations = own.iter().map(|prefix| {
            let name = prefix.name();
            let registered = node.register(&name, Some(&settings.dif));
            registered.map_err(|source| IpError::Register { name, source })
        });
        let registrations = registrations.collect::<Result<Vec<_>, IpError>>()?;
        let directory = Directory::start(control(), settings.dif.clone());
        let idle = Duration::from_millis(settings.idle_ms);
        let file = format!("{}-{}", std::process::id(), settings.tun);
        let status = StatusSocket::listen(run, &file);
        let member = Member {
            router: Router::new(&own, idle),
            directory: directory.map_err(IpError::system("starting a thread"))?,
            status: status.map_err(IpError::system("making the socket of the status"))?,
            epoll: Epoll::new().map_err(IpError::system(WAITING))?,
            settings,
            mtu,
            carried,
            node,
            interface,
            own,
            members: BTreeSet::new(),
            registrations,
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            last_incoming: 0,
            early: Vec::new(),
            unread: BTreeSet::new(),
            bulk: None,
            pause: None,
            sweep_at: Instant::now() + idle / 4,
            counters: Counters::default(),
            error_limit: ErrorLimit::default(),
            slots: Slots::new(),
        };
        member.watch_all().map_err(IpError::system(WAITING))?;
        Ok(member)
    }

    fn watch_all(&self) -> std::io::Result<()> {
        let epoll = &self.epoll;
        epoll.add(&self.interface.tap, token(TUN, 0), Interest::Read)?;
        epoll.add(
            self.directory.changed(),
            token(DIRECTORY, 0),
            Interest::Read,
        )?;
        epoll.add(&self.status, token(STATUS, 0), Interest::Read)?;
        for (index, registration) in self.registrations.iter().enumerate() {
            epoll.add(
                registration,
                token(REGISTRATION, index as u32),
                Interest::Read,
            )?;
        }
        Ok(())
    }

    /// Moves packets in the calling thread until `stop` is readable. The interface and its routes
    /// disappear when the member is dropped.
    ///
    /// # Errors
    /// A registration has ended, for instance because the node has ended; the interface was
    /// removed; or the system refuses to wait.
    pub fn run(&mut self, stop: impl AsFd) -> Result<(), IpError> {
        let failed = IpError::system(WAITING);
        self.epoll
            .add(&stop, token(STOP, 0), Interest::Read)
            .map_err(failed)?;
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            let wait = self.wait_ns(Instant::now());
            let waited = self.epoll.wait(&mut ready, wait);
            waited.map_err(IpError::system(WAITING))?;
            let now = Instant::now();
            for ready in &ready {
                if ready.token == token(STOP, 0) {
                    let removed = self.epoll.del(&stop);
                    return removed.map_err(IpError::system(WAITING));
                }
                self.handle(ready.token, now)?;
            }
            for id in std::mem::take(&mut self.unread) {
                self.receive(id)?;
            }
            self.handle_due(now)?;
        }
    }

    /// Nanoseconds until something is due although no descriptor is ready.
    fn wait_ns(&self, now: Instant) -> Option<u64> {
        if !self.unread.is_empty() {
            return Some(0);
        }
        let early = self.early.iter().map(|early| early.until);
        let deadline = early.chain(self.pause).chain([self.sweep_at]).min()?;
        // Not before the deadline: the loop would find nothing due, and wait for no time again.
        Some(deadline.saturating_duration_since(now).as_nanos() as u64 + 1)
    }

    fn handle(&mut self, token: u64, now: Instant) -> Result<(), IpError> {
        let (kind, item) = ((token >> 32) as u32, token as u32);
        match kind {
            TUN => self.read_packets(now)?,
            DIRECTORY => self.take_prefixes(now),
            STATUS => self.status.answer(|| self.status()),
            REGISTRATION => self.take_requests(item as usize, now)?,
            OUTGOING => self.progress(item, now),
            SPACE => self.flush(item, now),
            INCOMING => self.receive(item)?,
            _ => {}
        }
        Ok(())
    }

    fn handle_due(&mut self, now: Instant) -> Result<(), IpError> {
        if self.pause.is_some_and(|until| until <= now) {
            let full = self.outgoing.values_mut();
            full.for_each(Outgoing::note_pause_ended);
            self.resume();
        }
        if self.early.iter().any(|early| early.until <= now) {
            self.answer_early(now);
        }
        if self.sweep_at <= now {
            for id in self.router.poll_idle(now) {
                self.outgoing.remove(&id);
            }
            let idle = Duration::from_millis(self.settings.idle_ms);
            self.sweep_at = now + idle / 4;
            if !self.interface.tap.is_attached() {
                return Err(IpError::Removed(self.settings.tun.clone()));
            }
        }
        Ok(())
    }

    fn take_prefixes(&mut self, now: Instant) {
        let Some(prefixes) = self.directory.take() else {
            return;
        };
        let others = prefixes.all.into_iter();
        let settings = &self.settings;
        let others = others.filter(|other| settings.may_have(*other));
        self.members = others.filter(|other| !self.own.contains(other)).collect();
        let members = self.members.iter().copied();
        self.router.set_members(members, prefixes.is_complete);
        self.answer_early(now);
    }

    /// Reads a burst of packets from the kernel and sends each.
    fn read_burst(&mut self, now: Instant) -> Result<(), IpError> {
        let mut slots = std::mem::take(&mut self.slots);
        let lengths = slots.read(&mut self.interface.tap);
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
            return Err(IpError::Removed(self.settings.tun.clone()));
        }
        Ok(())
    }

    /// Stops to read packets from the kernel for a moment, so that a fast sender waits instead of
    /// losing packets.
    fn pause(&mut self, now: Instant) {
        if self.pause.is_none() && self.epoll.del(&self.interface.tap).is_ok() {
            self.pause = Some(now + PAUSE_MAX);
        }
    }

    fn resume(&mut self) {
        if self.pause.take().is_some() {
            let added = self
                .epoll
                .add(&self.interface.tap, token(TUN, 0), Interest::Read);
            if let Err(error) = added {
                tracing::error!(target: "carina::ip", "{}: {error}", self.settings.tun);
            }
        }
    }

    fn drop_packet(&mut self, reason: Reason) {
        self.counters.drop(reason);
    }

    /// Returns the state of the member.
    #[must_use]
    pub fn status(&self) -> Status {
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
        Status {
            dif: self.settings.dif.clone(),
            tun: self.settings.tun.clone(),
            addresses: self.settings.address.clone(),
            mtu: self.mtu,
            own: self.own.clone(),
            members: self.members.iter().copied().collect(),
            is_complete: self.router.is_complete(),
            flows: outgoing.chain(incoming).collect(),
            counters: self.counters.clone(),
        }
    }
}

/// The epoll token of a descriptor: its kind, and its number among those of the kind.
fn token(kind: u32, item: u32) -> u64 {
    u64::from(kind) << 32 | u64::from(item)
}

const STOP: u32 = 0;
const TUN: u32 = 1;
const DIRECTORY: u32 = 2;
const STATUS: u32 = 3;
const REGISTRATION: u32 = 4;
const OUTGOING: u32 = 5;
const SPACE: u32 = 6;
const INCOMING: u32 = 7;

/// How long the node may take for one answer.
const NODE_LIMIT: Duration = Duration::from_millis(1500);
/// Longest time for which a full flow holds up packets to other destinations.
const PAUSE_MAX: Duration = Duration::from_millis(5);

const WAITING: &str = "waiting for packets";
