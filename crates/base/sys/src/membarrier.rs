//! The expedited global memory barrier: the rare sleeper pays so that the busy peer need not.

use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier};

use crate::process::cpus_possible;

/// Registers this process as a receiver of [`membarrier_global`]; `false` when the kernel has
/// no such barrier. Survives for the life of the process and may be repeated.
#[must_use]
pub fn membarrier_register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// Makes every running thread of every registered process pass a full memory barrier.
///
/// Returns `false` when the kernel refused, in which case nothing was ordered. Where the machine
/// can never have a second processor there is nothing to order, and no system call.
#[must_use]
pub fn membarrier_global() -> bool {
    static SINGLE: OnceLock<bool> = OnceLock::new();
    let is_single = *SINGLE.get_or_init(|| cpus_possible() == Some(1));
    is_single || membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_process_can_issue_the_barrier() {
        if membarrier_register() {
            assert!(membarrier_global());
            assert!(membarrier_register());
        }
    }
}
