//! A network on this host, changed step by step to match what is requested.

mod arriving;
mod ended;
mod far;
mod impaired;
mod inside;
mod members;
mod moving;
mod nodes;
mod paths;
mod probing;
mod redirecting;
mod saving;
mod sending;
mod starting;
mod switching;
mod timetables;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_frame_engine::{Graph, LinkCounts, LinkName};
use carina_vnet::document::{Carrier, Kind};
use carina_vnet::host_part::{Far, HostPart, LinkPart, NodePart};

use self::arriving::{Awaited, arrived, ports_of_arrivals};
use self::nodes::IMAGE;
use crate::access::AccessPoints;
use crate::data_plane::DataPlane;
use crate::directory::{Record, VnetDir};
use crate::error::{Error, Result};
use crate::far_flow::FarFlows;
use crate::graph::graph_of;
use crate::host_dif::HostDif;
use crate::impairment;
use crate::kernel_path;
use crate::leftovers;
use crate::making::{make_namespaces, make_ports, ports_of, remove_named, remove_ports};
use crate::names::ports_namespace;
use crate::namespace;
use crate::node::{Images, Node, arrival_notes, forget_moves, recover};
use crate::paths::Paths;
use crate::plan::NO_ROUTES;
use crate::port_selection::{PortSelection, both_ports};
use crate::progress::Progress;
use crate::saved::Saved;
use crate::steps::Steps;
use crate::switched_off::{self, SwitchedOff};
use crate::threads::each_owned;
use crate::timetables::{self as begun_timetables, BegunTimetables};
use crate::underlay::Underlay;
use carina_vnet::host_part::LinkEnd;
use carina_vnet::impairment::Impairments;
use carina_vnet::progress::Phase;
use carina_vnet_images::ImageStore;

/// A network on this host. Dropping this value leaves the network's things in place;
/// [`leftovers::remove`] removes them.
#[derive(Debug)]
pub(crate) struct Vnet {
    dir: VnetDir,
    images: Arc<Images>,
    progress: Arc<Progress>,
    underlay: Option<Underlay>,
    flows: FarFlows,
    plane: DataPlane,
    nodes: Mutex<BTreeMap<String, Arc<Node>>>,
    /// The part that exists. Locked while it is being changed.
    part: Mutex<HostPart>,
    impairments: Mutex<Impairments>,
    /// What the operator has stopped or taken down.
    off: Mutex<SwitchedOff>,
    /// The timetables of links that have begun, with the time of each begin.
    begun: Mutex<BegunTimetables>,
    /// Link ends that use their second port.
    second: Mutex<PortSelection>,
    /// The links whose frames the kernel moves, without Carina's engine.
    paths: Arc<Mutex<Paths>>,
    /// The saved network from which nodes are being restored, if any.
    saved: Mutex<Option<Arc<Saved>>>,
    access: AccessPoints,
    /// Nodes that are to arrive from other hosts, by the numbers of their moves.
    arrivals: Mutex<BTreeMap<u64, Awaited>>,
    /// Used during a change: link ends whose nodes have arrived with ports of their own, and
    /// whether these are second ports.
    came: Mutex<BTreeMap<LinkEnd, bool>>,
    /// Nodes that created the DIF and were made again, and since when they have been looking for
    /// its members.
    returning: Mutex<BTreeMap<String, Instant>>,
}

