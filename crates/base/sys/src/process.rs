//! Limits and CPU placement of this process and its threads.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Makes the kernel kill the process of this command when the *thread* that starts it ends for any
/// reason. This also holds for programs that the process becomes by exec(2).
///
/// A program that changes its user or gains capabilities loses this property (prctl(2),
/// PR_SET_PDEATHSIG).
pub fn end_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: prctl with this option takes a signal and touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // A parent that has already ended is no longer the parent, and will never send the signal.
        // SAFETY: getppid has no preconditions.
        match u32::try_from(unsafe { libc::getppid() }) {
            Ok(now) if now == parent => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: between fork and exec the closure calls only prctl and getppid, which are
    // async-signal-safe, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) }
}

/// Raises the soft limit of open files to the hard limit. Returns the limit in force; `u64::MAX`
/// means none.
///
/// # Errors
/// The kernel refuses.
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
/// As for [`allow_cpus`].
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    allow_cpus(None, &[cpu])
}

/// Restricts a thread, or the calling thread if `None`, to these CPUs. Threads and processes that
/// it starts later inherit the restriction.
///
/// # Errors
/// `InvalidInput` for a number beyond 1023, or if none of the CPUs exists or is allowed to the
/// process; the kernel's refusal if the thread belongs to another user.
pub fn allow_cpus(thread: Option<i32>, cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "CPU {cpu}: the highest possible number is {}",
                    CpuSet::MAX_CPU - 1
                ),
            ));
        }
        set.set(cpu);
    }
    let set = sched_setaffinity(thread.and_then(Pid::from_raw), &set);
    set.map_err(|error| match error {
        Errno::INVAL => no_such_cpu(),
        error => error.into(),
    })
}

