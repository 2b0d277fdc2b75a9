//! Compares hosts' reports with what the hosts should have, and sends orders.

use std::collections::BTreeSet;
use std::sync::Arc;

use carina_embed::HostId;
use carina_time::Instant;

use crate::host_part::{HostStatus, VnetId};
use crate::message::{FromAgent, FromPip, PartKey, ToAgent};
use crate::store::{Outcome, Store, StoreError};

use super::books::Made;
use super::{Pip, hosting};

impl<S: Store> Pip<S> {
    /// Processes a host's report. Hosts repeat their reports every second: if the report `is_known`
    /// and the last comparison found nothing to do, the comparison is skipped.
    pub(super) fn take_report(
        &mut self,
        now: Instant,
        host: HostId,
        is_known: bool,
    ) -> Result<(), StoreError> {
        self.books.refresh(&mut self.store, now, &self.ground)?;
        let changes = self.books.changes_at(host);
        if is_known && self.quiet.get(&host) == Some(&changes) {
            return Ok(());
        }
        self.quiet.remove(&host);
        let Some((_, report)) = self.reports.get(&host) else {
            return Ok(());
        };
        let report = Arc::clone(report);
        if self.compare(now, &report)? {
            self.quiet.insert(host, changes);
        }
        Ok(())
    }

    /// Compares a report with what the host should have, and sends the orders that are due. Returns
    /// whether there was nothing to do.
    fn compare(&mut self, now: Instant, report: &FromAgent) -> Result<bool, StoreError> {
        let host = report.host.as_str();
        let mut vnets = self.books.at(host);
        let mut is_right = true;
        let parts = report.parts.iter().map(|part| (part.vnet, part.generation));
        for (vnet, through) in parts {
            if self.books.made(vnet).is_none() {
                is_right = false;
                // The part was removed, and the host still has it. Or the books are out of date:
                // then the host's next report is compared again.
                let is_ordered = self.is_ordered(now, (vnet, host), (through, false));
                if !is_ordered && self.books.is_current(&mut self.store, now, vnet)? {
                    self.note_order(now, (vnet, host), (through, false));
                    let message = ToAgent::Remove { vnet, through };
                    self.send(host, message);
                }
            } else {
                vnets.insert(vnet);
            }
        }
        for vnet in vnets {
            is_right &= self.order_host(now, vnet, host);
            self.tell_status(now, vnet, false);
            self.finish_removal(now, vnet)?;
            self.drive_move(now, vnet)?;
            let is_settled =
                |made: &Made| !made.is_leaving && made.previous.is_empty() && made.is_still();
            is_right &= self.books.made(vnet).is_some_and(is_settled);
        }
        self.end_moves(host);
        let report = self.report_of(host).map(|(_, report)| report);
        Ok(is_right && report.is_some_and(|report| report.moves.is_empty()))
    }

    /// Sends orders to the hosts of a network whose reports differ from their orders.
    pub(super) fn order(&mut self, now: Instant, vnet: VnetId) {
        let made = self.books.made(vnet);
        let hosts = made.map_or_else(BTreeSet::new, Made::hosts);
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        for host in hosts {
            self.order_host(now, vnet, &host);
        }
    }

    /// Sends a host its order for a network, unless it has reported that it has carried it out:
    /// then returns true.
    fn order_host(&mut self, now: Instant, vnet: VnetId, host: &str) -> bool {
        let Some(made) = self.books.made(vnet) else {
            return true;
        };
        let is_wanted = made.wanted_hosts().contains(host);
        let status = self.status_of(vnet, host);
        let generation = status.map(|status| status.generation);
        // A host that has refused a change retries it by itself.
        let refused = status.and_then(|status| status.refused.as_ref());
        let refused = refused.map(|change| change.generation);
        let order = if is_wanted {
            made.generation_at(host)
        } else {
            made.generation()
        };
        let is_due = if is_wanted {
            generation.max(refused) < Some(order)
        } else {
            !self.has_removed(vnet, order, host)
        };
        if !is_due || self.is_ordered(now, (vnet, host), (order, is_wanted)) {
            return !is_due;
        }
        let message = if is_wanted {
            let placement = &made.laid.placement;
            ToAgent::Set(Box::new(hosting::host_part(vnet, made, placement, host)))
        } else {
            ToAgent::Remove {
                vnet,
                through: order,
            }
        };
        self.note_order(now, (vnet, host), (order, is_wanted));
        self.send(host, message);
        false
    }

