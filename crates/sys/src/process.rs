//! Limits and placement of this process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Raises the soft limit of open files to the hard limit and returns the limit in force
/// (`u64::MAX`: none).
///
/// # Errors
/// The kernel's refusal.
pub fn raise_nofile_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// `InvalidInput` for a number beyond 1023; the kernel's refusal when the CPU does not exist or
/// is not allowed to this process.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("CPU {cpu}: highest number is {}", CpuSet::MAX_CPU - 1),
        ));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)?;
    Ok(())
}

/// How many CPUs the calling thread may run on, at least 1.
#[must_use]
pub fn cpus_allowed() -> usize {
    sched_getaffinity(None)
        .map_or(1, |set| set.count() as usize)
        .max(1)
}

/// How many CPUs are running in this system, at least 1.
#[must_use]
pub fn cpus_online() -> usize {
    // SAFETY: sysconf has no preconditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// Lets another thread run on this CPU.
pub fn yield_now() {
    rustix::thread::sched_yield();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_limit_ends_at_the_hard_limit() {
        let limit = raise_nofile_limit().unwrap();
        let now = getrlimit(Resource::Nofile);
        assert_eq!(now.current.unwrap_or(u64::MAX), limit);
    }

    #[test]
    fn pinned_thread_has_one_cpu() {
        std::thread::spawn(|| {
            let set = sched_getaffinity(None).unwrap();
            let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| set.is_set(cpu)).unwrap();
            pin_to_cpu(cpu).unwrap();
            assert_eq!(cpus_allowed(), 1);
            assert!(pin_to_cpu(CpuSet::MAX_CPU).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn some_cpu_is_online() {
        assert!(cpus_online() >= 1);
    }
}
