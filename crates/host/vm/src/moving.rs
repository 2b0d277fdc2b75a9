//! Migration: a guest continues in another QEMU, sent there while it runs, or by way of a file.
//!
//! ```text
//!   QEMU that has it           QEMU that awaits it (Machine::await_guest)
//!   send_guest -- connection -> Running::arrive_over, has_arrived   then Running::resume
//!   save_guest  -->  file  ---> Running::take_from
//! ```
//!
//! The QEMU that awaits a guest does not run it before [`Running::resume`]. So the caller of the
//! migration decides where the guest runs. Until then the guest can resume in its old QEMU
//! ([`resume_guest`]). It sees the same hardware at both ends ([`Hardware`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cache::Cache;
use crate::error::{Context, Error, Result};
use crate::hardware::Hardware;
use crate::hash::hash_of_file;
use crate::machine::{Life, Machine};
use crate::moving_disk::DiskCopy;
use crate::network::{Nic, NicId};
use crate::qmp::{Migration, Qmp, RunState};
use crate::running::Running;
use crate::state::Record;

/// Size and hash of a file with a guest's state, to check the file before it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedGuest {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// XXH3 of its contents: 128 bits in hexadecimal digits.
    pub hash: String,
}

impl Machine {
    /// Starts a QEMU that waits for a guest with this hardware, from another QEMU or from a file.
    /// `cards` gives the back end of each card; cards that it does not name are unplugged. The
    /// settings of this machine for cards, ports and memory are ignored. Its boot setting is used
    /// when the guest reboots.
    ///
    /// # Errors
    ///
    /// As for [`Machine::start`]; also if the hardware is impossible or the machine has a
    /// shared-memory device.
    pub fn await_guest(
        mut self,
        cache: &Cache,
        hardware: &Hardware,
        cards: &BTreeMap<NicId, Nic>,
    ) -> Result<Running> {
        hardware.check()?;
        let accel = self.accel_in(cache)?;
        if accel.name() != hardware.accel {
            return Err(Error::Invalid {
                what: format!("a guest that has run with {}", hardware.accel),
                reason: format!("this host has {}", accel.name()),
            });
        }
        self = self.memory_mib(hardware.memory_mib).cpus(hardware.cpus);
        let running = self.spawn(accel, Life::Awaiting { hardware, cards })?;
        running.wait_monitor(READY_LIMIT)?;
        Ok(running)
    }
}

impl Running {
    /// Makes a QEMU that awaits a guest receive it over a connection. (A QEMU that runs as another
    /// user may not create sockets in the run directory.)
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn arrive_over(&self, connection: BorrowedFd<'_>) -> Result<()> {
        let mut qmp = self.qmp()?;
        qmp.whole_memory()?;
        if self.record().from_disk {
            qmp.prepare_disk(false)?;
        }
        qmp.migrate_incoming(connection)
    }

    /// Waits until a guest that was sent has arrived. The guest is paused.
    ///
    /// # Errors
    ///
    /// The guest does not arrive within `limit`, or QEMU refuses it; the error has QEMU's last
    /// output.
    pub fn has_arrived(&self, limit: Duration) -> Result<()> {
        let arrived = self.qmp().and_then(|mut qmp| {
            let deadline = Instant::now() + limit;
            while qmp.migration()?.is_none() {
                if Instant::now() >= deadline {
                    return Err(Error::Qmp("the guest has not arrived in time".into()));
                }
                std::thread::sleep(POLL);
            }
            Ok(())
        });
        arrived.map_err(|error| self.reason_of_end().unwrap_or(error))
    }

    /// Loads a guest that [`save_guest`] has written to a file into this QEMU, and waits until it
    /// is loaded. The guest is paused.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or QEMU refuses its contents.
    pub fn take_from(&self, path: &Path) -> Result<()> {
        let mut file = File::open(path).context("open", path)?;
        let qmp = &self.record().qmp;
        let (mut stream, theirs) = UnixStream::pair().context("make a socket for", qmp)?;
        self.arrive_over(theirs.as_fd())?;
        drop(theirs);
        let sent = stream
            .set_write_timeout(Some(READY_LIMIT))
            .and_then(|()| std::io::copy(&mut file, &mut stream))
            .and_then(|_| stream.shutdown(Shutdown::Write));
        // If QEMU refuses the contents, it closes the socket and reports the reason elsewhere.
        let arrived = self.has_arrived(READY_LIMIT);
        arrived.and_then(|()| sent.context("send the guest to", qmp))
    }
}

/// Sends the running guest of a machine over a connection whose other end a second QEMU reads.
/// Returns when this QEMU has sent everything; the guest is then paused here. The guest has arrived
/// when [`Running::has_arrived`] of the other machine returns, and does not run there before
/// [`Running::resume`].
///
/// `at_stop` is called at most once, when the guest pauses here. `disk` is the copy of the
/// machine's disk, if the other machine has another disk; the copy is complete when this returns.
///
/// # Errors
///
/// The migration fails or exceeds `limit`, or a QMP request fails. After `limit` the migration is
/// cancelled, and the guest continues here unless its QEMU has ended. After a failed request the
/// migration may still complete. If the copy of the disk fails, the guest continues here.
pub fn send_guest(
    record: &Record,
    connection: UnixStream,
    disk: Option<&DiskCopy<'_>>,
    limit: Duration,
    at_stop: impl FnOnce(),
) -> Result<Migration> {
    let sent = try_send(record, connection, disk, limit, at_stop);
    if let (Err(_), Some(copy)) = (&sent, disk) {
        copy.abandon(record);
    }
    sent
}

