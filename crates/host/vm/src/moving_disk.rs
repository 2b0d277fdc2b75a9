//! The disk of a guest that moves to another host, copied while the guest runs.
//!
//! ```text
//!   QEMU that has the guest                          QEMU that awaits it
//!   disk -> mirror -> NBD client --- connection ---> NBD server -> disk
//!   DiskCopy::begin                                  Running::serve_disk
//! ```
//!
//! The protocol is NBD, network block device (`doc/proto.md` of the project NBD). QEMU's job
//! `blockdev-mirror` sends what the guest has written. It does not send the image on which the disk
//! is based: the other host has the same image.
//! A write of the guest is done when both disks have it. So nothing is left to copy when the guest
//! pauses, however large the disk is.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{Context, Error, Result};
use crate::qmp::Qmp;
use crate::running::Running;
use crate::state::Record;

/// The copy of a machine's disk, from [`DiskCopy::begin`] until the guest is sent
/// ([`send_guest`](crate::send_guest)).
#[derive(Debug)]
pub struct DiskCopy<'a>(&'a DiskSocket);

/// A socket to which the QEMU of one machine connects, to send its disk.
#[derive(Debug)]
pub struct DiskSocket {
    /// Closed as soon as QEMU has connected: a QEMU whose connection has failed would connect
    /// again, and wait for an answer.
    listener: Mutex<Option<UnixListener>>,
    connection: Mutex<Option<UnixStream>>,
    name: String,
    pid: i32,
}

impl DiskSocket {
    /// Creates the socket in the network namespace of the calling thread, which must be the one of
    /// QEMU. `name` must be unused there.
    ///
    /// # Errors
    ///
    /// The system refuses, or the name is in use.
    pub fn create(record: &Record, name: &str) -> Result<DiskSocket> {
        // QEMU may not create sockets in the run directory nor search it, so the socket has an
        // abstract name (unix(7)).
        let address = SocketAddr::from_abstract_name(name);
        let listener = address.and_then(|address| UnixListener::bind_addr(&address));
        let listener = listener.context("listen for the disk of", &record.qmp)?;
        listener
            .set_nonblocking(true)
            .context("listen for the disk of", &record.qmp)?;
        Ok(DiskSocket {
            listener: Mutex::new(Some(listener)),
            connection: Mutex::new(None),
            name: name.to_owned(),
            pid: record.pid,
        })
    }

