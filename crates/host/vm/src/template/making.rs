//! Creation of a template: a guest boots with its memory in a file, and its state is saved.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::MAKING_LIMIT;
use super::entry::{Entry, Made};
use crate::accel::{self, Accel};
use crate::error::{Context, Error, Result};
use crate::machine::{Life, Machine};
use crate::network::NicId;
use crate::running::Running;
use crate::tool;

/// Creates the template for machines like `machine` at `entry`, which does not exist yet.
pub(super) fn make(entry: &Entry, key: String, machine: &Machine, accel: Accel) -> Result<()> {
    let directory = &entry.directory;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(directory)
        .context("create", directory)?;
    let likeness = machine.likeness(directory.clone())?;
    let cards = likeness.cards();
    let (memory_mib, cpus) = (likeness.memory(), likeness.processors());
    let version = tool::output(Command::new(accel::qemu()?).arg("--version"))?;
    let begun = Instant::now();
    let running = likeness.spawn(accel, Life::Template(&entry.memory()))?;
    boot(&running, cards)?;
    let boot_ms = begun.elapsed().as_millis();
    let state = save(&running)?;
    // From here on, nothing writes the memory.
    drop(running);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let made = Made {
        key,
        qemu: first_line(&version),
        accel: accel.name().to_owned(),
        memory_mib,
        cpus,
        cards,
        made_s: since_1970.unwrap_or_default().as_secs(),
        boot_ms: u64::try_from(boot_ms).unwrap_or(u64::MAX),
    };
    entry.complete(made, &state).map(drop)
}

/// Waits until the guest has booted. The links of its cards are down; a clone sets them up when it
/// has its own addresses.
fn boot(running: &Running, cards: usize) -> Result<()> {
    let deadline = Instant::now() + MAKING_LIMIT;
    let mut qmp = running.wait_monitor(MAKING_LIMIT)?;
    for id in (0..).map(NicId).take(cards) {
        qmp.set_link(id, false)?;
    }
    drop(qmp);
    running.wait_ready(MAKING_LIMIT)?;
    // The command port answers a little before the first process has finished.
    while !running.console_text().contains(IS_UP) {
        if Instant::now() >= deadline {
            return Err(Error::Guest(format!(
                "the console of the template did not show {IS_UP:?} \
                in time"
            )));
        }
        std::thread::sleep(POLL);
    }
    running.run("true").map(drop)
}

/// Stops the guest and returns the state of its devices.
fn save(running: &Running) -> Result<Vec<u8>> {
    let socket = &running.record().qmp;
    let (stream, theirs) = UnixStream::pair().context("make a socket for", socket)?;
    stream
        .set_read_timeout(Some(SAVING_LIMIT))
        .context("set the time limit of", socket)?;
    let mut qmp = running.qmp()?;
    qmp.ignore_shared_memory()?;
    qmp.migrate(theirs.as_fd())?;
    // QEMU now has the only copy of the descriptor, so the state ends when QEMU closes it.
    drop(theirs);
    let deadline = Instant::now() + SAVING_LIMIT;
    let mut state = Vec::new();
    stream
        .take(STATE_BYTES_MAX + 1)
        .read_to_end(&mut state)
        .context("read the state from", socket)?;
    if state.len() as u64 > STATE_BYTES_MAX {
        return Err(Error::Qmp(format!(
            "migrate: the state has more than {STATE_BYTES_MAX} bytes: it contains the memory \
             as well"
        )));
    }
    while qmp.migration()?.is_none() {
        if Instant::now() >= deadline {
            return Err(Error::Qmp(
                "migrate: the migration does not finish in time".into(),
            ));
        }
        std::thread::sleep(POLL);
    }
    Ok(state)
}

fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().next().unwrap_or_default().to_owned()
}

/// What the guest's first process prints on the console when it has finished.
const IS_UP: &str = "carina: the guest is up";
const SAVING_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// Limit for the state, which has some 600 KiB. A state with the guest's memory would exceed it.
const STATE_BYTES_MAX: u64 = 64 << 20;
