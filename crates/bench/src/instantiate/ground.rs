//! The process that makes networks, and what one network has taken.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_vnet::document::{Boot, Document};
use carina_vnet_host::client::{Client, REMOVAL};
use carina_vnet_host::progress::Phase;
use carina_vnet_host::report::{VnetReport, VnetState};
use carina_vnet_host::{Vnets, remains};

use super::InstantiateOptions;
use crate::cpu_time;
use crate::error::{Attempt, Error, Result};
use crate::program::Program;

/// An agent in a process of its own. What it has made is removed with this value.
pub(super) struct Ground<'a> {
    options: &'a InstantiateOptions<'a>,
    agent: Program,
    client: Client,
    run_dir: RunDir,
    accelerator: String,
    // Locked for as long as it is open.
    _lock: File,
}

/// What one network has taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// From the request until it was ready.
    pub(super) total_s: f64,
    /// CPU time of the agent.
    pub(super) agent_cpu_s: f64,
    /// CPU time of all its machines.
    pub(super) machines_cpu_s: f64,
    report: VnetReport,
}

impl Measured {
    /// How long a phase took; none where it did not come up.
    pub(super) fn phase_s(&self, phase: Phase) -> f64 {
        let phases = self.report.phases.iter();
        let of = phases.filter(|it| it.phase == phase);
        of.map(|it| it.took_ms / 1000.0).sum()
    }
}

