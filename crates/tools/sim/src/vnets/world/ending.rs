//! Checks how networks ended.

use std::rc::Rc;

use carina_time::{Duration, Instant};
use carina_vnet::message::ReasonCode;
use carina_vnet::store::{KeyRange, Store};
use carina_vnet::vno::Seen;

use super::super::asked::difference;
use super::super::host::REFUSED;
use super::{Broken, Who, World};

/// Time after the last fault in which all processes have restarted, and hosts have sent their
/// reports.
const BACK: Duration = Duration::from_secs(10);

/// Time after the end of a lease by which nothing may be left.
const SETTLES: Duration = Duration::from_secs(60);

impl World<'_> {
    /// Checks the state of each network when there have been no faults for a while, and removes all
    /// networks.
    pub(super) fn remove_all(&mut self, now: Instant) -> Result<(), Broken> {
        self.check_unmoved()?;
        self.check_owned()?;
        self.check_all_drained(now)?;
        self.outcome.wanted = self.asked.len() as u64;
        for number in 0..self.operators.len() {
            let own = (number, String::new())..(number + 1, String::new());
            let asked = self.asked.range(own.clone()).count() as u64;
            if self.is_vnp_lost(self.operators[number].1) {
                self.outcome.lost += asked;
                continue;
            }
            let slot = Rc::clone(&self.vnos[number]);
            let mut held = slot.machine.borrow_mut();
            let Some(machine) = held.as_mut() else {
                return Err(Broken(format!("operator {number} did not come back")));
            };
            let names: Vec<String> = machine.names().map(str::to_owned).collect();
            let mut seen = Vec::new();
            for name in &names {
                seen.extend(machine.seen(name));
                let removed = machine.remove(now, name);
                removed.map_err(|error| Broken(format!("{name} cannot be removed: {error}")))?;
            }
            drop(held);
            self.check_wanted(now, number, &names)?;
            let wanted = self.wanted.range(own).count() as u64;
            self.outcome.withdrawn += asked - wanted;
            self.outcome.expired += wanted - names.len() as u64;
            for network in seen {
                self.check_view(number, &network)?;
            }
            self.flush(now, Who::Vno(number))?;
        }
        Ok(())
    }

    /// Checks that hosts have no parts of networks without an operator. Those of a lost VNP must
    /// have ended with their leases.
    fn check_owned(&self) -> Result<(), Broken> {
        let owners = self.owners();
        for host in &self.hosts {
            if let Some(vnet) = host.parts.keys().find(|vnet| !owners.contains_key(vnet)) {
                return Err(Broken(format!(
                    "{} has {vnet}, which no operator has",
                    host.name
                )));
            }
        }
        Ok(())
    }

    /// Checks that an operator has the networks that it wants and no others, and none beyond its
    /// lease.
    fn check_wanted(&self, now: Instant, vno: usize, names: &[String]) -> Result<(), Broken> {
        let own = (vno, String::new())..(vno + 1, String::new());
        let is_wanted = |name: &&String| self.wanted.contains_key(&(vno, (*name).clone()));
        if let Some(name) = names.iter().find(|name| !is_wanted(name)) {
            return Err(Broken(format!("{name} is there, and no operator wants it")));
        }
        for ((_, name), (heard, document)) in self.wanted.range(own) {
            let lease = document.vnet.lease.map(|lease| *heard + lease.duration());
            let is_over = lease.is_some_and(|end| end + SETTLES < now);
            let is_listed = names.contains(name);
            if is_listed == is_over && (is_over || lease.is_none()) {
                let what = format!("{name}: there: {is_listed}, its lease is over: {is_over}");
                return Err(Broken(what));
            }
        }
        Ok(())
    }

    fn check_view(&mut self, vno: usize, seen: &Seen) -> Result<(), Broken> {
        let standing = &seen.standing;
        let nodes = self
            .hosts
            .iter()
            .filter_map(|host| host.parts.get(&seen.vnet));
        let nodes: usize = nodes.map(|(part, _)| part.nodes.len()).sum();
        self.note(|| format!("{seen:?}, {nodes} nodes"));
        if standing.is_ready() {
            self.outcome.ready += 1;
            let Some((_, document)) = self.wanted.get(&(vno, seen.name.clone())) else {
                return Err(Broken(format!("no operator wants {}", seen.name)));
            };
            let difference = difference(document, seen.vnet, &self.hosts);
            return difference.map_or(Ok(()), |what| Err(Broken(what)));
        }
        let reason = standing
            .reason
            .as_ref()
            .map_or("", |reason| &reason.message);
        if standing.is_refused && !reason.is_empty() {
            self.outcome.refused += 1;
            // A network that was refused before anything of it was made must leave no nodes.
            let is_of_a_host = reason.contains(REFUSED.words());
            if is_of_a_host && nodes > 0 && !self.answered.was_ready(seen.vnet) {
                return Err(Broken(format!(
                    "{} was refused, and hosts have {nodes} nodes of it: {reason}",
                    seen.name
                )));
            }
            let heard = self.wanted.get(&(vno, seen.name.clone()));
            let is_late = heard.is_some_and(|(at, _)| *at > self.scenario.trouble_ends + BACK);
            let code = standing.reason.as_ref().map(|reason| reason.code);
            if is_late && matches!(code, Some(ReasonCode::Unreachable | ReasonCode::Conflict)) {
                return Err(Broken(format!(
                    "{} was refused though all answer: {reason}",
                    seen.name
                )));
            }
            return Ok(());
        }
        Err(Broken(format!(
            "{} is neither ready nor refused: {standing:?}",
            seen.name
        )))
    }

    pub(super) fn check_nothing_left(&mut self) -> Result<(), Broken> {
        if let Some(host) = self.hosts.iter().find(|host| !host.parts.is_empty()) {
            let parts: Vec<String> = host.parts.keys().map(ToString::to_string).collect();
            return Err(Broken(format!("host {} still has {parts:?}", host.name)));
        }
        let now = self.now();
        let all = KeyRange {
            from: "!".to_owned(),
            to: "~".to_owned(),
        };
        let is_intact = |vnp: usize| !self.is_vnp_lost(vnp);
        let vnps = (0..).zip(&self.vnp_stores);
        let vnps = vnps.filter(|(vnp, _)| is_intact(*vnp));
        let vnos = self.operators.iter().zip(&self.vno_stores);
        let vnos = vnos.filter(|((_, vnp), _)| is_intact(*vnp));
        let stores = self.pip_stores.iter().chain(vnps.map(|(_, store)| store));
        for store in stores.chain(vnos.map(|(_, store)| store)) {
            let snapshot = store.borrow_mut().range(now, &all);
            let snapshot = snapshot.map_err(|error| Broken(error.to_string()))?;
            let mut keys = snapshot.entries.iter().map(|entry| &entry.key);
            let is_kept = |key: &str| key.ends_with("/promises") || self.is_drained_key(key);
            if let Some(key) = keys.find(|key| !is_kept(key)) {
                return Err(Broken(format!("a store still has {key}")));
            }
        }
        Ok(())
    }
}
