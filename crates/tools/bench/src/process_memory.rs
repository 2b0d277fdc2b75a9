//! Memory of other processes, as counted by the kernel.

use std::fs;

use crate::error::{Attempt, Error, Result};

/// Memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// Bytes that no other process shares.
    pub(crate) private: u64,
    /// Bytes in use, where each shared page counts with this process's share of it.
    pub(crate) proportional: u64,
}

/// Memory of a process. (Linux, Documentation/filesystems/proc.rst)
///
/// # Errors
/// There is no such process, or this user may not read its memory map.
pub(crate) fn of_process(pid: u32) -> Result<ProcessMemory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).attempt(&path)?;
    parse(&text).ok_or_else(|| Error::Proc(format!("{path}: a line is missing")))
}

fn parse(text: &str) -> Option<ProcessMemory> {
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kib.map(|kib| kib << 10)
    };
    Some(ProcessMemory {
        private: bytes("Private_Clean:")? + bytes("Private_Dirty:")?,
        proportional: bytes("Pss:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_the_sum_of_clean_and_dirty_pages() {
        let text = "55a0-7ffc ---p 00000000 00:00 0    [rollup]\nRss:      100 kB\n\
                    Pss:       60 kB\nPss_Dirty:   30 kB\nPrivate_Clean:   8 kB\n\
                    Private_Dirty:  24 kB\n";
        let memory = parse(text).unwrap();
        assert_eq!((memory.private, memory.proportional), (32 << 10, 60 << 10));
        assert_eq!(parse("Rss: 1 kB\n"), None);
        let own = of_process(std::process::id()).unwrap();
        assert!(own.private > 0 && own.proportional >= own.private);
    }
}