    /// Whether this order was sent to the host a moment ago. The host answers an order with a
    /// report, and a report leads to orders: without this check an order that the host cannot carry
    /// out would repeat without end.
    fn is_ordered(&self, now: Instant, (vnet, host): (VnetId, &str), order: (u64, bool)) -> bool {
        let known = self.ordered.get(&(vnet, host.to_owned()));
        known.is_some_and(|(generation, is_wanted, at)| {
            (*generation, *is_wanted) == order && now < *at + self.timing.repeat
        })
    }

    fn note_order(&mut self, now: Instant, (vnet, host): (VnetId, &str), order: (u64, bool)) {
        let (generation, is_wanted) = order;
        let key = (vnet, host.to_owned());
        self.ordered.insert(key, (generation, is_wanted, now));
    }

    /// Records in the store which parts the hosts have removed, and reports a complete removal to
    /// the VNP.
    pub(super) fn finish_removal(&mut self, now: Instant, vnet: VnetId) -> Result<(), StoreError> {
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
                // If a host reports the network again, the order to remove it is sent at once.
                self.ordered.retain(|(of, _), _| *of != vnet);
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

    /// Whether every host of a network has reported that it has nothing that it should not have.
    fn have_let_go(&self, vnet: VnetId, made: &Made) -> bool {
        let wanted = made.wanted_hosts();
        let known = made.hosts().into_iter();
        let mut known = known.filter(|host| self.ground.host(host).is_some());
        known.all(|host| {
            if wanted.contains(host) {
                self.status_of(vnet, host)
                    .is_some_and(|said| said.generation >= made.generation_at(host))
            } else {
                self.has_removed(vnet, made.generation(), host)
            }
        })
    }

    /// Removes the parts whose lease has expired, and repeats orders that hosts have not carried
    /// out.
    pub(super) fn check_parts(&mut self, now: Instant) -> Result<(), StoreError> {
        self.books.refresh(&mut self.store, now, &self.ground)?;
        let all: Vec<VnetId> = self.books.all_made().map(|(vnet, _)| vnet).collect();
        for vnet in all {
            let made = self.books.made(vnet);
            // A VNP that could not reach this provider while it was down gets time to renew its
            // parts.
            let over = made.filter(|made| !made.is_leaving && made.expires_ms <= now.as_millis());
            let over = over.filter(|_| !self.is_young(now));
            if let Some(made) = over {
                let then = Made {
                    is_leaving: true,
                    ..made.clone()
                };
                self.books.rewrite(&mut self.store, now, vnet, &then)?;
                self.books.refresh(&mut self.store, now, &self.ground)?;
            }
            self.order(now, vnet);
            self.tell_status(now, vnet, false);
            self.finish_removal(now, vnet)?;
            self.drive_move(now, vnet)?;
        }
        let oldest = now - self.timing.repeat;
        self.ordered.retain(|_, (.., at)| *at > oldest);
        self.told_beyond.retain(|_, (.., at)| *at > oldest);
        self.sends.retain(|_, until| *until > now);
        self.reason_cache.tidy(now);
        self.books.refresh(&mut self.store, now, &self.ground)
    }

    /// Sends the VNP the state of a part, if it has changed or if `always`.
    pub(super) fn tell_status(&mut self, now: Instant, vnet: VnetId, always: bool) {
        let Some(made) = self.books.made(vnet).filter(|made| !made.is_leaving) else {
            return;
        };
        let hosts = made.laid.hosts();
        let mut known = hosts.iter().filter_map(|host| self.ground.host(host));
        if known.any(|host| self.is_unheard(now, host)) {
            // The VNP still has the state from before this process began.
            return;
        }
        let reported = hosts.into_iter().map(|host| {
            let reported = self.status_of(vnet, host);
            let is_present = self.is_present_by_name(now, host);
            (host, reported.filter(|_| is_present))
        });
        let status = hosting::status(made, &reported.collect());
        let (vnp, round) = (made.vnp.clone(), made.round);
        let before = self.told.insert(vnet, status.clone());
        if always || before.as_ref() != Some(&status) {
            let key = PartKey { vnet, round };
            self.tell(&vnp, FromPip::Status { key, status });
        }
    }

    pub(super) fn status_of(&self, vnet: VnetId, host: &str) -> Option<&HostStatus> {
        let (_, said) = self.report_of(host)?;
        said.parts.iter().find(|status| status.vnet == vnet)
    }

    /// Whether a host has reported that it has nothing of a network, and that it will never make a
    /// generation up to this one.
    fn has_removed(&self, vnet: VnetId, generation: u64, host: &str) -> bool {
        self.report_of(host).is_some_and(|(_, report)| {
            let through = report.removed.get(&vnet);
            let is_absent = report.parts.iter().all(|status| status.vnet != vnet);
            is_absent && through.is_some_and(|through| *through >= generation)
        })
    }
}
