//! Faults that last for a while: connections that are cut, and stores that do not answer.

use carina_time::{Duration, Instant};

use super::{Event, Who, World};

impl World<'_> {
    /// Cuts a connection: between an operator and its VNP, a VNP and a provider, or a provider and
    /// a host. Messages over it are lost.
    pub(super) fn cut_one(&mut self, now: Instant) {
        let every = self.scenario.upsets.map(|upsets| upsets.cut_every);
        let Some(every) = every.filter(|_| self.is_troubled()) else {
            return;
        };
        self.again(now, every, Event::Cut);
        let [vnos, vnps, pips] = [self.vnos.len(), self.vnps.len(), self.pips.len()];
        let of_roles = vnos + vnps * pips;
        // Connections between roles are few but carry most messages, so they are cut more often.
        let number = if self.upsets.chance(1000) {
            self.upsets.index(of_roles)
        } else {
            self.upsets.index(of_roles + self.hosts.len())
        };
        let ends = if number < vnos {
            [Who::Vno(number), Who::Vnp(self.operators[number].1, 0)]
        } else if number < of_roles {
            let number = number - vnos;
            [Who::Vnp(number / pips, 0), Who::Pip(number % pips, 0)]
        } else {
            let host = number - of_roles;
            [Who::Host(host), Who::Pip(self.host_of[host], 0)]
        };
        let until = self.until(now, 10_000);
        self.outcome.cuts += 1;
        self.note(|| format!("{ends:?} do not reach each other"));
        self.cuts.insert(connection(ends), until);
    }

    /// Makes the store of a role stop answering for a while. Its content stays.
    pub(super) fn store_away(&mut self, now: Instant) {
        let every = self.scenario.upsets.map(|upsets| upsets.store_away_every);
        let Some(every) = every.filter(|_| self.is_troubled()) else {
            return;
        };
        self.again(now, every, Event::StoreAway);
        let (pips, vnps) = (self.pips.len(), self.vnps.len());
        let number = self.upsets.index(pips + vnps + self.vnos.len());
        let until = self.until(now, 8000);
        self.outcome.stores_away += 1;
        self.note(|| format!("store {number} does not answer"));
        let processes: Vec<Who> = if number < pips {
            let all = 0..self.pips[number].len();
            all.map(|index| Who::Pip(number, index)).collect()
        } else if number < pips + vnps {
            let all = 0..self.vnps[number - pips].len();
            all.map(|index| Who::Vnp(number - pips, index)).collect()
        } else {
            vec![Who::Vno(number - pips - vnps)]
        };
        for trouble in processes
            .into_iter()
            .filter_map(|process| self.trouble_of(process))
        {
            trouble.borrow_mut().away_until = until;
        }
    }

    /// Whether messages from one party to another are lost.
    pub(super) fn is_cut(&self, from: Who, to: Who) -> bool {
        let until = self.cuts.get(&connection([from, to]));
        until.is_some_and(|until| self.now() < *until)
    }

    /// Schedules an event again after about `every`.
    pub(super) fn again(&mut self, now: Instant, every: Duration, event: Event) {
        let every = every.as_nanos();
        let next = now + Duration::from_nanos(self.upsets.within(every / 2, every * 2));
        self.queue.put(next.as_nanos(), event);
    }

    /// A random time at which a fault ends: 100 to `delay_max_ms` milliseconds from now, and not
    /// after the time at which all faults end.
    fn until(&mut self, now: Instant, delay_max_ms: u64) -> Instant {
        let until = now + Duration::from_millis(self.upsets.within(100, delay_max_ms));
        until.min(self.scenario.trouble_ends)
    }
}

/// The key of the connection of two parties. All processes of a role are one party, and the ends
/// are in a fixed order.
fn connection(ends: [Who; 2]) -> [Who; 2] {
    let mut ends = ends.map(|who| match who {
        Who::Pip(pip, _) => Who::Pip(pip, 0),
        Who::Vnp(vnp, _) => Who::Vnp(vnp, 0),
        Who::Vno(_) | Who::Host(_) => who,
    });
    ends.sort_unstable();
    ends
}
