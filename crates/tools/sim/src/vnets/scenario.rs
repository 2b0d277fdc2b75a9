//! Draws a scenario of virtual networks from a seed: the parties, and what happens.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_random::{Random, mix};
use carina_time::{Duration, Instant};
use carina_vnet::document::{
    Carrier, Document, End, Header, Kind, Link, Nics, Node, OnInsufficient, Rate, Span, Via,
};
use carina_vnet::host_part::{HostLimits, InterfaceAddress};
use carina_vnet::pip::inventory::{self, Border, Discovery, Host, Inventory};

use super::Size;
use super::unsteady_store::Shares;

/// A scenario of virtual networks: the parties, their requests, and the faults.
#[derive(Debug)]
pub(super) struct Scenario {
    /// Providers: name, inventory, and number of processes.
    pub(super) pips: Vec<(String, Inventory, usize)>,
    /// VNPs: name, the operators that use it, and number of processes while there are faults. There
    /// may be two: one takes over from another that has not ended.
    pub(super) vnps: Vec<(String, Vec<String>, usize)>,
    /// Requests of operators, with their times.
    pub(super) wishes: Vec<(Instant, Wish)>,
    /// Number of networks that a VNP allows each operator at a time; `None` for the product's
    /// default.
    pub(super) networks_per_vno: Option<u16>,
    /// Shares of messages, in 1/10000, that are lost and that are duplicated.
    pub(super) lost: u32,
    pub(super) doubled: u32,
    /// Longest usual delay of a message; some messages take 20 times as long.
    pub(super) delay_max: Duration,
    /// Shares of the accesses to stores that fail or are disturbed in other ways.
    pub(super) shares: Shares,
    /// Share of messages and timers, in 1/10000, that a process handles late, and the longest
    /// delay.
    pub(super) busy: u32,
    pub(super) busy_max: Duration,
    /// Time at which faults end.
    pub(super) trouble_ends: Instant,
    /// Mean time between two deaths of processes of roles, agents, hosts or machines.
    pub(super) death_every: Duration,
    /// Shortest and longest time between two moves of nodes that providers order.
    pub(super) move_every: [Duration; 2],
    /// Mean times between faults of further kinds; `None` in a run without them.
    pub(super) upsets: Option<Upsets>,
    /// Number of the VNP that is lost, with its store, when the other faults end; `None` if no VNP
    /// is lost.
    pub(super) lost_vnp: Option<usize>,
    /// Limits of the hosts, numbered over all providers; `None` if hosts have no limits.
    pub(super) limits: Option<Vec<HostLimits>>,
    /// Time at which a host returns with a part that its provider does not know, and the number of
    /// the host.
    pub(super) stray: Option<(Instant, usize)>,
    /// Time at which parties send requests about networks of others.
    pub(super) meddling: Instant,
    /// Time at which the removal of all networks begins.
    pub(super) removal: Instant,
    pub(super) end: Instant,
    pub(super) random: Random,
}

/// Mean time between two faults of each kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upsets {
    /// Mean time until the next connection between two parties is cut.
    pub(super) cut_every: Duration,
    /// Mean time until the next store stops answering for a while.
    pub(super) store_away_every: Duration,
    /// Mean time until the next host is drained.
    pub(super) drain_every: Duration,
}

/// A request of an operator.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// The operator requests a network, or a change of one.
    Apply {
        vno: String,
        document: Box<Document>,
    },
    /// The operator requests the removal of a network.
    Remove { vno: String, name: String },
}

/// Beginning of every name of the substrate, by which leaks to operators are detected.
pub(super) const MARK: &str = "sub-";

const LOCATIONS: [&str; 3] = ["uk", "de", "fr"];

