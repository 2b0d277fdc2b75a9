//! What hosts should have, and what they say that they have.

use std::collections::BTreeSet;

use carina_time::Instant;

use crate::host_part::{HostStatus, VnetId};
use crate::message::{FromPip, PartKey, ToAgent};
use crate::store::{Outcome, Store, StoreError};

use super::books::Made;
use super::{Pip, hosting};

impl<S: Store> Pip<S> {
    /// Compares what a host has with what it should have.
    pub(super) fn compare(&mut self, now: Instant, host: &str) -> Result<(), StoreError> {
        self.books.refresh(&mut self.store, now, &self.ground)?;
        let mut vnets = self.books.at(host);
        let Some((_, said)) = self.reports.get(host) else {
            return Ok(());
        };
        let there: Vec<(VnetId, u64)> = said
            .parts
            .iter()
            .map(|it| (it.vnet, it.generation))
            .collect();
        for (vnet, through) in there {
            if self.books.made(vnet).is_none() {
                // A stray: its part was let go.
                let message = ToAgent::Remove { vnet, through };
                self.send(host, message);
            } else {
                vnets.insert(vnet);
            }
        }
        for vnet in vnets {
            self.order_host(vnet, host);
            self.tell_status(now, vnet, false);
            self.settle(now, vnet)?;
        }
        Ok(())
    }

    /// Tells the hosts of a network what they should have of it.
    pub(super) fn order(&mut self, vnet: VnetId) {
        let made = self.books.made(vnet);
        let hosts = made.map_or_else(BTreeSet::new, Made::hosts);
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        for host in hosts {
            self.order_host(vnet, &host);
        }
    }

    /// Tells a host what it should have of a network, unless it has said that it has.
    fn order_host(&mut self, vnet: VnetId, host: &str) {
        let Some(made) = self.books.made(vnet) else {
            return;
        };
        let is_wanted = !made.is_leaving && made.laid.hosts().contains(host);
        let generation = self.said(vnet, host).map(|said| said.generation);
        if is_wanted && generation < Some(made.round) {
            let part = hosting::host_part(vnet, made, host);
            self.send(host, ToAgent::Set(Box::new(part)));
        } else if !is_wanted && !self.has_removed(vnet, made.round, host) {
            let through = made.round;
            self.send(host, ToAgent::Remove { vnet, through });
        }
    }

    /// Notes what the hosts have let go of.
    pub(super) fn settle(&mut self, now: Instant, vnet: VnetId) -> Result<(), StoreError> {
        let Some(made) = self.books.made(vnet) else {
            return Ok(());
        };
        if !self.have_let_go(vnet, made) {
            return Ok(());
        }
        let (vnp, round) = (made.vnp.clone(), made.round);
        if made.is_leaving {
            let write = self
                .books
                .change(vnet, false)
                .delete(self.books.made_key(vnet));
            if let Outcome::Done(_) = self.store.commit(now, &write)? {
                self.told.remove(&vnet);
                let key = PartKey { vnet, round };
                self.tell(&vnp, FromPip::Released { key });
            }
        } else if !made.previous.is_empty() {
            let previous = Vec::new();
            let then = Made {
                previous,
                ..made.clone()
            };
            self.books.rewrite(&mut self.store, now, vnet, &then)?;
        }
        Ok(())
    }

    /// Whether no host has anything of a network that it should not have.
    fn have_let_go(&self, vnet: VnetId, made: &Made) -> bool {
        let wanted = match made.is_leaving {
            true => BTreeSet::new(),
            false => made.laid.hosts(),
        };
        let known = made.hosts().into_iter();
        let mut known = known.filter(|host| self.ground.host(host).is_some());
        known.all(|host| match wanted.contains(host) {
            true => self
                .said(vnet, host)
                .is_some_and(|said| said.generation >= made.round),
            false => self.has_removed(vnet, made.round, host),
        })
    }

    /// Ends the parts whose lease is over, and tells hosts again.
    pub(super) fn look(&mut self, now: Instant) -> Result<(), StoreError> {
        self.books.refresh(&mut self.store, now, &self.ground)?;
        let all: Vec<VnetId> = self.books.all_made().map(|(vnet, _)| vnet).collect();
        for vnet in all {
            let made = self.books.made(vnet);
            let over = made.filter(|it| !it.is_leaving && it.expires_ms <= now.as_millis());
            if let Some(made) = over {
                let then = Made {
                    is_leaving: true,
                    ..made.clone()
                };
                self.books.rewrite(&mut self.store, now, vnet, &then)?;
                self.books.refresh(&mut self.store, now, &self.ground)?;
            }
            self.order(vnet);
            self.tell_status(now, vnet, false);
            self.settle(now, vnet)?;
        }
        self.books.refresh(&mut self.store, now, &self.ground)
    }

    /// Tells the VNP how far a part is: when that has changed, or `always`.
    pub(super) fn tell_status(&mut self, now: Instant, vnet: VnetId, always: bool) {
        let Some(made) = self.books.made(vnet).filter(|made| !made.is_leaving) else {
            return;
        };
        let hosts = made.laid.hosts().into_iter();
        let said = hosts.map(|host| {
            let said = self.said(vnet, host);
            (host, said.filter(|_| self.is_there(now, host)))
        });
        let status = hosting::status(made, &said.collect());
        let (vnp, round) = (made.vnp.clone(), made.round);
        let before = self.told.insert(vnet, status.clone());
        if always || before.as_ref() != Some(&status) {
            let key = PartKey { vnet, round };
            self.tell(&vnp, FromPip::Status { key, status });
        }
    }

    fn said(&self, vnet: VnetId, host: &str) -> Option<&HostStatus> {
        let (_, said) = self.reports.get(host)?;
        said.parts.iter().find(|status| status.vnet == vnet)
    }

    /// Whether a host has said that nothing is left of a network, and that nothing of it up to this
    /// round will be made any more.
    fn has_removed(&self, vnet: VnetId, round: u64, host: &str) -> bool {
        let report = self.reports.get(host);
        report.is_some_and(|(_, said)| {
            let through = said.removed.get(&vnet);
            let is_absent = said.parts.iter().all(|status| status.vnet != vnet);
            is_absent && through.is_some_and(|through| *through >= round)
        })
    }
}
