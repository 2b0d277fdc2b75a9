//! What a provider has promised, and what is free.

use std::collections::{BTreeMap, BTreeSet};

use carina_embed::residual::Amounts;
use carina_embed::{HostId, Residual};
use carina_time::Instant;
use serde::{Deserialize, Serialize};

use crate::host_part::{EndPart, VnetId};
use crate::message::TunnelEnd;
use crate::mirror::{Mirror, from_value, to_value};
use crate::store::{Outcome, Store, StoreError, Transaction};

use super::inventory::Ground;
use super::placing::{Laid, Taken};

/// A part that is held for a time, on a lease of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Held {
    pub(super) vnp: String,
    pub(super) round: u64,
    pub(super) laid: Laid,
}

/// A part that is made, or was and is being removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Made {
    pub(super) vnp: String,
    pub(super) round: u64,
    pub(super) laid: Laid,
    /// Where links lead that leave the provider.
    pub(super) far: Vec<(EndPart, TunnelEnd)>,
    /// When it goes unless its VNP names it again, ms since 1970.
    pub(super) expires_ms: u64,
    /// Whether it is being removed.
    pub(super) is_leaving: bool,
    /// What it was before, until the hosts have let go of that.
    pub(super) previous: Vec<Laid>,
}

impl Made {
    /// All hosts that have, or may still have, something of it.
    pub(super) fn hosts(&self) -> BTreeSet<&str> {
        let laid = self.previous.iter().chain([&self.laid]);
        laid.flat_map(Laid::hosts).collect()
    }
}

/// What one network has of the substrate, by the numbers of hosts and links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Charge {
    hosts: BTreeMap<usize, Amounts>,
    rates: BTreeMap<usize, u64>,
}

/// Sums over networks, by the numbers of hosts and links.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    hosts: Vec<Amounts>,
    rates: Vec<u64>,
}

/// All parts, as the store has them, and their sums.
#[derive(Clone, Debug)]
pub(super) struct Books {
    prefix: String,
    mirror: Mirror,
    held: BTreeMap<VnetId, Held>,
    made: BTreeMap<VnetId, Made>,
    /// The networks that are made at each host, as [`Made::hosts`] says.
    at: BTreeMap<String, BTreeSet<VnetId>>,
    /// How often something has changed of what is made at each host.
    changes: BTreeMap<String, u64>,
    charges: BTreeMap<VnetId, Charge>,
    hosts: Vec<Amounts>,
    rates: Vec<u64>,
    /// The numbers of hosts and links of which more is promised than there is.
    excess_hosts: BTreeSet<usize>,
    excess_links: BTreeSet<usize>,
}

impl Books {
    pub(super) fn new(pip: &str, ground: &Ground) -> Books {
        let prefix = format!("pip/{pip}/");
        Books {
            mirror: Mirror::new(&prefix),
            prefix,
            held: BTreeMap::new(),
            made: BTreeMap::new(),
            at: BTreeMap::new(),
            changes: BTreeMap::new(),
            charges: BTreeMap::new(),
            excess_hosts: BTreeSet::new(),
            excess_links: BTreeSet::new(),
            hosts: vec![Amounts::default(); ground.substrate.hosts().len()],
            rates: vec![0; ground.substrate.links().len()],
        }
    }

    /// Brings the books up to date with the store.
    pub(super) fn refresh(
        &mut self,
        store: &mut dyn Store,
        now: Instant,
        ground: &Ground,
    ) -> Result<(), StoreError> {
        for key in self.mirror.refresh(store, now)? {
            let name = key.strip_prefix(&self.prefix).unwrap_or_default();
            let Some((kind, vnet)) = name.split_once('/') else {
                continue;
            };
            let Ok(vnet) = vnet.parse::<VnetId>() else {
                continue;
            };
            let entry = self.mirror.entry(&key);
            match kind {
                "held" => match entry.map(from_value).transpose()? {
                    Some(held) => drop(self.held.insert(vnet, held)),
                    None => drop(self.held.remove(&vnet)),
                },
                "made" => {
                    let made = entry.map(from_value).transpose()?;
                    self.replace_made(vnet, made);
                }
                _ => continue,
            }
            self.charge(vnet, ground);
        }
        Ok(())
    }

    fn replace_made(&mut self, vnet: VnetId, made: Option<Made>) {
        if let Some(old) = self.made.remove(&vnet) {
            for host in old.hosts() {
                if let Some(there) = self.at.get_mut(host) {
                    there.remove(&vnet);
                }
                *self.changes.entry(host.to_owned()).or_default() += 1;
            }
        }
        let Some(made) = made else { return };
        for host in made.hosts() {
            self.at.entry(host.to_owned()).or_default().insert(vnet);
            *self.changes.entry(host.to_owned()).or_default() += 1;
        }
        self.made.insert(vnet, made);
    }

