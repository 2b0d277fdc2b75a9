//! Networks of a user who may not create network namespaces: their agent runs in namespaces of the
//! user.
//!
//! ```text
//!   RUN/vnet.user/process.json   the process that holds the namespaces open
//!   RUN/vnet.user/lock           held while the file above is read or written
//! ```
//!
//! The process holds a user namespace, in which the user has all rights, a mount namespace with a
//! `/run/netns` of its own, and a network namespace. It runs until the last network is removed, so
//! that networks outlive their agent, and the next agent finds them. The agent and the commands
//! that read namespaces run there: [`enter`] and [`enter_existing`] execute this program again.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use carina_namespaces::{NamespaceAccess, Process, hold_namespaces};
use carina_sys::lock_file;
use carina_vm::Templates;
use carina_vnet_host::Vnets;
use carina_vnet_host::admission_check::can_make_namespaces;
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::Signal;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::report::progress;

/// Continues in the user's namespaces, and creates them if they do not exist. Returns at once if
/// this process may create network namespaces itself; otherwise it does not return, because the
/// program starts again there. `listener` becomes the standard input of that program.
///
/// # Errors
/// The system does not allow user namespaces, or the program cannot be started again.
pub(super) fn enter(shared: &Shared, listener: Option<TcpListener>) -> Outcome {
    if can_make_namespaces() {
        return Ok(());
    }
    let place = Place::of(shared);
    let what = || format!("making {}", place.0.display());
    fs::create_dir_all(&place.0).attempt(what())?;
    let lock = place.lock()?;
    let process = match place.process() {
        Some(process) => process,
        None => {
            let keeper = hold_namespaces(&place.0).attempt("making namespaces of this user")?;
            let process = keeper.process().clone();
            place.record(&process)?;
            keeper.stay().attempt("making namespaces of this user")?;
            progress(
                "this user may not create network namespaces here: the networks are made in a \
                 user namespace",
            );
            process
        }
    };
    drop(lock);
    start_again(shared, &process, listener)
}

/// Continues in the user's namespaces if they exist and this process may not create network
/// namespaces itself. Otherwise returns at once.
///
/// # Errors
/// The program cannot be started again.
pub(super) fn enter_existing(shared: &Shared) -> Outcome {
    if can_make_namespaces() {
        return Ok(());
    }
    match Place::of(shared).process() {
        Some(process) => start_again(shared, &process, None),
        None => Ok(()),
    }
}

/// Ends the process that holds the user's namespaces, unless a network is left. Does nothing if the
/// networks of the run directory are not in a user namespace.
///
/// # Errors
/// The records of networks cannot be read.
pub(super) fn release(shared: &Shared) -> Outcome {
    let place = Place::of(shared);
    if !place.0.is_dir() {
        return Ok(());
    }
    let _lock = place.lock()?;
    let names = Vnets::of(&shared.run_dir()).names();
    if names.attempt("listing networks")?.is_empty()
        && let Some(process) = place.process()
    {
        process.signal(Signal::KILL);
        // The next agent takes a process that has ended for none.
        let _ = fs::remove_file(place.file());
    }
    Ok(())
}

/// The listener that [`enter`] has passed on as standard input; `None` if standard input is no
/// socket that listens.
pub(super) fn inherited_listener() -> Option<TcpListener> {
    let input = std::io::stdin();
    if !socket_acceptconn(input.as_fd()).unwrap_or(false) {
        return None;
    }
    let descriptor = input.as_fd().try_clone_to_owned().ok()?;
    Some(TcpListener::from(descriptor))
}

/// Executes this program again in the namespaces that a process holds.
fn start_again(shared: &Shared, process: &Process, listener: Option<TcpListener>) -> Outcome {
    let program = std::env::current_exe().attempt("finding this program")?;
    let Some(program) = program.to_str() else {
        return Err(failed(format!(
            "the path of this program, {}, must be UTF-8",
            program.display()
        )));
    };
    let mut command = NamespaceAccess::held_by(process).command(program);
    command
        .args(std::env::args_os().skip(1))
        // There, this user is root, whose default directories are others.
        .env("CARINA_RUN", shared.run_dir().path())
        .env("CARINA_TEMPLATES", Templates::default_path());
    if let Some(listener) = listener {
        command.stdin(Stdio::from(OwnedFd::from(listener)));
    }
    let error = command.exec();
    Err(failed(format!(
        "entering the namespaces of this user: nsenter (package util-linux): {error}"
    )))
}

/// The directory with the record of the process that holds the namespaces.
struct Place(PathBuf);

impl Place {
    fn of(shared: &Shared) -> Place {
        Place(shared.run_dir().path().join("vnet.user"))
    }

    fn file(&self) -> PathBuf {
        self.0.join("process.json")
    }

    fn lock(&self) -> Result<File, Failure> {
        let path = self.0.join("lock");
        let file = File::create(&path).attempt(format!("making {}", path.display()))?;
        let is_locked = lock_file(&file, LOCK).attempt(format!("locking {}", path.display()))?;
        if is_locked {
            Ok(file)
        } else {
            Err(failed(format!(
                "another process holds the lock {} for more than {} s",
                path.display(),
                LOCK.as_secs()
            )))
        }
    }

    /// The process that holds the namespaces, if it runs.
    fn process(&self) -> Option<Process> {
        let text = fs::read_to_string(self.file()).ok()?;
        let process: Process = serde_json::from_str(&text).ok()?;
        process.is_alive().then_some(process)
    }

    fn record(&self, process: &Process) -> Outcome {
        let path = self.file();
        let text = serde_json::to_string(process).attempt("encoding the record of a process")?;
        fs::write(&path, text).attempt(format!("writing {}", path.display()))
    }
}

/// How long to wait for another process that makes the same namespaces.
const LOCK: Duration = Duration::from_secs(15);
