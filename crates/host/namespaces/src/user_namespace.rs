//! User namespaces in which an ordinary user may create network namespaces: held open by a process,
//! or entered by this one.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Attempt, Error, Result};
use crate::process::Process;

/// A process that holds a user namespace open. It ends when this process ends for any reason,
/// unless it was ordered to [stay](Keeper::stay).
pub struct Keeper {
    process: Process,
    gate: Option<ChildStdin>,
}

impl Keeper {
    /// The process that holds the namespace.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Lets the process outlive this process. The caller records it, so that `lab down` finds it.
    ///
    /// # Errors
    /// The process has ended.
    pub fn stay(mut self) -> Result<()> {
        let opened = self.gate.take().map(|mut gate| gate.write_all(b"stay\n"));
        opened
            .unwrap_or(Ok(()))
            .attempt("keeping the lab's user namespace")
    }
}

/// Starts a process that holds a user namespace open, in which an ordinary user may create network
/// namespaces. `directory` is used for temporary mounts and files.
///
/// # Errors
/// The kernel does not allow it; the error says what to do.
pub fn hold_namespaces(directory: &Path) -> Result<Keeper> {
    let ready = directory.join(".ground");
    let aside = directory.join(".run");
    std::fs::create_dir_all(&aside).attempt(format!("making {}", aside.display()))?;
    // An earlier process that held namespaces has left its file.
    let _ = std::fs::remove_file(&ready);
    let log = directory.join(".ground.log");
    let file = std::fs::File::create(&log).attempt(format!("writing {}", log.display()))?;
    let mut child: Child = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "--net",
            "sh",
            "-ec",
            &format!(
                "ready=$1 aside=$2\n{PRIVATE_NETNS}: > \"$ready\"\nread -r stay\n\
                 exec sleep infinity"
            ),
            "sh",
        ])
        .args([&ready, &aside])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .attempt("running unshare (package util-linux)")?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !ready.exists() {
        let ended = child
            .try_wait()
            .attempt("checking whether unshare has ended")?;
        if ended.is_some() || Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            let printed = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(Error::UserNamespacesForbidden(printed.trim().to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Keeper {
        process: Process::of_child(&child)?,
        gate: child.stdin.take(),
    })
}

/// Checks whether this system lets this user create network namespaces in a user namespace.
///
/// # Errors
/// It does not; the error says what to do.
pub fn check_user_namespaces() -> Result<()> {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--net", "true"])
        .stdin(Stdio::null())
        .output()
        .attempt("running unshare (package util-linux)")?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(Error::UserNamespacesForbidden(message.trim().to_owned()))
}

/// Whether [`enter_private`] is possible, which depends on the user and on the kernel's settings.
pub fn can_enter_private() -> bool {
    let script = format!("aside=$1\n{PRIVATE_NETNS}ip tuntap add dev tap-try mode tap");
    let attempt = in_private_namespaces(&script).output();
    attempt.is_ok_and(|output| output.status.success())
}

/// Replaces this process by the same program with other arguments, in a new network namespace and a
/// new mount namespace; for an ordinary user also in a new user namespace. The program may create
/// taps, bridges and network namespaces there, which are removed when its last process ends.
/// Returns only if it fails.
pub fn enter_private(arguments: &[OsString]) -> Error {
    let what = "entering a network namespace".to_owned();
    let script = format!("aside=$1; shift\n{PRIVATE_NETNS}exec \"$@\"");
    let source = match std::env::current_exe() {
        Ok(program) => in_private_namespaces(&script)
            .arg(program)
            .args(arguments)
            .exec(),
        Err(source) => source,
    };
    Error::System { what, source }
}

/// A shell script in new namespaces. Its first argument is a directory for mounts.
fn in_private_namespaces(script: &str) -> Command {
    let namespaces: &[&str] = if rustix::process::geteuid().is_root() {
        &["--mount", "--net"]
    } else {
        &["--user", "--map-root-user", "--mount", "--net"]
    };
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["sh", "-ec", script, "sh"]);
    let mnt = Path::new("/mnt");
    command.arg(if mnt.is_dir() {
        mnt.to_owned()
    } else {
        std::env::temp_dir()
    });
    command
}

/// A script that mounts a private `/run/netns`. If that directory is missing and cannot be created,
/// `/run` is replaced by a copy that has it; the original is mounted on the directory `$aside`
/// meanwhile.
const PRIVATE_NETNS: &str = r#"
if ! [ -d /run/netns ] && ! mkdir /run/netns 2>/dev/null; then
    mount --rbind /run "$aside"
    mount -t tmpfs run /run
    for entry in "$aside"/* "$aside"/.[!.]*; do
        [ -e "$entry" ] || continue
        here=/run/${entry##*/}
        if [ -d "$entry" ]; then
            mkdir "$here"
            mount --rbind "$entry" "$here"
        else
            : > "$here"
            mount --bind "$entry" "$here"
        fi
    done
    mkdir /run/netns
fi
mount -t tmpfs netns /run/netns
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeper_ends_with_its_maker_until_it_is_to_stay() {
        let directory = tempfile::tempdir().unwrap();
        let made = || match hold_namespaces(directory.path()) {
            Err(Error::UserNamespacesForbidden(reason)) => {
                println!("SKIP: no user namespaces here: {reason}");
                None
            }
            Err(error) => panic!("{error}"),
            Ok(keeper) => Some(keeper),
        };
        let Some(keeper) = made() else { return };
        let process = keeper.process().clone();
        assert!(process.is_alive());
        drop(keeper);
        while process.is_alive() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_file(directory.path().join(".ground")).unwrap();
        let Some(keeper) = made() else { return };
        let process = keeper.process().clone();
        keeper.stay().unwrap();
        let program = || std::fs::read_to_string(format!("/proc/{}/comm", process.pid));
        while program().is_ok_and(|name| name.trim() != "sleep") {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(process.is_alive());
        process.signal(rustix::process::Signal::KILL);
    }
}
