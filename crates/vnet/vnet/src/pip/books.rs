//! The books of a provider: which resources are promised to networks, and which are free.

use std::collections::{BTreeMap, BTreeSet};

use carina_embed::residual::Amounts;
use carina_embed::{HostId, Residual};
use carina_time::Instant;
use serde::{Deserialize, Serialize};

use crate::host_part::VnetId;
use crate::store::{Outcome, Store, StoreError, Transaction};
use crate::store_copy::{StoreCopy, from_value, to_value};

use self::charge::Charge;
pub(super) use self::made::Made;
use super::inventory::Ground;
use super::placing::{Laid, Taken};

mod charge;
mod made;

/// A part that is reserved on a lease of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Held {
    pub(super) vnp: String,
    pub(super) round: u64,
    pub(super) laid: Laid,
}

/// Sums over all networks, by the numbers of hosts and links.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    hosts: Vec<Amounts>,
    rates: Vec<u64>,
}

/// All parts that the store has, and the sums of their resources.
#[derive(Clone, Debug)]
pub(super) struct Books {
    prefix: String,
    copy: StoreCopy,
    held: BTreeMap<VnetId, Held>,
    made: BTreeMap<VnetId, Made>,
    /// Hosts that take no new nodes.
    drained: BTreeSet<String>,
    /// For each host, the networks that have or may still have something there, as [`Made::hosts`]
    /// says.
    at: BTreeMap<String, BTreeSet<VnetId>>,
    /// For each host, how often the parts that are made there have changed.
    changes: Vec<u64>,
    charges: BTreeMap<VnetId, Charge>,
    hosts: Vec<Amounts>,
    rates: Vec<u64>,
    /// The numbers of hosts of which more is promised than exists.
    excess_hosts: BTreeSet<usize>,
    excess_links: BTreeSet<usize>,
}

impl Books {
    pub(super) fn new(pip: &str, ground: &Ground) -> Books {
        let prefix = format!("pip/{pip}/");
        Books {
            copy: StoreCopy::new(&prefix),
            prefix,
            held: BTreeMap::new(),
            made: BTreeMap::new(),
            drained: BTreeSet::new(),
            at: BTreeMap::new(),
            changes: vec![0; ground.substrate.hosts().len()],
            charges: BTreeMap::new(),
            excess_hosts: BTreeSet::new(),
            excess_links: BTreeSet::new(),
            hosts: vec![Amounts::default(); ground.substrate.hosts().len()],
            rates: vec![0; ground.substrate.links().len()],
        }
    }

    /// Updates the books from the store.
    pub(super) fn refresh(
        &mut self,
        store: &mut dyn Store,
        now: Instant,
        ground: &Ground,
    ) -> Result<(), StoreError> {
        for key in self.copy.refresh(store, now)? {
            let name = key.strip_prefix(&self.prefix).unwrap_or_default();
            let Some((kind, vnet)) = name.split_once('/') else {
                continue;
            };
            if kind == DRAINED {
                match self.copy.entry(&key) {
                    Some(_) => self.drained.insert(vnet.to_owned()),
                    None => self.drained.remove(vnet),
                };
                continue;
            }
            let Ok(vnet) = vnet.parse::<VnetId>() else {
                continue;
            };
            let entry = self.copy.entry(&key);
            match kind {
                "held" => match entry.map(from_value).transpose()? {
                    Some(held) => drop(self.held.insert(vnet, held)),
                    None => drop(self.held.remove(&vnet)),
                },
                "made" => {
                    let made = entry.map(from_value).transpose()?;
                    self.replace_made(vnet, made, ground);
                }
                _ => continue,
            }
            self.charge(vnet, ground);
        }
        Ok(())
    }

