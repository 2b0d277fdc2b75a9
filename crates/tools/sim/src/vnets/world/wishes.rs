//! Requests of operators.

use std::rc::Rc;

use carina_time::{Duration, Instant};
use carina_vnet::vno::WishError;

use super::super::scenario::Wish;
use super::{Event, Who, World};

impl World<'_> {
    /// Lets an operator make a request. Repeats it later if it cannot be stored.
    pub(super) fn wish(&mut self, now: Instant, wish: Wish) {
        let (Wish::Apply { vno, .. } | Wish::Remove { vno, .. }) = &wish;
        let number = self.operators.iter().position(|(name, _)| name == vno);
        let number = number.expect("wishes are of operators that are there");
        let slot = Rc::clone(&self.vnos[number]);
        let mut machine = slot.machine.borrow_mut();
        let is_heard = machine.as_mut().is_some_and(|machine| match &wish {
            Wish::Apply { document, .. } => machine.apply(now, (**document).clone()).is_ok(),
            Wish::Remove { name, .. } => {
                let answer = machine.remove(now, name);
                matches!(answer, Ok(_) | Err(WishError::Unknown(_)))
            }
        });
        drop(machine);
        self.note(|| format!("wish {wish:?}: {is_heard}"));
        match (&wish, is_heard) {
            (Wish::Apply { document, .. }, true) => {
                let key = (number, document.vnet.name.clone());
                self.asked.insert(key.clone());
                self.wanted.insert(key, (now, (**document).clone()));
            }
            (Wish::Remove { name, .. }, true) => {
                self.wanted.remove(&(number, name.clone()));
            }
            (_, false) => {}
        }
        if !is_heard && now < self.scenario.removal {
            let again = now + Duration::from_secs(2);
            self.queue.put(again.as_nanos(), Event::Wish(wish));
        }
        // The process may have died at the write; then it sends nothing.
        let _ = self.flush(now, Who::Vno(number));
    }
}