impl<'a> Ground<'a> {
    /// Starts an agent.
    pub(super) fn start(options: &'a InstantiateOptions<'a>) -> Result<Ground<'a>> {
        let path = &options.run_dir;
        let what = || format!("the run directory {}", path.display());
        fs::create_dir_all(path).attempt(what())?;
        let lock = File::create(path.join("bench.lock")).attempt(what())?;
        if lock.try_lock().is_err() {
            return Err(Error::NoAnswer(format!(
                "{}: another bench uses it",
                what()
            )));
        }
        let run_dir = RunDir::new(path);
        remove_networks(&run_dir);
        let pool = options.pool().to_string();
        let agent = Program::start(path, &["vnet", "agent", "--pool", &pool])?;
        let client = Client::new(&run_dir, ANSWER);
        let deadline = Instant::now() + START;
        while let Err(error) = client.list() {
            if Instant::now() > deadline {
                return Err(Error::NoAnswer(format!("the agent: {error}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(Ground {
            options,
            agent,
            client,
            run_dir,
            accelerator: String::new(),
            _lock: lock,
        })
    }

    /// How QEMU runs the guests of the last network.
    pub(super) fn accelerator(&self) -> &str {
        &self.accelerator
    }

    /// Makes a network, and removes it again.
    pub(super) fn instantiate(&mut self, document: &Document) -> Result<Measured> {
        let name = &document.vnet.name;
        if document.defaults.boot == Some(Boot::Pool) {
            self.wait_for_pool(document.node.len())?;
        }
        let measured = self.make(document);
        let removed = self.client.remove(name, REMOVAL);
        let measured = measured?;
        removed.map_err(|error| Error::NoAnswer(format!("removing {name}: {error}")))?;
        Ok(measured)
    }

    /// Waits until so many machines stand ready.
    fn wait_for_pool(&self, wanted: usize) -> Result<()> {
        let deadline = Instant::now() + READY;
        loop {
            let refused = |error| Error::NoAnswer(format!("the agent: {error}"));
            let ready = self.client.pool().map_err(refused)?.ready;
            if ready >= wanted {
                return Ok(());
            }
            if (self.options.is_interrupted)() {
                return Err(Error::Interrupted);
            }
            if Instant::now() > deadline {
                let words = format!("the pool has {ready} of {wanted} machines");
                return Err(Error::NoAnswer(words));
            }
            std::thread::sleep(FOLLOW);
        }
    }

    fn make(&mut self, document: &Document) -> Result<Measured> {
        let pool_before = cpu_ns_of(&machines_in(&Vnets::of(&self.run_dir).pool())?);
        let agent_before = self.agent_cpu_ns()?;
        let began = Instant::now();
        let refused = |error| Error::NoAnswer(format!("the agent: {error}"));
        self.client.create(document).map_err(refused)?;
        let report = self.follow(&document.vnet.name)?;
        let total_s = began.elapsed().as_secs_f64();
        let agent_ns = self.agent_cpu_ns()?.saturating_sub(agent_before);
        let machines = self.machines_cpu_ns(&document.vnet.name, &pool_before)?;
        Ok(Measured {
            total_s,
            agent_cpu_s: agent_ns as f64 / 1e9,
            machines_cpu_s: machines as f64 / 1e9,
            report,
        })
    }

    /// Waits until a network is ready.
    fn follow(&self, name: &str) -> Result<VnetReport> {
        let refused = |error| Error::NoAnswer(format!("the agent: {error}"));
        let (deadline, mut seen) = (Instant::now() + READY, 0);
        loop {
            let events = self.client.events(name, seen, FOLLOW).map_err(refused)?;
            if let Some(last) = events.last() {
                seen = last.number;
            }
            let report = self.client.report(name).map_err(refused)?;
            match report.state {
                VnetState::Ready => return Ok(report),
                VnetState::Changing if (self.options.is_interrupted)() => {
                    return Err(Error::Interrupted);
                }
                VnetState::Changing if Instant::now() < deadline => {}
                _ => {
                    let why = report.obstacles.join("; ");
                    return Err(Error::NoAnswer(format!("{name} is not ready: {why}")));
                }
            }
        }
    }

    fn agent_cpu_ns(&self) -> Result<u64> {
        cpu_time::of_process(self.agent.id(), &[]).map(|(all, _)| all)
    }

    /// CPU time that the machines of a network have taken beyond what they had `before`.
    fn machines_cpu_ns(&mut self, name: &str, before: &BTreeMap<u32, u64>) -> Result<u64> {
        let machines = machines_in(&Vnets::of(&self.run_dir).vnet(name).machines())?;
        if let Some(machine) = machines.first() {
            self.accelerator.clone_from(&machine.accel);
        }
        let of = |(pid, ns): (&u32, &u64)| ns.saturating_sub(before.get(pid).copied().unwrap_or(0));
        Ok(cpu_ns_of(&machines).iter().map(of).sum())
    }
}

fn machines_in(directory: &Path) -> Result<Vec<carina_vm::Record>> {
    carina_vm::list(directory).attempt("listing machines")
}

/// CPU time of each machine, by its process. One that has ended is left out.
fn cpu_ns_of(machines: &[carina_vm::Record]) -> BTreeMap<u32, u64> {
    let of = |machine: &carina_vm::Record| {
        let pid = u32::try_from(machine.pid).ok()?;
        Some((pid, cpu_time::of_process(pid, &[]).ok()?.0))
    };
    machines.iter().filter_map(of).collect()
}

impl Drop for Ground<'_> {
    fn drop(&mut self) {
        self.agent.kill();
        // Only after a failure is there one.
        remove_networks(&self.run_dir);
        let _ = fs::remove_dir_all(self.run_dir.path());
    }
}

/// Removes networks that have no agent. What cannot be removed is tried again by the next bench.
fn remove_networks(run_dir: &RunDir) {
    let vnets = Vnets::of(run_dir);
    let _ = remains::remove_pool(&vnets);
    for (name, _) in vnets.list().unwrap_or_default() {
        let _ = remains::remove_recorded(&vnets.vnet(&name));
    }
}

/// How long the agent may take until it answers.
const START: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
const ANSWER: Duration = Duration::from_secs(30);
/// How long a wait for events lasts; what is interrupted is seen in between.
const FOLLOW: Duration = Duration::from_millis(200);
/// How long a network may take; the first one makes images and templates.
const READY: Duration = Duration::from_secs(300);