    fn replace_made(&mut self, vnet: VnetId, made: Option<Made>, ground: &Ground) {
        if let Some(old) = self.made.remove(&vnet) {
            for host in old.hosts() {
                if let Some(parts) = self.at.get_mut(host) {
                    parts.remove(&vnet);
                }
                self.note_change(host, ground);
            }
        }
        let Some(made) = made else { return };
        for host in made.hosts() {
            self.at.entry(host.to_owned()).or_default().insert(vnet);
            self.note_change(host, ground);
        }
        self.made.insert(vnet, made);
    }

    fn note_change(&mut self, host: &str, ground: &Ground) {
        let number = ground.host(host).map(HostId::index);
        if let Some(changes) = number.and_then(|number| self.changes.get_mut(number)) {
            *changes += 1;
        }
    }

    fn charge(&mut self, vnet: VnetId, ground: &Ground) {
        if let Some(old) = self.charges.remove(&vnet) {
            self.add(&old, ground, |sum, amount| sum - amount);
        }
        let mut charge = Charge::default();
        let made = self.made.get(&vnet).into_iter().flat_map(Made::placements);
        let held = self.held.get(&vnet).map(|held| &held.laid);
        for (part, placement) in made.chain(held.map(|laid| (&laid.part, &laid.placement))) {
            charge.cover(&Charge::of(part, placement, ground));
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

    /// The networks that have, or may still have, something on a host.
    pub(super) fn at(&self, host: &str) -> BTreeSet<VnetId> {
        self.at.get(host).cloned().unwrap_or_default()
    }

    /// How often the parts that are made on a host have changed.
    pub(super) fn changes_at(&self, host: HostId) -> u64 {
        self.changes.get(host.index()).copied().unwrap_or_default()
    }

    pub(super) fn all_made(&self) -> impl Iterator<Item = (VnetId, &Made)> {
        self.made.iter().map(|(vnet, made)| (*vnet, made))
    }

    pub(super) fn all_held(&self) -> impl Iterator<Item = (VnetId, &Held)> {
        self.held.iter().map(|(vnet, held)| (*vnet, held))
    }

    /// The resources that are promised to parts, reserved or made.
    pub(super) fn promised(&self) -> Sums {
        Sums {
            hosts: self.hosts.clone(),
            rates: self.rates.clone(),
        }
    }

    /// The resources of parts that are made or are being removed.
    pub(super) fn used(&self, ground: &Ground) -> Sums {
        let mut sums = Sums {
            hosts: vec![Amounts::default(); self.hosts.len()],
            rates: vec![0; self.rates.len()],
        };
        for made in self.made.values() {
            let mut charge = Charge::default();
            for (part, placement) in made.placements() {
                charge.cover(&Charge::of(part, placement, ground));
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

    /// The resources that are free for a network: what no other network is promised. Hosts for
    /// which `is_present` is false have none, and a drained host only has what the network already
    /// has there.
    pub(super) fn free(
        &self,
        ground: &Ground,
        vnet: Option<VnetId>,
        is_present: impl Fn(HostId) -> bool,
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
            let name = ground
                .host_entry(HostId::of(number))
                .map(|host_entry| &host_entry.name);
            let is_drained = name.is_some_and(|name| self.is_drained(name));
            hosts.push(if !is_present(HostId::of(number)) {
                Amounts::default()
            } else if is_drained {
                own
            } else {
                Amounts {
                    cpu: all.cpu.saturating_sub(used.cpu - own.cpu),
                    memory: all.memory.saturating_sub(used.memory - own.memory),
                    nics: all.nics.saturating_sub(used.nics - own.nics),
                }
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

    /// The hosts and links of which more is promised than exists, as text.
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

    /// The tags and tunnel addresses in use, including those of the network `vnet` itself: its
    /// tunnels that do not change keep theirs without asking for new ones.
    pub(super) fn taken(&self, vnet: VnetId) -> Taken {
        let mut taken = Taken::by(vnet);
        let far = self.made.values().flat_map(|made| &made.far);
        taken.tags.extend(far.map(|(_, end)| end.tag));
        for (_, placement) in self.made.values().flat_map(Made::placements) {
            taken.add(placement);
        }
        for held in self.held.values() {
            taken.add(&held.laid.placement);
        }
        taken
    }

    /// Whether a host takes no new nodes.
    pub(super) fn is_drained(&self, host: &str) -> bool {
        self.drained.contains(host)
    }

    /// The hosts that take no new nodes.
    pub(super) fn drained(&self) -> impl Iterator<Item = &str> {
        self.drained.iter().map(String::as_str)
    }

    /// A transaction that writes nothing, and conflicts if the store's entry for draining this host
    /// has changed since the books were read.
    pub(super) fn drained_as_read(&self, host: &str) -> Transaction {
        let key = format!("{}{DRAINED}/{host}", self.prefix);
        Transaction::new().if_as_read(&*key, self.copy.revision(&key))
    }

    /// A transaction that marks a host as drained, or removes the mark. It conflicts if anything
    /// was promised since the books were read.
    pub(super) fn drain(&self, host: &str, is_drained: bool) -> Transaction {
        let sum = format!("{}promises", self.prefix);
        let key = format!("{}{DRAINED}/{host}", self.prefix);
        let transaction = Transaction::new()
            .if_as_read(&*sum, self.copy.revision(&sum))
            .put(sum, vec![]);
        if is_drained {
            transaction.put(key, vec![])
        } else {
            transaction.delete(key)
        }
    }

    /// A transaction on the parts of a network. It conflicts if they have changed since the books
    /// were read, and with `takes` also if anything was promised to any network.
    pub(super) fn change(&self, vnet: VnetId, takes: bool) -> Transaction {
        let [held, made] = [self.held_key(vnet), self.made_key(vnet)];
        let transaction = Transaction::new()
            .if_as_read(&*held, self.copy.revision(&held))
            .if_as_read(&*made, self.copy.revision(&made));
        if !takes {
            return transaction;
        }
        let sum = format!("{}promises", self.prefix);
        let transaction = transaction.if_as_read(&*sum, self.copy.revision(&sum));
        transaction.put(sum, vec![])
    }

    pub(super) fn held_key(&self, vnet: VnetId) -> String {
        format!("{}held/{vnet}", self.prefix)
    }

    pub(super) fn made_key(&self, vnet: VnetId) -> String {
        format!("{}made/{vnet}", self.prefix)
    }

    /// The store's lease of a network's reservation.
    pub(super) fn lease(&self, vnet: VnetId) -> Option<crate::store::LeaseId> {
        self.copy.entry(&self.held_key(vnet))?.lease
    }

    /// Whether the store's entries of a network still match the books. Callers check this before
    /// they tell anyone that a network does not exist, because the books may be out of date.
    pub(super) fn is_current(
        &self,
        store: &mut dyn Store,
        now: Instant,
        vnet: VnetId,
    ) -> Result<bool, StoreError> {
        let outcome = store.commit(now, &self.change(vnet, false))?;
        Ok(outcome != Outcome::Conflict)
    }

    /// Replaces the record of a part that is made, if it has not changed since the books were read.
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
    /// The sum for a host.
    pub(super) fn host(&self, number: usize) -> Amounts {
        self.hosts.get(number).copied().unwrap_or_default()
    }

    /// The sum for a link, bits a second.
    pub(super) fn rate(&self, number: usize) -> u64 {
        self.rates.get(number).copied().unwrap_or_default()
    }
}

fn note(excess: &mut BTreeSet<usize>, number: usize, is_excess: bool) {
    if is_excess {
        excess.insert(number)
    } else {
        excess.remove(&number)
    };
}

const DRAINED: &str = "drained";
/// Bits of a generation that count moves.
pub(super) const MOVES_BITS: u32 = 16;

/// The VNP's round in a generation of a host part.
#[must_use]
pub fn round_of(generation: u64) -> u64 {
    generation >> MOVES_BITS
}
