//! `carina vnet agent`: the process that holds the networks of a host.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_vnet_host::client::{Client, socket_of};
use carina_vnet_host::{Agent, server};

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::progress;

/// Serves `vnet.sock` until a signal comes, or the last network goes.
///
/// # Errors
/// Another agent has the run directory, or the socket cannot be made.
pub fn serve(shared: &Shared, is_transient: bool) -> Outcome {
    let run_dir = shared.run_dir();
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    fs::create_dir_all(run_dir.path()).attempt(format!("making {}", run_dir.path().display()))?;
    let _lock = lock(&run_dir)?;
    let agent = Agent::new(&run_dir).attempt("taking up networks")?;
    let path = socket_of(&run_dir);
    let what = || format!("listening on {}", path.display());
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).attempt(what())?,
        // It was that of an agent that has gone: this one has the lock.
        _ => {}
    }
    let listener = UnixListener::bind(&path).attempt(what())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).attempt(what())?;
    let (ended, end) = std::sync::mpsc::channel();
    let (stop, stopped) = server::stop_handle();
    let serving = std::thread::spawn(move || {
        let served = server::serve(listener, Arc::new(agent), is_transient, stopped);
        // The other end may have gone.
        let _ = ended.send(());
        served
    });
    progress(format!("serving {}", path.display()));
    while end.try_recv().is_err() && !interrupt.comes_within(LOOK).attempt(TAKING_SIGNALS)? {}
    drop(stop);
    let served = serving
        .join()
        .map_err(|_| failed("the agent's server has failed"))?;
    // A successor that has the lock makes it anew.
    let _ = fs::remove_file(&path);
    served.attempt("serving vnet.sock")
}

/// The lock of the agent of a run directory.
fn lock(run_dir: &RunDir) -> Result<File, Failure> {
    let path = run_dir.path().join("vnet.lock");
    let file = File::create(&path).attempt(format!("making {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(failed(format!(
            "an agent with the run directory {} runs already",
            run_dir.path().display()
        ))),
        Err(TryLockError::Error(error)) => Err(error).attempt("locking vnet.lock"),
    }
}

/// A client of the agent; where none answers, one is started that ends with its last network.
///
/// # Errors
/// None can be started.
pub fn reach_or_start(shared: &Shared) -> Result<Client, Failure> {
    let run_dir = shared.run_dir();
    let client = Client::new(&run_dir, shared.answer_limit());
    if client.list().is_ok() {
        return Ok(client);
    }
    fs::create_dir_all(run_dir.path()).attempt(format!("making {}", run_dir.path().display()))?;
    let log = run_dir.path().join("vnet.log");
    let stderr = File::create(&log).attempt(format!("writing {}", log.display()))?;
    let program = std::env::current_exe().attempt("finding this program")?;
    let mut child = Command::new(program)
        .args(["vnet", "agent", "--transient", "--run"])
        .arg(run_dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        // An interrupt typed at this terminal is not for it.
        .process_group(0)
        .spawn()
        .attempt("starting an agent")?;
    let deadline = Instant::now() + START;
    loop {
        if client.list().is_ok() {
            return Ok(client);
        }
        let ended = child.try_wait().attempt("looking after the agent")?;
        if ended.is_some() || Instant::now() > deadline {
            let said = fs::read_to_string(&log).unwrap_or_default();
            return Err(failed(format!(
                "the agent does not answer: {}",
                said.trim()
            )));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

const LOOK: Duration = Duration::from_millis(50);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long an agent may take until it answers.
const START: Duration = Duration::from_secs(20);
