//! The processes that descend from this one, found in `/proc` (`proc(5)`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A process: its number, its parent, whether it has ended and only awaits `wait`.
struct Process {
    pid: u32,
    parent: u32,
    is_zombie: bool,
}

/// Waits for the end of all descendants, for at most `grace`, and kills the rest; the command lines
/// of those that it had to kill. With `at_once` none is waited for or named.
pub(crate) fn end_descendants(grace: Duration, at_once: bool) -> Vec<String> {
    if at_once {
        kill_descendants();
        return Vec::new();
    }
    let begun = Instant::now();
    while begun.elapsed() < grace {
        if descendants().is_empty() {
            return Vec::new();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let left = descendants();
    let named = left.iter().map(|pid| format!("{pid} {}", command(*pid)));
    let named = named.collect();
    kill_descendants();
    named
}

/// Kills all descendants, and those that they start meanwhile.
pub(crate) fn kill_descendants() {
    // Each round kills at least those that were there at its beginning.
    for _ in 0..100 {
        let left = descendants();
        if left.is_empty() {
            return;
        }
        for pid in left {
            if let Some(pid) = pid_of(pid) {
                // One that ended by itself meanwhile is as good.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Takes the status of children that have ended, other than `own`, as the first process of a system
/// does: this process, as subreaper, is the parent of daemons. A test that waits until the number
/// of a daemon is free would otherwise wait for ever.
pub(crate) fn take_ended_except(own: u32) {
    let is_adopted = |process: &&Process| {
        process.is_zombie && process.parent == std::process::id() && process.pid != own
    };
    for process in processes().iter().filter(is_adopted) {
        if let Some(pid) = pid_of(process.pid) {
            // This is the only thread that takes their status.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

fn pid_of(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// Descendants of this process that run.
fn descendants() -> BTreeSet<u32> {
    let all = processes();
    let mut family = BTreeSet::from([std::process::id()]);
    loop {
        let known = family.len();
        let children = all
            .iter()
            .filter(|process| family.contains(&process.parent));
        let children: Vec<u32> = children.map(|process| process.pid).collect();
        family.extend(children);
        if family.len() == known {
            break;
        }
    }
    family.remove(&std::process::id());
    for process in all.iter().filter(|process| process.is_zombie) {
        family.remove(&process.pid);
    }
    family
}

fn processes() -> Vec<Process> {
    let Ok(directory) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let process = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name in parentheses may hold any character.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?;
        Some(Process {
            pid,
            parent: fields.next()?.parse().ok()?,
            is_zombie: matches!(state, "Z" | "X"),
        })
    };
    directory.flatten().filter_map(process).collect()
}

fn command(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// Tests that look at or kill descendants run one at a time: all have the same parent.
#[cfg(test)]
pub(crate) static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_and_its_own_are_descendants_until_they_end() {
        let _alone = ONE_AT_A_TIME.lock();
        let mut child = Command::new("sh")
            .args(["-c", "sleep 61 & wait"])
            .spawn()
            .unwrap();
        let own = || {
            let all = descendants();
            let mut own: Vec<String> = all.iter().map(|pid| command(*pid)).collect();
            own.retain(|command| command.contains("sleep 61"));
            own.sort();
            own
        };
        while own().len() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(own()[1], "sleep 61");
        child.kill().unwrap();
        child.wait().unwrap();
        // The shell's child has another parent now. Where that is this process, it is found still.
        for pid in processes().iter().map(|process| process.pid) {
            if command(pid) == "sleep 61" {
                let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
                kill_process(pid, Signal::KILL).unwrap();
            }
        }
        while !own().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
