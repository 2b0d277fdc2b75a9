//! Processor time of processes that a test has started.

// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::time::Duration;

/// What all threads of a process that runs have taken so far.
fn processor_time(pid: u32) -> Duration {
    let mut total = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        // A thread that has just ended has none.
        let Ok(text) = fs::read_to_string(task.unwrap().path().join("schedstat")) else {
            continue;
        };
        total += text.split(' ').next().unwrap().parse::<u64>().unwrap();
    }
    Duration::from_nanos(total)
}

/// The least that a process takes of several looks; the first that is below `enough` is the last.
/// What else the machine does makes a wake-up dearer, never cheaper.
pub fn least_used(pid: u32, look: Duration, enough: Duration) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..LOOKS {
        let before = processor_time(pid);
        std::thread::sleep(look);
        least = least.min(processor_time(pid).saturating_sub(before));
        if least < enough {
            break;
        }
    }
    least
}

const LOOKS: u32 = 30;
