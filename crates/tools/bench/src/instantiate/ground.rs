//! The processes that make networks, and the measurement of one network.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_vnet::document::{Boot, Document};
use carina_vnet::host_part::VnetId;
use carina_vnet::message::Condition;
use carina_vnet::pip::inventory::Discovery;
use carina_vnet::progress::Phase;
use carina_vnet::report::{VnetReport, VnetState};
use carina_vnet_host::Vnets;
use carina_vnet_host::client::Client;
use carina_vnet_host::directory::part_name;
use carina_vnet_roles::calling::connection::CallError;
use carina_vnet_roles::operator;

use super::InstantiateOptions;
use super::case::Case;
use super::substrate::{Substrate, host};
use crate::cpu_time;
use crate::error::{Attempt, Error, Result};
use crate::process_memory::{self, ProcessMemory};
use crate::program::Program;

/// Roles and agents, each in a process of its own. Dropping the value ends the processes; networks
/// that were not removed stay.
pub(super) struct Ground<'a> {
    options: &'a InstantiateOptions<'a>,
    hosts: Vec<Host>,
    operator: operator::Client,
    accelerator: String,
    // Dropped last, because agents call the roles in it.
    substrate: Substrate,
}

/// The agent of a host.
struct Host {
    name: String,
    agent: Program,
    client: Client,
    run_dir: RunDir,
}

/// Values that were measured while one network was made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// Time from the request until the operator knew that the network was ready.
    pub(super) total_s: f64,
    /// Time from the request until the operator knew that all resources were reserved.
    pub(super) discovery_s: f64,
    /// CPU time of the VNP.
    pub(super) vnp_cpu_s: f64,
    /// CPU time of all agents.
    pub(super) agent_cpu_s: f64,
    /// CPU time of all VMs.
    pub(super) machines_cpu_s: f64,
    /// Memory of each VM once the network is ready.
    pub(super) memory: Vec<ProcessMemory>,
    /// The report of each host.
    reports: Vec<VnetReport>,
}

impl Measured {
    /// Duration of a phase on the host where it took longest, in seconds.
    pub(super) fn phase_s(&self, phase: Phase) -> f64 {
        let of_host = |report: &VnetReport| {
            let phases = report
                .phases
                .iter()
                .filter(|candidate| candidate.phase == phase);
            phases.map(|phase| phase.took_ms / 1000.0).sum()
        };
        self.reports.iter().map(of_host).fold(0.0, f64::max)
    }

    /// Mean of a kind of memory of the VMs, in MiB.
    pub(super) fn memory_mib(&self, of: impl Fn(&ProcessMemory) -> u64) -> f64 {
        let bytes: u64 = self.memory.iter().map(of).sum();
        bytes as f64 / self.memory.len().max(1) as f64 / f64::from(1 << 20)
    }

    /// Number of hosts that have a part of the network.
    pub(super) fn hosts(&self) -> usize {
        self.reports.len()
    }
}

/// CPU times so far, in ns.
struct Costs {
    vnp: u64,
    agents: u64,
    /// CPU time of each VM, by process id.
    machines: BTreeMap<u32, u64>,
}

