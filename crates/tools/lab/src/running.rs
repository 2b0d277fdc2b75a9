//! Makes running systems from a topology.
//!
//! ```text
//!   directory, record --> namespaces, links --> nodes --> VMs --> DIFs by member --> applications
//! ```
//!
//! The record names everything before it is made, so that `carina lab down` finds it after a crash.

mod bring_up;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_api::AppName;
use carina_api::control::{Client, IpcpInfo, RibObject};
use carina_namespaces::{ChildProcess, NamespaceAccess, Process};
use carina_vm::shell::shell_words;
use carina_vm::{Collector, CommandLimits, Finish, Sink, run_piped};

use crate::down::take_down;
use crate::error::{Attempt, Error, Result};
use crate::guests::{ipcps, reach_guest};
use crate::links;
use crate::record::{AppRecord, LabDir, Labs, Record};
use carina_topology::{Dif, Topology, Vm, node_config};

/// What [`up`] needs beside the topology: names, directories, time limits and callbacks.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the lab.
    pub name: String,
    /// Name of the lab file, for messages.
    pub file: String,
    /// Content of the lab file.
    pub text: String,
    /// The directory of all labs.
    pub labs: Labs,
    /// Time limit of each single step of making the lab.
    pub patience: Duration,
    /// The program `carina` for all systems.
    pub program: PathBuf,
    /// When making the lab fails, keep its parts, so that they can be inspected.
    pub keep_on_failure: bool,
    /// Called with a line of text at each step of making the lab.
    pub progress: fn(&str),
    /// When set, making the lab or running a command in it ends with [`Error::Interrupted`].
    pub is_interrupted: Arc<AtomicBool>,
}

/// A lab that is up. Dropping the value takes the lab down, unless it was
/// [detached](Running::detach).
#[derive(Debug)]
pub struct Running {
    topology: Topology,
    options: Options,
    dir: LabDir,
    record: Record,
    children: Vec<ChildProcess>,
    is_detached: bool,
}

/// Makes all systems, links, DIFs and applications of a topology, and returns when the applications
/// have started.
///
/// # Errors
/// A part could not be made; the error contains the last lines of logs. What was made before is
/// removed, unless [`Options::keep_on_failure`] is set.
pub fn up(topology: &Topology, options: Options) -> Result<Running> {
    let mut lab = Running::begin(topology.clone(), options)?;
    match lab.build() {
        Ok(()) => Ok(lab),
        Err(error) => {
            lab.is_detached = lab.options.keep_on_failure;
            Err(error.with(lab.log_tails()))
        }
    }
}

impl Options {
    /// The default options: the default directory of labs, and this program.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub fn new(name: &str, file: &str, text: String) -> Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            file: file.to_owned(),
            text,
            labs: Labs::usual(),
            patience: PATIENCE,
            program: std::env::current_exe().attempt("finding this program")?,
            keep_on_failure: false,
            progress: |_| {},
            is_interrupted: Arc::default(),
        })
    }
}

impl Running {
    fn begin(topology: Topology, options: Options) -> Result<Self> {
        let dir = options.labs.lab(&options.name);
        dir.create(&options.text, &options.program)?;
        let record = Record {
            name: options.name.clone(),
            file: options.file.clone(),
            program: options.program.clone(),
            maker: Process::own()?,
            is_up: false,
            keeper: None,
            namespaces: Vec::new(),
            nodes: BTreeMap::new(),
            apps: Vec::new(),
        };
        dir.write(&record)?;
        Ok(Self {
            topology,
            options,
            dir,
            record,
            children: Vec::new(),
            is_detached: false,
        })
    }

    /// Waits until an application is registered in a system.
    ///
    /// # Errors
    /// The application is not registered in time.
    pub fn wait_for_name(&self, system: &str, name: &str) -> Result<()> {
        let name = AppName::new(name).attempt("waiting for an application")?;
        self.wait(&format!("{name} to be registered in {system}"), || {
            let apps: Vec<carina_api::control::AppInfo> = match self.machine(system) {
                None => self.control(system).apps().unwrap_or_default(),
                Some(vm) => {
                    let guest = reach_guest(&self.dir, system, vm)?;
                    let output = guest.must_run("carina app list --json")?;
                    serde_json::from_slice(&output.stdout).attempt("reading a list of apps")?
                }
            };
            Ok(apps.iter().any(|app| app.name == name && app.via.is_none()))
        })
    }

