//! Where the sockets and files of a node lie.
//!
//! The directory is `$CARINA_RUN` when set, `/run/carina` for root, else
//! `$XDG_RUNTIME_DIR/carina`, else `/tmp/carina-UID`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::LocalName;

/// The run directory of a node and the paths inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// A run directory at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The default run directory of the calling process.
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

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The socket of applications.
    pub fn ipc_sock(&self) -> PathBuf {
        self.0.join("ipc.sock")
    }

    /// The socket of people and tools.
    pub fn control_sock(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    /// The file of counters in shared memory.
    pub fn counters(&self) -> PathBuf {
        self.0.join("counters")
    }

    /// The file that a running node keeps locked.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// The directory of sockets and regions of VMs.
    pub fn vm_dir(&self) -> PathBuf {
        self.0.join("vm")
    }

    /// The socket on which the QEMU of VM `name` listens and to which the node connects.
    pub fn vm_qemu_sock(&self, name: &LocalName) -> PathBuf {
        self.vm_dir().join(format!("{name}.qemu"))
    }

    /// The socket on which the node listens for the QEMU of VM `name`.
    pub fn vm_listen_sock(&self, name: &LocalName) -> PathBuf {
        self.vm_dir().join(format!("{name}.ivshmem"))
    }

    /// The shared region of VM `name`.
    pub fn vm_region(&self, name: &LocalName) -> PathBuf {
        self.vm_dir().join(format!("{name}.region"))
    }
}

impl Default for RunDir {
    fn default() -> Self {
        Self::from_env()
    }
}

/// The effective uid, read from the owner of `/proc/self` so that no system call binding is
/// needed here. Without `/proc` the uid 65534 is assumed, which only affects a default path.
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
