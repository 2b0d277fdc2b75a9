//! The agent of a host: makes, watches, changes and removes networks, each on a thread of its own.

mod access;
mod inside;
mod keeping;
mod moves;
mod network;
mod nics;
mod orders;
mod seen;
pub mod switching;
mod tests_of_document;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_vnet::document::Document;
use carina_vnet::host_part::{HostPart, VnetId};
use carina_vnet::layout::Layout;

use self::moves::Moves;
use self::network::{Host, Network};
use self::orders::Orders;
use crate::admission::Capacity;
use crate::alone::{now_ms, record_of, record_without_routes};
use crate::directory::{Record, Requester, VnetDir, Vnets};
use crate::error::{Error, Result};
use crate::host_dif::HostDif;
use crate::leftovers;
use crate::node::{CommandLimits, Output, Sink};
use crate::plan::Plan;
use crate::random::random_bytes;
use crate::removed::Removed;
use crate::saved::Saved;
use crate::trace;
use crate::underlay::{HostSettings, own_name};
use carina_vnet::access::AtAddress;
use carina_vnet::impairment::LinkImpairment;
use carina_vnet::progress::Event;
use carina_vnet::report::{ConsoleOutput, TestReport, VnetReport};
use carina_vnet::trace::{Trace, TraceQuery};

pub use self::inside::copied_links;

/// Makes, watches and removes the networks of a host. Dropping this value leaves the networks in
/// place; a new agent adopts them.
#[derive(Debug)]
pub struct Agent {
    /// Name of this host at its provider.
    name: String,
    vnets: Vnets,
    host: Host,
    capacity: Capacity,
    /// Interfaces of the host that nodes may use as physical cards.
    nics: Mutex<Vec<String>>,
    /// Addresses at which end users reach this host; the host's own addresses if the list is empty.
    users_at: Mutex<Vec<AtAddress>>,
    orders: Orders,
    moves: Moves,
    removed: Removed,
    /// Whether the agent accepts no new networks. Read and written while `networks` is locked.
    is_ending: AtomicBool,
    /// The networks, by the names of their directories.
    networks: Arc<Mutex<BTreeMap<String, Arc<Network>>>>,
}

impl Agent {
    /// Creates the agent of a host without a provider. Adopts the networks that an earlier agent
    /// with this run directory has left.
    ///
    /// # Errors
    /// The networks' records cannot be read.
    pub fn new(run_dir: &RunDir) -> Result<Agent> {
        let settings = HostSettings {
            name: own_name(),
            underlay: None,
        };
        Agent::of_host(run_dir, settings)
    }

    /// Like [`Agent::new`], for a host of a provider.
    ///
    /// # Errors
    /// Those of [`Agent::new`]; or a network that an earlier agent had begun to remove cannot be
    /// removed.
    pub fn of_host(run_dir: &RunDir, settings: HostSettings) -> Result<Agent> {
        let vnets = Vnets::of(run_dir);
        let removed = Removed::read(&vnets)?;
        let agent = Agent {
            name: settings.name.clone(),
            host: Host {
                images: Arc::default(),
                dif: settings
                    .underlay
                    .as_ref()
                    .map(|underlay| Arc::new(HostDif::of(&vnets, &settings.name, underlay))),
                underlay: settings.underlay,
                changes: Arc::default(),
            },
            capacity: Capacity::of_this_machine(),
            nics: Mutex::default(),
            users_at: Mutex::default(),
            orders: Orders::default(),
            moves: Moves::default(),
            is_ending: AtomicBool::new(false),
            networks: Arc::default(),
            removed,
            vnets,
        };
        agent.vnets.remove_unrecorded()?;
        for (name, record) in agent.vnets.list()? {
            let dir = agent.vnets.vnet(&name);
            let through = record
                .provider_vnet()
                .and_then(|provider_vnet| agent.removed.through(provider_vnet));
            if through >= Some(record.part.generation) {
                leftovers::remove(&dir, &record)?;
                continue;
            }
            let network = Network::start(dir, record, &agent.host, Instant::now())?;
            agent.lock().insert(name, Arc::new(network));
        }
        Ok(agent)
    }

