//! What a restarted node must know about a running QEMU, in a small file beside the region.
//!
//! The file is one line: `carina-ivshmem 1 PID STARTTIME NEXT_PEER_ID FORM`. A QEMU is identified
//! by pid and start time together: this pair is unique in one boot of the host.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// How the socket between QEMU and the node was connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// QEMU connected to the node's socket. It cannot connect again.
    QemuConnected,
    /// The node connected to QEMU's socket, and can connect again.
    QemuListens,
    /// The node is the vhost-user back end of a virtio device, and can connect again.
    Virtqueue,
    /// The process of the VM's vsock device connects to the node, and can connect again.
    Vsock,
}

/// Identity of one process that a reused pid cannot imitate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// Start time of the process in clock ticks after the host's boot, from `/proc/PID/stat`.
    pub(super) start_time: u64,
}

impl Process {
    /// The process that has this pid now; `None` when no process has it.
    pub(super) fn running(pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the command in parentheses. It may contain any character.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        let start_time = fields.nth(18)?.parse().ok()?;
        Some(Process { pid, start_time })
    }

    /// Whether the process still runs.
    pub(super) fn is_running(&self) -> bool {
        Process::running(self.pid) == Some(*self)
    }

    /// A descriptor that becomes readable when the process ends. `None` on an old kernel, or if the
    /// process has already ended.
    pub(super) fn pidfd(&self) -> Option<OwnedFd> {
        let pid = rustix::process::Pid::from_raw(self.pid)?;
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
    }
}

/// The contents of the state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    pub(super) qemu: Process,
    /// The next ivshmem peer id to use with this QEMU. It has never seen this id.
    pub(super) next_peer_id: u16,
    pub(super) form: Form,
}

/// The file that holds the [`State`].
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
}

impl StateFile {
    pub(super) fn new(path: PathBuf) -> StateFile {
        StateFile { path }
    }

    /// The state that the previous node wrote. `None` if there is no file, or its contents are
    /// invalid.
    pub(super) fn read(&self) -> Option<State> {
        decode(&fs::read_to_string(&self.path).ok()?)
    }

    /// Replaces the file atomically. If the node is killed, the file has either the old or the new
    /// state.
    pub(super) fn write(&self, state: &State) -> io::Result<()> {
        let new = self.path.with_extension("state-new");
        fs::write(&new, encode(state))
            .and_then(|()| fs::rename(&new, &self.path))
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.path.display())))
    }

    pub(super) fn remove(&self) {
        remove_file(&self.path);
    }
}

/// Refuses a name of a VM that cannot be part of file names.
pub(super) fn check_file_name(name: &str) -> io::Result<()> {
    let is_right = !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if is_right {
        return Ok(());
    }
    let text = format!("VM name `{name}`: 1 to 64 letters, digits, '-', '_', '.', no '.' first");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Removes a file, if it exists.
pub(super) fn remove_file(path: &Path) {
    // If the file cannot be removed, the next node finds it stale again.
    let _ = fs::remove_file(path);
}

fn encode(state: &State) -> String {
    let form = match state.form {
        Form::QemuConnected => "qemu-connected",
        Form::QemuListens => "qemu-listens",
        Form::Virtqueue => "virtqueue",
        Form::Vsock => "vsock",
    };
    let Process { pid, start_time } = state.qemu;
    format!(
        "carina-ivshmem 1 {pid} {start_time} {} {form}\n",
        state.next_peer_id
    )
}

fn decode(text: &str) -> Option<State> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let ["carina-ivshmem", "1", pid, start_time, next_peer_id, form] = fields[..] else {
        return None;
    };
    let form = match form {
        "qemu-connected" => Form::QemuConnected,
        "qemu-listens" => Form::QemuListens,
        "virtqueue" => Form::Virtqueue,
        "vsock" => Form::Vsock,
        _ => return None,
    };
    let qemu = Process {
        pid: pid.parse().ok()?,
        start_time: start_time.parse().ok()?,
    };
    Some(State {
        qemu,
        next_peer_id: next_peer_id.parse().ok()?,
        form,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_reads_back_and_junk_reads_as_nothing() {
        let qemu = Process {
            pid: 7,
            start_time: 99,
        };
        let state = State {
            qemu,
            next_peer_id: 3,
            form: Form::QemuListens,
        };
        assert_eq!(decode(&encode(&state)), Some(state));
        for junk in [
            "",
            "carina-ivshmem 1 7 99 70000 qemu-listens",
            "carina-ivshmem 2 7 99 3 x",
        ] {
            assert_eq!(decode(junk), None, "{junk}");
        }
    }

    #[test]
    fn own_process_runs_and_another_start_time_is_another_process() {
        let own = Process::running(std::process::id() as i32).unwrap();
        assert!(own.is_running());
        assert!(
            !Process {
                start_time: own.start_time + 1,
                ..own
            }
            .is_running()
        );
        assert_eq!(Process::running(i32::MAX), None);
    }
}
