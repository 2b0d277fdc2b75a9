//! The run directory: locked by one node at a time, and cleaned up after a killed one.
//!
//! A running node holds a lock on the file `lock`. The lock ends with the process, however the
//! process ends. So the holder knows that sockets and files found in the directory are stale, and
//! removes them.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_api::LocalName;
use carina_api::control::VmCreate;
use carina_api::paths::RunDir;
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// A run directory that this node has locked.
#[derive(Debug)]
pub(crate) struct RunDirLock {
    dir: RunDir,
    /// The lock is held as long as this file is open.
    _lock: File,
}

/// Why a run directory cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// Another node runs in the directory.
    #[error(
        "a node already runs in {}{}; stop it, or use another directory (--run, CARINA_RUN, or \
         run_dir of [node])",
        dir.display(), pid.map_or(String::new(), |pid| format!(" (process {pid})"))
    )]
    Taken {
        /// Path of the run directory that another node uses.
        dir: PathBuf,
        /// Process id of the other node, if it could be read.
        pid: Option<u32>,
    },
    /// The path of the directory is so long that its sockets cannot have addresses.
    #[error(
        "the run directory {} is too long: choose one of at most {max} bytes, because the address \
         of a Unix socket has at most {SOCKET_PATH_MAX}",
        dir.display()
    )]
    TooLong {
        /// Path of the run directory.
        dir: PathBuf,
        /// Longest path that such a directory may have, in bytes.
        max: usize,
    },
    /// The directory belongs to another user.
    #[error("the run directory {} belongs to user {owner}, not to {own}", dir.display())]
    OtherOwner {
        /// Path of the run directory of the other user.
        dir: PathBuf,
        /// User id of the directory's owner.
        owner: u32,
        /// User id of this process.
        own: u32,
    },
    /// The operating system refused an operation.
    #[error("run directory: {}: {source}", path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// The reason of the operating system.
        source: io::Error,
    },
}

impl RunDirLock {
    /// Creates the directory if it does not exist, locks it, and removes stale sockets. Waits for a
    /// node there that is stopping.
    ///
    /// # Errors
    /// [`RunDirError`], for example when another node runs there.
    pub(crate) fn take(dir: RunDir) -> Result<Self, RunDirError> {
        let bytes = dir.path().as_os_str().len();
        let max = SOCKET_PATH_MAX - (dir.control_sock().as_os_str().len() - bytes);
        if bytes > max {
            let dir = dir.path().into();
            return Err(RunDirError::TooLong { dir, max });
        }
        make_dir(dir.path(), 0o755)?;
        let own = rustix::process::geteuid().as_raw();
        let owner = fs::symlink_metadata(dir.path())
            .map_err(at(dir.path()))?
            .uid();
        // In /tmp, another user may have created the directory first and could replace its
        // contents.
        if owner != own {
            return Err(RunDirError::OtherOwner {
                dir: dir.path().into(),
                owner,
                own,
            });
        }
        let path = dir.lock();
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(at(&path))?;
        if !lock_within(&lock, STOP_MAX + STOP_SLACK) {
            let pid = fs::read_to_string(&path)
                .ok()
                .and_then(|text| text.trim().parse().ok());
            return Err(RunDirError::Taken {
                dir: dir.path().into(),
                pid,
            });
        }
        lock.set_len(0).map_err(at(&path))?;
        writeln!(lock, "{}", std::process::id()).map_err(at(&path))?;
        make_dir(&dir.vm_dir(), 0o700)?;
        for stale in [dir.ipc_sock(), dir.control_sock()] {
            remove_socket(&stale)?;
        }
        Ok(Self { dir, _lock: lock })
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// Removes files of VMs from the directory of VMs, if `is_known` returns false for the VM's
    /// name.
    ///
    /// # Errors
    /// [`RunDirError::Io`].
    pub(crate) fn remove_stale_vms(
        &self,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(), RunDirError> {
        let dir = self.dir.vm_dir();
        for entry in fs::read_dir(&dir).map_err(at(&dir))? {
            let path = entry.map_err(at(&dir))?.path();
            let stem = path
                .file_stem()
                .and_then(|s| s.to_str())
                .unwrap_or_default();
            let suffix = path
                .extension()
                .and_then(|s| s.to_str())
                .unwrap_or_default();
            let ours =
                ["qemu", "ivshmem", "region", "state", "vsock_1110", VM_NOTE].contains(&suffix);
            if ours && !is_known(stem) {
                tracing::info!(path = %path.display(), "removed files of an earlier node");
                fs::remove_file(&path).map_err(at(&path))?;
            }
        }
        Ok(())
    }

    /// Stores the configuration of a VM, so that a node started later can take over the running VM.
    ///
    /// # Errors
    /// [`RunDirError::Io`].
    pub(crate) fn note_vm(&self, vm: &VmCreate) -> Result<(), RunDirError> {
        let path = self.vm_note(&vm.name);
        let text = serde_json::to_vec(vm)
            .map_err(io::Error::other)
            .map_err(at(&path))?;
        fs::write(&path, text).map_err(at(&path))
    }

    /// Removes the stored configuration of a VM.
    pub(crate) fn forget_vm(&self, name: &LocalName) {
        // A missing file is no error.
        let _ = fs::remove_file(self.vm_note(name));
    }

    /// The VMs whose configurations an earlier node stored.
    pub(crate) fn noted_vms(&self) -> Vec<VmCreate> {
        let Ok(entries) = fs::read_dir(self.dir.vm_dir()) else {
            return Vec::new();
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths
            .filter(|path| path.extension().is_some_and(|suffix| suffix == VM_NOTE))
            .filter_map(|path| {
                let vm: VmCreate = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
                (path == self.vm_note(&vm.name)).then_some(vm)
            })
            .collect()
    }

    fn vm_note(&self, name: &LocalName) -> PathBuf {
        self.dir.vm_dir().join(format!("{name}.{VM_NOTE}"))
    }

    /// Sets the mode of a socket file.
    ///
    /// # Errors
    /// [`RunDirError::Io`].
    pub(crate) fn set_mode(&self, path: &Path, mode: u32) -> Result<(), RunDirError> {
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(at(path))
    }
}

impl Drop for RunDirLock {
    fn drop(&mut self) {
        for path in [self.dir.ipc_sock(), self.dir.control_sock()] {
            if let Err(error) = remove_socket(&path) {
                tracing::warn!(%error, "a socket could not be removed");
            }
        }
        // Counters are kept after a crash, for inspection; after an orderly stop they are useless.
        let _ = fs::remove_file(self.dir.counters());
    }
}

/// Locks a file, waiting up to `limit` for its holder. Returns false if the holder keeps it.
fn lock_within(file: &File, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(LOCK_POLL);
    }
}

fn make_dir(path: &Path, mode: u32) -> Result<(), RunDirError> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(at(path))
}

/// Removes `path` if it is a socket. Another kind of file is not the node's to remove.
fn remove_socket(path: &Path) -> Result<(), RunDirError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(at(path)),
        Ok(_) => {
            let what = "a file that is not a socket is in the way; remove it";
            Err(at(path)(io::Error::new(io::ErrorKind::AlreadyExists, what)))
        }
        Err(_) => Ok(()),
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> RunDirError + '_ {
    move |source| RunDirError::Io {
        path: path.into(),
        source,
    }
}

