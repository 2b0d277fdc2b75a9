//! Calls that sleep, and what ends them.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// What `call` gives, that sleeps in a thread of its own until `blow` has fallen.
pub fn ended_by<T: Send + 'static>(
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

/// Waits until a thread sleeps, as the kernel tells it (proc(5)).
fn until_asleep(stat: &PathBuf) {
    let patience = Instant::now() + PATIENCE;
    loop {
        let stat = std::fs::read_to_string(stat).expect("the call goes on");
        // Its name may be anything, parentheses included.
        let (_, state) = stat.rsplit_once(") ").unwrap();
        if state.starts_with('S') {
            return;
        }
        assert!(Instant::now() < patience, "the call does not sleep: {stat}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Nothing is judged by it; it ends what hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);