impl Vnet {
    /// Takes over what exists of a network, which may be nothing. First removes what an unfinished
    /// change has left.
    ///
    /// # Errors
    /// The namespace of the ports cannot be made, or the engine cannot be started.
    pub(crate) fn take_up(
        dir: &VnetDir,
        record: &Record,
        images: &Arc<Images>,
        (underlay, host): (Option<&Underlay>, Option<&Arc<HostDif>>),
        progress: &Arc<Progress>,
    ) -> Result<Vnet> {
        let part = &record.part;
        let mut existing = leftovers::living_namespaces(part.vnet)?;
        if !record.is_settled {
            leftovers::end_but_disks(dir, record)?;
            existing.clear();
            // The source of a node that has arrived may have removed its own disk.
            let nodes = part.nodes.iter().map(|node| node.name.clone());
            let mut kept: BTreeSet<String> = nodes.collect();
            let arrived = arrival_notes(dir)?.into_iter();
            kept.extend(arrived.filter(|note| note.has_all).map(|note| note.node));
            ImageStore::of_this_host().keep_only(part.vnet, &kept)?;
            forget_moves(dir)?;
        }
        namespace::make(&existing, &ports_namespace(part.vnet))?;
        recover(dir, part)?;
        let arrivals = arrived(dir, part, progress)?;
        let plane = DataPlane::start(&ports_namespace(part.vnet), &dir.counters())?;
        let mut interfaces = namespace::interfaces(&ports_namespace(part.vnet))?;
        let of_arrivals = ports_of_arrivals(&arrivals);
        interfaces.retain(|interface| !of_arrivals.contains(interface));
        let second = PortSelection::among(&interfaces);
        let current = observed(dir, part, &existing)?;
        let paths = paths_of_earlier(&current);
        Ok(Vnet {
            second: Mutex::new(second),
            paths: Arc::new(Mutex::new(paths)),
            saved: Mutex::new(Saved::of_network(dir, record)?.map(Arc::new)),
            dir: dir.clone(),
            images: Arc::clone(images),
            progress: Arc::clone(progress),
            underlay: underlay.cloned(),
            flows: FarFlows::of(host),
            plane,
            nodes: Mutex::default(),
            part: Mutex::new(current),
            impairments: Mutex::new(impairment::read(dir)?),
            off: Mutex::new(switched_off::read(dir)?),
            begun: Mutex::new(begun_timetables::read(dir)?),
            access: AccessPoints::new(dir, underlay, progress),
            arrivals: Mutex::new(arrivals),
            came: Mutex::default(),
            returning: Mutex::default(),
        })
    }

    /// Changes what exists to match `part`; nodes and links that stay are not touched. Returns when
    /// every console has answered and probes have passed every link in both directions. `discovery`
    /// is the time that the caller spent on choosing this part; it is reported as the phase of that
    /// name.
    ///
    /// # Errors
    /// The first thing that cannot be made, or does not answer. What was made stays.
    pub(crate) fn become_part(&self, part: &HostPart, discovery: Duration) -> Result<()> {
        self.look_after_ports()?;
        let mut current = lock(&self.part);
        self.forget_ended(&mut current)?;
        self.progress.begin(part);
        self.recall_timetables(part);
        if part.lacks_routes() {
            self.progress.tell(NO_ROUTES);
        }
        self.admit_arrivals(&mut current, part)?;
        self.progress.note(Phase::Discovery, discovery);
        let done = self.change(&current, part);
        if done.is_ok() {
            lock(&self.came).clear();
            self.forget_saved();
        }
        *current = match done {
            Ok(()) => part.clone(),
            Err(_) => observed(&self.dir, part, &leftovers::living_namespaces(part.vnet)?)?,
        };
        done
    }

    /// Makes the links that `part` adds to what exists, and configures the interfaces at their
    /// ends. Does nothing if `part` differs in more than links. The status of the new links is
    /// reported by the change to a whole part that follows.
    ///
    /// # Errors
    /// The first thing that cannot be made. What was made stays.
    pub(crate) fn make_links(&self, part: &HostPart) -> Result<()> {
        let mut current = lock(&self.part);
        let steps = Steps::between(&current, part);
        if !steps.have_only_links() {
            return Ok(());
        }
        let done = self.make_links_and_nodes(&current, part, &steps);
        *current = match done {
            Ok(()) => part.clone(),
            Err(_) => observed(&self.dir, part, &leftovers::living_namespaces(part.vnet)?)?,
        };
        done
    }

    fn change(&self, current: &HostPart, part: &HostPart) -> Result<()> {
        let mut steps = Steps::between(current, part);
        steps.changed.retain(|name| !self.has_come(part, name));
        self.make_links_and_nodes(current, part, &steps)?;
        self.progress
            .phase(Phase::Consoles, || self.ask_consoles(part))?;
        self.progress.phase(Phase::Probes, || {
            let mut links = current.links.iter().chain(&part.links);
            let may_flap = links.any(|link| !link.timetable.is_empty());
            if may_flap || !self.switched_off().is_empty() {
                self.keep_off(part)?;
            }
            self.join(part)?;
            let leads_away = |link: &LinkPart| matches!(link.far, Far::Host(_));
            // A DIF with members on other hosts is complete only with those.
            let is_flow = |link: &LinkPart| link.carrier == Carrier::Dif;
            let has_far = part
                .links
                .iter()
                .any(|link| is_flow(link) && leads_away(link));
            let is_here = |link: &&LinkPart| !(leads_away(link) || has_far && is_flow(link));
            let links = self.links_to_probe(current, part, &steps);
            let (here, far): (Vec<_>, Vec<_>) = links.into_iter().partition(is_here);
            let has_images = lock(&self.nodes).values().any(|node| node.is_foreign());
            let limit = if has_images { IMAGE } else { PROBE };
            self.probe_links(part, &here, limit)?;
            // The other host may not be ready yet. Links that do not answer are reported in the
            // status.
            let _ = self.probe_links(part, &far, FAR_PROBE);
            Ok(())
        })?;
        self.start_nodes(part)
    }