/// How long a stopping node may take to inform its applications and peers.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(1);

/// How much longer than [`STOP_MAX`] a stopping node may take until its process has ended.
const STOP_SLACK: Duration = Duration::from_millis(500);
const LOCK_POLL: Duration = Duration::from_millis(10);
/// Longest path that a Unix socket can have as its address, in bytes.
const SOCKET_PATH_MAX: usize = 107;

/// Suffix of the file with the configuration of a VM.
const VM_NOTE: &str = "vm";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn second_node_is_refused_while_the_first_lives() {
        let scratch = Scratch::new("claim");
        let first = RunDirLock::take(scratch.run_dir()).unwrap();
        let refusal = RunDirLock::take(scratch.run_dir()).unwrap_err();
        let RunDirError::Taken { pid, .. } = refusal else {
            panic!("{refusal}")
        };
        assert_eq!(pid, Some(std::process::id()));
        drop(first);
        RunDirLock::take(scratch.run_dir()).unwrap();
    }

    #[test]
    fn directory_with_too_long_paths_of_sockets_is_not_made() {
        let scratch = Scratch::new("long");
        let path = scratch.run_dir().path().join("x".repeat(100));
        let refusal = RunDirLock::take(RunDir::new(&path)).unwrap_err();
        assert!(
            matches!(refusal, RunDirError::TooLong { max: 94, .. }),
            "{refusal}"
        );
        assert!(!path.exists());
    }

    #[test]
    fn node_waits_for_one_that_is_stopping() {
        let scratch = Scratch::new("handover");
        let first = RunDirLock::take(scratch.run_dir()).unwrap();
        let run_dir = scratch.run_dir();
        let second = std::thread::spawn(move || RunDirLock::take(run_dir).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
    }

    #[test]
    fn stale_sockets_and_vm_files_go_and_others_stay() {
        let scratch = Scratch::new("stale");
        let dir = scratch.run_dir();
        drop(RunDirLock::take(dir.clone()).unwrap());
        drop(std::os::unix::net::UnixListener::bind(dir.ipc_sock()).unwrap());
        for file in ["gone.region", "gone.state", "kept.region", "notes.txt"] {
            fs::write(dir.vm_dir().join(file), "x").unwrap();
        }
        let run_dir_lock = RunDirLock::take(dir.clone()).unwrap();
        run_dir_lock
            .remove_stale_vms(|name| name == "kept")
            .unwrap();
        assert!(!dir.ipc_sock().exists());
        let mut left: Vec<_> = fs::read_dir(dir.vm_dir())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["kept.region", "notes.txt"]);
    }

    #[test]
    fn a_foreign_file_at_the_path_is_not_removed() {
        let scratch = Scratch::new("inway");
        let dir = scratch.run_dir();
        fs::create_dir_all(dir.path()).unwrap();
        fs::write(dir.ipc_sock(), "precious").unwrap();
        let refusal = RunDirLock::take(dir.clone()).unwrap_err().to_string();
        assert!(refusal.contains("not a socket"), "{refusal}");
        assert_eq!(fs::read_to_string(dir.ipc_sock()).unwrap(), "precious");
    }
}