    /// Like [`Agent::create`], for a caller who keeps asking for the network's events until it is
    /// ready. If the caller stops asking earlier, [`Agent::remove_abandoned`] removes the network.
    ///
    /// # Errors
    /// Those of [`Agent::create`].
    pub fn create_followed(&self, document: &Document) -> Result<VnetReport> {
        let report = self.create(document)?;
        self.network(&report.name)?.set_followed();
        Ok(report)
    }

    /// Removes networks whose callers stopped asking for events before the networks were ready.
    /// Returns the names of the removed networks.
    pub fn remove_abandoned(&self) -> Vec<String> {
        let networks = self.lock();
        let abandoned = networks
            .iter()
            .filter(|(_, network)| network.is_abandoned());
        let mut abandoned: Vec<String> = abandoned.map(|(name, _)| name.clone()).collect();
        drop(networks);
        // If the removal fails, the next call retries it.
        abandoned.retain(|name| self.remove(name).is_ok());
        abandoned
    }

    /// Begins to make the network of a document, and returns its first report at once. A thread
    /// makes the network; [`Agent::events`] and [`Agent::report`] show its progress.
    ///
    /// # Errors
    /// A network of this name exists, the network does not fit, its record cannot be written, or
    /// the agent is ending.
    pub fn create(&self, document: &Document) -> Result<VnetReport> {
        let began = Instant::now();
        let document = &document.extended();
        let name = &document.vnet.name;
        let mut networks = self.lock();
        self.check_open()?;
        if networks.contains_key(name) {
            return Err(Error::Exists(name.clone()));
        }
        let parts = others(&networks, None);
        let vnet = random_id()?;
        let layout = Layout::of(document, &Layout::default());
        let mut record = record_of(document, vnet, 1, layout)?;
        self.admission_check()
            .check_network(document, &record.part, parts.iter())?;
        self.choose_nics(&mut record.part, None, &parts)?;
        let network = self.begin(self.vnets.vnet(name), record, began)?;
        let report = network.report();
        networks.insert(name.clone(), network);
        Ok(report)
    }

    /// Begins to make a recorded network in `dir`, which must not exist yet.
    fn begin(&self, dir: VnetDir, record: Record, began: Instant) -> Result<Arc<Network>> {
        self.begin_with(dir, record, began, None)
    }

    /// Like [`Agent::begin`]. `saved` is the network's saved state; `None` makes the network from
    /// its document.
    fn begin_with(
        &self,
        dir: VnetDir,
        record: Record,
        began: Instant,
        saved: Option<&Saved>,
    ) -> Result<Arc<Network>> {
        dir.create()?;
        let noted = saved.map_or(Ok(()), |saved| saved.note(&dir));
        let made = noted
            .and_then(|()| dir.write(&record))
            .and_then(|()| Network::start(dir.clone(), record, &self.host, began));
        let network = made.inspect_err(|_| {
            // Only the directory exists so far.
            let _ = dir.remove();
        })?;
        Ok(Arc::new(network))
    }

    /// Begins to change a network to match a document.
    ///
    /// # Errors
    /// There is no such network, a provider has ordered it, the changed network does not fit, or
    /// its record cannot be written.
    pub fn apply(&self, document: &Document) -> Result<VnetReport> {
        let began = Instant::now();
        let document = &document.extended();
        let networks = self.lock();
        let name = &document.vnet.name;
        let network = find(&networks, name)?;
        let parts = others(&networks, Some(name));
        let before = network.record();
        let Requester::Here { layout, .. } = &before.wanted else {
            return Err(Error::OfProvider(name.clone()));
        };
        let layout = Layout::of(document, layout);
        let generation = before.part.generation + 1;
        let mut record = record_without_routes(document, before.vnet, generation, layout)?;
        self.admission_check()
            .check_network(document, &record.part, parts.iter())?;
        self.choose_nics(&mut record.part, Some(&before.part), &parts)?;
        // The routes of a large network take long to compute. New links need not wait for them.
        network.make_links(&record, began)?;
        record.add_routes();
        network.change(record, began)?;
        Ok(network.report())
    }

