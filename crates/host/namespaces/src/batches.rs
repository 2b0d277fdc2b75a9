//! Many lines of `ip` that do not depend on one another, in several processes at the same time.

use crate::error::Result;
use crate::namespace::NamespaceAccess;

impl NamespaceAccess {
    /// Runs lines of `ip` outside the network namespaces, in any order. The kernel waits while it
    /// adds or removes a namespace, so several processes do this at the same time.
    ///
    /// # Errors
    /// As for [`NamespaceAccess::ip_batch`]; the first error after all processes have ended.
    pub fn ip_lines_in_any_order(&self, lines: &[String]) -> Result<()> {
        let batches = lines.chunks(lines.len().div_ceil(PROCESSES).max(LINES_MIN));
        std::thread::scope(|scope| {
            let running = batches.map(|batch| scope.spawn(|| self.ip_lines(batch)));
            let running: Vec<_> = running.collect();
            let done = running.into_iter().map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            // All threads are joined before the first error is returned.
            let done: Vec<Result<()>> = done.collect();
            done.into_iter().collect()
        })
    }
}

/// Largest number of processes at the same time.
const PROCESSES: usize = 8;
/// Fewest lines for which a further process is started.
const LINES_MIN: usize = 8;