    fn charge(&mut self, vnet: VnetId, ground: &Ground) {
        if let Some(old) = self.charges.remove(&vnet) {
            self.add(&old, ground, |sum, amount| sum - amount);
        }
        let mut charge = Charge::default();
        let made = self.made.get(&vnet);
        let laid = made
            .into_iter()
            .flat_map(|made| made.previous.iter().chain([&made.laid]));
        for laid in laid.chain(self.held.get(&vnet).map(|held| &held.laid)) {
            charge.cover(&Charge::of(laid, ground));
        }
        self.add(&charge, ground, |sum, amount| sum + amount);
        if charge != Charge::default() {
            self.charges.insert(vnet, charge);
        }
    }

    fn add(&mut self, charge: &Charge, ground: &Ground, with: impl Fn(u64, u64) -> u64) {
        for (host, amounts) in &charge.hosts {
            let sum = &mut self.hosts[*host];
            sum.cpu = with(sum.cpu, amounts.cpu);
            sum.memory = with(sum.memory, amounts.memory);
            sum.nics = with(sum.nics, amounts.nics);
            let all = Amounts::of_host(&ground.substrate.hosts()[*host]);
            note(&mut self.excess_hosts, *host, !all.contains(*sum));
        }
        for (link, rate) in &charge.rates {
            self.rates[*link] = with(self.rates[*link], *rate);
            let all = ground.substrate.links()[*link].rate;
            note(&mut self.excess_links, *link, self.rates[*link] > all);
        }
    }

    pub(super) fn held(&self, vnet: VnetId) -> Option<&Held> {
        self.held.get(&vnet)
    }

    pub(super) fn made(&self, vnet: VnetId) -> Option<&Made> {
        self.made.get(&vnet)
    }

    /// The networks of which a host has, or may still have, something.
    pub(super) fn at(&self, host: &str) -> BTreeSet<VnetId> {
        self.at.get(host).cloned().unwrap_or_default()
    }

    /// How often something has changed of what is made at a host.
    pub(super) fn changes_at(&self, host: &str) -> u64 {
        self.changes.get(host).copied().unwrap_or_default()
    }

    pub(super) fn all_made(&self) -> impl Iterator<Item = (VnetId, &Made)> {
        self.made.iter().map(|(vnet, made)| (*vnet, made))
    }

    pub(super) fn all_held(&self) -> impl Iterator<Item = (VnetId, &Held)> {
        self.held.iter().map(|(vnet, held)| (*vnet, held))
    }

    /// What is promised of all that there is.
    pub(super) fn promised(&self) -> Sums {
        Sums {
            hosts: self.hosts.clone(),
            rates: self.rates.clone(),
        }
    }

    /// What of it belongs to parts that are made, or are being removed.
    pub(super) fn used(&self, ground: &Ground) -> Sums {
        let mut sums = Sums {
            hosts: vec![Amounts::default(); self.hosts.len()],
            rates: vec![0; self.rates.len()],
        };
        for made in self.made.values() {
            let mut charge = Charge::default();
            for laid in made.previous.iter().chain([&made.laid]) {
                charge.cover(&Charge::of(laid, ground));
            }
            for (host, amounts) in &charge.hosts {
                let sum = &mut sums.hosts[*host];
                sum.cpu += amounts.cpu;
                sum.memory += amounts.memory;
                sum.nics += amounts.nics;
            }
            for (link, rate) in &charge.rates {
                sums.rates[*link] += rate;
            }
        }
        sums
    }

    /// What is free for a network, beside all others; nothing on hosts that are not there.
    pub(super) fn free(
        &self,
        ground: &Ground,
        vnet: Option<VnetId>,
        is_there: impl Fn(HostId) -> bool,
    ) -> Residual {
        let own = vnet.and_then(|vnet| self.charges.get(&vnet));
        let substrate = &ground.substrate;
        let mut hosts = Vec::new();
        for (number, host) in substrate.hosts().iter().enumerate() {
            let all = Amounts::of_host(host);
            let used = self.hosts[number];
            let own = own
                .and_then(|own| own.hosts.get(&number).copied())
                .unwrap_or_default();
            hosts.push(match is_there(HostId::of(number)) {
                true => Amounts {
                    cpu: all.cpu.saturating_sub(used.cpu - own.cpu),
                    memory: all.memory.saturating_sub(used.memory - own.memory),
                    nics: all.nics.saturating_sub(used.nics - own.nics),
                },
                false => Amounts::default(),
            });
        }
        let mut rates = Vec::new();
        for (number, link) in substrate.links().iter().enumerate() {
            let own = own
                .and_then(|own| own.rates.get(&number).copied())
                .unwrap_or_default();
            rates.push(link.rate.saturating_sub(self.rates[number] - own));
        }
        Residual::of_free(substrate.clone(), &hosts, &rates)
    }

