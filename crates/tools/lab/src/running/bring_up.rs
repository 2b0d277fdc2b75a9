//! The steps that make a lab, in order.

use std::process::Stdio;
use std::time::{Duration, Instant};

use carina_api::control::MemberState;
use carina_namespaces::{ChildProcess, hold_namespaces};
use carina_vm::{GuestImage, guest_program};

use super::{Running, guest_path};
use crate::error::{Attempt, Error, Result};
use crate::guests::{self, apply, reach_guest, wait_for_link};
use crate::links;
use crate::record::AppRecord;
use carina_topology::{App, Dif, Vm};

impl Running {
    /// Makes the whole lab, step by step.
    pub(super) fn build(&mut self) -> Result<()> {
        self.make_namespaces()?;
        self.start_nodes()?;
        self.boot_machines()?;
        for dif in self.topology.difs.clone() {
            self.make_dif(&dif)?;
        }
        self.wait_for_neighbours()?;
        self.wait_for_reachability()?;
        for app in self.topology.apps.clone() {
            self.start_app(&app)?;
        }
        self.record.is_up = true;
        self.dir.write(&self.record)
    }

    fn make_namespaces(&mut self) -> Result<()> {
        if !rustix::process::geteuid().is_root() {
            let keeper = hold_namespaces(self.dir.path())?;
            self.record.keeper = Some(keeper.process().clone());
            self.dir.write(&self.record)?;
            keeper.stay()?;
        }
        let access = self.access();
        let wanted = links::names(&self.record.name, &self.topology);
        let existing = access.list()?;
        if let Some(name) = wanted.iter().find(|name| existing.contains(name)) {
            return Err(Error::StrayNamespace {
                namespace: name.clone(),
                lab: self.record.name.clone(),
            });
        }
        self.record.namespaces = wanted;
        self.dir.write(&self.record)?;
        let links = self.topology.links.len();
        self.progress(format!(
            "{} network namespaces, {links} links",
            self.record.namespaces.len()
        ));
        for words in links::commands(&self.record.name, &self.topology) {
            access.ip(&words).map_err(name_the_right)?;
        }
        self.wait_for_carrier()
    }

    /// Waits until all links have carrier. The kernel reports it some time after both ends are up.
    fn wait_for_carrier(&self) -> Result<()> {
        let access = self.access();
        for system in self.topology.namespaces() {
            let namespace = links::of_system(&self.record.name, &system.name);
            let words = ["-n", &namespace, "-o", "link", "show"].map(str::to_owned);
            self.wait(&format!("the links of {} to be up", system.name), || {
                let listing = access.ip(&words)?;
                Ok(!listing.lines().any(|line| {
                    line.contains("state DOWN") || line.contains("state LOWERLAYERDOWN")
                }))
            })?;
        }
        Ok(())
    }

    fn start_nodes(&mut self) -> Result<()> {
        let systems: Vec<String> = self.topology.namespaces().map(|s| s.name.clone()).collect();
        self.progress(format!("{} nodes", systems.len()));
        for system in &systems {
            let config = self.dir.config(system);
            std::fs::write(&config, self.config_of(system, &[]))
                .attempt(format!("writing {}", config.display()))?;
            let log = self.dir.log(system);
            let log = std::fs::File::create(&log).attempt(format!("writing {}", log.display()))?;
            let run_dir = self.dir.run_dir(system);
            let mut command = self.command(system, &self.options.program)?;
            command
                .args(["node", "--config"])
                .arg(&config)
                .arg("--run")
                .arg(run_dir.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
            let child = ChildProcess::start(&mut command, format!("the node of {system}"))?;
            self.record.nodes.insert(system.clone(), child.process()?);
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

    fn boot_machines(&mut self) -> Result<()> {
        let machines: Vec<(String, Vm)> = self
            .topology
            .machines()
            .map(|(system, vm)| (system.name.clone(), vm.clone()))
            .collect();
        if machines.is_empty() {
            return Ok(());
        }
        self.progress(format!("{} VMs: image and boot", machines.len()));
        let image = GuestImage::prepare(&guest_program(&self.options.program));
        let image = image.attempt("preparing the guest's image")?;
        for (name, vm) in &machines {
            guests::start(&image, &self.dir, name, vm, &self.config_of(name, &[]))?;
        }
        for (name, vm) in &machines {
            // QEMU creates its sockets a moment after it is started.
            let mut guest = reach_guest(&self.dir, name, vm);
            let deadline = Instant::now() + self.options.patience;
            while guest.is_err() && Instant::now() < deadline {
                self.pause()?;
                guest = reach_guest(&self.dir, name, vm);
            }
            guest?;
            wait_for_link(&self.dir, name, vm, || self.pause())?;
            self.progress(format!("VM {name} is attached to {}", vm.host));
        }
        Ok(())
    }

    /// Makes a DIF: first its first member, then the others one by one, each of which enrolls with
    /// an earlier one.
    fn make_dif(&mut self, dif: &Dif) -> Result<()> {
        let systems: Vec<&str> = dif.members.iter().map(|m| m.system.as_str()).collect();
        self.progress(format!("DIF {}: {}", dif.name, systems.join(", ")));
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
                    let member = member.ok_or_else(|| Error::MemberGone(ipcp.clone()))?;
                    last = member.last_error.unwrap_or(member.step);
                    Ok(member.state == MemberState::Enrolled)
                },
            );
            enrolled.map_err(|error| error.with(format!(" (last: {last})")))?;
        }
        Ok(())
    }

