//! The processors on which threads run during a measurement.
//!
//! # A VM and its host
//!
//! A guest that is emulated, or that polls, uses a whole processor. By default the kernel moves the
//! guest and the spinning threads of its host from processor to processor for fairness, and results
//! change severalfold with the current placement. So, with every measured system, the guest's
//! processor gets a processor of the host to itself:
//!
//! ```text
//!   CPU 0 .. n-2   host: nodes, applications, QEMU's other threads, the kernel's work for them
//!   CPU n-1        the guest's processor
//! ```
//!
//! # Two hosts
//!
//! Two hosts that are measured on one machine share its processors, and the kernel takes time from
//! one for the other. On two machines it could not. So, with every measured system, each host has
//! half of the processors.
//!
//! ```text
//!   CPU 0 .. n/2-1   one host: its node, its applications, the kernel's work for what they send
//!   CPU n/2 .. n-1   the other
//! ```

use carina_sys::{allow_cpus, allowed_cpus};

use crate::test_guest::TestGuest;

/// The host's CPU that is reserved for the processor of a guest: the last one.
#[derive(Debug, Clone, Copy)]
pub struct GuestCpu {
    cpu: usize,
}

impl GuestCpu {
    /// Restricts this thread, and all threads and processes that it starts from now on, to all CPUs
    /// but the last. Returns `None` if there is only one CPU, or if the system does not allow it.
    pub fn reserve() -> Option<Self> {
        let mut cpus = allowed_cpus().ok()?;
        let cpu = cpus.pop()?;
        (!cpus.is_empty() && allow_cpus(None, &cpus).is_ok()).then_some(Self { cpu })
    }

    /// Pins the processors of `guest` to the reserved CPU. Returns false if QEMU or the system
    /// refuses.
    pub fn pin(self, guest: &TestGuest) -> bool {
        let threads = guest.processor_threads();
        let mut placed = threads
            .iter()
            .map(|&thread| allow_cpus(Some(thread), &[self.cpu]).is_ok());
        !threads.is_empty() && placed.all(|placed| placed)
    }

    /// A text about this placement of processors, for the readers of a benchmark's figures.
    pub fn note(self) -> String {
        let cpu = self.cpu;
        format!("the guest's processor has CPU {cpu} to itself; all of the host runs on the others")
    }
}

/// The processors of two hosts on one machine, in two halves. Dropping the value lets this thread
/// run on all of them again.
#[derive(Debug)]
pub struct CpuHalves {
    all: Vec<usize>,
}

/// One of the two hosts that share a machine's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// The host with the lower half of the processors.
    First,
    /// The host with the upper half.
    Second,
}

impl CpuHalves {
    /// Divides the processors on which this thread may run. Returns `None` if there is only one, or
    /// if the system does not report them.
    pub fn new() -> Option<Self> {
        let all = allowed_cpus().ok()?;
        (all.len() > 1).then_some(Self { all })
    }

    /// Moves this thread, and all threads and processes that it starts from now on, to the half of
    /// `host`. Returns false if the system does not allow it.
    pub fn enter(&self, host: Host) -> bool {
        allow_cpus(None, half(&self.all, host)).is_ok()
    }

    /// A text about the two halves of processors, for the readers of a benchmark's figures.
    pub fn note(&self) -> String {
        let list = |host| {
            let cpus = half(&self.all, host).iter().map(ToString::to_string);
            cpus.collect::<Vec<_>>().join(",")
        };
        let (first, second) = (list(Host::First), list(Host::Second));
        format!("one host has CPU {first}, the other CPU {second}, whichever system is measured")
    }
}

impl Drop for CpuHalves {
    fn drop(&mut self) {
        // These processors were allowed before, so the call succeeds.
        let _ = allow_cpus(None, &self.all);
    }
}

fn half(cpus: &[usize], host: Host) -> &[usize] {
    let (first, second) = cpus.split_at(cpus.len() / 2);
    match host {
        Host::First => first,
        Host::Second => second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_half() {
        let cpus = [0, 2, 3, 5, 6];
        assert_eq!(half(&cpus, Host::First), [0, 2]);
        assert_eq!(half(&cpus, Host::Second), [3, 5, 6]);
    }

    #[test]
    fn threads_of_a_host_run_on_its_processors() {
        let Some(halves) = CpuHalves::new() else {
            return;
        };
        std::thread::spawn(move || {
            for host in [Host::First, Host::Second] {
                assert!(halves.enter(host));
                let child = std::thread::spawn(|| allowed_cpus().unwrap());
                assert_eq!(child.join().unwrap(), half(&halves.all, host));
            }
            let all = halves.all.clone();
            drop(halves);
            assert_eq!(allowed_cpus().unwrap(), all);
        })
        .join()
        .unwrap();
    }
}
