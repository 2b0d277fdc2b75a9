//! Where threads run while a VM is measured.
//!
//! A guest that is emulated or polls takes a whole processor. Left to itself the kernel moves it
//! and the threads that spin on its host from processor to processor for fairness, and what is
//! measured changes severalfold with their places of the moment. So the guest's processor has one
//! of the host's for itself, whichever system is measured:
//!
//! ```text
//!   CPU 0 .. n-2   host: nodes, applications, QEMU's other threads, the kernel's work for them
//!   CPU n-1        the guest's processor
//! ```

use carina_sys::{allow_cpus, allowed_cpus};
use carina_vm::Running;

/// The CPU that was set aside for the guest's processor.
#[derive(Debug, Clone, Copy)]
pub struct Aside {
    cpu: usize,
}

impl Aside {
    /// Keeps this thread, and whatever it starts from now on, off the last CPU it may run on.
    /// `None` where there is only one, or the system does not allow it.
    pub fn set() -> Option<Self> {
        let mut cpus = allowed_cpus().ok()?;
        let cpu = cpus.pop()?;
        (!cpus.is_empty() && allow_cpus(None, &cpus).is_ok()).then_some(Self { cpu })
    }

    /// Puts the processors of `vm` on the CPU; false when QEMU or the system refuses.
    pub fn give(self, vm: &Running) -> bool {
        let threads = vm.processor_threads().unwrap_or_default();
        let mut placed = threads
            .iter()
            .map(|&thread| allow_cpus(Some(thread), &[self.cpu]).is_ok());
        !threads.is_empty() && placed.all(|placed| placed)
    }

    /// What a reader of the figures must know.
    pub fn note(self) -> String {
        let cpu = self.cpu;
        format!("the guest's processor has CPU {cpu} to itself; all of the host runs on the others")
    }
}