impl<'a> Ground<'a> {
    /// Starts roles and agents. Their files are in `directory`.
    pub(super) fn start(
        options: &'a InstantiateOptions<'a>,
        directory: &Path,
        (providers, discovery): (usize, Discovery),
        pool: usize,
    ) -> Result<Ground<'a>> {
        let substrate = Substrate::start(directory, providers, discovery)?;
        let mut hosts = Vec::new();
        for provider in 0..providers {
            let run_dir = RunDir::new(substrate.run_dir(provider));
            hosts.push(Host {
                name: host(provider),
                agent: substrate.start_agent(provider, pool)?,
                client: Client::new(&run_dir, ANSWER),
                run_dir,
            });
        }
        let ground = Ground {
            options,
            operator: substrate.operator()?,
            hosts,
            accelerator: String::new(),
            substrate,
        };
        let deadline = Instant::now() + START;
        for host in &ground.hosts {
            ground.wait(deadline, || match host.client.list() {
                Ok(_) => Ok(()),
                Err(error) => Err(host.says(error)),
            })?;
        }
        Ok(ground)
    }

    /// QEMU's accelerator for the guests of the last network.
    pub(super) fn accelerator(&self) -> &str {
        &self.accelerator
    }

    /// Makes a network, measures it, and removes it again.
    pub(super) fn instantiate(&mut self, case: Case) -> Result<Measured> {
        let document = case.document()?;
        if case.boot == Boot::Pool {
            self.wait_for_pools(case.nodes_of_one())?;
        }
        let measured = self.make(&document);
        let removed = self.remove(&document.vnet.name);
        let measured = measured?;
        removed?;
        Ok(measured)
    }

    /// Waits until this number of VMs is ready in the pool of each host.
    fn wait_for_pools(&self, wanted: usize) -> Result<()> {
        let deadline = Instant::now() + READY;
        self.hosts.iter().try_for_each(|host| {
            self.wait(deadline, || {
                let ready = host.client.pool().map_err(|error| host.says(error))?.ready;
                if ready >= wanted {
                    Ok(())
                } else {
                    Err(host.says(format!("{ready} of {wanted} machines are ready")))
                }
            })
        })
    }

    fn make(&mut self, document: &Document) -> Result<Measured> {
        let before = self.costs(None)?;
        let began = Instant::now();
        let made = self.operator.create(document);
        let vnet = made.attempt("asking for a network")?.vnet;
        let discovery_s = self.follow(&document.vnet.name, began)?;
        let total_s = began.elapsed().as_secs_f64();
        let after = self.costs(Some(vnet))?;
        let pids = after.machines.keys();
        let memory = pids.map(|pid| process_memory::of_process(*pid));
        let memory = memory.collect::<Result<Vec<_>>>()?;
        let machines = after.machines.iter().map(|(pid, ns)| {
            let known = before.machines.get(pid).copied().unwrap_or_default();
            ns.saturating_sub(known)
        });
        let seconds = |ns: u64| ns as f64 / 1e9;
        Ok(Measured {
            total_s,
            discovery_s,
            vnp_cpu_s: seconds(after.vnp.saturating_sub(before.vnp)),
            agent_cpu_s: seconds(after.agents.saturating_sub(before.agents)),
            machines_cpu_s: seconds(machines.sum()),
            memory,
            reports: self.reports(vnet)?,
        })
    }

    /// Waits until a network is ready. Returns the time from the request until all resources were
    /// reserved.
    fn follow(&self, name: &str, began: Instant) -> Result<f64> {
        let what = || format!("following {name}");
        let (deadline, mut last, mut held) = (Instant::now() + READY, 0, None);
        loop {
            let events = self.operator.events(name, last, FOLLOW);
            if let Some(event) = events.attempt(what())?.last() {
                last = event.number;
            }
            let standing = self.operator.seen(name).attempt(what())?.standing;
            if held.is_none() && standing.holds.contains(&Condition::Reserved) {
                held = Some(began.elapsed().as_secs_f64());
            }
            if standing.is_ready() {
                let all = began.elapsed().as_secs_f64();
                return Ok(held.unwrap_or(all));
            }
            if (self.options.is_interrupted)() {
                return Err(Error::Interrupted);
            }
            if standing.is_refused || Instant::now() > deadline {
                let why = standing
                    .reason
                    .map(|reason| reason.message)
                    .unwrap_or_default();
                return Err(Error::NoAnswer(format!("{name} is not ready: {why}")));
            }
        }
    }

    /// The reports of the hosts about their parts, once these contain the times.
    fn reports(&self, vnet: VnetId) -> Result<Vec<VnetReport>> {
        let deadline = Instant::now() + ANSWER;
        let of_host = |host: &Host| {
            self.wait(deadline, || {
                let report = host.client.report(&part_name(vnet));
                let report = report.map_err(|error| host.says(error))?;
                match report.state {
                    VnetState::Ready => Ok(report),
                    _ => Err(host.says(report.obstacles.join("; "))),
                }
            })
        };
        self.hosts.iter().map(of_host).collect()
    }

    /// CPU times so far. The VMs are those of network `vnet`, or with `None` those in pools.
    fn costs(&mut self, vnet: Option<VnetId>) -> Result<Costs> {
        let mut costs = Costs {
            vnp: cpu_time::of_process(self.substrate.vnp(), &[])?.0,
            agents: 0,
            machines: BTreeMap::new(),
        };
        for host in &self.hosts {
            costs.agents += cpu_time::of_process(host.agent.id(), &[])?.0;
            let vnets = Vnets::of(&host.run_dir);
            let directory = match vnet {
                None => vnets.pool(),
                Some(vnet) => vnets.vnet(&part_name(vnet)).machines(),
            };
            for machine in carina_vm::list(&directory).attempt("listing machines")? {
                let pid = u32::try_from(machine.pid).unwrap_or_default();
                // A VM that has ended is left out.
                if let Ok((ns, _)) = cpu_time::of_process(pid, &[]) {
                    costs.machines.insert(pid, ns);
                }
                self.accelerator = machine.accel;
            }
        }
        Ok(costs)
    }

    /// Removes a network, and waits until no part of it is left.
    fn remove(&self, name: &str) -> Result<()> {
        let what = || format!("removing {name}");
        match self.operator.remove(name) {
            // The network was never requested.
            Err(CallError::Refused(_)) => return Ok(()),
            removed => removed.attempt(what())?,
        }
        let deadline = Instant::now() + REMOVAL;
        self.wait(deadline, || match self.operator.seen(name) {
            Err(CallError::Refused(_)) => Ok(()),
            Err(error) => Err(error).attempt(what()),
            Ok(_) => Err(Error::NoAnswer(format!("{name} is still being removed"))),
        })
    }

    /// Repeats `attempt` until it succeeds. Returns its last error at the deadline.
    fn wait<T>(&self, deadline: Instant, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(_) if (self.options.is_interrupted)() => return Err(Error::Interrupted),
                Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Host {
    fn says(&self, what: impl std::fmt::Display) -> Error {
        Error::NoAnswer(format!("the agent of {}: {what}", self.name))
    }
}

/// How long agents may take until they answer.
const START: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
const ANSWER: Duration = Duration::from_secs(30);
/// How long one request for events waits; interruption is checked in between.
const FOLLOW: Duration = Duration::from_millis(200);
/// Time limit for a network. The first one also makes images and templates.
const READY: Duration = Duration::from_secs(300);
/// Time limit for a removal.
const REMOVAL: Duration = Duration::from_secs(120);
