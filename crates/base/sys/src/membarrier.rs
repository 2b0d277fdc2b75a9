//! The expedited global memory barrier: the end that sleeps rarely pays, so that the busy end need
//! not.

use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier};

use crate::process::cpus_possible;

/// Registers this process as a receiver of [`membarrier_global`]. Returns `false` if the kernel has
/// no such barrier. The registration lasts as long as the process and may be repeated.
#[must_use]
pub fn membarrier_register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// Makes every running thread of every registered process pass a full memory barrier.
///
/// Returns `false` if the kernel refused; then nothing was ordered. If the machine can never have a
/// second processor, there is nothing to order and no system call.
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
