//! Tests properties of embeddings on thousands of random networks and requests.

use std::collections::BTreeMap;

use carina_embed::joint::Joint;
use carina_embed::ranked::{Measure, Ranked};
use carina_embed::{Embedder, Embedding, NodeId, Request, Residual, Substrate};
use carina_random::Random;
use carina_time::Duration;
use proptest::prelude::*;

use crate::random_cases;

/// Checks an embedding without any code of the crate but its types. Returns what it takes of each
/// host (processors, memory, cards) and of each link.
fn verify(
    substrate: &Substrate,
    request: &Request,
    embedding: &Embedding,
) -> (BTreeMap<u32, [u64; 3]>, BTreeMap<u32, u64>) {
    let mut of_hosts: BTreeMap<u32, [u64; 3]> = BTreeMap::new();
    for (node, host) in request.nodes().iter().zip(&embedding.hosts) {
        let own = &substrate.hosts()[host.index()];
        assert!(node.locations.is_empty() || node.locations.contains(&own.location));
        assert!(node.labels.iter().all(|label| own.labels.contains(label)));
        let sum = of_hosts.entry(host.0).or_default();
        *sum = [sum[0] + node.cpu, sum[1] + node.memory, sum[2] + node.nics];
    }
    for a in 0..request.nodes().len() {
        for b in (0..request.nodes().len()).filter(|b| *b != a) {
            let named = request.nodes()[a].apart_from.contains(&NodeId(b as u32));
            let is_apart = named || request.sharing() == carina_embed::request::Sharing::Never;
            assert!(!is_apart || embedding.hosts[a] != embedding.hosts[b]);
        }
    }
    let mut of_links: BTreeMap<u32, u64> = BTreeMap::new();
    for (link, path) in request.links().iter().zip(&embedding.paths) {
        let [mut at, to] = link.ends.map(|node| embedding.hosts[node.index()]);
        let mut delay = Duration::ZERO;
        let mut passed = vec![at];
        for hop in path {
            let own = &substrate.links()[hop.index()];
            let [a, b] = own.ends;
            assert!(at == a || at == b, "a path has a gap");
            at = if at == a { b } else { a };
            assert!(!passed.contains(&at), "a path passes a host twice");
            passed.push(at);
            delay += own.delay;
            *of_links.entry(hop.0).or_default() += link.rate;
        }
        assert_eq!(at, to, "a path ends elsewhere");
        assert!(link.delay_max.is_none_or(|delay_max| delay <= delay_max));
    }
    (of_hosts, of_links)
}

/// The resources taken of a substrate, counted independently of [`Residual`].
#[derive(Default)]
struct Taken {
    hosts: BTreeMap<u32, [u64; 3]>,
    links: BTreeMap<u32, u64>,
}

impl Taken {
    fn add(&mut self, sums: &(BTreeMap<u32, [u64; 3]>, BTreeMap<u32, u64>), sign: i64) {
        let change = |value: &mut u64, by: u64| {
            *value = value
                .checked_add_signed(sign * by as i64)
                .expect("not below zero");
        };
        for (host, amounts) in &sums.0 {
            let sum = self.hosts.entry(*host).or_default();
            sum.iter_mut()
                .zip(amounts)
                .for_each(|(sum, by)| change(sum, *by));
        }
        for (link, rate) in &sums.1 {
            change(self.links.entry(*link).or_default(), *rate);
        }
    }

    fn matches(&self, residual: &Residual) {
        for (index, host) in residual.substrate().hosts().iter().enumerate() {
            let taken = self.hosts.get(&(index as u32)).copied().unwrap_or_default();
            let free = residual.hosts()[index];
            let free = [free.cpu, free.memory, free.nics];
            let all = [host.cpu, host.memory, host.nics];
            let sums = [0, 1, 2].map(|at| free[at] + taken[at]);
            assert_eq!(sums, all, "host {index}");
        }
        for (index, link) in residual.substrate().links().iter().enumerate() {
            let taken = self.links.get(&(index as u32)).copied().unwrap_or_default();
            assert_eq!(residual.rates()[index] + taken, link.rate, "link {index}");
        }
    }
}

/// Lets random requests arrive and end; returns how many were placed.
fn run(seed: u64, embedder: &mut impl Embedder) -> usize {
    let mut random = Random::new(seed);
    let substrate = random_cases::substrate(&mut random, 14);
    let mut residual = Residual::new(substrate.clone());
    let mut taken = Taken::default();
    let mut living = Vec::new();
    let mut placed = 0;
    for _ in 0..12 {
        let request = random_cases::request(&mut random, 6);
        let answer = embedder.embed(&residual, &request);
        assert_eq!(answer, embedder.embed(&residual, &request), "seed {seed}");
        if let Ok(embedding) = answer {
            let sums = verify(&substrate, &request, &embedding);
            taken.add(&sums, 1);
            let outcome = residual.take(&request, &embedding);
            assert_eq!(outcome, Ok(()), "seed {seed}");
            taken.matches(&residual);
            living.push((request, embedding, sums));
            placed += 1;
        }
        if !living.is_empty() && random.chance(3_000) {
            let (request, embedding, sums) = living.swap_remove(random.index(living.len()));
            taken.add(&sums, -1);
            assert_eq!(residual.give_back(&request, &embedding), Ok(()));
            taken.matches(&residual);
        }
    }
    for (request, embedding, _) in living {
        assert_eq!(residual.give_back(&request, &embedding), Ok(()));
    }
    assert_eq!(residual, Residual::new(substrate), "seed {seed}");
    placed
}

#[test]
fn joint_keeps_every_constraint_and_gives_back_exactly() {
    let placed: usize = (0..2000).map(|seed| run(seed, &mut Joint::default())).sum();
    assert!(placed > 6000, "{placed} of 24000 were placed");
}

#[test]
fn baselines_keep_every_constraint_and_give_back_exactly() {
    for measure in [
        Measure::GlobalResourceCapacity,
        Measure::NodeResource,
        Measure::RandomWalk,
    ] {
        let mut embedder = Ranked::new(measure);
        let placed: usize = (0..400).map(|seed| run(seed, &mut embedder)).sum();
        assert!(placed > 600, "{placed} of 4800 were placed by {measure:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A modified embedding is either refused or valid, and never taken partially.
    #[test]
    fn changed_embeddings_are_checked_whole(seed: u64, at: usize, to in 0_u32..20) {
        let mut random = Random::new(seed);
        let substrate = random_cases::substrate(&mut random, 8);
        let request = random_cases::request(&mut random, 4);
        let mut residual = Residual::new(substrate.clone());
        let Ok(mut embedding) = Joint::default().embed(&residual, &request) else {
            return Ok(());
        };
        let hosts = embedding.hosts.len();
        let hops: usize = embedding.paths.iter().map(Vec::len).sum();
        match at % (hosts + hops) {
            at if at < hosts => embedding.hosts[at].0 = to,
            at => {
                let mut hops = embedding.paths.iter_mut().flatten();
                hops.nth(at - hosts).expect("it is one of them").0 = to;
            }
        }
        let before = residual.clone();
        if residual.take(&request, &embedding).is_ok() {
            let mut taken = Taken::default();
            taken.add(&verify(&substrate, &request, &embedding), 1);
            taken.matches(&residual);
        } else {
            prop_assert_eq!(residual, before);
        }
    }
}