fn try_send(
    record: &Record,
    connection: UnixStream,
    disk: Option<&DiskCopy<'_>>,
    limit: Duration,
    at_stop: impl FnOnce(),
) -> Result<Migration> {
    let began = Instant::now();
    let mut events = Qmp::connect(&record.events, LIMIT)?;
    let mut qmp = Qmp::connect(&record.qmp, LIMIT)?;
    qmp.whole_memory()?;
    if record.from_disk {
        qmp.prepare_disk(disk.is_some())?;
    }
    let mut disk = disk;
    qmp.set_downtime_limit(DOWNTIME_MS[0])?;
    qmp.migrate(connection.as_fd())?;
    // QEMU now has the only copy of the descriptor, so the other end sees when QEMU closes it.
    drop(connection);
    let mut at_stop = Some(at_stop);
    let mut pressed = 0;
    loop {
        let has_stopped = at_stop.is_some() && events.wait_event("STOP", |_| true, SLICE).is_ok();
        if has_stopped && let Some(act) = at_stop.take() {
            act();
        }
        if let Some(copy) = disk
            && qmp.awaits_switchover()?
        {
            copy.complete(&mut qmp)?;
            qmp.switch_over()?;
            disk = None;
        }
        match qmp.migration() {
            Ok(None) => {}
            Ok(Some(done)) => {
                // A guest that was already paused gives no STOP event.
                if let Some(act) = at_stop.take() {
                    act();
                }
                return Ok(done);
            }
            Err(error) => return Err(error),
        }
        let elapsed = began.elapsed();
        if elapsed >= limit {
            // The guest continues in this QEMU.
            let _ = qmp.execute("migrate_cancel", serde_json::json!({}));
            return Err(Error::Timeout {
                name: record.name.clone(),
                awaited: "end of its migration".into(),
                seconds: limit.as_secs(),
                hint: "; the guest may write its memory faster than the migration sends it".into(),
            });
        }
        // A guest that writes much may be stopped for longer, so that the migration ends.
        if pressed + 1 < DOWNTIME_MS.len() && elapsed >= limit / 4 * (pressed as u32 + 1) {
            pressed += 1;
            qmp.set_downtime_limit(DOWNTIME_MS[pressed])?;
        }
        if at_stop.is_none() {
            std::thread::sleep(POLL);
        }
    }
}

/// Saves a guest into a new file that only its owner can access. The guest is then paused;
/// [`resume_guest`] resumes it.
///
/// # Errors
///
/// The file exists or cannot be written; as for [`Qmp::execute`]; or saving takes longer than
/// `limit`.
pub fn save_guest(record: &Record, path: &Path, limit: Duration) -> Result<SavedGuest> {
    let deadline = Instant::now() + limit;
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = BufWriter::with_capacity(1 << 20, file.context("create", path)?);
    let (mut stream, theirs) = UnixStream::pair().context("make a socket for", &record.qmp)?;
    let mut qmp = Qmp::connect(&record.qmp, LIMIT)?;
    qmp.whole_memory()?;
    qmp.migrate(theirs.as_fd())?;
    // QEMU now has the only copy of the descriptor, so the stream ends when QEMU closes it.
    drop(theirs);
    let bytes = stream
        .set_read_timeout(Some(READY_LIMIT))
        .and_then(|()| std::io::copy(&mut stream, &mut file))
        .context("write", path)?;
    let file = file
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error);
    let written = file.and_then(|mut file| file.flush().and_then(|()| file.sync_all()));
    written.context("write", path)?;
    while qmp.migration()?.is_none() {
        if Instant::now() >= deadline {
            return Err(Error::Qmp(
                "migrate: the migration does not finish in time".into(),
            ));
        }
        std::thread::sleep(POLL);
    }
    let hash = hash_of_file(path)?;
    Ok(SavedGuest { bytes, hash })
}

impl SavedGuest {
    /// Checks that a file is the one that was saved.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has other contents.
    pub fn check(&self, path: &Path) -> Result<()> {
        let bytes = std::fs::metadata(path).context("read", path)?.len();
        let bad = |reason: String| Error::Invalid {
            what: path.display().to_string(),
            reason,
        };
        if bytes != self.bytes {
            return Err(bad(format!(
                "has {bytes} bytes, but {} were saved: the file is truncated or another file",
                self.bytes
            )));
        }
        if hash_of_file(path)? == self.hash {
            Ok(())
        } else {
            Err(bad(
                "differs from what was saved: the file is damaged".into()
            ))
        }
    }
}

/// The state of a machine's guest. It is `inmigrate` for a guest that is awaited, and `postmigrate`
/// for a guest that was sent.
///
/// # Errors
///
/// As for [`Qmp::connect`].
pub fn guest_state(record: &Record) -> Result<RunState> {
    Qmp::connect(&record.qmp, LIMIT)?.status()
}

/// Resumes a paused guest.
///
/// # Errors
///
/// As for [`Qmp::execute`].
pub fn resume_guest(record: &Record) -> Result<()> {
    Qmp::connect(&record.qmp, LIMIT)?.resume()
}

/// Pauses the processors of a running guest.
///
/// # Errors
///
/// As for [`Qmp::execute`].
pub fn pause_guest(record: &Record) -> Result<()> {
    Qmp::connect(&record.qmp, LIMIT)?.pause()
}

const LIMIT: Duration = Duration::from_secs(5);
const READY_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);
/// How long to wait for the guest to stop before the state of the migration is checked.
const SLICE: Duration = Duration::from_millis(50);
/// How long the guest may be stopped for the last part of a migration, in ms: at first, and when
/// the migration does not end.
const DOWNTIME_MS: [u64; 3] = [10, 300, 2000];