impl Scenario {
    pub(super) fn new(seed: u64, size: Size) -> Scenario {
        let mut random = Random::new(seed);
        let mut pips = Vec::new();
        for number in 0..drawn(&mut random, size.pips, 4) as usize {
            let inventory = inventory(&mut random, number, size);
            let processes = random.within(1, 2) as usize;
            pips.push((format!("{MARK}pip{number}"), inventory, processes));
        }
        borders(&mut random, &mut pips);
        let mut vnps = Vec::new();
        let drawn_vnps = random.within(1, 2);
        let count = if size.contends { 2 } else { drawn_vnps };
        for number in 0..count {
            let count = random.within(1, 2);
            let vnos = (0..count).map(|index| format!("vno{number}.{index}"));
            let processes = random.within(1, 2) as usize;
            vnps.push((format!("{MARK}vnp{number}"), vnos.collect(), processes));
        }
        if size.contends {
            pips.iter_mut().for_each(|pip| pip.2 = 2);
            vnps.iter_mut().for_each(|vnp| vnp.2 = 2);
        }
        let trouble_ends = START + Duration::from_secs(random.within(20, 120));
        let wishes = wishes(&mut random, &vnps, size, trouble_ends);
        let lost_vnp = if vnps.len() > 1 && random.chance(2000) {
            Some(random.index(vnps.len()))
        } else {
            None
        };
        let meddling = trouble_ends + Duration::from_secs(350);
        let removal = trouble_ends + Duration::from_secs(400);
        let mut scenario = Scenario {
            stray: None,
            pips,
            vnps,
            wishes,
            networks_per_vno: size.networks_per_vno,
            lost: random.below(2000) as u32,
            doubled: random.below(1500) as u32,
            delay_max: Duration::from_millis(random.within(1, 200)),
            shares: shares(&mut random),
            busy: random.below(7000) as u32,
            busy_max: Duration::from_millis(random.within(1, 2000)),
            trouble_ends,
            death_every: Duration::from_millis(random.within(500, 20_000)),
            move_every: [200, 8000].map(Duration::from_millis),
            upsets: None,
            limits: None,
            lost_vnp,
            meddling,
            removal,
            end: removal + Duration::from_secs(300),
            random,
        };
        if size.contends {
            scenario.contend();
        }
        scenario.spread(size);
        if !size.is_plain && !size.is_able {
            scenario.limit(&mut Random::new(mix(seed, LIMITS)));
        }
        scenario
    }

    /// Gives hosts limits, and changes some nodes of documents so that they are beyond the limits
    /// of some hosts.
    fn limit(&mut self, random: &mut Random) {
        let count: usize = self
            .pips
            .iter()
            .map(|(_, ground, _)| ground.hosts.len())
            .sum();
        let limits = (0..count).map(|_| HostLimits {
            no_nodes: random.chance(100).then(|| format!("{MARK}it is not root")),
            no_machines: random
                .chance(500)
                .then(|| format!("{MARK}there is no QEMU")),
            images: if random.chance(6000) {
                [IMAGE.to_owned()].into()
            } else {
                [].into()
            },
            member_memory_mib: random.below(200),
            interfaces_max: random.within(3, 16) as usize,
        });
        self.limits = Some(limits.collect());
        for (_, wish) in &mut self.wishes {
            let Wish::Apply { document, .. } = wish else {
                continue;
            };
            for node in document.node.values_mut() {
                if random.chance(600) && node.kind != Some(Kind::Namespace) {
                    node.image = Some(IMAGE.to_owned());
                }
            }
        }
    }

    /// Adapts the times between faults to the size, so that each process, host, connection and
    /// store fails as often as in a run of usual size, and as many nodes of each network move.
    fn spread(&mut self, size: Size) {
        let pips = self.pips.len() as u64;
        let hosts: usize = self
            .pips
            .iter()
            .map(|(_, ground, _)| ground.hosts.len())
            .sum();
        let hosts = hosts as u64;
        let processes: usize = self.pips.iter().map(|pip| pip.2).sum();
        let vnps: usize = self.vnps.iter().map(|vnp| vnp.2).sum();
        let vnos: usize = self.vnps.iter().map(|vnp| vnp.1.len()).sum();
        let parties = hosts + (processes + vnps + vnos) as u64;
        let every = self.death_every;
        if !size.is_plain {
            let connections = hosts + vnos as u64 + self.vnps.len() as u64 * pips;
            let stores = (self.pips.len() + self.vnps.len() + vnos) as u64;
            self.upsets = Some(Upsets {
                cut_every: often(every, USUAL_PARTIES, connections),
                store_away_every: often(every, USUAL_PARTIES, stores),
                drain_every: often(DRAIN_EVERY, USUAL_HOSTS, hosts),
            });
        }
        // The usual size is the one that a seed draws.
        if hosts > HOSTS_DRAWN_MAX {
            self.death_every = often(every, USUAL_PARTIES, parties);
            let networks = size.networks.map_or(USUAL_NETWORKS, u64::from);
            let usual = self.move_every;
            self.move_every = usual.map(|usual| often(usual, USUAL_NETWORKS, networks));
        }
    }

