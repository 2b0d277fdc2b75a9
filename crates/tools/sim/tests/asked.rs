//! The seeds that a run of the tests tries.

use std::ops::Range;

/// The first `count` seeds. Environment variables select others: `CARINA_SIM_SEED` the first one,
/// `CARINA_SIM_COUNT` their number.
pub(crate) fn seeds(count: u64) -> Range<u64> {
    let asked = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(
            text.parse::<u64>()
                .unwrap_or_else(|_| panic!("{name} is no number: {text}")),
        )
    };
    let first = asked("CARINA_SIM_SEED").unwrap_or(0);
    first..first + asked("CARINA_SIM_COUNT").unwrap_or(count)
}

/// Runs `fault` for each seed, and fails with the list of all seeds for which it returns an error.
pub(crate) fn all_hold(seeds: Range<u64>, fault: impl Fn(u64) -> Option<String>) {
    let faults = seeds.filter_map(|seed| Some((seed, fault(seed)?)));
    let faults: Vec<String> = faults
        .map(|(seed, fault)| format!("seed {seed}: {fault}"))
        .collect();
    assert!(
        faults.is_empty(),
        "{} seeds fail\n{}",
        faults.len(),
        faults.join("\n")
    );
}
