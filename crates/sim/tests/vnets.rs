//! Virtual networks by seed: roles that die at any step, and what must hold all the same.

use carina_sim::vnets::{Mutant, Outcome, Size, run, run_without};

/// Runs seeds and adds up how they ended.
fn seeds(seeds: impl Iterator<Item = u64>, size: Size) -> Outcome {
    let mut sum = Outcome::default();
    for seed in seeds {
        match run(seed, size, None) {
            Ok(outcome) => sum += outcome,
            Err(violation) => panic!(
                "{violation}\nagain: carina sim vnet --seeds {seed}..{} --trace, of {size:?}",
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
    assert!(sum.deaths > SEEDS && sum.moved > SEEDS / 2, "{sum:?}");
}

/// Seeds in which a process of a VNP took what it had heard in one step for an answer in another.
#[test]
fn network_is_called_removed_when_all_providers_said_so() {
    let found = [1_795_660_420, 1_795_660_941, 1_795_661_627, 1_795_662_699];
    let sum = seeds(found.into_iter(), Size::default());
    assert!(sum.ready > 4, "{sum:?}");
}

#[test]
fn many_networks_over_many_hosts_are_ready_or_refused() {
    let size = Size {
        pips: Some(6),
        hosts: Some(20),
        networks: Some(60),
        contends: false,
    };
    let sum = seeds(0..2, size);
    println!("{sum:?}");
    assert!(sum.ready > 60, "{sum:?}");
}

#[test]
fn networks_that_contend_are_ready_or_refused() {
    let sum = seeds(0..SEEDS / 4, Size::CONTENDED);
    println!("{sum:?}");
    assert!(sum.ready > SEEDS / 4 && sum.refused > SEEDS / 4, "{sum:?}");
}

/// What holds in all runs would hold of a check that looks at nothing.
#[test]
fn runs_find_what_is_taken_out_of_the_product() {
    for mutant in Mutant::ALL {
        let mut tried = 0..MUTANT_SEEDS;
        let found = tried.find_map(|seed| {
            let violation = run_without(seed, Size::CONTENDED, mutant).err()?;
            Some((seed, violation.what))
        });
        println!("{mutant:?}: {found:?}");
        assert!(found.is_some(), "{mutant:?}: {MUTANT_SEEDS} seeds hold");
    }
}

const SEEDS: u64 = 200;

/// Within so many seeds each mutant is found.
const MUTANT_SEEDS: u64 = 60;
