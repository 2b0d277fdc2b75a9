//! Reports of hosts, sent once a second and after each change.

use std::sync::Arc;

use carina_time::{Duration, Instant};
use carina_vnet::host_part::VnetId;
use carina_vnet::message::FromAgent;

use super::super::host::is_whole;
use super::super::packet::HostReport;
use super::{Broken, Event, Packet, Who, World};

/// The last report of a host, kept because most reports equal the previous one.
#[derive(Debug)]
pub(super) struct Report {
    words: Arc<FromAgent>,
    /// The host's counter [`World::changes`] when the report was made.
    changes: u64,
    /// Time at which the report changes without any event.
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
            let report = HostReport { host, words };
            self.send(
                Who::Host(host),
                Who::Pip(pip, process),
                Packet::FromHost(report),
            );
        }
    }

    /// Records that a host's part of a network has changed: it must report again, and so must all
    /// hosts with a part, because links between them may have gone up or down.
    pub(super) fn note_change(&mut self, host: usize, vnet: VnetId) {
        let parts = self.parts_at.entry(vnet).or_default();
        parts.insert(host);
        parts.iter().for_each(|host| self.changes[*host] += 1);
    }

    fn words_of(&mut self, now: Instant, host: usize) -> Arc<FromAgent> {
        let changes = self.changes[host];
        let known = self.reports[host].as_ref();
        if let Some(known) = known.filter(|known| known.changes == changes && now < known.until) {
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
