//! Virtual networks by seed: roles that die at any step, and what must hold all the same.

use carina_sim::vnets::{Outcome, run};

/// Runs seeds and adds up how they ended.
fn seeds(seeds: impl Iterator<Item = u64>) -> Outcome {
    let mut sum = Outcome::default();
    for seed in seeds {
        match run(seed, None) {
            Ok(outcome) => {
                sum.ready += outcome.ready;
                sum.refused += outcome.refused;
                sum.deaths += outcome.deaths;
            }
            Err(violation) => panic!(
                "{violation}\nagain: CARINA_SIM_SEED={seed} cargo test -p carina-sim --test all \
                 vnets:: -- --nocapture"
            ),
        }
    }
    sum
}

#[test]
fn networks_are_ready_or_refused_whatever_dies() {
    if let Ok(seed) = std::env::var("CARINA_SIM_SEED") {
        let seed = seed.parse().expect("CARINA_SIM_SEED is a number");
        let outcome = run(seed, Some(&mut |line| println!("{line}")));
        println!("{outcome:?}");
        outcome.unwrap();
        return;
    }
    let sum = seeds(0..SEEDS);
    println!("{sum:?}");
    // It would hold of roles that refuse all.
    assert!(sum.ready > SEEDS && sum.refused > SEEDS / 4, "{sum:?}");
    assert!(sum.deaths > SEEDS, "{sum:?}");
}

const SEEDS: u64 = 200;