    /// Waits until QEMU has connected, and returns the connection. Refuses other processes.
    ///
    /// # Errors
    ///
    /// QEMU does not connect within `limit`, or `is_over` says that it will not connect any more.
    pub fn accept(
        &self,
        limit: Duration,
        is_over: impl Fn() -> bool,
    ) -> std::io::Result<UnixStream> {
        let deadline = Instant::now() + limit;
        let listener = lock(&self.listener).take();
        let listener = listener.ok_or_else(|| std::io::Error::other("QEMU has connected"))?;
        while Instant::now() < deadline && !is_over() {
            match listener.accept() {
                Ok((stream, _)) => {
                    let peer = carina_sys::peer_credentials(&stream)?;
                    if peer.pid == self.pid {
                        stream.set_nonblocking(false)?;
                        *lock(&self.connection) = Some(stream.try_clone()?);
                        return Ok(stream);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(POLL);
                }
                Err(error) => return Err(error),
            }
        }
        let words = "QEMU has not connected to send its disk";
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, words))
    }

    /// Ends the connection, if there is one. QEMU notices this at the latest when the handle that
    /// [`DiskSocket::accept`] has returned is dropped.
    pub fn hang_up(&self) {
        if let Some(connection) = lock(&self.connection).take() {
            // It may have ended already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl DiskCopy<'_> {
    /// Copies the disk of a machine over the connection that the socket accepts meanwhile. Returns
    /// when the other end has the whole disk. From then on each write of the guest goes to both.
    ///
    /// # Errors
    ///
    /// The machine cannot send its disk, the copy fails, or it takes longer than `limit`. QEMU then
    /// writes only to its own disk again.
    pub fn begin<'a>(
        record: &Record,
        socket: &'a DiskSocket,
        limit: Duration,
    ) -> Result<DiskCopy<'a>> {
        let copy = DiskCopy(socket);
        match copy.try_begin(record, limit) {
            Ok(()) => Ok(copy),
            Err(error) => {
                copy.abandon(record);
                Err(error)
            }
        }
    }

    /// Undoes the copy. An error is not reported: another one has led to this.
    pub(crate) fn abandon(&self, record: &Record) {
        self.0.hang_up();
        let _ = end_disk_copy(record);
    }

    fn try_begin(&self, record: &Record, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        end_disk_copy(record)?;
        let mut qmp = Qmp::connect(&record.qmp, LIMIT)?;
        let server = json!({ "type": "unix", "path": self.0.name, "abstract": true });
        let target = json!({
            "driver": "nbd", "node-name": COPY, "server": server, "export": EXPORT,
        });
        qmp.execute("blockdev-add", target)?;
        let mirror = json!({
            "job-id": COPY, "device": DISK, "target": COPY, "sync": "top",
            "copy-mode": "write-blocking", "auto-dismiss": false,
        });
        qmp.execute("blockdev-mirror", mirror)?;
        loop {
            match qmp.disk_copy()? {
                JobState::Ready => return Ok(()),
                JobState::Concluded(why) => return Err(broken(why)),
                JobState::Absent => return Err(broken(None)),
                JobState::Runs => {}
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    name: record.name.clone(),
                    awaited: "end of the copy of its disk".into(),
                    seconds: limit.as_secs(),
                    hint: "; a large disk needs a longer limit".into(),
                });
            }
            std::thread::sleep(SLOW_POLL);
        }
    }

    /// Ends the copy while the guest is paused: the other end has the same disk, and QEMU is not
    /// connected to it any more.
    ///
    /// # Errors
    ///
    /// The copy has failed.
    pub(crate) fn complete(&self, qmp: &mut Qmp) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        // A mirror that is ready completes when it is cancelled, and leaves the guest's disk as is.
        qmp.execute("block-job-cancel", json!({ "device": COPY }))?;
        loop {
            match qmp.disk_copy()? {
                JobState::Concluded(None) => break,
                JobState::Concluded(why) => return Err(broken(why)),
                JobState::Absent => return Err(broken(None)),
                JobState::Ready | JobState::Runs if Instant::now() >= deadline => {
                    return Err(broken(Some("it does not end".into())));
                }
                JobState::Ready | JobState::Runs => std::thread::sleep(POLL),
            }
        }
        qmp.execute("job-dismiss", json!({ "id": COPY }))?;
        qmp.execute("blockdev-del", json!({ "node-name": COPY }))
            .map(drop)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the value consistent, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken(why: Option<String>) -> Error {
    let why = why.unwrap_or_else(|| "it has ended".into());
    Error::Qmp(format!("the copy of the disk has failed: {why}"))
}

/// Undoes a copy of a machine's disk that was not completed, also one that an earlier process has
/// begun. A guest that is paused for the last step of its migration resumes.
///
/// # Errors
///
/// As for [`Qmp::execute`], or the copy does not end in time.
pub fn end_disk_copy(record: &Record) -> Result<()> {
    let mut qmp = Qmp::connect(&record.qmp, LIMIT)?;
    let deadline = Instant::now() + LIMIT;
    let timely = |what: &str| {
        std::thread::sleep(POLL);
        if Instant::now() < deadline {
            return Ok(());
        }
        Err(Error::Qmp(format!("{what} does not end in time")))
    };
    if qmp.awaits_switchover()? {
        qmp.execute("migrate_cancel", json!({}))?;
        while qmp.status()?.status == "finish-migrate" {
            timely("the migration")?;
        }
    }
    let mut is_cancelled = false;
    loop {
        match qmp.disk_copy()? {
            JobState::Absent => break,
            JobState::Concluded(_) => {
                qmp.execute("job-dismiss", json!({ "id": COPY }))?;
            }
            JobState::Ready | JobState::Runs => {
                if !is_cancelled {
                    is_cancelled = true;
                    let forced = json!({ "device": COPY, "force": true });
                    // The job may just have ended.
                    let _ = qmp.execute("block-job-cancel", forced);
                }
                timely("the copy of the disk")?;
            }
        }
    }
    let nodes = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
    let mut nodes = nodes.as_array().into_iter().flatten();
    if nodes.any(|node| node["node-name"] == COPY) {
        qmp.execute("blockdev-del", json!({ "node-name": COPY }))?;
    }
    Ok(())
}