    /// Runs a program in a system, waits until it ends, and returns its exit status and output.
    /// `CARINA_RUN` is set to the run directory of the system's node. The name `carina` means the
    /// lab's program.
    ///
    /// # Errors
    /// The program cannot be started, or [`Options::is_interrupted`] was set. A program that fails
    /// is not an error; the output has its status.
    pub fn exec(&self, system: &str, words: &[&str]) -> Result<Output> {
        use std::os::unix::process::ExitStatusExt;
        let mut kept = Collector::new([OUTPUT_MAX; 2]);
        let status = match self.stream(system, words, &mut kept)? {
            Finish::Exited(status) => status,
            Finish::Cancelled => return Err(Error::Interrupted),
            Finish::TimedOut => {
                return Err(Error::Command {
                    command: words.join(" "),
                    reason: format!("it has not ended within {} s", EXEC.as_secs()),
                });
            }
        };
        let ([stdout, stderr], _) = kept.into_outputs();
        Ok(Output {
            status: std::process::ExitStatus::from_raw(status << 8),
            stdout,
            stderr,
        })
    }

    /// Like [`Running::exec`], but hands the output to `sink` while the program runs. Kills the
    /// program when the sink refuses output, or when [`Options::is_interrupted`] is set.
    ///
    /// # Errors
    /// The program cannot be started, or the guest does not answer.
    pub fn stream(&self, system: &str, words: &[&str], sink: &mut dyn Sink) -> Result<Finish> {
        let until = |limit: Duration| CommandLimits {
            limit,
            is_cancelled: &self.options.is_interrupted,
        };
        if let Some(vm) = self.machine(system) {
            let guest = reach_guest(&self.dir, system, vm)?;
            return Ok(guest.stream(&shell_words(words), until(EXEC), sink)?);
        }
        let (program, rest) = words.split_first().ok_or(Error::NoProgram)?;
        let mut command = self.command(system, self.program(program))?;
        let what = format!("running {program} in {system}");
        run_piped(command.args(rest), until(Duration::MAX), sink).attempt(what)
    }

    /// A command in a system that is a namespace, not started yet. It will have its own process
    /// group, so that Ctrl-C at the terminal does not reach it.
    ///
    /// # Errors
    /// The system is a VM or does not exist.
    pub fn command(&self, system: &str, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        use std::os::unix::process::CommandExt;
        if self.topology.namespaces().all(|known| known.name != system) {
            return Err(Error::NotANamespace(system.to_owned()));
        }
        let mut command = command_in(&self.record, &self.dir, system, program);
        command.process_group(0);
        Ok(command)
    }

    /// A client of the node of a system that is a namespace.
    pub fn control(&self, system: &str) -> Client {
        Client::new(self.dir.run_dir(system).control_sock())
    }

    /// The IPCPs of a system's node.
    ///
    /// # Errors
    /// The node does not answer.
    pub fn ipcps(&self, system: &str) -> Result<Vec<IpcpInfo>> {
        match self.machine(system) {
            Some(vm) => ipcps(&reach_guest(&self.dir, system, vm)?, system),
            None => self
                .control(system)
                .ipcps()
                .attempt(format!("asking the node of {system}")),
        }
    }

    /// The names of the members to which a system's member of a DIF has a route, read from its RIB.
    ///
    /// # Errors
    /// The node does not answer.
    fn reached(&self, system: &str, dif: &str) -> Result<Vec<String>> {
        let what = || format!("reading /members of DIF {dif} in {system}");
        let objects: Vec<RibObject> = match self.machine(system) {
            Some(vm) => {
                let guest = reach_guest(&self.dir, system, vm)?;
                let dif = shell_words(&[dif]);
                let read = format!("carina --json rib list /members --depth 1 --dif {dif}");
                serde_json::from_slice(&guest.must_run(&read)?.stdout).attempt(what())?
            }
            None => {
                let node = self.control(system);
                node.rib(Some(dif), None, "/members", 1).attempt(what())?
            }
        };
        let is_reached = |object: &RibObject| {
            let flag = object.fields.get("is_reachable");
            flag.and_then(serde_json::Value::as_bool) != Some(false)
        };
        let names = objects.iter().filter(|object| is_reached(object));
        Ok(names
            .filter_map(|name| name.name_below("/members/"))
            .collect())
    }

    /// The directory of the lab.
    pub fn dir(&self) -> &LabDir {
        &self.dir
    }