    /// Makes the parties compete: processes are busy, so that their work piles up and is done
    /// between the reads and writes of others; a VNP is lost meanwhile, and a host returns with a
    /// part that its provider does not know.
    fn contend(&mut self) {
        let random = &mut self.random;
        self.shares.interleaved = 9000;
        self.busy = 7000;
        self.busy_max = self.busy_max.max(Duration::from_millis(500));
        self.lost_vnp = Some(random.index(self.vnps.len()));
        let pips = self.pips.iter();
        let hosts = pips.map(|(_, inventory, _)| inventory.hosts.len());
        let host = random.index(hosts.sum());
        self.stray = Some((self.trouble_ends + Duration::from_secs(100), host));
    }
}

/// Scales a time between events of one kind: with `here` objects in place of `usual`, events are
/// that much more frequent.
fn often(every: Duration, usual: u64, here: u64) -> Duration {
    Duration::from_nanos(every.as_nanos() / here.max(1) * usual)
}

/// Average sizes that a seed draws.
const USUAL_PARTIES: u64 = 18;
const USUAL_HOSTS: u64 = 10;
const USUAL_NETWORKS: u64 = 7;
/// Largest number of hosts that a seed draws.
const HOSTS_DRAWN_MAX: u64 = 28;
/// Time between two drained hosts in a run of usual size.
const DRAIN_EVERY: Duration = Duration::from_secs(20);

/// Number that is mixed into the seed for the limits of hosts.
const LIMITS: u64 = 2;
/// Name of an image that only some hosts have.
const IMAGE: &str = "debian";

/// Virtual time at which a run begins, as a time since 1970.
pub(super) const START: Instant = Instant::from_secs(1_000_000);

/// The requested number, or a random one from 1 to `max`.
fn drawn(random: &mut Random, wanted: Option<u8>, max: u64) -> u64 {
    wanted.map_or_else(|| random.within(1, max), u64::from)
}

fn shares(random: &mut Random) -> Shares {
    // Most errors need other processes working in between, so every run has that.
    let unanswered = random.below(500) as u32;
    let interleaved = random.within(2000, 9000) as u32;
    let late = if random.chance(3000) {
        random.below(2000) as u32
    } else {
        0
    };
    let compacted = random.below(100) as u32;
    Shares {
        unanswered,
        interleaved,
        late,
        compacted,
        mutant: None,
    }
}

fn inventory(random: &mut Random, pip: usize, size: Size) -> Inventory {
    let count = drawn(random, size.hosts, 7) as usize;
    let mut hosts = Vec::new();
    for number in 0..count {
        let labels = if random.chance(3000) {
            BTreeMap::from([("huge".to_owned(), "yes".to_owned())])
        } else {
            BTreeMap::new()
        };
        hosts.push(Host {
            name: format!("{MARK}h{pip}-{number}"),
            cpus: random.within(2, 12),
            memory_mib: random.within(256, 2048),
            nics: random.below(3),
            location: (*random.pick(&LOCATIONS)).to_owned(),
            labels,
            address: Ipv4Addr::new(172, 16 + pip as u8, number as u8, 0),
            tunnel_addresses: random.within(4, 200) as u32,
        });
    }
    let mut links = Vec::new();
    for number in 1..count {
        let mut others = vec![random.index(number)];
        if random.chance(5000) {
            others.push(random.index(number));
        }
        for other in others {
            let name = format!("{MARK}l{pip}.{}", links.len());
            let ends = [number, other].map(|host| format!("{MARK}h{pip}-{host}"));
            let rate_bps = random.within(50, 400) * 1_000_000;
            let delay_us = random.within(10, 2000);
            links.push(inventory::Link {
                name,
                ends,
                rate_bps,
                delay_us,
            });
        }
    }
    let discovery = [Discovery::Pip, Discovery::Vnp, Discovery::Abstract];
    let discovery = *random.pick(&discovery);
    let borders = Vec::new();
    Inventory {
        discovery,
        hosts,
        links,
        borders,
    }
}

/// Network of the addresses of a provider's hosts.
fn addresses(pip: usize) -> InterfaceAddress {
    InterfaceAddress::new(Ipv4Addr::new(172, 16 + pip as u8, 0, 0), 16).expect("a prefix of IPv4")
}

/// Connects the providers with each other, so that each can reach every other one.
fn borders(random: &mut Random, pips: &mut [(String, Inventory, usize)]) {
    let mut pairs = Vec::new();
    for number in 1..pips.len() {
        pairs.push([random.index(number), number]);
        if random.chance(5000) {
            pairs.push([random.index(number), number]);
        }
    }
    for (number, pair) in pairs.into_iter().enumerate() {
        for (pip, beyond) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let inventory = &mut pips[pip].1;
            let host = random.pick(&inventory.hosts).name.clone();
            inventory.borders.push(Border {
                name: format!("{MARK}b{number}"),
                host,
                rate_bps: random.within(50, 300) * 1_000_000,
                delay_us: random.within(10, 5000),
                reaches: vec![addresses(beyond)],
            });
        }
    }
}

