//! From a topology to systems that run.
//!
//! ```text
//!   directory, record --> namespaces, links --> nodes --> VMs --> DIFs, member by member --> applications
//! ```
//!
//! The record names everything before it is made: whatever happens, `down` finds it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use carina_api::AppName;
use carina_api::control::{Client, IpcpInfo, MemberState};

use super::config::node_config;
use super::down::take_down;
use super::guest::{Guest, Kit, wait_for_link};
use super::namespace::{self, Ground, keep_ground};
use super::process::Process;
use super::state::{AppRecord, LabDir, Labs, Record};
use super::topology::{App, Dif, Topology, Vm};
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::report::progress;

/// How a lab is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name.
    pub name: String,
    /// The file it comes from, for people.
    pub file: String,
    /// The text of that file.
    pub text: String,
    /// The directory of all labs.
    pub labs: Labs,
    /// How long any one thing may take.
    pub patience: Duration,
    /// The `carina` of all systems.
    pub program: PathBuf,
    /// Leave what is there when something fails, to look at.
    pub keep_on_failure: bool,
}

/// A lab that is up. All of it goes when this is dropped, unless it was
/// [detached](Running::detach).
#[derive(Debug)]
pub struct Running {
    topology: Topology,
    options: Options,
    dir: LabDir,
    record: Record,
    /// Kept to be waited for.
    children: Vec<Child>,
    is_detached: bool,
}

/// Makes the systems of a topology, with progress on standard error.
///
/// # Errors
/// What could not be made, with the ends of the logs; what was made is gone again.
pub fn up(topology: &Topology, options: Options) -> Result<Running, Failure> {
    let mut lab = Running::begin(topology.clone(), options)?;
    match lab.build() {
        Ok(()) => Ok(lab),
        Err(failure) => {
            let failure = failed(format!("{failure}{}", lab.last_words()));
            lab.is_detached = lab.options.keep_on_failure;
            Err(failure)
        }
    }
}

impl Options {
    /// The usual ways.
    ///
    /// # Errors
    /// This program is not found.
    pub fn new(name: &str, file: &str, text: String) -> Result<Self, Failure> {
        Ok(Self {
            name: name.to_owned(),
            file: file.to_owned(),
            text,
            labs: Labs::usual(),
            patience: PATIENCE,
            program: std::env::current_exe().attempt("finding this program")?,
            keep_on_failure: false,
        })
    }
}

