//! A virtual machine whose QEMU runs.

mod cards;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};
use crate::qmp::{Migration, Qmp};
use crate::shell::{NoAnswer, Shell, quoted};
use crate::state::Record;
use crate::tool::last_words;

/// A running machine. Dropping it kills QEMU and removes its files, unless it was
/// [detached](Running::detach).
#[derive(Debug)]
pub struct Running {
    record: Record,
    run_dir: PathBuf,
    child: Option<Child>,
    shell: OnceLock<Shell>,
    /// The network namespace of its taps, if they are not in that of this process.
    network: Option<PathBuf>,
    times: Option<Times>,
    /// Sockets of its cards to which QEMU connects.
    sockets: Vec<PathBuf>,
}

/// How long a clone took, each time from the call that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Until its template was there.
    pub template: Duration,
    /// Until QEMU stood where the template was saved.
    pub restored: Duration,
    /// Until the guest ran.
    pub running: Duration,
    /// Until it had its identity and its commands had ended: the first answer of the guest.
    pub answered: Duration,
}

/// What a command in the guest has given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The shell's exit status: the command's, or 127 for none such, or 128 plus a signal.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Tells whether the status was 0.
    pub fn is_success(&self) -> bool {
        self.status == 0
    }

    /// Standard output as text without white space at its ends.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// Standard error likewise.
    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

impl Running {
    pub(crate) fn new(
        record: Record,
        run_dir: PathBuf,
        child: Child,
        network: Option<&Path>,
    ) -> Running {
        Running {
            record,
            run_dir,
            child: Some(child),
            shell: OnceLock::new(),
            network: network.map(Path::to_owned),
            times: None,
            sockets: Vec::new(),
        }
    }

    /// Notes the sockets to which QEMU connects for the machine's cards.
    pub(crate) fn with_sockets(mut self, sockets: Vec<PathBuf>) -> Running {
        self.sockets = sockets;
        self
    }

    /// The machine of a record, which another process has started; it runs on when this value
    /// goes. `network` is as for
    /// [`Machine::network_namespace`](crate::Machine::network_namespace).
    pub fn of_record(record: Record, run_dir: &Path, network: Option<&Path>) -> Running {
        Running {
            record,
            run_dir: run_dir.to_owned(),
            child: None,
            shell: OnceLock::new(),
            network: network.map(Path::to_owned),
            times: None,
            sockets: Vec::new(),
        }
    }

    pub(crate) fn set_times(&mut self, times: Times) {
        self.times = Some(times);
    }

    /// How long it took, if it was started as a clone.
    pub fn times(&self) -> Option<Times> {
        self.times
    }

    /// What is known of it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// QEMU's process number.
    pub fn pid(&self) -> i32 {
        self.record.pid
    }

    /// Tells whether QEMU still runs.
    pub fn is_running(&self) -> bool {
        self.record.is_alive()
    }

    /// All that the guest has said on its console so far.
    pub fn console_text(&self) -> String {
        let bytes = fs::read(&self.record.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until QEMU has taken its arguments and the node has connected: from then on the guest
    /// runs, whatever it is.
    ///
    /// # Errors
    ///
    /// When QEMU ends, with its last words, or the time is over.
    pub fn wait_started(&self, limit: Duration) -> Result<()> {
        self.wait_monitor(limit).map(drop)
    }

    /// As [`Running::wait_started`]; returns the connection.
    pub(crate) fn wait_monitor(&self, limit: Duration) -> Result<Qmp> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            self.check_running()?;
            // QEMU does not serve its monitor before the node has connected.
            if let Ok(qmp) = Qmp::connect(&self.record.qmp, SLICE) {
                return Ok(qmp);
            }
            std::thread::sleep(START_POLL);
        }
        self.check_running()?;
        Err(self.timeout(&self.other_end(), limit))
    }

    /// The threads of the host that are the guest's processors.
    ///
    /// # Errors
    ///
    /// As [`Qmp::connect`].
    pub fn processor_threads(&self) -> Result<Vec<i32>> {
        Qmp::connect(&self.record.qmp, SLICE)?.processor_threads()
    }

