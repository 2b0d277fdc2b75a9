//! Tests of virtual networks with roles that are killed at any step, by seed.

use carina_sim::vnets::{Mutant, Outcome, Size, run, run_without};

/// Runs the seeds, and adds up their outcomes.
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

/// Hosts without limits that never refuse a node, as when the seeds below were found.
fn able(size: Size) -> Size {
    Size {
        is_able: true,
        ..size
    }
}

#[test]
fn networks_are_ready_or_refused_whatever_dies() {
    let sum = seeds(0..SEEDS, Size::default());
    println!("{sum:?}");
    // Without this check, roles that refuse everything would pass.
    assert!(sum.ready > SEEDS && sum.refused > SEEDS / 4, "{sum:?}");
    assert!(sum.deaths > SEEDS && sum.moved > SEEDS / 2, "{sum:?}");
}

/// Seeds in which a process of a VNP confused a message of one step with an answer in another step.
#[test]
fn network_is_removed_when_all_providers_report_it() {
    let found = [1_795_660_420, 1_795_660_941, 1_795_661_627, 1_795_662_699];
    let size = Size {
        is_plain: true,
        ..Size::default()
    };
    let sum = seeds(found.into_iter(), size);
    assert!(sum.ready > 4, "{sum:?}");
}

/// Seeds in which a network was removed while a host that had awaited one of its nodes still had a
/// part, and in which a node that could not be sent was requested endlessly.
#[test]
fn moves_that_are_given_up_leave_nothing() {
    let plain = Size {
        is_plain: true,
        ..Size::default()
    };
    seeds([1_795_678_174, 1_795_678_838].into_iter(), plain);
    let sum = seeds([12, 63, 535].into_iter(), able(Size::default()));
    assert!(sum.moved > 0 && sum.drained > 3, "{sum:?}");
    // In the second one a request arrived while its network was being removed, and its operator did
    // not know that.
    let sum = seeds([173, 212].into_iter(), able(Size::CONTENDED));
    assert!(sum.drained > 0, "{sum:?}");
}

/// Seeds in which a provider gave away a tag that the neighbouring provider still used; in which an
/// operator's process that could not read its store at its start did not try again; and in which a
/// provider with old data reported a drained host as not drained.
#[test]
fn stores_that_are_away_or_behind_are_asked_again() {
    let found = [1_795_686_431, 1_795_685_096, 1_795_687_907];
    let sum = seeds(found.into_iter(), able(Size::default()));
    assert!(sum.ready > 3, "{sum:?}");
}

/// Every requested network is in exactly one of the counts.
#[test]
fn requests_are_all_answered_withdrawn_or_over() {
    let sum = seeds(0..20, Size::default());
    let counted = sum.ready + sum.refused + sum.withdrawn + sum.expired + sum.lost;
    assert!(sum.wanted > 20 && counted == sum.wanted, "{sum:?}");
    assert!(
        sum.cuts > 20 && sum.stores_away > 10 && sum.drained > 10,
        "{sum:?}"
    );
}

/// There are 12 networks, and each of the few operators may have one at a time.
#[test]
fn networks_beyond_the_share_of_an_operator_are_refused() {
    let size = Size {
        networks: Some(12),
        networks_per_vno: Some(1),
        ..Size::default()
    };
    let sum = seeds(0..SEEDS / 4, size);
    let whole = seeds(
        0..SEEDS / 4,
        Size {
            networks_per_vno: None,
            ..size
        },
    );
    println!("{sum:?} {whole:?}");
    assert!(sum.ready <= SEEDS / 4 * OPERATORS_MAX, "{sum:?}");
    assert!(sum.ready > 0 && sum.refused > whole.refused, "{sum:?}");
    assert!(whole.ready > sum.ready, "{whole:?}");
}

#[test]
fn many_networks_over_many_hosts_are_ready_or_refused() {
    let size = Size {
        pips: Some(6),
        hosts: Some(20),
        networks: Some(60),
        ..Size::default()
    };
    let sum = seeds(0..2, size);
    println!("{sum:?}");
    assert!(2 * sum.ready >= sum.wanted, "{sum:?}");
}

#[test]
fn networks_that_contend_are_ready_or_refused() {
    let sum = seeds(0..SEEDS / 4, Size::CONTENDED);
    println!("{sum:?}");
    assert!(sum.ready > SEEDS / 4 && sum.refused > SEEDS / 4, "{sum:?}");
}

/// A check that never fails would pass all other tests: this one requires that each mutant is
/// detected.
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

/// Seeds in which a drained host awaited a node whose move needed the agreement of a neighbouring
/// provider, and in which a move that was given up in favour of another one left its destination
/// without a promise.
#[test]
fn moves_that_wait_for_a_provider_beyond_are_counted() {
    let sum = seeds([1_795_687_427].into_iter(), able(Size::CONTENDED));
    assert!(sum.drained > 0, "{sum:?}");
    let sum = seeds([1_795_686_922].into_iter(), able(Size::LARGE));
    assert!(sum.moved > 0, "{sum:?}");
}

/// A seed in which a drained host's node went to a host that had refused it before.
#[test]
fn node_stays_where_it_is_if_the_other_host_cannot_make_it() {
    let sum = seeds([1_795_885_813].into_iter(), Size::default());
    assert!(sum.drained > 0 && sum.ready > 0, "{sum:?}");
}

const SEEDS: u64 = 200;

/// There are at most two VNPs, with two operators each.
const OPERATORS_MAX: u64 = 4;

/// Number of seeds within which each mutant must be detected.
const MUTANT_SEEDS: u64 = 60;
