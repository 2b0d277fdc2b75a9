//! Processes that handle their work, at once or later.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use carina_time::{Duration, Instant};
use carina_vnet::store::memory::MemoryStore;

use super::super::interrupt::{Interrupt, Others};
use super::super::process::{Machine, Process, Work};
use super::super::unsteady_store::{Trouble, UnsteadyStore};
use super::{Broken, Event, Who, World};

impl World<'_> {
    /// Gives a process a piece of work. The process does it at once, or later if it is busy;
    /// meanwhile it may do it while another process waits for the store.
    pub(super) fn give(&mut self, now: Instant, who: Who, work: Work) -> Result<(), Broken> {
        match who {
            Who::Pip(pip, process) => self.pips[pip][process].give(work),
            Who::Vnp(number, process) => self.vnps[number][process].give(work),
            Who::Vno(number) => self.vnos[number].give(work),
            Who::Host(_) => {}
        }
        let mut free = self.busy_until.get(&who).copied().unwrap_or_default();
        if free <= now && self.random.chance(self.scenario.busy) {
            let busy_max = if self.is_troubled() {
                self.scenario.busy_max
            } else {
                self.scenario.busy_max.min(BUSY_WHEN_CALM)
            };
            free = now + Duration::from_nanos(self.random.below(busy_max.as_nanos()));
            self.busy_until.insert(who, free);
        }
        if free > now {
            self.queue.put(free.as_nanos(), Event::Turn(who));
            Ok(())
        } else {
            self.turn(now, who)
        }
    }

    /// Lets a process do its next work, and sends its messages.
    pub(super) fn turn(&mut self, now: Instant, who: Who) -> Result<(), Broken> {
        if !self.is_running(who) {
            return Ok(());
        }
        let is_dying = |trouble: &Rc<RefCell<Trouble>>| trouble.borrow().is_dead;
        let done = match who {
            _ if self.trouble_of(who).is_some_and(is_dying) => Ok(()),
            Who::Pip(pip, process) => self.pips[pip][process].do_next(now),
            Who::Vnp(number, process) => self.vnps[number][process].do_next(now),
            Who::Vno(number) => self.vnos[number].do_next(now),
            Who::Host(_) => Ok(()),
        };
        done.map_err(|what| Broken(format!("{who:?}: {what}")))?;
        self.flush(now, who)
    }

    pub(super) fn trouble_of(&self, who: Who) -> Option<&Rc<RefCell<Trouble>>> {
        match who {
            Who::Pip(pip, process) => Some(&self.pips[pip][process].trouble),
            Who::Vnp(number, process) => Some(&self.vnps[number][process].trouble),
            Who::Vno(number) => Some(&self.vnos[number].trouble),
            Who::Host(_) => None,
        }
    }

    /// Whether a process runs, also if it will die at its next write.
    pub(super) fn is_running(&self, who: Who) -> bool {
        match who {
            Who::Pip(pip, process) => self.pips[pip][process].is_running(),
            Who::Vnp(number, process) => self.vnps[number][process].is_running(),
            Who::Vno(number) => self.vnos[number].is_running(),
            Who::Host(_) => true,
        }
    }
}

/// The access of one of several processes to their shared store.
pub(super) fn store_access<M: Machine + std::fmt::Debug + 'static>(
    store: &Rc<RefCell<MemoryStore>>,
    processes: &[Rc<Process<M>>],
    own: usize,
) -> UnsteadyStore {
    let others = processes.iter().enumerate().filter(|(it, _)| *it != own);
    let others = others.map(|(_, other)| {
        let other = Rc::clone(other) as Rc<dyn Interrupt>;
        Rc::downgrade(&other)
    });
    let others: Vec<Weak<dyn Interrupt>> = others.collect::<Others>();
    let trouble = Rc::clone(&processes[own].trouble);
    trouble.borrow_mut().begin();
    UnsteadyStore::new(Rc::clone(store), trouble, others)
}

/// Longest time for which a process is busy when there are no faults.
const BUSY_WHEN_CALM: Duration = Duration::from_millis(100);
