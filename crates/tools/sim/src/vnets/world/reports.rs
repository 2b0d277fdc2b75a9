//! What hosts say of themselves, once a second and when something has changed.

use std::fmt;
use std::sync::Arc;

use carina_time::{Duration, Instant};
use carina_vnet::host_part::VnetId;
use carina_vnet::message::FromAgent;

use super::super::host::is_whole;
use super::{Broken, Event, Packet, Who, World};

/// What a host says.
#[derive(Clone)]
pub(in super::super) struct Said {
    /// The number of the host.
    pub(super) host: usize,
    pub(in super::super) words: Arc<FromAgent>,
}

/// The last report of a host. Most are like the one before.
#[derive(Debug)]
pub(super) struct Report {
    words: Arc<FromAgent>,
    /// The host's [`World::changes`] then.
    changes: u64,
    /// From when on it says something else, though nothing has happened.
    until: Instant,
}

impl World<'_> {
    pub(super) fn report(
        &mut self,
        now: Instant,
        host: usize,
        is_regular: bool,
    ) -> Result<(), Broken> {
        if now >= self.down_until[host] {
            if self.hosts[host].tidy(now) {
                self.changes[host] += 1;
            }
            self.tell_pips(now, host);
        }
        if is_regular {
            let next = now + Duration::from_secs(1);
            self.queue.put(next.as_nanos(), Event::Report(host, true));
        }
        Ok(())
    }

    pub(super) fn tell_pips(&mut self, now: Instant, host: usize) {
        let words = self.words_of(now, host);
        let pip = self.host_of[host];
        for process in 0..self.pips[pip].len() {
            let words = Arc::clone(&words);
            let said = Said { host, words };
            self.send(
                Who::Host(host),
                Who::Pip(pip, process),
                Packet::FromHost(said),
            );
        }
    }

    /// A host has, or has no longer, something of a network: it says so, and links that end there
    /// may be up or down for all that have some of it.
    pub(super) fn note_change(&mut self, host: usize, vnet: VnetId) {
        let parts = self.parts_at.entry(vnet).or_default();
        parts.insert(host);
        parts.iter().for_each(|host| self.changes[*host] += 1);
    }

    fn words_of(&mut self, now: Instant, host: usize) -> Arc<FromAgent> {
        let changes = self.changes[host];
        let known = self.reports[host].as_ref();
        if let Some(known) = known.filter(|it| it.changes == changes && now < it.until) {
            return Arc::clone(&known.words);
        }
        let here = &self.hosts[host];
        let find = |name: &str| self.places.get(name).map(|place| &self.hosts[*place]);
        let words = here.report(now, |vnet, link| is_whole(find, &here.name, vnet, link));
        self.answered.note(&words);
        let words = Arc::new(words);
        self.reports[host] = Some(Report {
            words: Arc::clone(&words),
            changes,
            until: here.changes_after(now),
        });
        words
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words.fmt(f)
    }
}
