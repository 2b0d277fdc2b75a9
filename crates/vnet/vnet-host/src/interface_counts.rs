//! The kernel's counters of the interfaces in a network namespace.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::Pid;

/// What the kernel has counted at an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterfaceCounts {
    /// Frames that have arrived at the interface.
    pub frames: u64,
    /// Total bytes of the frames that `frames` counts.
    pub bytes: u64,
    /// Frames that the interface should have sent and has dropped.
    pub dropped: u64,
}

/// The counters of the interfaces in the namespace of a thread of this process, by name.
pub(crate) fn interface_counts(thread: Pid) -> BTreeMap<String, InterfaceCounts> {
    let path = format!("/proc/self/task/{}/net/dev", thread.as_raw_nonzero());
    parse(&fs::read_to_string(path).unwrap_or_default())
}

/// Reads the text of `/proc/net/dev`. (proc(5))
fn parse(text: &str) -> BTreeMap<String, InterfaceCounts> {
    let of_line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> = counts
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        let counted = InterfaceCounts {
            bytes: *counts.first()?,
            frames: *counts.get(1)?,
            dropped: *counts.get(11)?,
        };
        Some((name.trim().to_owned(), counted))
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_received_frames_and_of_drops_to_send() {
        let text = "Inter-|   Receive                            |  Transmit\n face |bytes    packets \
                    errs drop fifo frame compressed multicast|bytes    packets errs drop fifo\n    \
                    lo:       0       0    0    0    0     0          0         0        0       0 \
                    0    0    0     0       0          0\n  l0.1:      90       1    2    3    4 \
                    5          6         7       180       8    9   10    0     0       0          \
                    0\n";
        let all = parse(text);
        let of_port = InterfaceCounts {
            frames: 1,
            bytes: 90,
            dropped: 10,
        };
        assert_eq!(all["l0.1"], of_port);
        assert_eq!(all["lo"], InterfaceCounts::default());
        assert_eq!(all.len(), 2);
        assert!(!interface_counts(rustix::thread::gettid()).is_empty());
    }
}