    /// The graph of a part with its impairments, over the current underlay.
    fn graph(&self, part: &HostPart) -> Result<Graph> {
        let second = lock(&self.second).clone();
        self.graph_at(part, &second)
    }

    /// Like [`Vnet::graph`], with link ends at the given ports.
    fn graph_at(&self, part: &HostPart, ports: &PortSelection) -> Result<Graph> {
        let interfaces = part.nodes.iter().flat_map(|node| &node.interfaces);
        let largest = interfaces.map(|interface| interface.mtu).max();
        self.plane.make_room(largest.unwrap_or(0));
        let leaves = part
            .links
            .iter()
            .any(|link| matches!(link.far, Far::Host(_)));
        let underlay = self.underlay.as_ref().filter(|_| leaves);
        let underlay = underlay.map(Underlay::read_port).transpose()?;
        let flows = self.flows.take(part);
        let kernel = lock(&self.paths).kernel.clone();
        let mut graph = graph_of(part, underlay.as_ref(), &flows, ports, &kernel)?;
        self.access.add(&mut graph, part, ports)?;
        impairment::splice(&mut graph, part, &lock(&self.impairments))?;
        Ok(graph)
    }

    /// Makes links and nodes. Nodes need the ports of their links. The engine opens ports while
    /// nodes are being made, because the kernel takes tens of milliseconds for each, mostly
    /// waiting. The time that nodes wait for ports counts as the phase of the links.
    fn make_links_and_nodes(
        &self,
        current: &HostPart,
        part: &HostPart,
        steps: &Steps,
    ) -> Result<()> {
        self.progress.check()?;
        self.access.become_part(part)?;
        // An impossible graph is refused before anything is changed.
        self.graph(part)?;
        let began = Instant::now();
        // Nodes that were sent to another host are paused, and end only after the links lead there.
        let (sent, ended) = self.apart_by_sending(part, &steps.ended)?;
        let unused = self.relink((current, part), steps, &sent, &ended)?;
        self.flows.keep(part)?;
        self.enter_kernel_paths(part);
        // By now link ends may use their other ports.
        let graph = self.graph(part)?;
        let of_ports = began.elapsed();
        let began = Instant::now();
        let (joined, made, of_nodes) = std::thread::scope(|scope| {
            let engine = scope.spawn(|| self.plane.become_graph(graph));
            let made = self.make_nodes(part, steps);
            let of_nodes = began.elapsed();
            let joined = engine.join();
            (joined, made, of_nodes)
        });
        let waited = began.elapsed().saturating_sub(of_nodes);
        let joined = joined.unwrap_or(Err(Error::Ended("the change of the engine")));
        // The engine has closed these ports with the change.
        let removed = remove_named(part, &unused);
        joined?;
        removed?;
        self.leave_kernel_paths(part)?;
        self.end_nodes(part, &sent)?;
        made?;
        self.progress.note(Phase::Tunnels, of_ports + waited);
        self.progress.note(Phase::Nodes, of_nodes);
        Ok(())
    }

