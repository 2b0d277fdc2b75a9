//! Which hosts are there, which are not, and of which it is not known yet.

use std::sync::Arc;

use carina_embed::{HostId, Residual};
use carina_time::Instant;

use super::Pip;
use crate::host_part::VnetId;
use crate::message::FromAgent;
use crate::store::Store;

impl<S: Store> Pip<S> {
    /// What is free for a network.
    pub(super) fn free(&self, now: Instant, vnet: Option<VnetId>) -> Residual {
        let is_there = |host: HostId| match self.ground.host_entry(host) {
            Some(_) => self.is_there(now, host),
            None => true,
        };
        self.books.free(&self.ground, vnet, is_there)
    }

    /// The same, as if hosts that are not known yet to be there had all that they own.
    pub(super) fn free_as_hoped(&self, now: Instant, vnet: Option<VnetId>) -> Residual {
        let may_be_there = |host: HostId| match self.ground.host_entry(host) {
            Some(_) => self.is_there(now, host) || self.is_unheard(now, host),
            None => true,
        };
        self.books.free(&self.ground, vnet, may_be_there)
    }

    /// Whether nothing is known yet of a host: it has not reported since this process began, and
    /// there was not time enough for it to do so.
    pub(super) fn is_unheard(&self, now: Instant, host: HostId) -> bool {
        self.is_young(now) && !self.reports.contains_key(&host)
    }

    /// Whether some host is not known yet to be there or not.
    pub(super) fn awaits_hosts(&self, now: Instant) -> bool {
        let mut hosts = (0..self.ground.inventory.hosts.len()).map(HostId::of);
        self.is_young(now) && hosts.any(|host| !self.reports.contains_key(&host))
    }

    /// Whether this process has begun so lately that others may not have found it yet.
    pub(super) fn is_young(&self, now: Instant) -> bool {
        let began = self.began.unwrap_or(now);
        now.since(began) < self.timing.silence
    }

    /// What a host has said last, and when.
    pub(super) fn report_of(&self, host: &str) -> Option<&(Instant, Arc<FromAgent>)> {
        self.reports.get(&self.ground.host(host)?)
    }

    pub(super) fn is_there(&self, now: Instant, host: HostId) -> bool {
        let report = self.reports.get(&host);
        report.is_some_and(|(at, _)| now.since(*at) < self.timing.silence)
    }

    pub(super) fn is_there_by_name(&self, now: Instant, host: &str) -> bool {
        let number = self.ground.host(host);
        number.is_some_and(|number| self.is_there(now, number))
    }
}