/// The kernel has refused CPUs: none of them exists or is allowed.
fn no_such_cpu() -> io::Error {
    let allowed = allowed_cpus().unwrap_or_default();
    let allowed: Vec<String> = allowed.iter().map(usize::to_string).collect();
    let text = format!(
        "no such processor, or not allowed to this process, which now runs on {}",
        allowed.join(", ")
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Returns the CPUs that the calling thread may run on, in ascending order.
///
/// # Errors
/// The kernel's refusal, if there are more than 1024 CPUs.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Asks the scheduler for the shortest time slices for the calling thread. The thread then runs
/// soon after it is woken, before threads that compute, and runs no longer at a time. Returns
/// `false` if nothing changed, for instance because the thread has a real-time policy. Linux before
/// 6.12 accepts the request and ignores it.
pub fn ask_for_short_slices() -> bool {
    change_schedule(|attributes| attributes.runtime = SLICE_NS_MIN)
}

/// Selects whether the calling thread waits for its turn when it is woken (true: `SCHED_BATCH`), or
/// may run at once if other threads have used more of the processor (false: `SCHED_OTHER`). Returns
/// `false` if nothing changed.
pub fn wait_for_turns(is_wanted: bool) -> bool {
    change_schedule(|attributes| {
        attributes.policy = if is_wanted {
            libc::SCHED_BATCH as u32
        } else {
            libc::SCHED_OTHER as u32
        };
    })
}

/// A period in which a thread is scheduled in another way. Dropping the value ends the period.
#[derive(Debug)]
pub struct SchedulePeriod {
    thread: i32,
    before: SchedAttr,
}

impl SchedulePeriod {
    /// Starts a period for the calling thread; `other` makes its attributes from those that it has.
    /// Returns `None` if it is a real-time or idle thread, or if the kernel refuses.
    fn start(other: impl FnOnce(&SchedAttr) -> SchedAttr) -> Option<SchedulePeriod> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let before = fair_schedule()?;
        set_schedule(thread, &other(&before)).then_some(SchedulePeriod { thread, before })
    }
}

impl Drop for SchedulePeriod {
    fn drop(&mut self) {
        // The kernel always allows a thread to give up a real-time policy, and to raise its nice
        // value.
        let _ = set_schedule(self.thread, &self.before);
    }
}

/// Starts a period in which the calling thread keeps its processor (`SCHED_FIFO`, lowest priority):
/// no thread with a usual policy interrupts it. If such a thread is woken on this processor, it
/// waits until the calling thread sleeps or the period ends. Child processes do not inherit the
/// policy. Returns `None`, and changes nothing, if the calling thread has a real-time or idle
/// policy already, or lacks `CAP_SYS_NICE`, which `SCHED_FIFO` needs.
#[must_use]
pub fn hold_processor() -> Option<SchedulePeriod> {
    SchedulePeriod::start(|before| SchedAttr {
        size: before.size,
        policy: libc::SCHED_FIFO as u32,
        flags: SCHED_FLAG_RESET_ON_FORK,
        priority: 1,
        ..SchedAttr::default()
    })
}

/// Starts a period in which the calling thread has a nice value that is lower by 10, at least -20:
/// a thread that it wakes seldom interrupts it. It then gets nine of ten parts of a processor that
/// another thread wants too. Unlike with [`hold_processor`], the other thread has its turns.
/// Returns `None`, and changes nothing, if the thread has a real-time or idle policy, or lacks
/// `CAP_SYS_NICE`, which the lower nice value needs.
#[must_use]
pub fn precede_others() -> Option<SchedulePeriod> {
    SchedulePeriod::start(|before| SchedAttr {
        nice: (before.nice - PRECEDENCE_NICE).max(NICE_MIN),
        ..*before
    })
}

/// Changes how the calling thread is scheduled, unless it is a real-time or idle thread.
fn change_schedule(change: impl FnOnce(&mut SchedAttr)) -> bool {
    let Some(mut attributes) = fair_schedule() else {
        return false;
    };
    change(&mut attributes);
    set_schedule(0, &attributes)
}

/// Returns how the calling thread is scheduled; `None` if it is a real-time or idle thread.
fn fair_schedule() -> Option<SchedAttr> {
    let mut attributes = SchedAttr::default();
    let size = size_of::<SchedAttr>() as u32;
    // SAFETY: the structure has the size that is passed, and outlives the call.
    let is_told =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) == 0 };
    let fair = [libc::SCHED_OTHER as u32, libc::SCHED_BATCH as u32];
    attributes.size = size;
    (is_told && fair.contains(&attributes.policy)).then_some(attributes)
}

/// Changes how a thread is scheduled; 0 is the calling thread. Returns `false` if the kernel
/// refuses.
fn set_schedule(thread: i32, attributes: &SchedAttr) -> bool {
    let attributes: *const SchedAttr = attributes;
    // SAFETY: the structure outlives the call, and the kernel only reads as many bytes of it as
    // its field `size` says.
    unsafe { libc::syscall(libc::SYS_sched_setattr, thread, attributes, 0) == 0 }
}

/// `SCHED_FLAG_RESET_ON_FORK` of sched_setattr(2).
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

/// `struct sched_attr`, first version, of sched_setattr(2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Returns the number of CPUs that the calling thread may run on, at least 1.
#[must_use]
pub fn cpus_allowed() -> usize {
    allowed_cpus().map_or(1, |cpus| cpus.len()).max(1)
}

/// Returns the number of CPUs that are online in this system, at least 1.
#[must_use]
pub fn cpus_online() -> usize {
    // SAFETY: sysconf has no preconditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// Returns the size of this system's memory in bytes.
#[must_use]
pub fn memory_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0) * rustix::param::page_size() as u64
}

/// Returns the number of CPUs that this system may ever have, including CPUs that can be plugged in
/// later. `None` if the kernel does not report it.
#[must_use]
pub fn cpus_possible() -> Option<usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    count_listed(list.trim())
}

/// Number of CPUs in a list in the kernel's notation: `0`, `0-3` or `0-3,8-11`.
fn count_listed(list: &str) -> Option<usize> {
    list.split(',')
        .map(|part| match part.split_once('-') {
            None => part.parse::<usize>().ok().map(|_| 1),
            Some((first, last)) => {
                let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
                last.checked_sub(first)?.checked_add(1)
            }
        })
        .sum()
}

