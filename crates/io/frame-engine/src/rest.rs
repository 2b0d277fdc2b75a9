//! When a worker visits its network, and when it sleeps.

use std::io;

use carina_sys::{Epoll, EventFd, Interest, Ready, cpus_allowed, monotonic_ns};
use carina_time::Instant;

use crate::idle::{AdaptiveSpin, IdlePolicy};
use crate::network::Network;

/// Visits a network while it has work; then looks for work for a while; then sleeps until a
/// doorbell of the network rings, its deadline passes, or a command comes.
pub(super) struct Rest {
    epoll: Epoll,
    ready: Vec<Ready>,
    idle: IdlePolicy,
    budget: AdaptiveSpin,
    is_awake: bool,
    /// Whether the worker visits its network of apps in the next breath even if the network sleeps.
    is_woken: bool,
    /// The end of the last breath in which something moved.
    moved_at: Instant,
    has_moved: bool,
    /// The deadline of the network, while it sleeps.
    deadline: Option<Instant>,
    breaths: u64,
    idle_turns: u32,
}

impl Rest {
    /// For a network that is visited first at once. `commands` rings when a command has come.
    pub(super) fn new(network: &Network, commands: &EventFd) -> io::Result<Rest> {
        let epoll = Epoll::new()?;
        epoll.add(commands, COMMANDS, Interest::ReadEdge)?;
        epoll.add(network.doorbell(), NETWORK, Interest::ReadEdge)?;
        Ok(Rest {
            epoll,
            ready: Vec::with_capacity(2),
            idle: IdlePolicy::new(cpus_allowed()),
            budget: AdaptiveSpin::default(),
            is_awake: false,
            is_woken: true,
            moved_at: Instant::ZERO,
            has_moved: false,
            deadline: None,
            breaths: 0,
            idle_turns: 0,
        })
    }

    /// Asks for a visit in the next breath.
    pub(super) fn wake(&mut self) {
        self.is_woken = true;
    }

    /// One breath at `now`: visits the network unless it sleeps. True when anything moved.
    pub(super) fn breathe(&mut self, network: &mut Network, now: Instant) -> bool {
        self.breaths += 1;
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.is_woken = true;
        }
        if std::mem::take(&mut self.is_woken) {
            network.disarm();
            if !self.is_awake {
                self.is_awake = true;
                self.moved_at = now;
                self.deadline = None;
            }
        }
        if !self.is_awake {
            return false;
        }
        // A breath may take longer than the network is kept awake: its end counts.
        if std::mem::take(&mut self.has_moved) {
            self.moved_at = now;
        }
        self.has_moved = network.breathe(now);
        self.put_to_sleep(network, now);
        self.has_moved
    }

    fn put_to_sleep(&mut self, network: &mut Network, now: Instant) {
        let patience = self.idle.spin_ns(self.budget, now.as_nanos());
        if self.has_moved || now.since(self.moved_at).as_nanos() < patience {
            return;
        }
        if network.arm() {
            self.is_awake = false;
            self.deadline = network.next_deadline();
        }
    }

    /// Between two breaths: looks at the doorbells now and then while there is work, pauses while
    /// the budget lasts, sleeps when the network does. `moved` is what the breath returned. True
    /// when a command has come.
    ///
    /// # Errors
    /// The kernel refuses to change the epoll set or to wait for it.
    pub(super) fn rest(&mut self, moved: bool) -> io::Result<bool> {
        if moved {
            self.idle_turns = 0;
            return if self.breaths.is_multiple_of(LOOK_BREATHS) {
                self.wait_events(Some(0))
            } else {
                Ok(false)
            };
        }
        if self.is_woken {
            return Ok(false);
        }
        if self.is_awake {
            self.idle_turns = self.idle_turns.wrapping_add(1);
            return if self.idle.pause(self.idle_turns) {
                self.wait_events(Some(0))
            } else {
                Ok(false)
            };
        }
        let now = Instant::from_nanos(monotonic_ns());
        self.wait_events(self.deadline.map(|at| at.since(now).as_nanos()))
    }

    fn wait_events(&mut self, timeout_ns: Option<u64>) -> io::Result<bool> {
        self.epoll.wait(&mut self.ready, timeout_ns)?;
        if self.ready.is_empty() {
            return Ok(false);
        }
        let (mut has_command, now) = (false, Instant::from_nanos(monotonic_ns()));
        for ready in &self.ready {
            if ready.token == COMMANDS {
                has_command = true;
                continue;
            }
            if !self.is_awake {
                self.budget.rang_after(now.since(self.moved_at).as_nanos());
            }
            self.is_woken = true;
        }
        Ok(has_command)
    }
}

const COMMANDS: u64 = 0;
const NETWORK: u64 = 1;
/// Busy breaths between two looks at the doorbells.
const LOOK_BREATHS: u64 = 16;