    /// Keeps the lab running when this value is dropped, and returns its record. [`take_down`] ends
    /// the lab.
    pub fn detach(mut self) -> Record {
        self.is_detached = true;
        let children = std::mem::take(&mut self.children);
        children.into_iter().for_each(ChildProcess::detach);
        self.record.clone()
    }

    fn progress(&self, text: impl std::fmt::Display) {
        (self.options.progress)(&text.to_string());
    }

    fn access(&self) -> NamespaceAccess {
        self.record.access()
    }

    fn machine(&self, system: &str) -> Option<&Vm> {
        self.topology.system(system)?.vm.as_ref()
    }

    /// The path of a program; the word `carina` means the lab's program.
    fn program(&self, word: &str) -> PathBuf {
        match word {
            "carina" => self.options.program.clone(),
            _ => PathBuf::from(word),
        }
    }

    fn config_of(&self, system: &str, difs: &[&Dif]) -> String {
        let is_guest = self.machine(system).is_some();
        node_config(&self.topology, system, difs, |auth| {
            match auth.split_once(':') {
                Some((kind, files)) if is_guest => {
                    let files: Vec<String> = files.split(',').map(guest_path).collect();
                    format!("{kind}:{}", files.join(","))
                }
                _ => auth.to_owned(),
            }
        })
    }

    /// Waits until `ready` returns true. Fails early when a node or the last application has ended.
    fn wait(&self, what: &str, mut ready: impl FnMut() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + self.options.patience;
        loop {
            // The clock is read before the check, so that a process that was stopped for long
            // checks once more.
            let is_late = Instant::now() > deadline;
            if ready()? {
                return Ok(());
            }
            if let Some((system, _)) = self.record.nodes.iter().find(|(_, node)| !node.is_alive()) {
                return Err(Error::Ended(format!("the node of {system}")));
            }
            let ended = |app: &&AppRecord| app.process.as_ref().is_some_and(|p| !p.is_alive());
            if let Some(app) = self.record.apps.last().filter(ended) {
                return Err(Error::AppEnded {
                    command: app.command.clone(),
                    what: what.to_owned(),
                });
            }
            if is_late {
                let limit = self.options.patience;
                return Err(Error::Timeout {
                    what: what.to_owned(),
                    limit,
                });
            }
            self.pause()?;
        }
    }

    /// Sleeps before the next check. Fails when interrupted.
    fn pause(&self) -> Result<()> {
        if self.options.is_interrupted.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(LOOK_AGAIN);
        Ok(())
    }

    /// The last lines of those nodes' logs that are not empty.
    fn log_tails(&self) -> String {
        let mut tails = String::new();
        for system in self.record.nodes.keys() {
            let text = std::fs::read_to_string(self.dir.log(system)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let from = lines.len().saturating_sub(LOG_LINES);
                tails.push_str(&format!(
                    "\n--- end of the log of {system}\n{}",
                    lines[from..].join("\n")
                ));
            }
        }
        tails
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_detached {
            let children = std::mem::take(&mut self.children);
            children.into_iter().for_each(ChildProcess::detach);
        } else if let Err(error) = take_down(&self.dir, &self.record) {
            self.progress(format!("taking lab {} down: {error}", self.record.name));
        }
    }
}

/// A command in the namespace of a system, not started yet. Its environment makes it use the
/// system's node.
pub fn command_in(
    record: &Record,
    dir: &LabDir,
    system: &str,
    program: impl AsRef<std::ffi::OsStr>,
) -> Command {
    let namespace = links::of_system(&record.name, system);
    let mut command = record.access().command_in(&namespace, program);
    let mut paths = vec![dir.programs()];
    if let Some(path) = std::env::var_os("PATH") {
        paths.extend(std::env::split_paths(&path));
    }
    if let Ok(path) = std::env::join_paths(paths) {
        command.env("PATH", path);
    }
    command
        .env("CARINA_RUN", dir.run_dir(system).path())
        .env("CARINA_LAB", &record.name)
        .env("CARINA_SYSTEM", system);
    command
}

/// The path of a credentials file in a guest.
fn guest_path(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("/etc/carina.{name}")
}

/// Default time limit of one step.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOG_LINES: usize = 12;
/// Bytes that are kept of each output of a command.
const OUTPUT_MAX: usize = 16 << 20;
/// Time limit of a command in a guest.
const EXEC: Duration = Duration::from_secs(600);