    /// Waits until the guest takes commands: some seconds after the node has connected.
    ///
    /// # Errors
    ///
    /// When QEMU ends, the guest's kernel panics, or the time is over; the error ends with the
    /// console's last words.
    pub fn wait_ready(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            self.check_running()?;
            // QEMU makes its sockets in order; the agent's is there before it waits for the node.
            if let Ok(shell) = self.shell() {
                // In one go: an answer that comes late counts, and the end of QEMU closes the port.
                let left = deadline.saturating_duration_since(Instant::now());
                if shell.wait_ready(left, || self.panic().is_some()).is_ok() {
                    return Ok(());
                }
            }
            if let Some(panic) = self.panic() {
                return Err(panic);
            }
            std::thread::sleep(POLL);
        }
        self.check_running()?;
        // QEMU does not serve its monitor before the node has connected.
        Err(match Qmp::connect(&self.record.qmp, SLICE) {
            Ok(_) => self.timeout("answer of the guest", limit),
            Err(_) => self.timeout(&self.other_end(), limit),
        })
    }

    /// Runs a shell command in the guest, within a minute.
    ///
    /// # Errors
    ///
    /// As [`Running::run_within`]. That the command fails is no error but its status.
    pub fn run(&self, command: &str) -> Result<Output> {
        self.run_within(command, Duration::from_secs(60))
    }

    /// Runs a shell command in the guest and waits for its end. Several threads may do so at a
    /// time. What it leaves in the background goes on, and keeps no one waiting. It runs in a
    /// subshell of the guest's agent: `$$` in it is the agent's process.
    ///
    /// # Errors
    ///
    /// When QEMU ends, or the command does not end within `limit`.
    pub fn run_within(&self, command: &str, limit: Duration) -> Result<Output> {
        match self.shell()?.run(command, limit) {
            Ok((status, stdout, stderr)) => Ok(Output {
                status,
                stdout,
                stderr,
            }),
            Err(NoAnswer::Timeout | NoAnswer::Silent) => {
                Err(self.timeout(&format!("end of the command {command:?}"), limit))
            }
            Err(NoAnswer::Closed) => {
                // The socket closes a little before the process is gone.
                std::thread::sleep(POLL);
                self.check_running()?;
                Err(Error::Guest(format!(
                    "{}: its command port was closed",
                    self.record.name
                )))
            }
        }
    }

    /// Writes a file in the guest. Meant for kilobytes; larger files go in at boot.
    ///
    /// # Errors
    ///
    /// As [`Running::run_within`], and when the guest cannot write it.
    pub fn push(&self, guest_path: &str, data: &[u8]) -> Result<()> {
        let quoted = quoted(guest_path);
        let octal: String = data.iter().map(|byte| format!("\\0{byte:03o}")).collect();
        let output = self.run(&format!("printf '%b' '{octal}' >{quoted}"))?;
        if output.is_success() {
            return Ok(());
        }
        Err(Error::Guest(format!(
            "cannot write {guest_path}: {}",
            output.error_text()
        )))
    }

    /// Connects to QEMU's monitor.
    ///
    /// # Errors
    ///
    /// As [`Qmp::connect`].
    pub fn qmp(&self) -> Result<Qmp> {
        Qmp::connect(&self.record.qmp, Duration::from_secs(5))
    }

    /// Connects to QEMU's second monitor, which leaves the first to requests: for
    /// [`Qmp::wait_event`] over a long time.
    ///
    /// # Errors
    ///
    /// As [`Qmp::connect`].
    pub fn events(&self) -> Result<Qmp> {
        Qmp::connect(&self.record.events, Duration::from_secs(5))
    }

    /// Resets the machine and waits until the guest takes commands again.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`] and [`Running::wait_ready`].
    pub fn reboot(&self, limit: Duration) -> Result<()> {
        let before = self.run("cat /proc/sys/kernel/random/boot_id")?.text();
        self.qmp()?.reset()?;
        let deadline = Instant::now() + limit;
        loop {
            self.wait_ready(deadline.saturating_duration_since(Instant::now()))?;
            // The old guest may answer a last time.
            let asked = self.run_within("cat /proc/sys/kernel/random/boot_id", SLICE);
            match asked.map(|output| output.text()) {
                Ok(boot) if boot != before => return Ok(()),
                _ if Instant::now() >= deadline => return Err(self.timeout("reboot", limit)),
                _ => {}
            }
        }
    }

    /// Sends the guest to the QEMU that waits at a socket
    /// ([`Machine::incoming`](crate::Machine::incoming)) while it runs, and waits until it runs
    /// there. This QEMU stands still from then on.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`], when the guest cannot be sent, and when the time is over.
    pub fn migrate(&self, socket: &Path, limit: Duration) -> Result<Migration> {
        let deadline = Instant::now() + limit;
        let mut qmp = self.qmp()?;
        let connection = carina_sys::connect_stream(socket, SLICE).context("connect to", socket)?;
        qmp.migrate(connection.as_fd())?;
        drop(connection);
        loop {
            if let Some(done) = qmp.migration()? {
                return Ok(done);
            }
            if Instant::now() >= deadline {
                return Err(self.timeout("end of its migration", limit));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Gives the machine another name and run directory on the same file system, and says where
    /// its taps are. Files of a machine that was there go.
    ///
    /// # Errors
    ///
    /// A file cannot be renamed.
    pub fn adopt(&mut self, run_dir: &Path, name: &str, network: Option<&Path>) -> Result<()> {
        self.network = network.map(Path::to_owned);
        self.record = self.record.adopted(&self.run_dir, run_dir, name)?;
        self.run_dir = run_dir.to_owned();
        Ok(())
    }

    /// Notes that a clone is the machine of its name.
    pub(crate) fn note_whole(&mut self) -> Result<()> {
        self.record.is_partial = false;
        self.record.write(&self.run_dir)
    }

    /// Has the guest's processors stand still.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`].
    pub fn pause(&self) -> Result<()> {
        self.qmp()?.pause()
    }

    /// Has them run on.
    ///
    /// # Errors
    ///
    /// As [`Qmp::execute`].
    pub fn resume(&self) -> Result<()> {
        self.qmp()?.resume()
    }

    /// Kills QEMU as `kill -9` does, and leaves its files, as a crash would.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().ok()
    }

    /// Lets QEMU live on without this handle; `carina_vm::list` and `stop` find it.
    pub fn detach(mut self) -> Record {
        self.child = None;
        self.record.clone()
    }

    fn shell(&self) -> Result<&Shell> {
        if let Some(shell) = self.shell.get() {
            return Ok(shell);
        }
        let shell = Shell::connect(&self.record.agent)?;
        Ok(self.shell.get_or_init(|| shell))
    }

    /// Why QEMU has ended, if it has, or is about to.
    pub(crate) fn reason_of_end(&self) -> Option<Error> {
        let deadline = Instant::now() + SLICE;
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(START_POLL);
        }
        self.check_running().err()
    }

    fn check_running(&self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        Err(Error::Ended {
            name: self.record.name.clone(),
            status: format!("process {}", self.record.pid),
            detail: last_words(&fs::read(&self.record.qemu_log).unwrap_or_default()),
        })
    }

    /// What QEMU waits for before it runs the guest: first for the sockets of cards, to which it
    /// connects, then for the node, which connects to its ivshmem socket.
    fn other_end(&self) -> String {
        let is_missing = |socket: &&PathBuf| UnixStream::connect(socket).is_err();
        match self.sockets.iter().find(is_missing) {
            Some(socket) => format!("process that listens at {} for a card", socket.display()),
            None => "connection of a node to its ivshmem socket".to_owned(),
        }
    }

    /// The error of a guest whose kernel has panicked, if it has.
    fn panic(&self) -> Option<Error> {
        let console = self.console_text();
        let (_, behind) = console.split_once(KERNEL_PANIC)?;
        let line = behind.lines().next().unwrap_or_default().trim();
        let is_memory = console.contains("Out of memory") || line.contains("memory");
        let hint = if is_memory {
            format!(
                "; the machine has {} MiB of memory: give it more",
                self.record.memory_mib
            )
        } else {
            format!("; its console is in {}", self.record.log.display())
        };
        Some(Error::Panicked {
            name: self.record.name.clone(),
            panic: line.to_owned(),
            hint,
        })
    }

    fn timeout(&self, awaited: &str, limit: Duration) -> Error {
        let console = self.console_text();
        let lines: Vec<&str> = console.lines().rev().take(8).collect();
        let last = lines.into_iter().rev().collect::<Vec<_>>().join("\n  ");
        Error::Timeout {
            name: self.record.name.clone(),
            awaited: awaited.to_owned(),
            seconds: limit.as_secs(),
            hint: if last.is_empty() {
                "; its console has said nothing".into()
            } else {
                format!("; last on its console:\n  {last}")
            },
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
            let run_dir: &Path = &self.run_dir;
            self.record.remove_files(run_dir, true);
        }
    }
}

/// What a Linux kernel says before it stops for good.
const KERNEL_PANIC: &str = "Kernel panic - not syncing: ";
const POLL: Duration = Duration::from_millis(20);
/// QEMU takes some 30 ms until it serves its monitor.
const START_POLL: Duration = Duration::from_millis(2);
const SLICE: Duration = Duration::from_secs(1);