    /// Plans what making a network, or changing it to match a document, would do.
    ///
    /// # Errors
    /// The document is invalid for any host. If the network merely does not fit, the plan says so.
    pub fn plan(&self, document: &Document) -> Result<Plan> {
        let records: Vec<Record> = {
            let networks = self.lock();
            networks
                .values()
                .map(|network| Record::clone(&network.record()))
                .collect()
        };
        let plan = Plan::of(document, &records, &self.admission_check())?;
        let is_this = |record: &&Record| record.is_of_operator(&plan.name);
        let ended = match records.iter().find(is_this) {
            Some(record) => leftovers::ended_nodes(&self.vnets.vnet(&plan.name), record)?,
            None => Vec::new(),
        };
        Ok(plan.with_ended(&ended))
    }

    /// Reports of all networks, sorted by name.
    #[must_use]
    pub fn list(&self) -> Vec<VnetReport> {
        self.lock()
            .values()
            .map(|network| network.report())
            .collect()
    }

    /// The report of a network.
    ///
    /// # Errors
    /// There is no such network.
    pub fn report(&self, name: &str) -> Result<VnetReport> {
        match self.network(name) {
            Ok(network) => Ok(network.report()),
            Err(error) => self.report_of_refused(name).ok_or(error),
        }
    }

    /// The document of a network.
    ///
    /// # Errors
    /// There is no such network, or a provider ordered it. This host has no document of a network
    /// that a provider ordered.
    pub fn document(&self, name: &str) -> Result<Document> {
        match &self.network(name)?.record().wanted {
            Requester::Here { document, .. } => Ok(Document::clone(document)),
            Requester::Provider { .. } => Err(Error::OfProvider(name.to_owned())),
        }
    }

    /// Returns the events of a network after event number `since`. If no such event exists yet,
    /// waits for one for up to `wait`; the result may then be empty.
    ///
    /// # Errors
    /// There is no such network.
    pub fn events(&self, name: &str, since: u64, wait: Duration) -> Result<Vec<Event>> {
        Ok(self.network(name)?.events(since, wait))
    }

    /// Returns the output of a node's console after byte `since`. If no such output exists yet,
    /// waits for some for up to `wait`; the result may then be empty.
    ///
    /// # Errors
    /// There is no such network or node, or nothing of the network is made yet.
    pub fn console_output(
        &self,
        name: &str,
        node: &str,
        since: u64,
        wait: Duration,
    ) -> Result<ConsoleOutput> {
        self.network(name)?
            .vnet()?
            .console_output(node, since, wait)
    }

    /// Types text at the console of a node.
    ///
    /// # Errors
    /// There is no such network or node, nothing of the network is made yet, or a viewer of the
    /// console is typing.
    pub fn console_type(&self, name: &str, node: &str, text: &str) -> Result<()> {
        self.network(name)?.vnet()?.console_type(node, text)
    }

    /// Sets the impairments of a link, or removes them.
    ///
    /// # Errors
    /// There is no such network or link, nothing of the network is made yet, or an impairment is
    /// invalid.
    pub fn impair(&self, name: &str, link: u32, wanted: LinkImpairment) -> Result<()> {
        self.network(name)?.vnet()?.impair(link, wanted)
    }

    /// Traces the path from one node to another with echo requests, and finds where they are
    /// dropped.
    ///
    /// # Errors
    /// There is no such network or node, or no path between the nodes.
    pub fn trace(&self, name: &str, query: &TraceQuery) -> Result<Trace> {
        let network = self.network(name)?;
        let part = network.record().part.clone();
        trace::trace(&*network.vnet()?, &part, &self.vnets.vnet(name), query)
    }

    /// Runs a shell command in a node, and returns its output when it has ended.
    ///
    /// # Errors
    /// There is no such network or node, it does not answer, or the command does not end within
    /// `limit`.
    pub fn run(&self, name: &str, node: &str, command: &str, limit: Duration) -> Result<Output> {
        self.network(name)?.vnet()?.run(node, command, limit)
    }

