//! Tests of flows that follow each other without a pause, in all dialects.

use carina_sim::churn::Churn;
use carina_sim::member_factory;
use carina_wire::dif::Dialect;

use crate::asked::{all_hold, seeds};

fn seeds_hold(dialect: Dialect) {
    all_hold(seeds(SEEDS), |seed| {
        let churn = Churn {
            seed,
            dialect,
            rounds: ROUNDS,
        };
        match churn.run(member_factory()) {
            Ok(flows) if flows == 12 * ROUNDS as u64 => None,
            Ok(flows) => Some(format!("{flows} flows")),
            Err(reason) => Some(reason.to_string()),
        }
    });
}

#[test]
fn native_flows_follow_upon_one_another() {
    seeds_hold(Dialect::Native);
}

#[test]
fn rlite_flows_follow_upon_one_another() {
    seeds_hold(Dialect::Rlite);
}

#[test]
fn irati_flows_follow_upon_one_another() {
    seeds_hold(Dialect::Irati);
}

const SEEDS: u64 = 8;

const ROUNDS: usize = 25;
