//! How long the process of a VM waits for a processor of the host.
//!
//! On a host with more work than processors, a VM may stand still for longer than a living peer may
//! be silent: for more than a second with 15 threads for each processor. The kernel counts how long
//! each thread was ready to run and did not run; that time says nothing about the node in the VM.

use std::fs;
use std::path::{Path, PathBuf};

/// The threads of a process, with the time that each has waited for a processor since the
/// measurement began.
#[derive(Debug)]
pub(super) struct ProcessorWait {
    threads: Vec<Thread>,
    next_look_ns: u64,
}

#[derive(Debug)]
struct Thread {
    /// `/proc/PID/task/TID`.
    directory: PathBuf,
    first: Times,
    last: Times,
    /// Since when the thread has been ready to run without running. The kernel counts a wait once
    /// it has ended.
    ready_ns: Option<u64>,
}

/// Times of a thread in nanoseconds (`schedstat`, proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    ran: u64,
    waited: u64,
}

impl ProcessorWait {
    /// Begins a measurement of the threads that the process has now. Without a process of this pid
    /// there are no waits.
    pub(super) fn begin(pid: i32, now_ns: u64) -> ProcessorWait {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        let directories = tasks.into_iter().flatten();
        let directories = directories.filter_map(|task| Some(task.ok()?.path()));
        ProcessorWait::of(directories.take(THREADS_MAX), now_ns)
    }

    /// Begins a measurement of the threads with these directories.
    pub(super) fn of(directories: impl Iterator<Item = PathBuf>, now_ns: u64) -> ProcessorWait {
        let threads = directories.filter_map(|directory| {
            let first = Times::read(&directory)?;
            Some(Thread {
                ready_ns: is_ready(&directory).then_some(now_ns),
                directory,
                first,
                last: first,
            })
        });
        ProcessorWait {
            threads: threads.collect(),
            next_look_ns: now_ns,
        }
    }

    /// Looks at the threads, at most every 20 ms. The caller looks at least every 100 ms.
    pub(super) fn look(&mut self, now_ns: u64) {
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns + LOOK_NS;
        for thread in &mut self.threads {
            // A thread that has ended waits for nothing.
            let times = Times::read(&thread.directory).unwrap_or(thread.last);
            let since_ns = thread.ready_ns.filter(|_| times == thread.last);
            let is_ready = is_ready(&thread.directory);
            thread.ready_ns = is_ready.then(|| since_ns.unwrap_or(now_ns));
            thread.last = times;
        }
    }

    /// Returns the longest time in nanoseconds that one of the threads has waited since the
    /// measurement began, as far as the last look shows.
    pub(super) fn longest_ns(&self, now_ns: u64) -> u64 {
        let waits = self.threads.iter().map(|thread| {
            let ended_ns = thread.last.waited.saturating_sub(thread.first.waited);
            let ready_ns = thread.ready_ns.unwrap_or(now_ns);
            ended_ns + now_ns.saturating_sub(ready_ns)
        });
        waits.max().unwrap_or(0)
    }
}

impl Times {
    fn read(directory: &Path) -> Option<Times> {
        let text = fs::read_to_string(directory.join("schedstat")).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let mut next = || fields.next()?.parse().ok();
        Some(Times {
            ran: next()?,
            waited: next()?,
        })
    }
}

/// Whether a thread runs or could run.
fn is_ready(directory: &Path) -> bool {
    let stat = fs::read_to_string(directory.join("stat")).unwrap_or_default();
    // The name of the thread, in parentheses, may contain any character.
    let state = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    state.trim_start().starts_with('R')
}

/// Least time between two looks, which read two files for each thread.
const LOOK_NS: u64 = 20_000_000;

/// Largest number of threads that are measured: processors of the VM, and the threads of its
/// devices.
const THREADS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_this_process_are_measured() {
        assert!(is_ready(Path::new("/proc/thread-self")));
        assert!(ProcessorWait::begin(i32::MAX, 0).threads.is_empty());
        let mut wait = ProcessorWait::begin(std::process::id() as i32, 0);
        if wait.threads.is_empty() {
            eprintln!("SKIP: this kernel does not count how long threads wait for a processor");
            return;
        }
        wait.look(1);
        assert!(wait.threads.iter().any(|thread| thread.last.ran > 0));
    }

    #[test]
    fn ended_and_current_waits_count_and_sleep_does_not() {
        let own = std::process::id();
        let thread = std::env::temp_dir().join(format!("carina-thread-{own}"));
        fs::create_dir(&thread).unwrap();
        let set = |ran: u64, waited: u64, state: char| {
            fs::write(thread.join("schedstat"), format!("{ran} {waited} 1\n")).unwrap();
            fs::write(thread.join("stat"), format!("7 (a) b) {state} 1 7\n")).unwrap();
        };
        let ms = |ms: u64| ms * 1_000_000;
        set(5, 7, 'S');
        let mut wait = ProcessorWait::of(std::iter::once(thread.clone()), 0);
        wait.look(ms(50));
        assert_eq!(wait.longest_ns(ms(50)), 0);
        set(5, 7, 'R');
        wait.look(ms(100));
        wait.look(ms(150));
        assert_eq!(wait.longest_ns(ms(160)), ms(60));
        // It ran, and waits again.
        set(9, 7 + ms(70), 'R');
        wait.look(ms(200));
        assert_eq!(wait.longest_ns(ms(200)), ms(70));
        wait.look(ms(250));
        assert_eq!(wait.longest_ns(ms(250)), ms(120));
        fs::remove_dir_all(&thread).unwrap();
        wait.look(ms(300));
        assert_eq!(wait.longest_ns(ms(300)), ms(70));
    }
}