/// Lets other threads run on the CPU before the calling thread continues.
pub fn yield_now() {
    rustix::thread::sched_yield();
}

/// By how much the nice value of a preceding thread is lower.
const PRECEDENCE_NICE: i32 = 10;
/// Lowest nice value.
const NICE_MIN: i32 = -20;

/// Shortest time slice of the scheduler, in ns.
const SLICE_NS_MIN: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> (i32, i32) {
        let mut attributes = SchedAttr::default();
        let size = size_of::<SchedAttr>() as u32;
        // SAFETY: the structure has the size that is passed, and outlives the call.
        let told =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        assert_eq!(told, 0);
        (attributes.policy as i32, attributes.nice)
    }

    #[test]
    fn thread_waits_for_turns_only_while_that_is_wanted() {
        let nice = policy().1;
        for (is_wanted, expected) in [(true, libc::SCHED_BATCH), (false, libc::SCHED_OTHER)] {
            assert!(wait_for_turns(is_wanted));
            assert_eq!(policy(), (expected, nice));
        }
    }

    #[test]
    fn thread_keeps_its_processor_until_the_period_ends() {
        assert!(wait_for_turns(true));
        let before = policy();
        let Some(held) = hold_processor() else {
            // The kernel refuses it to a process without CAP_SYS_NICE.
            return assert_eq!(policy(), before);
        };
        assert_eq!(policy().0, libc::SCHED_FIFO);
        assert!(
            hold_processor().is_none(),
            "a real-time thread stays as it is"
        );
        drop(held);
        assert_eq!(policy(), before);
        assert!(wait_for_turns(false));
    }

    #[test]
    fn preceding_thread_has_its_nice_value_again_afterwards() {
        let work = || {
            assert!(change_schedule(|attributes| attributes.nice = 3));
            let Some(preceding) = precede_others() else {
                // The kernel refuses it to a process without CAP_SYS_NICE.
                return assert_eq!(policy(), (libc::SCHED_OTHER, 3));
            };
            assert_eq!(policy(), (libc::SCHED_OTHER, -7));
            drop(preceding);
            assert_eq!(policy(), (libc::SCHED_OTHER, 3));
            assert!(change_schedule(|attributes| attributes.nice = -15));
            let preceding = precede_others();
            assert_eq!((preceding.is_some(), policy().1), (true, -20));
        };
        std::thread::spawn(work).join().unwrap();
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, count) in [("0", Some(1)), ("0-1", Some(2)), ("0-3,8,10-11", Some(7))] {
            assert_eq!(count_listed(list), count, "{list}");
        }
        for wrong in ["", "3-1", "a", "0,", "0-18446744073709551615"] {
            assert_eq!(count_listed(wrong), None, "{wrong}");
        }
        assert!(cpus_possible().is_none_or(|possible| possible >= cpus_online()));
    }

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
            let other = (0..CpuSet::MAX_CPU).rfind(|&cpu| !set.is_set(cpu)).unwrap();
            let error = pin_to_cpu(other).unwrap_err().to_string();
            let words = format!("which now runs on {cpu}");
            assert!(error.ends_with(&words), "{error}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn child_ends_with_the_thread_that_started_it() {
        let start = || end_with_parent(Command::new("sleep").arg("600")).spawn();
        let mut child = std::thread::spawn(start).join().unwrap().unwrap();
        let status = child.wait().unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGKILL), "{status}");
    }

    #[test]
    fn some_cpu_is_online() {
        assert!(cpus_online() >= 1);
        assert!(memory_bytes() > 1 << 20);
    }

    #[test]
    fn ordinary_thread_may_ask_for_short_slices() {
        std::thread::spawn(|| assert!(ask_for_short_slices()))
            .join()
            .unwrap();
    }
}
