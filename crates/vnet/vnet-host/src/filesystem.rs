//! File systems of namespaces: a layer over a directory, which takes all changes.
//!
//! ```text
//!   NODE.root   tmpfs of the size of the node's memory
//!    +- upper   what the node has changed
//!    +- work    of the kernel
//!    +- root    overlay: `upper` over the directory of the document
//! ```
//!
//! A command of such a node runs in mount and UTS namespaces of its own, with the overlay as its
//! root and the node's name as its host name. `/dev` and `/proc` of the host are mounted
//! there for the command alone, and `/sys` with the node's interfaces. This keeps files and names
//! apart; it does not confine a command of root.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use carina_vm::{Collector, CommandLimits, Finish, Output, run_piped};
use carina_vnet::document::HOST;
use carina_vnet_images::absent_is_done;

use crate::error::{Attempt, Error, Result};
use crate::removal::remove_directory;

/// The file system of a namespace node, below the directory `NODE.root`.
#[derive(Clone, Debug)]
pub(crate) struct Filesystem {
    directory: PathBuf,
    /// Host name of the node.
    name: String,
}

impl Filesystem {
    /// Mounts a layer over `lower`, or adopts the existing one. The node's changes take at most
    /// `size_mib`.
    pub(crate) fn mount(
        directory: &Path,
        name: &str,
        (lower, size_mib): (&str, u64),
    ) -> Result<Filesystem> {
        let filesystem = Filesystem {
            directory: directory.to_owned(),
            name: name.to_owned(),
        };
        let root = filesystem.root();
        if is_mount(&root)? {
            return Ok(filesystem);
        }
        let lower = if lower == HOST { "/" } else { lower };
        if !Path::new(lower).is_dir() {
            return Err(Error::Unsupported {
                what: format!("node {name}: filesystem {lower:?}"),
                instead: "it must be a directory of this host, such as an unpacked image",
            });
        }
        unmount(directory)?;
        let what = || format!("making {}", directory.display());
        std::fs::create_dir_all(directory).attempt(what())?;
        let size = format!("size={size_mib}m,mode=755");
        mount(&["-t", "tmpfs", "-o", &size, "carina"], directory)?;
        let [upper, work] = ["upper", "work"].map(|name| directory.join(name));
        for place in [&upper, &work, &root] {
            std::fs::create_dir(place).attempt(what())?;
        }
        let layers = format!(
            "lowerdir={lower},upperdir={},workdir={}",
            upper.display(),
            work.display()
        );
        match mount(&["-t", "overlay", "-o", &layers, "carina"], &root) {
            Err(_) if lower == "/" && !is_first_user_namespace() => Err(Error::Unsupported {
                what: format!("node {name}: filesystem {HOST:?}"),
                instead: "the kernel lets only root put a layer over the root of the host; name \
                          a directory without mounts below it, such as an unpacked image, or \
                          run the command as root",
            }),
            mounted => mounted.map(|()| filesystem),
        }
    }

    fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// The words of a command that runs `script` with this root and the node's host name.
    pub(crate) fn words(&self, script: &str) -> Vec<OsString> {
        let unshare = ["unshare", "--mount", "--uts", "--propagation", "private"];
        let mut words: Vec<OsString> = unshare.map(OsString::from).into();
        words.extend(["sh", "-c", ENTER, "sh"].map(OsString::from));
        words.extend([
            self.root().into(),
            OsString::from(&self.name),
            script.into(),
        ]);
        words
    }
}

/// Unmounts the file system at `NODE.root`, and removes the directory. Does nothing if there is
/// none.
pub(crate) fn unmount(directory: &Path) -> Result<()> {
    for mounted in [directory.join("root"), directory.to_owned()] {
        let mut left = TRIES;
        while is_mount(&mounted)? {
            // A command that has just been killed may still use it.
            let mut command = Command::new("umount");
            command.arg("--lazy").arg(&mounted);
            let done = run(&mut command, &format!("unmounting {}", mounted.display()));
            left -= 1;
            if left == 0 {
                done?;
                return Err(Error::Ended("a mount that cannot be removed"));
            }
        }
    }
    remove_directory(directory)
}

/// Whether a file system is mounted at a directory: the directory and its parent are on different
/// devices.
fn is_mount(directory: &Path) -> Result<bool> {
    let what = || format!("looking at {}", directory.display());
    let Some(parent) = directory.parent() else {
        return Ok(true);
    };
    let device = |path: &Path| -> Result<Option<u64>> {
        let mut device = None;
        let read = std::fs::symlink_metadata(path).map(|metadata| device = Some(metadata.dev()));
        absent_is_done(read).attempt(what())?;
        Ok(device)
    };
    let (own, above) = (device(directory)?, device(parent)?);
    Ok(own.is_some() && own != above)
}

/// Whether this process is in the first user namespace of the system, which has all users.
fn is_first_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn mount(words: &[&str], at: &Path) -> Result<()> {
    let mut command = Command::new("mount");
    command.args(words).arg(at);
    run(&mut command, &format!("mounting {}", at.display()))
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let mut kept = Collector::new([OUTPUT_MAX; 2]);
    let until = CommandLimits {
        limit: MOUNT,
        is_cancelled: &AtomicBool::new(false),
    };
    let finish = run_piped(command, until, &mut kept).attempt(what)?;
    let problem = match finish {
        Finish::Exited(0) => return Ok(()),
        Finish::Exited(status) => Output::of(kept, status).error_text(),
        Finish::Cancelled | Finish::TimedOut => format!("it has not ended after {MOUNT:?}"),
    };
    Err(std::io::Error::other(problem)).attempt(what)
}

/// Enters a root: `$1` is its path, `$2` the host name, `$3` the script. In a user namespace only
/// the system call sets the host name, which `hostname` makes.
const ENTER: &str = "{ echo \"$2\" >/proc/sys/kernel/hostname; } 2>/dev/null ||\n\
                     hostname \"$2\" || exit 125\n\
                     for d in dev proc sys; do\n\
                     [ -d \"$1/$d\" ] || mkdir \"$1/$d\" || exit 125\n\
                     [ $d = sys ] && mount -t sysfs carina \"$1/sys\" && continue\n\
                     mount --rbind \"/$d\" \"$1/$d\" || exit 125\n\
                     done\n\
                     exec chroot \"$1\" /bin/sh -c \"$3\"";
/// Longest time for `mount` or `umount`.
const MOUNT: Duration = Duration::from_secs(30);
/// Largest number of bytes that are kept of each output of `mount` or `umount`.
const OUTPUT_MAX: usize = 4096;
/// Number of times that unmounting is tried.
const TRIES: u32 = 5;