    /// Removes links and nodes that are no longer requested, and makes the ports of new links.
    /// Returns ports that the engine still has open, and that must be removed after it has the new
    /// graph: those of nodes that were sent to another host. Closing them first would keep frames
    /// from the nodes' new places for a tenth of a second.
    fn relink(
        &self,
        (current, part): (&HostPart, &HostPart),
        steps: &Steps,
        sent: &[&String],
        ended: &[&String],
    ) -> Result<Vec<String>> {
        let mut unlinked = steps.unlinked.clone();
        let left = steps.unlinked_by_sending(current, sent);
        unlinked.retain(|link| !left.contains(link));
        if !(unlinked.is_empty() && ended.is_empty()) {
            let mut kept = part.clone();
            kept.links.retain(|link| !steps.touches(link.number));
            // The engine must close the ports before they are removed.
            self.plane.become_graph(self.graph(&kept)?)?;
        }
        self.end_nodes(part, ended)?;
        remove_ports(current, &unlinked)?;
        lock(&self.second).forget(&steps.unlinked);
        lock(&self.paths).forget(&steps.unlinked);
        make_namespaces(part, &leftovers::living_namespaces(part.vnet)?)?;
        let mut unused = self.repoint(part, steps)?;
        unused.extend(ports_of(&left));
        self.leave_difs(current, part)?;
        self.end_members(current, part)?;
        let without = self.without_ports(&steps.linked);
        if !current.nodes.is_empty() {
            // A link whose one end was removed with its node may still have a port at the other
            // end.
            remove_ports(part, &without)?;
        }
        lock(&self.second).forget(&without);
        lock(&self.paths).forget(&without);
        make_ports(part, &without)?;
        self.forget_switched_off(part)?;
        self.forget_impairments(part)?;
        Ok(unused)
    }

    /// The access points of the network.
    pub(crate) fn access(&self) -> &AccessPoints {
        &self.access
    }

    /// The counters of each link of the engine's graph.
    ///
    /// # Errors
    /// The engine has ended.
    pub(crate) fn counts(&self) -> Result<Vec<(LinkName, LinkCounts)>> {
        self.plane.counts()
    }

    /// Restores the name of the ports' namespace if another process has removed it. Links work
    /// without the name, but cannot be changed.
    ///
    /// # Errors
    /// The engine has ended, or `ip` refuses.
    pub(crate) fn look_after_ports(&self) -> Result<()> {
        if self.plane.name_namespace()? {
            let namespace = ports_namespace(lock(&self.part).vnet);
            let what = "was removed by another program; its name is restored";
            self.progress.tell(format!("namespace {namespace} {what}"));
        }
        Ok(())
    }

    /// Ends the agent's control of the network, but leaves its nodes and links running.
    pub(crate) fn leave(self) {
        each_owned(self.take_nodes(), |node| {
            if let Some(node) = Arc::into_inner(node) {
                node.leave();
            }
        });
    }
}

impl Drop for Vnet {
    /// Ends the consoles of all nodes side by side.
    fn drop(&mut self) {
        each_owned(self.take_nodes(), drop);
    }
}

/// The paths of links that an earlier agent has left. Without `tc` the links use the engine.
fn paths_of_earlier(current: &HostPart) -> Paths {
    if current.links.is_empty() {
        return Paths::default();
    }
    let namespace = ports_namespace(current.vnet);
    let made = kernel_path::found(&namespace, current).unwrap_or_default();
    let limits = kernel_path::limited(&namespace).unwrap_or_default();
    Paths::of_earlier(made, limits)
}

/// The nodes and links of `part` that exist on this host now.
fn observed(dir: &VnetDir, part: &HostPart, namespaces: &[String]) -> Result<HostPart> {
    let nodes = leftovers::existing_nodes(dir, part, namespaces)?;
    let mut current = part.clone();
    current.nodes.retain(|node| nodes.contains(&node.name));
    let ports = namespace::interfaces(&ports_namespace(part.vnet))?;
    // The kernel removes the ports of a namespace some time after the namespace: they do not count.
    let has_ended = |name: &String| {
        let is_namespace = part.node(name).is_some_and(|node| node.kind != Kind::Vm);
        is_namespace && !nodes.contains(name)
    };
    current.links.retain(|link| {
        let mut sides = link.ends().enumerate();
        sides.all(|(side, end)| {
            let mut either = both_ports((link.number, side)).into_iter();
            !has_ended(&end.node) && either.any(|port| ports.contains(&port))
        })
    });
    Ok(current)
}

/// The address of a node's interface through which it reaches another address.
fn source_towards(node: &NodePart, to: Ipv4Addr) -> Ipv4Addr {
    let next = node.next_hop(to);
    let beside = node
        .interfaces
        .iter()
        .find(|interface| interface.address.has(next));
    beside
        .or(node.interfaces.first())
        .map_or(Ipv4Addr::UNSPECIFIED, |interface| {
            interface.address.address()
        })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked in a critical section has left the value consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Longest time for the other end of a new link to answer.
const PROBE: Duration = Duration::from_secs(60);
/// Longest time for a link end on another host to answer before the change continues.
const FAR_PROBE: Duration = Duration::from_secs(2);
