//! Runs calls that sleep, and ends them.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Runs `call` in a thread, waits until the thread sleeps, runs `blow`, and returns the result of
/// `call`.
pub(crate) fn ended_by<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
    blow: impl FnOnce(),
) -> T {
    let (begins, has_begun) = channel();
    let (ends, has_ended) = channel();
    std::thread::spawn(move || {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        begins.send(own).unwrap();
        let _ = ends.send(call());
    });
    let stat = Path::new("/proc")
        .join(has_begun.recv().unwrap())
        .join("stat");
    until_asleep(&stat);
    blow();
    has_ended.recv_timeout(PATIENCE).expect("the call ends")
}

/// Waits until the kernel reports the thread as sleeping (proc(5)).
fn until_asleep(stat: &PathBuf) {
    let patience = Instant::now() + PATIENCE;
    loop {
        let stat = std::fs::read_to_string(stat).expect("the call goes on");
        // The name of the thread may contain anything, even parentheses.
        let (_, state) = stat.rsplit_once(") ").unwrap();
        if state.starts_with('S') {
            return;
        }
        assert!(Instant::now() < patience, "the call does not sleep: {stat}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Time limit that ends a test that hangs. No test result depends on its value.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
