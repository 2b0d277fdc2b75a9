//! Virtual networks by seed: roles that die at any step, and what must hold all the same.

use carina_sim::vnets::{Outcome, Size, run};

/// Runs seeds and adds up how they ended.
fn seeds(seeds: impl Iterator<Item = u64>, size: Size) -> Outcome {
    let mut sum = Outcome::default();
    for seed in seeds {
        match run(seed, size, None) {
            Ok(outcome) => sum += outcome,
            Err(violation) => panic!(
                "{violation}\nagain: carina sim vnet --seeds {seed}..{} --trace",
                seed + 1
            ),
        }
    }
    sum
}

#[test]
fn networks_are_ready_or_refused_whatever_dies() {
    let sum = seeds(0..SEEDS, Size::default());
    println!("{sum:?}");
    // It would hold of roles that refuse all.
    assert!(sum.ready > SEEDS && sum.refused > SEEDS / 4, "{sum:?}");
    assert!(sum.deaths > SEEDS, "{sum:?}");
}

#[test]
fn many_networks_over_many_hosts_are_ready_or_refused() {
    let size = Size {
        pips: Some(6),
        hosts: Some(20),
        networks: Some(60),
    };
    let sum = seeds(0..2, size);
    println!("{sum:?}");
    assert!(sum.ready > 60, "{sum:?}");
}

const SEEDS: u64 = 200;
