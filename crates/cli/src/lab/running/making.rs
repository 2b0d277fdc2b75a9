//! The steps that make a lab, one after the other.

use std::process::Stdio;
use std::time::{Duration, Instant};

use carina_api::control::MemberState;

use super::{LOOK_AGAIN, Running, guest_path};
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::lab::guest::{Guest, Kit, wait_for_link};
use crate::lab::namespace::{self, keep_ground};
use crate::lab::process::Process;
use crate::lab::state::AppRecord;
use crate::lab::topology::{App, Dif, Vm};
use crate::report::progress;

impl Running {
    /// Makes everything, in order.
    pub(super) fn build(&mut self) -> Outcome {
        self.make_namespaces()?;
        self.start_nodes()?;
        self.boot_machines()?;
        for dif in self.topology.difs.clone() {
            self.make_dif(&dif)?;
        }
        self.wait_for_neighbours();
        self.wait_for_ways();
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

    /// Waits until every member of a DIF knows a way to every other one, so that what comes next
    /// finds a network that works. As with neighbours, what is missing is told.
    fn wait_for_ways(&self) {
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
                    std::thread::sleep(LOOK_AGAIN);
                    lost = missing();
                }
                if !lost.is_empty() {
                    let name = dif.ipcp(&member.system);
                    progress(format!("{name} knows no way to {} yet", lost.join(", ")));
                }
            }
        }
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

/// How long neighbours are waited for.
const SETTLE: Duration = Duration::from_secs(10);