    fn apply_in_guest(&self, dif: &Dif, system: &str, vm: &Vm, text: &str) -> Result<()> {
        let guest = reach_guest(&self.dir, system, vm)?;
        if let Some((_, files)) = dif.auth.as_deref().and_then(|auth| auth.split_once(':')) {
            for file in files.split(',') {
                let text = std::fs::read_to_string(file).attempt(format!("reading {file}"))?;
                guest.put(&guest_path(file), &text)?;
            }
        }
        apply(&guest, text)
    }

    /// Waits until any two members that share a link with no third one are neighbours. A missing
    /// neighbour is reported but is not an error: the node keeps trying.
    fn wait_for_neighbours(&self) -> Result<()> {
        let mut missing = Vec::new();
        let deadline = Instant::now() + SETTLE;
        for dif in &self.topology.difs {
            for member in &dif.members {
                loop {
                    missing = self.missing_neighbours(dif, &member.system, &member.beside);
                    if missing.is_empty() || Instant::now() > deadline {
                        break;
                    }
                    self.pause()?;
                }
                for other in &missing {
                    let name = dif.ipcp(&member.system);
                    self.progress(format!(
                        "{name} and {} are no neighbours yet",
                        dif.ipcp(other)
                    ));
                }
            }
        }
        drop(missing);
        Ok(())
    }

    /// Waits until every member of a DIF has a route to every other one, so that applications start
    /// in a working network. A missing route is reported but is not an error.
    fn wait_for_reachability(&self) -> Result<()> {
        let deadline = Instant::now() + SETTLE;
        for dif in &self.topology.difs {
            for member in &dif.members {
                let missing = || {
                    let reached = self.reached(&member.system, &dif.name).unwrap_or_default();
                    let all = dif.members.iter().map(|member| dif.ipcp(&member.system));
                    all.filter(|name| !reached.contains(name))
                        .collect::<Vec<_>>()
                };
                let mut lost = missing();
                while !lost.is_empty() && Instant::now() <= deadline {
                    self.pause()?;
                    lost = missing();
                }
                if !lost.is_empty() {
                    let name = dif.ipcp(&member.system);
                    self.progress(format!("{name} knows no way to {} yet", lost.join(", ")));
                }
            }
        }
        Ok(())
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

    fn start_app(&mut self, app: &App) -> Result<()> {
        self.progress(format!("{}: {}", app.system, app.command));
        let number = self.record.apps.len();
        let process = match self.machine(&app.system) {
            Some(vm) => {
                let guest = reach_guest(&self.dir, &app.system, vm)?;
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
                let mut command = self.command(&app.system, "sh")?;
                command
                    .args(["-c", &app.command])
                    .stdin(Stdio::null())
                    .stdout(log)
                    .stderr(errors);
                let child = ChildProcess::start(&mut command, format!("`{}`", app.command))?;
                let process = child.process().ok();
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
            Some(name) => self.wait_for_name(&app.system, name).map_err(|error| {
                let log_text = std::fs::read_to_string(self.dir.app_log(&app.system, number));
                let log_text = log_text.unwrap_or_default();
                error.with(format!("\n--- `{}`\n{}", app.command, log_text.trim_end()))
            }),
            None => Ok(()),
        }
    }
}

/// If the kernel refused for lack of a right, returns an error that says which right is needed.
fn name_the_right(error: carina_namespaces::Error) -> Error {
    let text = error.to_string();
    if text.contains("not permitted") || text.contains("denied") {
        Error::NamespacesForbidden(text)
    } else {
        error.into()
    }
}

/// How long to wait for neighbours and for routes.
const SETTLE: Duration = Duration::from_secs(10);