impl Running {
    fn begin(topology: Topology, options: Options) -> Result<Self, Failure> {
        let dir = options.labs.lab(&options.name);
        dir.create(&options.text, &options.program)?;
        let own = Process::numbered(std::process::id().cast_signed());
        let record = Record {
            name: options.name.clone(),
            file: options.file.clone(),
            program: options.program.clone(),
            maker: own.ok_or_else(|| failed("/proc is not there"))?,
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

    fn build(&mut self) -> Outcome {
        self.make_namespaces()?;
        self.start_nodes()?;
        self.boot_machines()?;
        for dif in self.topology.difs.clone() {
            self.make_dif(&dif)?;
        }
        self.wait_for_neighbours();
        for app in self.topology.apps.clone() {
            self.start_app(&app)?;
        }
        self.record.is_up = true;
        self.dir.write(&self.record)
    }

    fn make_namespaces(&mut self) -> Outcome {
        if !rustix::process::geteuid().is_root() {
            self.record.keeper = Some(keep_ground(self.dir.path())?);
            self.dir.write(&self.record)?;
        }
        let ground = self.ground();
        let wanted = namespace::names(&self.record.name, &self.topology);
        let there = ground.namespaces()?;
        if let Some(name) = wanted.iter().find(|name| there.contains(name)) {
            return Err(failed(format!(
                "there is a network namespace {name} that no lab knows; `carina lab down {}` removes \
                 it",
                self.record.name
            )));
        }
        self.record.namespaces = wanted;
        self.dir.write(&self.record)?;
        let links = self.topology.links.len();
        progress(format!(
            "{} network namespaces, {links} links",
            self.record.namespaces.len()
        ));
        for words in namespace::commands(&self.record.name, &self.topology) {
            ground.ip(&words).map_err(|failure| not_allowed(&failure))?;
        }
        self.wait_for_carrier()
    }

    /// The kernel tells programs of the other end of a link some time after it is there.
    fn wait_for_carrier(&self) -> Outcome {
        let ground = self.ground();
        for system in self.topology.namespaces() {
            let namespace = namespace::of_system(&self.record.name, &system.name);
            let words = ["-n", &namespace, "-o", "link", "show"].map(str::to_owned);
            self.wait(&format!("the links of {} to be up", system.name), || {
                let said = ground.ip(&words)?;
                Ok(!said.lines().any(|line| {
                    line.contains("state DOWN") || line.contains("state LOWERLAYERDOWN")
                }))
            })?;
        }
        Ok(())
    }

    fn start_nodes(&mut self) -> Outcome {
        let systems: Vec<String> = self.topology.namespaces().map(|s| s.name.clone()).collect();
        progress(format!("{} nodes", systems.len()));
        for system in &systems {
            let config = self.dir.config(system);
            std::fs::write(&config, self.config_of(system, &[]))
                .attempt(format!("writing {}", config.display()))?;
            let log = self.dir.log(system);
            let log = std::fs::File::create(&log).attempt(format!("writing {}", log.display()))?;
            let run_dir = self.dir.run_dir(system);
            let child = self
                .command(system, &self.options.program)?
                .args(["node", "--config"])
                .arg(&config)
                .arg("--run")
                .arg(run_dir.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .attempt(format!("starting the node of {system}"))?;
            self.record
                .nodes
                .insert(system.clone(), Process::of_child(&child)?);
            self.children.push(child);
            self.dir.write(&self.record)?;
        }
        for system in &systems {
            let node = self.control(system);
            self.wait(&format!("the node of {system} to answer"), || {
                Ok(node.node().is_ok())
            })?;
        }
        Ok(())
    }

    fn boot_machines(&mut self) -> Outcome {
        let machines: Vec<(String, Vm)> = self
            .topology
            .machines()
            .map(|(system, vm)| (system.name.clone(), vm.clone()))
            .collect();
        if machines.is_empty() {
            return Ok(());
        }
        progress(format!("{} VMs: image and boot", machines.len()));
        let kit = Kit::prepare(&self.options.program)?;
        for (name, vm) in &machines {
            kit.start(&self.dir, name, vm, &self.config_of(name, &[]))?;
        }
        for (name, vm) in &machines {
            // QEMU makes its sockets a moment after it was started.
            let mut guest = Guest::reach(&self.dir, name, vm);
            let deadline = Instant::now() + self.options.patience;
            while guest.is_err() && Instant::now() < deadline {
                std::thread::sleep(LOOK_AGAIN);
                guest = Guest::reach(&self.dir, name, vm);
            }
            guest?;
            wait_for_link(&self.dir, name, vm)?;
            progress(format!("VM {name} is attached to {}", vm.host));
        }
        Ok(())
    }

    /// Makes a DIF: its first member, and then each of the others through those that are there.
    fn make_dif(&mut self, dif: &Dif) -> Outcome {
        let systems: Vec<&str> = dif.members.iter().map(|m| m.system.as_str()).collect();
        progress(format!("DIF {}: {}", dif.name, systems.join(", ")));
        let made = self
            .topology
            .difs
            .iter()
            .position(|known| known.name == dif.name);
        let made: Vec<&Dif> = self
            .topology
            .difs
            .iter()
            .take(made.map_or(0, |at| at + 1))
            .collect();
        for system in systems {
            let text = self.config_of(system, &made);
            match self.machine(system) {
                Some(vm) => self.apply_in_guest(dif, system, vm, &text)?,
                None => {
                    let config = self.dir.config(system);
                    std::fs::write(&config, &text)
                        .attempt(format!("writing {}", config.display()))?;
                    self.control(system)
                        .apply(&text)
                        .attempt(format!("making the member of DIF {} in {system}", dif.name))?;
                }
            }
            let mut last = String::new();
            let ipcp = dif.ipcp(system);
            let enrolled = self.wait(
                &format!("{ipcp} to be a member of DIF {}", dif.name),
                || {
                    let all = self.ipcps(system)?;
                    let found = all.into_iter().find(|info| info.name.as_str() == ipcp);
                    let member = found.and_then(|info| info.member);
                    let member = member.ok_or_else(|| failed(format!("{ipcp} is gone")))?;
                    last = member.last_error.unwrap_or(member.step);
                    Ok(member.state == MemberState::Enrolled)
                },
            );
            enrolled.map_err(|failure| failed(format!("{failure} (last: {last})")))?;
        }
        Ok(())
    }

    fn apply_in_guest(&self, dif: &Dif, system: &str, vm: &Vm, text: &str) -> Outcome {
        let guest = Guest::reach(&self.dir, system, vm)?;
        if let Some((_, files)) = dif.auth.as_deref().and_then(|auth| auth.split_once(':')) {
            for file in files.split(',') {
                let text = std::fs::read_to_string(file).attempt(format!("reading {file}"))?;
                guest.put(&guest_path(file), &text)?;
            }
        }
        guest.apply(text)
    }

    /// Waits until members that have a link to themselves are neighbours. They will be some time:
    /// that they are not yet is worth a word and no failure.
    fn wait_for_neighbours(&self) {
        let mut missing = Vec::new();
        let deadline = Instant::now() + SETTLE;
        for dif in &self.topology.difs {
            for member in &dif.members {
                loop {
                    missing = self.missing_neighbours(dif, &member.system, &member.beside);
                    if missing.is_empty() || Instant::now() > deadline {
                        break;
                    }
                    std::thread::sleep(LOOK_AGAIN);
                }
                for other in &missing {
                    let name = dif.ipcp(&member.system);
                    progress(format!(
                        "{name} and {} are no neighbours yet",
                        dif.ipcp(other)
                    ));
                }
            }
        }
        drop(missing);
    }

    fn missing_neighbours(&self, dif: &Dif, system: &str, beside: &[String]) -> Vec<String> {
        let name = dif.ipcp(system);
        let all = self.ipcps(system).unwrap_or_default();
        let member = all.into_iter().find(|info| info.name.as_str() == name);
        let known = member
            .and_then(|info| info.member)
            .map(|member| member.neighbours);
        let known = known.unwrap_or_default();
        let is_known = |other: &&String| known.iter().any(|n| n.as_str() == dif.ipcp(other));
        beside
            .iter()
            .filter(|other| !is_known(other))
            .cloned()
            .collect()
    }

    fn start_app(&mut self, app: &App) -> Outcome {
        progress(format!("{}: {}", app.system, app.command));
        let number = self.record.apps.len();
        let process = match self.machine(&app.system) {
            Some(vm) => {
                let guest = Guest::reach(&self.dir, &app.system, vm)?;
                let command = &app.command;
                guest.must_run(&format!(
                    "({command}) </dev/null >/var/log/app-{number} 2>&1 &"
                ))?;
                None
            }
            None => {
                let log = self.dir.app_log(&app.system, number);
                let log =
                    std::fs::File::create(&log).attempt(format!("writing {}", log.display()))?;
                let errors = log.try_clone().attempt("sharing the log")?;
                let child = self
                    .command(&app.system, "sh")?
                    .args(["-c", &app.command])
                    .stdin(Stdio::null())
                    .stdout(log)
                    .stderr(errors)
                    .spawn()
                    .attempt(format!("starting `{}`", app.command))?;
                let process = Process::of_child(&child).ok();
                self.children.push(child);
                process
            }
        };
        self.record.apps.push(AppRecord {
            system: app.system.clone(),
            command: app.command.clone(),
            process,
        });
        self.dir.write(&self.record)?;
        match &app.wait {
            Some(name) => self.wait_for_name(&app.system, name).map_err(|failure| {
                let said = std::fs::read_to_string(self.dir.app_log(&app.system, number));
                let said = said.unwrap_or_default();
                failed(format!(
                    "{failure}\n--- `{}`\n{}",
                    app.command,
                    said.trim_end()
                ))
            }),
            None => Ok(()),
        }
    }

    /// Waits until an application is registered in a system.
    ///
    /// # Errors
    /// It is not after a while.
    pub fn wait_for_name(&self, system: &str, name: &str) -> Outcome {
        let name = AppName::new(name).attempt("waiting for an application")?;
        self.wait(&format!("{name} to be registered in {system}"), || {
            let apps: Vec<carina_api::control::AppInfo> = match self.machine(system) {
                None => self.control(system).apps().unwrap_or_default(),
                Some(vm) => {
                    let guest = Guest::reach(&self.dir, system, vm)?;
                    let output = guest.must_run("carina app list --json")?;
                    serde_json::from_slice(&output.stdout).attempt("reading a list of apps")?
                }
            };
            Ok(apps.iter().any(|app| app.name == name && app.via.is_none()))
        })
    }

    /// Runs a program in a system to its end, with `CARINA_RUN` set. The program `carina` is that of
    /// the lab.
    ///
    /// # Errors
    /// It cannot be started. That it fails is no error but its status.
    pub fn exec(&self, system: &str, words: &[&str]) -> Result<Output, Failure> {
        use std::os::unix::process::ExitStatusExt;
        if let Some(vm) = self.machine(system) {
            let guest = Guest::reach(&self.dir, system, vm)?;
            let output = guest.run(&shell_words(words), EXEC)?;
            let status = std::process::ExitStatus::from_raw(output.status << 8);
            let (stdout, stderr) = (output.stdout, output.stderr);
            return Ok(Output {
                status,
                stdout,
                stderr,
            });
        }
        let (program, rest) = words
            .split_first()
            .ok_or_else(|| failed("no program is given"))?;
        self.command(system, self.program(program))?
            .args(rest)
            .stdin(Stdio::null())
            .output()
            .attempt(format!("running {program} in {system}"))
    }

    /// A program in a system that is a namespace, not started yet. It is a process group of its own,
    /// so that an interrupt at the terminal does not reach it.
    ///
    /// # Errors
    /// The system is a VM, or there is none of that name.
    pub fn command(
        &self,
        system: &str,
        program: impl AsRef<std::ffi::OsStr>,
    ) -> Result<Command, Failure> {
        use std::os::unix::process::CommandExt;
        if self.topology.namespaces().all(|known| known.name != system) {
            return Err(failed(format!("{system} is no system that is a namespace")));
        }
        let mut command = enter(&self.record, &self.dir, system, program);
        command.process_group(0);
        Ok(command)
    }

    /// The node of a system that is a namespace.
    pub fn control(&self, system: &str) -> Client {
        Client::new(self.dir.run_dir(system).control_sock())
    }

    /// The IPCPs of a system's node.
    ///
    /// # Errors
    /// The node does not answer.
    pub fn ipcps(&self, system: &str) -> Result<Vec<IpcpInfo>, Failure> {
        match self.machine(system) {
            Some(vm) => Guest::reach(&self.dir, system, vm)?.ipcps(),
            None => self
                .control(system)
                .ipcps()
                .attempt(format!("asking the node of {system}")),
        }
    }

    /// The directory.
    pub fn dir(&self) -> &LabDir {
        &self.dir
    }

    /// Lets everything run on; [`take_down`] ends it.
    pub fn detach(mut self) -> Record {
        self.is_detached = true;
        self.record.clone()
    }

    fn ground(&self) -> Ground {
        self.record.ground()
    }

    fn machine(&self, system: &str) -> Option<&Vm> {
        self.topology.system(system)?.vm.as_ref()
    }

    /// Our own `carina` for that word.
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

    /// Waits until something is so; ends early when a node has ended.
    fn wait(&self, what: &str, mut ready: impl FnMut() -> Result<bool, Failure>) -> Outcome {
        let deadline = Instant::now() + self.options.patience;
        loop {
            if ready()? {
                return Ok(());
            }
            if let Some((system, _)) = self.record.nodes.iter().find(|(_, node)| !node.is_alive()) {
                return Err(failed(format!("the node of {system} has ended")));
            }
            let ended = |app: &&AppRecord| app.process.as_ref().is_some_and(|p| !p.is_alive());
            if let Some(app) = self.record.apps.last().filter(ended) {
                return Err(failed(format!(
                    "`{}` has ended; waited for {what}",
                    app.command
                )));
            }
            if Instant::now() > deadline {
                let limit = self.options.patience;
                return Err(failed(format!("waited {limit:?} for {what}")));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The ends of the logs of nodes that have said something.
    fn last_words(&self) -> String {
        let mut words = String::new();
        for system in self.record.nodes.keys() {
            let text = std::fs::read_to_string(self.dir.log(system)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let from = lines.len().saturating_sub(LOG_LINES);
                words.push_str(&format!(
                    "\n--- end of the log of {system}\n{}",
                    lines[from..].join("\n")
                ));
            }
        }
        words
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_detached {
            if let Err(failure) = take_down(&self.dir, &self.record) {
                progress(format!("taking lab {} down: {failure}", self.record.name));
            }
            for child in &mut self.children {
                // Ended above; this takes their last trace away.
                let _ = child.wait();
            }
        }
    }
}

/// A program in the namespace of a system of a lab, with what it needs to find the system's node.
pub fn enter(
    record: &Record,
    dir: &LabDir,
    system: &str,
    program: impl AsRef<std::ffi::OsStr>,
) -> Command {
    let namespace = namespace::of_system(&record.name, system);
    let mut command = record.ground().command_in(&namespace, program);
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

/// Words as a shell takes them back.
pub fn shell_words(words: &[impl AsRef<str>]) -> String {
    let quoted = words
        .iter()
        .map(|word| format!("'{}'", word.as_ref().replace('\'', "'\\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

fn not_allowed(failure: &Failure) -> Failure {
    let text = failure.to_string();
    match text.contains("not permitted") || text.contains("denied") {
        true => failed(format!(
            "{text}: network namespaces are not allowed here; root in a container needs \
             CAP_SYS_ADMIN and CAP_NET_ADMIN"
        )),
        false => failed(text),
    }
}

/// Where a file of credentials lies in a guest.
fn guest_path(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("/etc/carina.{name}")
}

/// How long any one thing may take, unless asked otherwise.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long neighbours are waited for.
const SETTLE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOG_LINES: usize = 12;
/// A command in a guest.
const EXEC: Duration = Duration::from_secs(600);