impl Running {
    /// Makes a QEMU that awaits a guest receive the guest's disk. Returns the connection over which
    /// it comes.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`], or the socket cannot be made.
    pub fn serve_disk(&self) -> Result<UnixStream> {
        // QEMU may not create sockets in the run directory. It gets one that listens already.
        let path = self.record().qmp.with_extension("nbd");
        let listening = || {
            // A process that was killed may have left it.
            let _ = std::fs::remove_file(&path);
            UnixListener::bind(&path)
        };
        let listener = listening().context("listen at", &path)?;
        let served = self.serve_at(&listener);
        let connection = UnixStream::connect(&path).context("connect to", &path);
        let removed = std::fs::remove_file(&path).context("remove", &path);
        served?;
        removed?;
        connection
    }

    fn serve_at(&self, listener: &UnixListener) -> Result<()> {
        let mut qmp = self.qmp()?;
        qmp.execute_with("getfd", json!({ "fdname": EXPORT }), &[listener.as_fd()])?;
        let at = json!({ "type": "fd", "data": { "str": EXPORT } });
        let server = json!({ "addr": at, "max-connections": 1 });
        qmp.execute("nbd-server-start", server)?;
        let blocks = qmp.execute("query-block", json!({}))?;
        let mut blocks = blocks.as_array().into_iter().flatten();
        let disk = blocks.find(|block| block["device"] == DISK);
        let node = disk.and_then(|disk| disk["inserted"]["node-name"].as_str());
        let node = node.ok_or_else(|| Error::Qmp(format!("query-block: no device {DISK}")))?;
        let export = json!({
            "type": "nbd", "id": EXPORT, "name": EXPORT, "node-name": node, "writable": true,
        });
        qmp.execute("block-export-add", export).map(drop)
    }

    /// Ends the reception of a disk, before the guest runs.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn end_disk_service(&self) -> Result<()> {
        self.qmp()?.execute("nbd-server-stop", json!({})).map(drop)
    }
}

/// The state of the job that copies a disk.
#[derive(Debug, PartialEq, Eq)]
enum JobState {
    Absent,
    Runs,
    /// The other end has the whole disk.
    Ready,
    /// The job has ended; with the reason if it failed.
    Concluded(Option<String>),
}

impl Qmp {
    fn disk_copy(&mut self) -> Result<JobState> {
        let jobs = self.execute("query-jobs", json!({}))?;
        let mut jobs = jobs.as_array().into_iter().flatten();
        let Some(job) = jobs.find(|job| job["id"] == COPY) else {
            return Ok(JobState::Absent);
        };
        Ok(match job["status"].as_str() {
            Some("ready") => JobState::Ready,
            Some("concluded") => {
                let why = job.get("error").and_then(Value::as_str);
                JobState::Concluded(why.map(ToOwned::to_owned))
            }
            _ => JobState::Runs,
        })
    }
}

/// QEMU's name of the first drive of a machine that boots from a disk.
const DISK: &str = "virtio0";
/// Name of the job and of the block node by which a disk is sent.
const COPY: &str = "carina-move";
/// Name under which the disk is received.
const EXPORT: &str = "disk";
/// Limit of each request: QEMU answers late if the other host is far away or busy.
const LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(1);
/// Interval for checks whether the whole disk was copied.
const SLOW_POLL: Duration = Duration::from_millis(20);
