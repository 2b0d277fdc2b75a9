//! Clocks, in nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Whose CPU time to read: one thread's or the whole process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuClock {
    /// CPU time of the calling thread.
    Thread,
    /// CPU time of all threads of this process.
    Process,
}

/// Returns the current time of `CLOCK_MONOTONIC` in nanoseconds. Every process of this system sees
/// the same clock.
#[must_use]
pub fn monotonic_ns() -> u64 {
    to_ns(clock_gettime(ClockId::Monotonic))
}

/// Returns the CPU time that the thread or the process has used so far, in nanoseconds.
#[must_use]
pub fn cpu_time_ns(clock: CpuClock) -> u64 {
    to_ns(clock_gettime(match clock {
        CpuClock::Thread => ClockId::ThreadCPUTime,
        CpuClock::Process => ClockId::ProcessCPUTime,
    }))
}

fn to_ns(time: Timespec) -> u64 {
    // These clocks start at zero, so both fields are non-negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_clock_does_not_run_backwards() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first && first > 0);
    }

    #[test]
    fn process_time_covers_thread_time() {
        let thread = cpu_time_ns(CpuClock::Thread);
        assert!(cpu_time_ns(CpuClock::Process) >= thread);
    }
}
