//! Processes of roles: the work that waits for them, and how processes that share a store interfere
//! with each other.
//!
//! A process that handles a message reads its store, decides, and writes. In the simulation that is
//! one event. With a real store on a network, other processes write in between. To simulate that,
//! the store lets other processes do some of their waiting work at each access ([`Interrupt`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use carina_random::Random;
use carina_time::Instant;
use carina_vnet::pip::Pip;
use carina_vnet::vno::Vno;
use carina_vnet::vnp::Vnp;

use super::interrupt::Interrupt;
use super::packet::Packet;
use super::unsteady_store::{Shares, Trouble, UnsteadyStore};

/// A process of a role, which may be dead, with the faults of its store.
#[derive(Debug)]
pub(super) struct Process<M> {
    pub(super) machine: RefCell<Option<M>>,
    /// Messages and timers that the process has not handled yet.
    inbox: RefCell<VecDeque<Work>>,
    pub(super) trouble: Rc<RefCell<Trouble>>,
    pub(super) timer_at: Cell<Instant>,
    /// Number of times in succession that its timer was due again at once.
    spins: Cell<u32>,
}

/// A piece of work of a process.
#[derive(Debug)]
pub(super) enum Work {
    /// A message, with the name of its sender.
    Take(String, Packet),
    /// The timer of the process is due.
    Timer,
}

/// The protocol machine of a role.
pub(super) trait Machine {
    /// Handles a message of a party. Returns the message if this role does not handle messages of
    /// its kind.
    fn take(&mut self, now: Instant, from: &str, packet: Packet) -> Option<Packet>;
    fn handle_timeout(&mut self, now: Instant);
    fn poll_timeout(&self) -> Instant;
}

impl<M: Machine> Process<M> {
    /// A process that does not run yet.
    pub(super) fn new(shares: Shares, random: Random) -> Rc<Process<M>> {
        Rc::new(Process {
            machine: RefCell::new(None),
            inbox: RefCell::default(),
            trouble: Rc::new(RefCell::new(Trouble::new(shares, random))),
            timer_at: Cell::new(Instant::MAX),
            spins: Cell::new(0),
        })
    }

    /// Starts to run with `machine`.
    pub(super) fn start(&self, machine: M) {
        self.inbox.borrow_mut().clear();
        self.machine.replace(Some(machine));
        self.timer_at.set(Instant::MAX);
        self.spins.set(0);
    }

    /// Ends at once. Its waiting work is lost.
    pub(super) fn end(&self) {
        self.machine.replace(None);
        self.inbox.borrow_mut().clear();
        self.trouble.borrow_mut().is_dead = true;
    }

    /// Whether the process runs. A process that will die at its next write still runs.
    pub(super) fn is_running(&self) -> bool {
        self.machine.borrow().is_some()
    }

    /// Adds a piece of work. The process does it when `do_next` is called, or earlier when another
    /// process waits for the store.
    pub(super) fn give(&self, work: Work) {
        if self.is_running() {
            self.inbox.borrow_mut().push_back(work);
        }
    }

    /// Does the next piece of work.
    ///
    /// # Errors
    /// The timer is due at once too often, or the role does not handle messages of this kind.
    pub(super) fn do_next(&self, now: Instant) -> Result<(), String> {
        let mut machine = self.machine.borrow_mut();
        let Some(machine) = machine.as_mut() else {
            return Ok(());
        };
        let work = self.inbox.borrow_mut().pop_front();
        match work {
            None => return Ok(()),
            Some(Work::Take(from, packet)) => {
                if let Some(packet) = machine.take(now, &from, packet) {
                    return Err(format!("{packet:?} is no message for it"));
                }
            }
            Some(Work::Timer) => {
                self.timer_at.set(Instant::MAX);
                machine.handle_timeout(now);
                let at = machine.poll_timeout();
                self.spins
                    .set(if at <= now { self.spins.get() + 1 } else { 0 });
                if self.spins.get() > SPINS_MAX {
                    return Err(format!(
                        "its timer is due again at once after {SPINS_MAX} times: `poll_timeout` \
                         says {}, and it is {}",
                        at.since(Instant::ZERO),
                        now.since(Instant::ZERO)
                    ));
                }
            }
        }
        Ok(())
    }
}

impl<M: Machine + fmt::Debug> Interrupt for Process<M> {
    fn go_on(&self, now: Instant) {
        let is_busy = || self.trouble.borrow().is_dead || self.machine.try_borrow_mut().is_err();
        let waiting = self.inbox.borrow().len();
        for _ in 0..waiting {
            if is_busy() {
                return;
            }
            // An error will show when the process does its work by itself.
            let _ = self.do_next(now);
        }
    }
}

impl Machine for Pip<UnsteadyStore> {
    fn take(&mut self, now: Instant, from: &str, packet: Packet) -> Option<Packet> {
        match packet {
            Packet::ToPip(_, message) => self.handle_vnp(now, from, message),
            Packet::FromHost(report) => self.handle_agent(now, report.words),
            other => return Some(other),
        }
        None
    }

    fn handle_timeout(&mut self, now: Instant) {
        Pip::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Instant {
        Pip::poll_timeout(self)
    }
}

impl Machine for Vnp<UnsteadyStore> {
    fn take(&mut self, now: Instant, from: &str, packet: Packet) -> Option<Packet> {
        match packet {
            Packet::FromPip(_, message) => self.handle_pip(now, from, message),
            Packet::ToVnp(_, message) => self.handle_vno(now, from, message),
            other => return Some(other),
        }
        None
    }

    fn handle_timeout(&mut self, now: Instant) {
        Vnp::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Instant {
        Vnp::poll_timeout(self)
    }
}

impl Machine for Vno<UnsteadyStore> {
    fn take(&mut self, now: Instant, _: &str, packet: Packet) -> Option<Packet> {
        match packet {
            Packet::FromVnp(message) => self.handle_vnp(now, message),
            other => return Some(other),
        }
        None
    }

    fn handle_timeout(&mut self, now: Instant) {
        Vno::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Instant {
        Vno::poll_timeout(self)
    }
}

/// Largest number of times in succession that a timer may be due again at once.
const SPINS_MAX: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose timer is always due.
    #[derive(Debug)]
    struct Restless;

    impl Machine for Restless {
        fn take(&mut self, _: Instant, _: &str, _: Packet) -> Option<Packet> {
            None
        }

        fn handle_timeout(&mut self, _: Instant) {}

        fn poll_timeout(&self) -> Instant {
            Instant::ZERO
        }
    }

    #[test]
    fn timer_that_is_always_due_is_named_and_ends_the_run() {
        let process = Process::new(Shares::default(), Random::new(1));
        process.start(Restless);
        let at = Instant::from_secs(7);
        let errors = (0..=SPINS_MAX).filter_map(|_| {
            process.give(Work::Timer);
            process.do_next(at).err()
        });
        let errors: Vec<String> = errors.collect();
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].contains("its timer is due again"),
            "{}",
            errors[0]
        );
    }
}
