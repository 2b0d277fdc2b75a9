//! Compares Carina's embedder with the cheapest possible embedding, on small cases.

use carina_embed::cases::{Case, Setting, Topology};
use carina_embed::joint::Joint;
use carina_embed::online::Online;
use carina_embed::{Embedder, Residual};
use carina_random::Random;

use crate::oracle::{Answer, cheapest, cheapest_of_all, cost_of_links};
use crate::random_cases;

/// Steps after which the oracle gives a case up.
const STEPS: u64 = 3_000_000;

#[test]
fn oracle_finds_what_trying_everything_finds() {
    let mut solved = 0;
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let residual = Residual::new(random_cases::substrate(&mut random, 5));
        let request = random_cases::request(&mut random, 3);
        let expected = cheapest_of_all(&residual, &request);
        let found = match cheapest(&residual, &request, u128::MAX, STEPS) {
            Answer::Cheapest(cost, embedding) => {
                assert_eq!(residual.check(&request, &embedding), Ok(()), "seed {seed}");
                assert_eq!(cost, cost_of_links(&residual, &request, &embedding));
                solved += 1;
                Some(cost)
            }
            Answer::Nothing => None,
            Answer::TooHard => panic!("seed {seed} is too hard"),
        };
        assert_eq!(found, expected, "seed {seed}");
    }
    assert!(
        (100..400).contains(&solved),
        "{solved} of 400 can be placed"
    );
}

/// The result of comparing many cases.
#[derive(Debug, Default)]
struct Comparison {
    ratios: Vec<f64>,
    /// Requests that Carina refused although they can be placed.
    false_refusals: usize,
    /// Requests that cannot be placed.
    impossible: usize,
    too_hard: usize,
}

impl Comparison {
    fn add(&mut self, residual: &Residual, request: &carina_embed::Request) {
        let ours = Joint::default().embed(residual, request);
        let cost = ours.map(|ours| cost_of_links(residual, request, &ours));
        let bound = cost.unwrap_or(u128::MAX);
        match (cost, cheapest(residual, request, bound, STEPS)) {
            (_, Answer::TooHard) => self.too_hard += 1,
            (Ok(cost), Answer::Nothing) => self.push(cost, cost, request),
            (Ok(cost), Answer::Cheapest(least, _)) => self.push(cost, least, request),
            (Err(_), Answer::Nothing) => self.impossible += 1,
            (Err(_), Answer::Cheapest(..)) => self.false_refusals += 1,
        }
    }

    /// Adds the ratio of the embedding's cost, including processors, to the least cost.
    fn push(&mut self, cost: u128, least: u128, request: &carina_embed::Request) {
        let cpu: u128 = request
            .nodes()
            .iter()
            .map(|node| u128::from(node.cpu))
            .sum();
        if cpu + least > 0 {
            self.ratios.push((cpu + cost) as f64 / (cpu + least) as f64);
        }
    }

    fn mean(&self) -> f64 {
        self.ratios.iter().sum::<f64>() / self.ratios.len() as f64
    }
}

#[test]
fn cost_is_near_the_optimum_in_living_networks() {
    for (topology, eta, nodes_max, wanted) in [
        (Topology::Geant, 0.016, 5, 60),
        (Topology::Wx100, 0.3, 4, 25),
        (Topology::Brain, 0.004, 4, 25),
    ] {
        let setting = Setting {
            topology,
            eta,
            requests: 400,
        };
        let case = Case::draw(setting, 1).expect("the rate is within its bounds");
        let mut online = Online::new(&case);
        let mut comparison = Comparison::default();
        while let Some(request) = online.poll_request() {
            let is_small = request.nodes().len() <= nodes_max;
            // Only after other requests have filled the network.
            if is_small && online.tally().arrived > 100 && comparison.ratios.len() < wanted {
                comparison.add(online.residual(), request);
            }
            let answer = Joint::default().embed(online.residual(), request);
            online.handle_answer(answer).expect("what is placed fits");
        }
        let mean = comparison.mean();
        println!("{}: mean {mean}, {comparison:?}", topology.name());
        assert!(comparison.ratios.len() >= wanted / 2, "{comparison:?}");
        assert!(mean <= 1.02, "{}: {mean}, {comparison:?}", topology.name());
    }
}

#[test]
fn cost_is_near_the_optimum_under_every_constraint() {
    let mut comparison = Comparison::default();
    for seed in 0..1500 {
        let mut random = Random::new(seed);
        let residual = Residual::new(random_cases::substrate(&mut random, 9));
        let request = random_cases::request(&mut random, 4);
        comparison.add(&residual, &request);
    }
    let placed = comparison.ratios.len();
    println!(
        "mean {}, {placed} placed, {} false refusals, {} impossible, {} too hard",
        comparison.mean(),
        comparison.false_refusals,
        comparison.impossible,
        comparison.too_hard
    );
    assert!(placed > 300, "{placed} were placed");
    assert!(comparison.mean() <= 1.02, "{}", comparison.mean());
    // A refusal proves nothing, but it must be wrong only rarely.
    let refused = comparison.false_refusals + comparison.impossible;
    assert!(comparison.false_refusals * 50 <= refused, "{comparison:?}");
}
