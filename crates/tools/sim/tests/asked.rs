//! Which seeds a run of the tests tries.

use std::ops::Range;

/// The first `count` seeds; other ones when a person asks for them: from `CARINA_SIM_SEED`, as many
/// as `CARINA_SIM_COUNT`.
pub fn seeds(count: u64) -> Range<u64> {
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

/// Fails with all seeds that fail.
pub fn all_hold(seeds: Range<u64>, fault: impl Fn(u64) -> Option<String>) {
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
