//! Presence of hosts: present, gone, or not known yet.

use std::sync::Arc;

use carina_embed::{HostId, Residual};
use carina_time::Instant;

use super::Pip;
use crate::host_part::VnetId;
use crate::message::FromAgent;
use crate::store::Store;

impl<S: Store> Pip<S> {
    /// The resources that are free for a network on present hosts.
    pub(super) fn free(&self, now: Instant, vnet: Option<VnetId>) -> Residual {
        let is_present = |host: HostId| match self.ground.host_entry(host) {
            Some(_) => self.is_present(now, host),
            None => true,
        };
        self.books.free(&self.ground, vnet, is_present)
    }

    /// Like [`Pip::free`], but hosts whose presence is not known yet count as present.
    pub(super) fn free_as_hoped(&self, now: Instant, vnet: Option<VnetId>) -> Residual {
        let may_be_present = |host: HostId| match self.ground.host_entry(host) {
            Some(_) => self.is_present(now, host) || self.is_unheard(now, host),
            None => true,
        };
        self.books.free(&self.ground, vnet, may_be_present)
    }

    /// Whether the presence of a host is not known yet: it has not reported since this process
    /// began, and has not had enough time to do so.
    pub(super) fn is_unheard(&self, now: Instant, host: HostId) -> bool {
        self.is_young(now) && !self.reports.contains_key(&host)
    }

    /// Whether the presence of some host is not known yet.
    pub(super) fn awaits_hosts(&self, now: Instant) -> bool {
        let mut hosts = (0..self.ground.inventory.hosts.len()).map(HostId::of);
        self.is_young(now) && hosts.any(|host| !self.reports.contains_key(&host))
    }

    /// Whether this process began so recently that hosts and VNPs may not have connected yet.
    pub(super) fn is_young(&self, now: Instant) -> bool {
        let began = self.began.unwrap_or(now);
        now.since(began) < self.timing.silence_max
    }

    /// The last report of a host, and when it came.
    pub(super) fn report_of(&self, host: &str) -> Option<&(Instant, Arc<FromAgent>)> {
        self.reports.get(&self.ground.host(host)?)
    }

    pub(super) fn is_present(&self, now: Instant, host: HostId) -> bool {
        let report = self.reports.get(&host);
        report.is_some_and(|(at, _)| now.since(*at) < self.timing.silence_max)
    }

    pub(super) fn is_present_by_name(&self, now: Instant, host: &str) -> bool {
        let number = self.ground.host(host);
        number.is_some_and(|number| self.is_present(now, number))
    }
}
