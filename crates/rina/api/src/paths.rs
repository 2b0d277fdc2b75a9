//! Paths of a node's sockets and files.
//!
//! The run directory is `$CARINA_RUN` if set, `/run/carina` for root, otherwise
//! `$XDG_RUNTIME_DIR/carina`, otherwise `/tmp/carina-UID`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::LocalName;

/// The run directory of a node; its methods return the paths of the files and sockets inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// Makes the run directory with this path; touches no file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the default run directory of the calling process: see the module's documentation.
    pub fn from_env() -> Self {
        let var = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        Self::choose(var("CARINA_RUN"), var("XDG_RUNTIME_DIR"), effective_uid())
    }

    fn choose(carina_run: Option<PathBuf>, xdg: Option<PathBuf>, uid: u32) -> Self {
        Self(match (carina_run, xdg) {
            (Some(dir), _) => dir,
            (None, _) if uid == 0 => PathBuf::from("/run/carina"),
            (None, Some(xdg)) => xdg.join("carina"),
            (None, None) => PathBuf::from(format!("/tmp/carina-{uid}")),
        })
    }

    /// Returns the path of the run directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the socket on which the node serves applications.
    pub fn ipc_sock(&self) -> PathBuf {
        self.0.join("ipc.sock")
    }

    /// Returns the path of the control socket, on which the node serves commands and tools.
    pub fn control_sock(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    /// Returns the path of the file through which the node shares its counters with tools.
    pub fn counters(&self) -> PathBuf {
        self.0.join("counters")
    }

    /// Returns the path of the file that a running node keeps locked, so that no second node
    /// starts.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Returns the path of the directory with the VMs' sockets and shared regions.
    pub fn vm_dir(&self) -> PathBuf {
        self.0.join("vm")
    }

    /// Returns the path of the socket on which the QEMU of VM `name` listens; the node connects to
    /// it.
    pub fn vm_qemu_sock(&self, name: &LocalName) -> PathBuf {
        self.vm_dir().join(format!("{name}.qemu"))
    }

    /// Returns the path of the socket on which the node listens for the QEMU of VM `name`.
    pub fn vm_listen_sock(&self, name: &LocalName) -> PathBuf {
        self.vm_dir().join(format!("{name}.ivshmem"))
    }

    /// Returns the path of the file with the shared region of VM `name`.
    pub fn vm_region(&self, name: &LocalName) -> PathBuf {
        self.vm_dir().join(format!("{name}.region"))
    }
}

impl Default for RunDir {
    fn default() -> Self {
        Self::from_env()
    }
}

/// Effective user id, read as the owner of `/proc/self`, which needs no binding for a system call.
/// Without `/proc` it is 65534, which affects the default path only.
fn effective_uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(NOBODY, |m| m.uid())
}

const NOBODY: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_directory_follows_the_documented_order() {
        let dir = |c: Option<&str>, x: Option<&str>, uid| {
            RunDir::choose(c.map(PathBuf::from), x.map(PathBuf::from), uid).0
        };
        assert_eq!(dir(Some("/c"), Some("/x"), 0), PathBuf::from("/c"));
        assert_eq!(dir(None, Some("/x"), 0), PathBuf::from("/run/carina"));
        assert_eq!(dir(None, Some("/x"), 7), PathBuf::from("/x/carina"));
        assert_eq!(dir(None, None, 7), PathBuf::from("/tmp/carina-7"));
    }
}
