//! A process that removes what a benchmark has made, however the benchmark ends.
//!
//! VMs continue to run when their agent ends. So when a benchmark is killed, its processes end, but
//! not those of QEMU. The sweeper waits for the end of a pipe that the benchmark holds open.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_vnet_host::{Vnets, leftovers};

use crate::error::{Attempt, Result};

/// The sweeper process. It removes everything when this value is dropped, or when this process
/// ends.
#[derive(Debug)]
pub(super) struct Sweeper(Child);

impl Sweeper {
    /// Starts a sweeper for the run directories below a directory.
    pub(super) fn start(directory: &Path) -> Result<Sweeper> {
        let own = std::env::current_exe().attempt("finding this program")?;
        let child = Command::new(own)
            .args(["vnet", "bench", "sweep"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C at this terminal must not reach the sweeper.
            .process_group(0)
            .spawn();
        Ok(Sweeper(child.attempt("starting the sweeper")?))
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The work of the sweeper process: waits until standard input ends, and then removes all networks
/// below a directory, and the directory.
///
/// # Errors
/// Standard input cannot be read.
pub fn sweep(directory: &Path) -> Result<()> {
    let mut nothing = Vec::new();
    let ended = io::stdin().read_to_end(&mut nothing);
    remove(directory);
    ended.attempt("waiting for the bench").map(drop)
}

/// Removes all networks below a directory once their agents have ended, and the directory. The next
/// benchmark tries again to remove what is left.
pub(super) fn remove(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut is_clear = true;
    for entry in entries.filter(|entry| entry.path().is_dir()) {
        wait_for_agent(&entry.path());
        is_clear &= remove_networks(&RunDir::new(entry.path())).is_ok();
    }
    if is_clear {
        // The directory may no longer exist.
        let _ = fs::remove_dir_all(directory);
    }
}

/// Waits for the end of an agent, because an ending agent may still make something.
fn wait_for_agent(run_dir: &Path) {
    let Ok(file) = File::open(run_dir.join("vnet.lock")) else {
        return;
    };
    let deadline = Instant::now() + END;
    while file.try_lock().is_err() && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
}

fn remove_networks(run_dir: &RunDir) -> carina_vnet_host::Result<()> {
    let vnets = Vnets::of(run_dir);
    leftovers::remove_pool(&vnets)?;
    for name in vnets.names()? {
        leftovers::remove_recorded(&vnets.vnet(&name))?;
    }
    Ok(())
}

const END: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);