    /// Of what more is promised than there is.
    pub(super) fn excess(&self, ground: &Ground) -> Vec<String> {
        let hosts = self.excess_hosts.iter().map(|number| {
            let host = ground.host_entry(HostId::of(*number));
            let name = host.map_or("behind a border", |host| &host.name);
            format!("host {name}: {:?} is promised", self.hosts[*number])
        });
        let hosts: Vec<String> = hosts.collect();
        if hosts.is_empty() && self.excess_links.is_empty() {
            return hosts;
        }
        let names = ground.link_names();
        let links = self.excess_links.iter().map(|number| {
            let (name, rate) = (names[*number], self.rates[*number]);
            format!("link {name}: {rate} bps are promised")
        });
        hosts.into_iter().chain(links).collect()
    }

    /// Tags and addresses that there are, also those of the network itself: a tunnel that stays
    /// keeps its own.
    pub(super) fn taken(&self) -> Taken {
        let mut taken = Taken::default();
        for made in self.made.values() {
            taken.add(&made.laid.placement);
            made.previous
                .iter()
                .for_each(|laid| taken.add(&laid.placement));
        }
        for held in self.held.values() {
            taken.add(&held.laid.placement);
        }
        taken
    }

    /// A transaction on what a network has, which is refused if that has changed since the books
    /// were brought up to date. With `takes`, also if anything was promised meanwhile.
    pub(super) fn change(&self, vnet: VnetId, takes: bool) -> Transaction {
        let [held, made] = [self.held_key(vnet), self.made_key(vnet)];
        let transaction = Transaction::new()
            .if_as_read(&*held, self.mirror.revision(&held))
            .if_as_read(&*made, self.mirror.revision(&made));
        if !takes {
            return transaction;
        }
        let sum = format!("{}promises", self.prefix);
        let transaction = transaction.if_as_read(&*sum, self.mirror.revision(&sum));
        transaction.put(sum, vec![])
    }

    pub(super) fn held_key(&self, vnet: VnetId) -> String {
        format!("{}held/{vnet}", self.prefix)
    }

    pub(super) fn made_key(&self, vnet: VnetId) -> String {
        format!("{}made/{vnet}", self.prefix)
    }

    /// The lease on which a part is held.
    pub(super) fn lease(&self, vnet: VnetId) -> Option<crate::store::LeaseId> {
        self.mirror.entry(&self.held_key(vnet))?.lease
    }

    /// Whether what a network has is in the store as the books have it. That there is nothing of a
    /// network, which ends what is there, is said only then: the books may be behind.
    pub(super) fn is_current(
        &self,
        store: &mut dyn Store,
        now: Instant,
        vnet: VnetId,
    ) -> Result<bool, StoreError> {
        let outcome = store.commit(now, &self.change(vnet, false))?;
        Ok(outcome != Outcome::Conflict)
    }

    /// Writes a made part anew, if it is as it was read.
    pub(super) fn rewrite(
        &mut self,
        store: &mut dyn Store,
        now: Instant,
        vnet: VnetId,
        made: &Made,
    ) -> Result<Outcome, StoreError> {
        let write = self
            .change(vnet, false)
            .put(self.made_key(vnet), to_value(made));
        store.commit(now, &write)
    }
}

impl Sums {
    /// Of a host.
    pub(super) fn host(&self, number: usize) -> Amounts {
        self.hosts.get(number).copied().unwrap_or_default()
    }

    /// Of a link, bits a second.
    pub(super) fn rate(&self, number: usize) -> u64 {
        self.rates.get(number).copied().unwrap_or_default()
    }
}

fn note(excess: &mut BTreeSet<usize>, number: usize, is_excess: bool) {
    match is_excess {
        true => excess.insert(number),
        false => excess.remove(&number),
    };
}

impl Charge {
    fn of(laid: &Laid, ground: &Ground) -> Charge {
        let mut charge = Charge::default();
        for wanted in &laid.part.nodes {
            let host = laid.placement.hosts.get(&wanted.node.name);
            if let Some(host) = host.and_then(|name| ground.host(name)) {
                let sum = charge.hosts.entry(host.index()).or_default();
                sum.cpu += u64::from(wanted.node.cpus);
                sum.memory += wanted.node.memory_mib;
                sum.nics += u64::from(wanted.nics);
            }
        }
        for (link, path) in laid.part.links.iter().zip(&laid.placement.paths) {
            for hop in path.iter().filter_map(|name| ground.link(name)) {
                *charge.rates.entry(hop.index()).or_default() += link.rate.bps();
            }
        }
        charge
    }

    /// Grows to what is needed for either: two states of one network are never there at once.
    fn cover(&mut self, other: &Charge) {
        for (host, amounts) in &other.hosts {
            let own = self.hosts.entry(*host).or_default();
            own.cpu = own.cpu.max(amounts.cpu);
            own.memory = own.memory.max(amounts.memory);
            own.nics = own.nics.max(amounts.nics);
        }
        for (link, rate) in &other.rates {
            let own = self.rates.entry(*link).or_default();
            *own = (*own).max(*rate);
        }
    }
}
