//! CPU time of processes that a test has started.

// Helper functions of tests may panic, as tests may.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::time::Duration;

/// CPU time of all threads of a running process so far.
fn processor_time(pid: u32) -> Duration {
    let mut total = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        // A thread that has just ended has no such file.
        let Ok(text) = fs::read_to_string(task.unwrap().path().join("schedstat")) else {
            continue;
        };
        total += text.split(' ').next().unwrap().parse::<u64>().unwrap();
    }
    Duration::from_nanos(total)
}

/// The least CPU time of a process in several intervals. The first interval below `enough` is the
/// last. Other work of the machine makes a wake-up more expensive, never cheaper.
pub(crate) fn least_used(pid: u32, look: Duration, enough: Duration) -> Duration {
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
