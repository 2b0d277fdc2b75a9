//! Processes of roles: what they have got and not come to yet, and how they get into one another's
//! way at the store that they share.
//!
//! A process that is asked something reads its store, decides, and writes. In a run that is one
//! event; so that others write in between, as they do around a store on a network, the store lets
//! other processes do what they have got whenever it is asked ([`Interrupt`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::{Rc, Weak};

use carina_random::Random;
use carina_time::Instant;
use carina_vnet::pip::Pip;
use carina_vnet::vno::Vno;
use carina_vnet::vnp::Vnp;

use super::unsteady_store::{Shares, Trouble, UnsteadyStore};
use super::world::Packet;

/// A process that may be dead, and its way to its store.
#[derive(Debug)]
pub(super) struct Process<M> {
    pub(super) machine: RefCell<Option<M>>,
    /// What it has got and not come to yet.
    inbox: RefCell<VecDeque<Work>>,
    pub(super) trouble: Rc<RefCell<Trouble>>,
    pub(super) timer_at: Cell<Instant>,
    /// How often its timer was due at once after it had been handled, one after the other.
    spins: Cell<u32>,
}

/// What a process has to do.
#[derive(Debug)]
pub(super) enum Work {
    /// A message of a party.
    Take(String, Packet),
    /// Its timer is due.
    Timer,
}

/// The machine of a role.
pub(super) trait Machine {
    /// Takes a message of a party; gives it back if this role takes no such message.
    fn take(&mut self, now: Instant, from: &str, packet: Packet) -> Option<Packet>;
    fn handle_timeout(&mut self, now: Instant);
    fn poll_timeout(&self) -> Instant;
}

/// One that goes on while another waits for the store.
pub(super) trait Interrupt: fmt::Debug {
    /// Does what it has got, unless it waits for the store itself, or is dead.
    fn go_on(&self, now: Instant);
}

/// The other processes of a role.
pub(super) type Others = Vec<Weak<dyn Interrupt>>;

impl<M: Machine> Process<M> {
    /// One that does not run yet.
    pub(super) fn new(shares: Shares, random: Random) -> Rc<Process<M>> {
        Rc::new(Process {
            machine: RefCell::new(None),
            inbox: RefCell::default(),
            trouble: Rc::new(RefCell::new(Trouble::new(shares, random))),
            timer_at: Cell::new(Instant::MAX),
            spins: Cell::new(0),
        })
    }

    /// Begins to run.
    pub(super) fn start(&self, machine: M) {
        self.inbox.borrow_mut().clear();
        self.machine.replace(Some(machine));
        self.timer_at.set(Instant::MAX);
        self.spins.set(0);
    }

    /// Ends at once; what it has got is lost.
    pub(super) fn end(&self) {
        self.machine.replace(None);
        self.inbox.borrow_mut().clear();
        self.trouble.borrow_mut().is_dead = true;
    }

    /// Whether it runs, also if it is to end at its last write.
    pub(super) fn is_there(&self) -> bool {
        self.machine.borrow().is_some()
    }

    /// Gives it something to do; it comes to it when `do_next` is called, or before.
    pub(super) fn give(&self, work: Work) {
        if self.is_there() {
            self.inbox.borrow_mut().push_back(work);
        }
    }

    /// Does the next thing that it has got.
    ///
    /// # Errors
    /// The timer is due at once, again and again, or it takes no message of this kind.
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
            // What is wrong with it shows at its own turn.
            let _ = self.do_next(now);
        }
    }
}

impl Machine for Pip<UnsteadyStore> {
    fn take(&mut self, now: Instant, from: &str, packet: Packet) -> Option<Packet> {
        match packet {
            Packet::ToPip(_, message) => self.handle_vnp(now, from, message),
            Packet::FromHost(said) => self.handle_agent(now, said.words),
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

/// More often than this no timer is due at once again, whatever there is to do.
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
