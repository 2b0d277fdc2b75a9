//! CPU time of threads of other processes, as counted by the kernel.

use std::fs;
use std::path::Path;

use crate::error::{Attempt, Error, Result};

/// CPU time in ns of the thread with this directory in `/proc`; `None` if it has ended. (Linux,
/// Documentation/scheduler/sched-stats.rst)
pub(crate) fn of_task(task: &Path) -> Option<u64> {
    let times = fs::read_to_string(task.join("schedstat")).ok()?;
    times.split_whitespace().next()?.parse().ok()
}

/// CPU time in ns of the threads of a process: of all threads except those in `apart`, and of those
/// in `apart`.
///
/// # Errors
/// There is no such process.
pub(crate) fn of_process(pid: u32, apart: &[i32]) -> Result<(u64, u64)> {
    let tasks = format!("/proc/{pid}/task");
    let (mut rest, mut chosen) = (0, 0);
    for task in fs::read_dir(&tasks).attempt(&tasks)?.flatten() {
        // A thread that ends at this moment is left out.
        let Some(ns) = of_task(&task.path()) else {
            continue;
        };
        let thread: Option<i32> = task
            .file_name()
            .to_str()
            .and_then(|to_str| to_str.parse().ok());
        let is_apart = thread.is_some_and(|thread| apart.contains(&thread));
        *if is_apart { &mut chosen } else { &mut rest } += ns;
    }
    match rest + chosen {
        0 => Err(Error::Proc(format!("{tasks}: no thread has CPU time"))),
        _ => Ok((rest, chosen)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_stand_apart_are_not_in_the_sum() {
        let (pid, main) = (std::process::id(), std::process::id().cast_signed());
        let (all, none) = of_process(pid, &[]).unwrap();
        assert!(all > 0 && none == 0);
        let (_, apart) = of_process(pid, &[main]).unwrap();
        let task = format!("/proc/{pid}/task/{pid}");
        assert!(apart <= of_task(Path::new(&task)).unwrap());
        assert!(of_process(u32::MAX, &[]).is_err());
    }
}