fn wishes(
    random: &mut Random,
    vnps: &[(String, Vec<String>, usize)],
    size: Size,
    trouble_ends: Instant,
) -> Vec<(Instant, Wish)> {
    let vnos: Vec<&String> = vnps.iter().flat_map(|(_, vnos, _)| vnos).collect();
    let mut wishes = Vec::new();
    let span = trouble_ends.since(START).as_millis();
    let count = size.networks.map(u64::from);
    // In some runs all networks are requested at once.
    let first = if random.chance(4000) || size.contends {
        1000
    } else {
        span
    };
    for number in 0..count.unwrap_or_else(|| random.within(1, 12)) {
        let vno = (*random.pick(&vnos)).clone();
        let name = format!("net{number}");
        // If networks compete, half of them are requested while the others exist, just before the
        // faults end.
        let from = if size.contends && number % 2 > 0 {
            span - 3000
        } else {
            0
        };
        let mut at = START + Duration::from_millis(from + random.below(first));
        loop {
            let document = Box::new(document(random, &name));
            let vno = vno.clone();
            wishes.push((at, Wish::Apply { vno, document }));
            at += Duration::from_millis(random.below(span));
            if random.chance(7000) || at > trouble_ends {
                break;
            }
        }
        if random.chance(3000) {
            wishes.push((at, Wish::Remove { vno, name }));
        }
    }
    // Late requests, issued after the last fault. Their outcome depends on the resources alone.
    for number in 0..random.below(3) {
        let at = trouble_ends + Duration::from_secs(random.within(15, 100));
        let document = Box::new(document(random, &format!("late{number}")));
        let vno = (*random.pick(&vnos)).clone();
        wishes.push((at, Wish::Apply { vno, document }));
    }
    wishes
}

fn document(random: &mut Random, name: &str) -> Document {
    let count = random.within(1, 6) as usize;
    let mut node = BTreeMap::new();
    for number in 0..count {
        let mut wanted = Node {
            kind: random.chance(3000).then_some(Kind::Namespace),
            cpus: Some(random.within(1, 4) as u32),
            memory: Some(random.within(32, 600)),
            ..Node::default()
        };
        if random.chance(3000) {
            wanted.location = vec![(*random.pick(&LOCATIONS)).to_owned()];
        }
        if random.chance(700) {
            let (count, via) = (1, Via::Forwarder);
            wanted.nics = Some(Nics { count, via });
        }
        if number > 0 && random.chance(2000) {
            wanted.apart_from = vec![format!("n{}", random.index(number))];
        }
        if random.chance(500) {
            wanted.labels = BTreeMap::from([("huge".to_owned(), "yes".to_owned())]);
        }
        node.insert(format!("n{number}"), wanted);
    }
    let mut link = Vec::new();
    for number in 1..count {
        for _ in 0..random.within(1, 2) {
            link.push(wanted_link(random, number));
        }
    }
    let queue = Span::from(Duration::from_secs(random.within(5, 100)));
    let lease = Span::from(Duration::from_secs(random.within(10, 200)));
    Document {
        vnet: Header {
            name: name.to_owned(),
            lease: random.chance(2000).then_some(lease),
            on_insufficient: if random.chance(5000) {
                OnInsufficient::Queue(queue)
            } else {
                OnInsufficient::Reject
            },
        },
        defaults: Node::default(),
        node,
        link,
        access: BTreeMap::new(),
        test: Vec::new(),
    }
}

/// A random link between a node and an earlier one.
fn wanted_link(random: &mut Random, node: usize) -> Link {
    let carriers = [Carrier::Ipip, Carrier::Gre, Carrier::Vxlan, Carrier::Dif];
    let other = random.index(node);
    let delay = Span::from(Duration::from_micros(random.within(100, 20_000)));
    let ends = [other, node].map(|node| End::from(format!("n{node}")));
    let rate = Rate::from_bps(random.within(1, 60) * 1_000_000).expect("a rate");
    Link {
        delay_max: random.chance(3000).then_some(delay),
        carrier: *random.pick(&carriers),
        ..Link::new(ends, rate)
    }
}
