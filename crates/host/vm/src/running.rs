//! A virtual machine whose QEMU is running.

mod address;
mod cards;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::command::{CommandLimits, Finish, Output, Sink};
use crate::error::{Context, Error, Result};
use crate::qmp::{Migration, Qmp};
use crate::shell::{NoAnswer, Shell, quoted};
use crate::state::Record;
use crate::tool::last_words;

/// A running machine. Dropping it kills QEMU and removes the machine's files, unless it was
/// [detached](Running::detach).
#[derive(Debug)]
pub struct Running {
    record: Record,
    run_dir: PathBuf,
    child: Option<Child>,
    shell: OnceLock<Shell>,
    /// File of the network namespace with the machine's taps; `None` if they are in this process's
    /// namespace.
    network: Option<PathBuf>,
    times: Option<Times>,
    /// Sockets of the machine's cards, to which QEMU connects.
    sockets: Vec<PathBuf>,
}

/// Durations of a clone's start, each counted from the call that started the clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Time until the template was available.
    pub template: Duration,
    /// Time until QEMU had restored the template's state.
    pub restored: Duration,
    /// Time until the guest was running.
    pub running: Duration,
    /// Time until the guest had its identity and its commands had ended.
    pub answered: Duration,
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

    /// Records the sockets to which QEMU connects for the machine's cards.
    pub(crate) fn with_sockets(mut self, sockets: Vec<PathBuf>) -> Running {
        self.sockets = sockets;
        self
    }

    /// The running machine of a record that another process wrote. Dropping this value does not end
    /// the machine. `network` is as for
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

    /// The times of its start; `None` unless it was started as a clone.
    pub fn times(&self) -> Option<Times> {
        self.times
    }

    /// Returns the record of the machine.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// QEMU's pid.
    pub fn pid(&self) -> i32 {
        self.record.pid
    }

    /// Whether QEMU is still running.
    pub fn is_running(&self) -> bool {
        self.record.is_alive()
    }

    /// Everything that the guest has printed on its console so far.
    pub fn console_text(&self) -> String {
        let bytes = fs::read(&self.record.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until QEMU has accepted its arguments and is connected to each process that its
    /// devices need, such as the host's Carina node. From then on the guest runs.
    ///
    /// # Errors
    ///
    /// QEMU ends (the error has its last output), or `limit` has passed.
    pub fn wait_started(&self, limit: Duration) -> Result<()> {
        self.wait_monitor(limit).map(drop)
    }

    /// Like [`Running::wait_started`]; returns the connection to the monitor.
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

    /// The host's threads that run the guest's processors.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::connect`].
    pub fn processor_threads(&self) -> Result<Vec<i32>> {
        Qmp::connect(&self.record.qmp, SLICE)?.processor_threads()
    }

    /// Waits until the guest accepts commands, some seconds after the node has connected.
    ///
    /// # Errors
    ///
    /// QEMU ends, the guest's kernel panics, or `limit` has passed; the error ends with the last
    /// lines of the console.
    pub fn wait_ready(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            self.check_running()?;
            // QEMU creates its sockets in order. The agent's socket exists before QEMU waits for
            // the node.
            if let Ok(shell) = self.shell() {
                // One call with all of the remaining time: a late answer still counts, and if QEMU
                // ends, the port is closed.
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

    /// Runs a shell command in the guest, with a time limit of one minute.
    ///
    /// # Errors
    ///
    /// As for [`Running::run_within`]. A command that fails is not an error; the output has its
    /// status.
    pub fn run(&self, command: &str) -> Result<Output> {
        self.run_within(command, Duration::from_secs(60))
    }

    /// Runs a shell command in the guest and waits until it ends. Several threads may do so at the
    /// same time. Processes that the command leaves in the background continue, and no call waits
    /// for them. The command runs in a subshell of the guest's agent: `$$` in it is the agent's
    /// process.
    ///
    /// # Errors
    ///
    /// QEMU ends, or the command does not end within `limit`.
    pub fn run_within(&self, command: &str, limit: Duration) -> Result<Output> {
        match self.shell()?.run(command, limit) {
            Ok((status, stdout, stderr)) => Ok(Output {
                status,
                stdout,
                stderr,
            }),
            Err(why) => Err(self.no_answer(why, command, limit)),
        }
    }

    /// Runs a shell command as [`Running::run`] does, and requires it to succeed.
    ///
    /// # Errors
    ///
    /// As for [`Running::run_within`], or the command fails; the error has its message.
    pub fn must_run(&self, command: &str) -> Result<Output> {
        let output = self.run(command)?;
        if output.is_success() {
            return Ok(output);
        }
        Err(Error::GuestCommand {
            vm: self.record.name.clone(),
            command: command.to_owned(),
            status: output.status,
            stderr: output.error_text(),
        })
    }

    /// Like [`Running::run_within`], but hands the output to `sink` while the command runs. Kills
    /// the command at the end of `until`, or when the sink refuses output.
    ///
    /// # Errors
    ///
    /// QEMU ends. A command that was killed is not an error; the result says why.
    pub fn stream(
        &self,
        command: &str,
        until: CommandLimits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Finish> {
        let done = self.shell()?.stream(command, until, sink);
        done.map_err(|why| self.no_answer(why, command, until.limit))
    }

    fn no_answer(&self, why: NoAnswer, command: &str, limit: Duration) -> Error {
        let name = &self.record.name;
        if let Some(fault) = why.fault() {
            return Error::Guest(format!("VM {name} {fault}"));
        }
        if why != NoAnswer::Closed {
            return self.timeout(&format!("end of the command {command:?}"), limit);
        }
        // The socket closes a little before the process is gone.
        std::thread::sleep(POLL);
        let closed = || Error::Guest(format!("{name}: its command port was closed"));
        self.check_running().err().unwrap_or_else(closed)
    }

    /// Writes a file in the guest. It is meant for kilobytes; larger files should be in the machine
    /// at boot.
    ///
    /// # Errors
    ///
    /// As for [`Running::run_within`], or the guest cannot write the file.
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
    /// As for [`Qmp::connect`].
    pub fn qmp(&self) -> Result<Qmp> {
        Qmp::connect(&self.record.qmp, Duration::from_secs(5))
    }

    /// Connects to QEMU's second monitor, for [`Qmp::wait_event`] over a long time. The first
    /// monitor then stays free for requests.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::connect`].
    pub fn events(&self) -> Result<Qmp> {
        Qmp::connect(&self.record.events, Duration::from_secs(5))
    }

    /// Resets the machine and waits until the guest accepts commands again.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`] and [`Running::wait_ready`].
    pub fn reboot(&self, limit: Duration) -> Result<()> {
        let before = self.run("cat /proc/sys/kernel/random/boot_id")?.text();
        self.qmp()?.reset()?;
        let deadline = Instant::now() + limit;
        loop {
            self.wait_ready(deadline.saturating_duration_since(Instant::now()))?;
            // The guest may still answer before it is reset.
            let asked = self.run_within("cat /proc/sys/kernel/random/boot_id", SLICE);
            match asked.map(|output| output.text()) {
                Ok(boot) if boot != before => return Ok(()),
                _ if Instant::now() >= deadline => return Err(self.timeout("reboot", limit)),
                _ => {}
            }
        }
    }

    /// Sends the guest, while it runs, to the QEMU that waits at a socket
    /// ([`Machine::incoming`](crate::Machine::incoming)), and waits until it runs there. The guest
    /// in this QEMU is then stopped.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`], or the guest cannot be sent, or `limit` has passed.
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

    /// Gives the machine another name and a run directory on the same file system, and sets the
    /// network namespace of its taps. Files of an earlier machine of that name are removed.
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

    /// Records that a clone has taken its identity.
    pub(crate) fn note_whole(&mut self) -> Result<()> {
        self.record.is_partial = false;
        self.record.write(&self.run_dir)
    }

    /// Pauses the guest's processors.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn pause(&self) -> Result<()> {
        self.qmp()?.pause()
    }

    /// Resumes the guest's processors.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn resume(&self) -> Result<()> {
        self.qmp()?.resume()
    }

    /// Kills QEMU like `kill -9`, and leaves its files, as after a crash. Returns QEMU's exit
    /// status, if it is known.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        // QEMU may have ended already.
        let _ = child.kill();
        child.wait().ok()
    }

    /// Lets QEMU continue after this value is dropped, and returns the machine's record.
    /// `carina_vm::list` and `stop` find the machine.
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

    /// The error with QEMU's exit status and last output, if QEMU has ended or is about to end.
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

    /// The other end that QEMU waits for before it runs the guest: first the sockets of cards, to
    /// which it connects, then the node, which connects to its ivshmem socket.
    fn other_end(&self) -> String {
        let is_missing = |socket: &&PathBuf| UnixStream::connect(socket).is_err();
        match self.sockets.iter().find(is_missing) {
            Some(socket) => format!("process that listens at {} for a card", socket.display()),
            None => "connection of a node to its ivshmem socket".to_owned(),
        }
    }

    /// The error of a guest whose kernel has panicked; `None` if it has not.
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
                "; its console has no output".into()
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

/// What a Linux kernel prints when it panics.
const KERNEL_PANIC: &str = "Kernel panic - not syncing: ";
const POLL: Duration = Duration::from_millis(20);
/// Interval for checks whether QEMU serves its monitor, which takes it some 30 ms.
const START_POLL: Duration = Duration::from_millis(2);
const SLICE: Duration = Duration::from_secs(1);
