//! How long the process of a VM waits for a processor of the host.
//!
//! On a host with more work than processors, a VM may stand still for longer than a living peer may
//! be silent. The kernel counts how long each thread was ready to run and did not run; that time
//! says nothing about the node in the VM.

use std::fs;
use std::path::{Path, PathBuf};

/// The threads of a process, with the time that each had waited for a processor when the
/// measurement began.
#[derive(Debug)]
pub(super) struct ProcessorWait {
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    /// `/proc/PID/task/TID/schedstat` (proc(5)): time on a processor, time of waiting for one, both
    /// in nanoseconds, and the number of time slices.
    schedstat: PathBuf,
    waited_ns: u64,
}

impl ProcessorWait {
    /// Begins a measurement of the threads that the process has now. `None` if this system does not
    /// show them.
    pub(super) fn begin(pid: i32) -> Option<ProcessorWait> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let files = tasks.filter_map(|task| Some(task.ok()?.path().join("schedstat")));
        ProcessorWait::of(files.take(THREADS_MAX))
    }

    /// Begins a measurement of the threads with these files.
    pub(super) fn of(files: impl Iterator<Item = PathBuf>) -> Option<ProcessorWait> {
        let threads = files.filter_map(|schedstat| {
            let waited_ns = waited_ns(&schedstat)?;
            Some(Thread {
                schedstat,
                waited_ns,
            })
        });
        let threads: Vec<Thread> = threads.collect();
        (!threads.is_empty()).then_some(ProcessorWait { threads })
    }

    /// Returns the longest time in nanoseconds that one of the threads has waited since the
    /// measurement began. A wait counts once it has ended. Threads that ended do not count.
    pub(super) fn longest_ns(&self) -> u64 {
        let waits = self.threads.iter().filter_map(|thread| {
            Some(waited_ns(&thread.schedstat)?.saturating_sub(thread.waited_ns))
        });
        waits.max().unwrap_or(0)
    }
}

fn waited_ns(schedstat: &Path) -> Option<u64> {
    let text = fs::read_to_string(schedstat).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Largest number of threads that are measured: processors of the VM, and the threads of its
/// devices.
const THREADS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_threads_are_read_and_only_grow() {
        let Some(wait) = ProcessorWait::begin(std::process::id() as i32) else {
            eprintln!("SKIP: this kernel does not count how long threads wait for a processor");
            return;
        };
        let before_ns = wait.longest_ns();
        std::thread::yield_now();
        assert!(wait.longest_ns() >= before_ns);
        assert!(ProcessorWait::begin(i32::MAX).is_none());
    }
}
