//! Runs many seeds on all CPUs.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// Calls `play` once for each seed, each call on one thread, and passes the results to `take` in
/// the order in which they are ready.
pub(super) fn on_all_cpus<T: Send>(
    seeds: &Range<u64>,
    play: impl Fn(u64) -> T + Sync,
    take: impl FnMut(T),
) {
    let next = AtomicU64::new(seeds.start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (results, inbox) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let results = results.clone();
            let (next, play) = (&next, &play);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || results.send(play(seed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        inbox.into_iter().for_each(take);
    });
}