    /// Like [`Agent::run`], but hands the output to `sink` while the command runs, and returns the
    /// exit status. Kills the command at the end of `until`, or when the sink refuses output.
    ///
    /// # Errors
    /// As for [`Agent::run`]; also if the command was killed.
    pub fn stream(
        &self,
        name: &str,
        (node, command): (&str, &str),
        until: CommandLimits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<i32> {
        let network = self.network(name)?;
        network.vnet()?.stream(node, command, until, sink)
    }

    /// Probes all links of a network and runs the tests of its document.
    ///
    /// # Errors
    /// There is no such network, or it is not made yet.
    pub fn test(&self, name: &str) -> Result<Vec<TestReport>> {
        let network = self.network(name)?;
        tests_of_document::run(&*network.vnet()?, &network.record())
    }

    /// Removes a network, and returns when nothing of it is left. Also removes a directory without
    /// a record, which an agent that was killed has left.
    ///
    /// # Errors
    /// There is no such network, a provider has ordered it, or something of it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        match self.network(name) {
            Ok(network) if network.record().provider_vnet().is_some() => {
                Err(Error::OfProvider(name.to_owned()))
            }
            Ok(network) => {
                let _removal = network.lock_removal();
                let now = self.network(name);
                if !now.is_ok_and(|now| Arc::ptr_eq(&now, &network)) {
                    // Another caller has removed the network in the meantime.
                    return Ok(());
                }
                network.leave_dif();
                network.stop();
                leftovers::remove(&self.vnets.vnet(name), &network.record())?;
                self.lock().remove(name);
                Ok(())
            }
            Err(_) if self.vnets.has(name) => leftovers::remove_recorded(&self.vnets.vnet(name)),
            Err(error) => Err(error),
        }
    }

    /// Removes operators' networks whose lease has ended; `apply` restarts a lease. Returns the
    /// names of the removed networks.
    pub fn remove_expired(&self) -> Vec<String> {
        let now = now_ms();
        let has_ended = |record: &Record| record.until_ms.is_some_and(|until| until <= now);
        let networks = self.lock();
        let ended = networks
            .iter()
            .filter(|(_, network)| has_ended(&network.record()));
        let mut ended: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        drop(networks);
        // If the removal fails, the next call retries it.
        ended.retain(|name| self.remove(name).is_ok());
        ended
    }

    /// Begins to keep a pool of `size` paused machines for nodes with `boot = "pool"`. Returns once
    /// the pool's template exists. The pool ends when the agent is dropped. First ends the pool of
    /// an earlier agent that was killed.
    ///
    /// # Errors
    /// There is no guest to boot, or its template cannot be made.
    pub fn keep_ready(&self, size: usize) -> Result<()> {
        self.host.images.keep_ready(&self.vnets.pool(), size)
    }

    /// Number of paused machines in the pool that are ready; 0 without a pool.
    #[must_use]
    pub fn count_ready(&self) -> usize {
        self.host.images.count_ready()
    }

    /// Whether the agent has no networks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// If the agent has no networks, makes it refuse new ones. Returns whether it has none.
    pub(crate) fn end_if_empty(&self) -> bool {
        // The lock prevents a network from being made between the check and the flag.
        let networks = self.lock();
        let is_empty = networks.is_empty();
        self.is_ending.fetch_or(is_empty, Ordering::Relaxed);
        is_empty
    }

    fn check_open(&self) -> Result<()> {
        if self.is_ending.load(Ordering::Relaxed) {
            Err(Error::Ending)
        } else {
            Ok(())
        }
    }

    fn network(&self, name: &str) -> Result<Arc<Network>> {
        find(&self.lock(), name)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Network>>> {
        // Every critical section leaves the map consistent, even after a panic.
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(networks: &BTreeMap<String, Arc<Network>>, name: &str) -> Result<Arc<Network>> {
    networks.get(name).map(Arc::clone).ok_or_else(|| {
        let known: Vec<&str> = networks.keys().map(String::as_str).collect();
        Error::NoVnet {
            name: name.to_owned(),
            known: if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            },
        }
    })
}

/// The parts of all networks other than `but`.
fn others(networks: &BTreeMap<String, Arc<Network>>, but: Option<&str>) -> Vec<HostPart> {
    let all = networks.iter();
    let all = all.filter(|(name, _)| Some(name.as_str()) != but);
    all.map(|(_, network)| network.record().part.clone())
        .collect()
}

fn random_id() -> Result<VnetId> {
    Ok(VnetId::new(u64::from_le_bytes(random_bytes()?)))
}
