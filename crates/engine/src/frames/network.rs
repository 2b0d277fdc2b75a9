//! A graph that runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use carina_frame::Pool;
use carina_sys::{Epoll, Interest};
use carina_time::{Duration, Instant};

use crate::counter_file::{Counter, CounterFile};
use crate::frames::app::{AnyConfig, AppContext, FrameApp, PortList, PortNames, WhenFull};
use crate::frames::assignment::Way;
use crate::frames::bell::Bell;
use crate::frames::configure_error::ConfigureError;
use crate::frames::difference::Difference;
use crate::frames::graph::{Graph, LinkName};
use crate::frames::link::{FrameLink, LinkCounts};
use crate::frames::neighbour::{Incoming, Outgoing};
use crate::frames::part::{Part, Prepared};
use crate::frames::ports::Ports;
use crate::tap::Tap;

/// Apps and links on one thread: a whole graph, or the part of one that a worker runs.
pub struct Network {
    pool: Pool,
    counters: CounterFile,
    graph: Graph,
    apps: Vec<RunningApp>,
    /// The two internal links first, then those of `link_names`.
    links: Vec<FrameLink>,
    link_names: Vec<LinkName>,
    /// Links from and to networks on other threads, by number.
    incoming: Vec<(usize, Incoming)>,
    outgoing: Vec<(usize, Outgoing)>,
    bell: Arc<Bell>,
    /// Numbers of the apps with inputs, in the order in which a burst goes through them.
    order: Vec<usize>,
    /// When the next tick of any app, or publishing, is due.
    next_tick: Instant,
    unlinked: Counter,
    discarded: Counter,
    epoll: Epoll,
    is_armed: bool,
}

struct RunningApp {
    name: String,
    app: Box<dyn FrameApp>,
    inputs: Box<[usize]>,
    outputs: Box<[usize]>,
    names: [Vec<String>; 2],
    tick: Option<Duration>,
    next_tick: Instant,
    when_full: WhenFull,
}

impl Network {
    /// A network without apps. Apps take frames from `pool`; their counters and those of links
    /// go to `counters`.
    ///
    /// # Errors
    /// When no epoll descriptor is to be had.
    pub fn new(pool: Pool, counters: CounterFile) -> io::Result<Network> {
        let internal = || FrameLink::new(None, &counters);
        let (bell, epoll) = (Arc::new(Bell::new()?), Epoll::new()?);
        epoll.add(bell.doorbell(), BELL, Interest::ReadEdge)?;
        Ok(Network {
            links: vec![internal(), internal()],
            unlinked: counters.counter("network/drop_unlinked"),
            discarded: counters.counter("network/drop_link_removed"),
            pool,
            counters,
            graph: Graph::new(),
            apps: Vec::new(),
            link_names: Vec::new(),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            bell,
            order: Vec::new(),
            next_tick: Instant::ZERO,
            epoll,
            is_armed: false,
        })
    }

    /// The graph that runs.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The pool of the network.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Becomes `graph`, by difference: what is the same in both goes on as it is, links with the
    /// frames on them.
    ///
    /// # Errors
    /// The graph is wrong, or an app cannot be made; the network then is unchanged.
    pub fn configure(&mut self, graph: &Graph) -> Result<Difference, ConfigureError> {
        graph.check()?;
        let prepared = self.prepare(Part::whole(graph))?;
        Ok(self.commit(prepared))
    }

    /// Makes the apps that become part of the network, which runs on as it is meanwhile.
    pub(super) fn prepare(&self, part: Part) -> Result<Prepared, ConfigureError> {
        let difference = Difference::between(&self.graph, &part.graph);
        let mut built = BTreeMap::new();
        for name in difference.added.iter().chain(&difference.replaced) {
            let config = &part.graph.apps[name].config;
            built.insert(name.clone(), self.build(name, &**config)?);
        }
        Ok(Prepared {
            part,
            difference,
            built,
        })
    }

    /// Becomes what was prepared, which cannot fail.
    pub(super) fn commit(&mut self, prepared: Prepared) -> Difference {
        let Prepared {
            part,
            difference,
            built,
        } = prepared;
        self.replace_apps(&part.graph, built);
        for name in &difference.changed {
            if let Some(running) = self.apps.iter_mut().find(|app| app.name == *name) {
                part.graph.apps[name].config.apply_any(&mut *running.app);
            }
        }
        self.graph = self.replace_links(part);
        self.rewire();
        self.order = order(&self.apps, self.links.len());
        self.next_tick = Instant::ZERO;
        difference
    }

    fn build(
        &self,
        name: &str,
        config: &dyn AnyConfig,
    ) -> Result<Box<dyn FrameApp>, ConfigureError> {
        let mut context = AppContext {
            name,
            pool: &self.pool,
            counters: &self.counters,
        };
        let app = config.build_any(&mut context);
        app.map_err(|source| ConfigureError::App {
            name: name.to_owned(),
            kind: config.kind(),
            source,
        })
    }

    /// Keeps the apps that stay, and puts those that were built in their places.
    fn replace_apps(&mut self, graph: &Graph, mut built: BTreeMap<String, Box<dyn FrameApp>>) {
        let mut old: BTreeMap<String, RunningApp> = std::mem::take(&mut self.apps)
            .into_iter()
            .map(|app| (app.name.clone(), app))
            .collect();
        for (name, wanted) in &graph.apps {
            let app = match built.remove(name) {
                Some(app) => RunningApp::new(name, app, &*wanted.config),
                None => match old.remove(name) {
                    Some(app) => app,
                    None => unreachable!("an app of a graph runs already or was built"),
                },
            };
            self.apps.push(app);
        }
        // Descriptors of apps that go leave the set by themselves when they close, unless another
        // process has them too.
        for app in old.values() {
            if let Some((fd, _)) = app.app.wait_fd() {
                let _ = self.epoll.del(fd);
            }
        }
    }

    /// Keeps the links that stay, with their ends of rings, and makes the others.
    fn replace_links(&mut self, mut part: Part) -> Graph {
        let mut links = std::mem::take(&mut self.links);
        let named = links.split_off(INTERNAL_LINKS);
        let names = std::mem::take(&mut self.link_names);
        let name_of = |at: usize| names[at - INTERNAL_LINKS].clone();
        let incoming = std::mem::take(&mut self.incoming).into_iter();
        let mut incoming: BTreeMap<_, _> = incoming.map(|(at, end)| (name_of(at), end)).collect();
        let outgoing = std::mem::take(&mut self.outgoing).into_iter();
        let mut outgoing: BTreeMap<_, _> = outgoing.map(|(at, end)| (name_of(at), end)).collect();
        let mut old: BTreeMap<LinkName, FrameLink> = names.into_iter().zip(named).collect();
        for name in &part.graph.links {
            let way = Way::of(name, &part.graph);
            // A link from another network is counted there.
            let is_shown = way != Way::In;
            let kept = old.remove(name).filter(|link| link.is_shown() == is_shown);
            let text = is_shown.then(|| name.to_string());
            let new = || FrameLink::new(text.as_deref(), &self.counters);
            let at = links.len();
            match way {
                Way::Inside => {}
                Way::In => {
                    let end = part.incoming.remove(name).or_else(|| incoming.remove(name));
                    self.incoming.extend(end.map(|end| (at, end)));
                }
                Way::Out => {
                    let end = part.outgoing.remove(name).or_else(|| outgoing.remove(name));
                    self.outgoing.extend(end.map(|end| (at, end)));
                }
            }
            let mut link = kept.unwrap_or_else(new);
            link.has_back_pressure = part.back_pressure.contains(name);
            links.push(link);
            self.link_names.push(name.clone());
        }
        let mut lost: usize = old.values().map(|link| link.queue.len()).sum();
        lost += incoming.into_values().map(Incoming::close).sum::<usize>();
        lost += outgoing.into_values().map(Outgoing::close).sum::<usize>();
        self.discarded.add(lost as u64);
        self.links = links;
        part.graph
    }

    /// Gives every port its link.
    fn rewire(&mut self) {
        for running in &mut self.apps {
            let config = Arc::clone(&self.graph.apps[&running.name].config);
            let is_here = |app: &str| app == running.name;
            let links = || self.link_names.iter().enumerate();
            let inputs = links()
                .filter(|(_, link)| is_here(&link.to.app))
                .map(|(at, link)| (link.to.port.clone(), INTERNAL_LINKS + at))
                .collect();
            let outputs = links()
                .filter(|(_, link)| is_here(&link.from.app))
                .map(|(at, link)| (link.from.port.clone(), INTERNAL_LINKS + at))
                .collect();
            let (inputs, input_names) = numbered(config.inputs(), inputs, NO_INPUT);
            let (outputs, output_names) = numbered(config.outputs(), outputs, NO_OUTPUT);
            (running.inputs, running.outputs) = (inputs, outputs);
            let names = [input_names, output_names];
            if running.names != names {
                running.names = names;
                running.app.rewired(&PortNames {
                    inputs: &running.names[0],
                    outputs: &running.names[1],
                });
            }
        }
        for (index, running) in self.apps.iter().enumerate() {
            if let Some((fd, interest)) = running.app.wait_fd() {
                // One that is there already stays; its token is not used.
                let _ = self.epoll.add(fd, index as u64, interest);
            }
        }
    }

    /// One breath at `now`: every app pulls, then every app with frames at its inputs pushes. True
    /// when anything moved.
    pub fn breathe(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for (link, end) in &mut self.incoming {
            moved |= end.fetch(&mut self.links[*link]);
        }
        for running in &mut self.apps {
            running.app.pull(&mut Ports {
                links: &mut self.links,
                inputs: &running.inputs,
                outputs: &running.outputs,
                now,
            });
        }
        for at in &self.order {
            let running = &mut self.apps[*at];
            let waiting = waiting(&self.links, &running.inputs);
            if waiting == 0 {
                continue;
            }
            running.app.push(&mut Ports {
                links: &mut self.links,
                inputs: &running.inputs,
                outputs: &running.outputs,
                now,
            });
            moved |= waiting != self::waiting(&self.links, &running.inputs);
        }
        if now >= self.next_tick {
            self.tick(now);
        }
        for (link, end) in &mut self.outgoing {
            moved |= end.flush(&mut self.links[*link]);
        }
        let unlinked = &mut self.links[NO_OUTPUT].queue;
        if !unlinked.is_empty() {
            self.unlinked.add(unlinked.drain(drop) as u64);
        }
        moved
    }

    /// Visits the apps whose time has come, and shows the counts of the links.
    fn tick(&mut self, now: Instant) {
        self.next_tick = now + PUBLISH_EVERY;
        for running in &mut self.apps {
            let Some(every) = running.tick else { continue };
            if now >= running.next_tick {
                running.next_tick = now + every;
                running.app.tick(&mut Ports {
                    links: &mut self.links,
                    inputs: &running.inputs,
                    outputs: &running.outputs,
                    now,
                });
            }
            self.next_tick = self.next_tick.min(running.next_tick);
        }
        self.publish();
    }

    /// Shows the counts of the links to other processes.
    pub(super) fn publish(&self) {
        self.links.iter().for_each(FrameLink::publish);
    }

    /// Every link with what went over it. One that leads to another network is counted where it
    /// begins.
    pub fn link_counts(&self) -> impl Iterator<Item = (&LinkName, LinkCounts)> {
        let links = self.link_names.iter().zip(&self.links[INTERNAL_LINKS..]);
        links
            .filter(|(_, link)| link.is_shown())
            .map(|(name, link)| (name, link.counts()))
    }

    /// Copies what is put on a link from here on to a tap, as long as the link is there. False when
    /// no such link begins here.
    pub fn trace(&mut self, link: &LinkName, tap: Tap) -> bool {
        let at = self.link_names.iter().position(|name| name == link);
        let link = at.map(|at| &mut self.links[INTERNAL_LINKS + at]);
        let link = link.filter(|link| link.is_shown());
        link.map(|link| link.trace(tap)).is_some()
    }

    /// The app of this name, if it is of type `A`.
    #[must_use]
    pub fn app<A: FrameApp>(&self, name: &str) -> Option<&A> {
        let running = self.apps.iter().find(|app| app.name == name)?;
        (&*running.app as &dyn std::any::Any).downcast_ref()
    }

    /// As [`Network::app`], to be changed.
    #[must_use]
    pub fn app_mut<A: FrameApp>(&mut self, name: &str) -> Option<&mut A> {
        let running = self.apps.iter_mut().find(|app| app.name == name)?;
        (&mut *running.app as &mut dyn std::any::Any).downcast_mut()
    }

    /// True when frames wait on a link.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.links.iter().any(|link| !link.queue.is_empty())
    }

    /// True when frames wait for an app that can go on with them, or for another network.
    pub(super) fn has_work(&self) -> bool {
        let waits = |link: usize| !self.links[link].queue.is_empty();
        let here = self.apps.iter().any(|running| {
            let inputs = running.inputs.iter().enumerate();
            let mut waiting = inputs.filter(|(_, link)| waits(**link));
            waiting.any(|(input, _)| !running.is_blocked(input, &self.links))
        });
        here || self.outgoing.iter().any(|(link, _)| waits(*link))
    }

    /// When an app must be visited although no frame waits.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let ticks = self.apps.iter().filter(|app| app.tick.is_some());
        let ticks = ticks.map(|app| app.next_tick);
        let own = self.apps.iter().filter_map(|app| app.app.next_deadline());
        ticks.chain(own).min()
    }

    /// Arms every app; false when one has something to pull, and room for it.
    pub(super) fn arm(&mut self) -> bool {
        self.is_armed = true;
        self.bell.announce_sleep();
        let may_sleep = self.incoming.iter_mut().all(|(_, end)| !end.has_frames())
            && self
                .apps
                .iter_mut()
                .all(|running| running.app.arm() || running.is_held_back(&self.links));
        if !may_sleep {
            self.bell.withdraw();
        }
        may_sleep
    }

    pub(super) fn disarm(&mut self) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        self.bell.withdraw();
        self.apps
            .iter_mut()
            .for_each(|running| running.app.disarm());
        // What rang is taken note of, so that it can ring again.
        let mut ready = Vec::new();
        let _ = self.epoll.wait(&mut ready, Some(0));
    }

    pub(super) fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    /// What networks on other threads ring when they have frames for this one.
    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

impl RunningApp {
    fn new(name: &str, app: Box<dyn FrameApp>, config: &dyn AnyConfig) -> RunningApp {
        RunningApp {
            name: name.to_owned(),
            app,
            inputs: Box::default(),
            outputs: Box::default(),
            names: Default::default(),
            tick: config.tick(),
            next_tick: Instant::ZERO,
            when_full: config.when_full(),
        }
    }

    /// Whether the app can do nothing about frames that wait at an input.
    fn is_blocked(&self, input: usize, links: &[FrameLink]) -> bool {
        let is_full =
            |output: &usize| links[*output].has_back_pressure && links[*output].room() == 0;
        match self.when_full {
            WhenFull::Waits => self.outputs.get(input).is_some_and(is_full),
            _ => self.app.is_blocked(),
        }
    }

    /// Whether the app pulls nothing, whatever there is.
    fn is_held_back(&self, links: &[FrameLink]) -> bool {
        let linked = self.outputs.iter().filter(|link| **link != NO_OUTPUT);
        let mut linked = linked.map(|link| &links[*link]).peekable();
        self.when_full == WhenFull::PullsNoMore
            && linked.peek().is_some()
            && linked.all(|link| link.has_back_pressure && link.room() == 0)
    }
}

#[inline]
fn waiting(links: &[FrameLink], inputs: &[usize]) -> usize {
    inputs.iter().map(|link| links[*link].queue.len()).sum()
}

/// The links of an app's ports by number, and the ports' names.
fn numbered(
    list: PortList,
    mut links: Vec<(String, usize)>,
    unlinked: usize,
) -> (Box<[usize]>, Vec<String>) {
    links.sort();
    match list {
        PortList::Any => {
            let (names, links): (Vec<_>, Vec<_>) = links.into_iter().unzip();
            (links.into_boxed_slice(), names)
        }
        PortList::Named(ports) => {
            let link_of = |name: &str| links.iter().find(|(port, _)| port == name);
            let links = ports.iter().map(|port| link_of(port.name));
            let links = links.map(|found| found.map_or(unlinked, |(_, link)| *link));
            let names = ports.iter().map(|port| port.name.to_owned());
            (links.collect(), names.collect())
        }
    }
}

/// The apps that have inputs, each behind those whose outputs lead to it. Where links form a
/// circle, the app that is met first comes first, and what comes round waits for the next breath.
fn order(apps: &[RunningApp], links: usize) -> Vec<usize> {
    let mut sinks = vec![None; links];
    for (at, app) in apps.iter().enumerate() {
        for input in app.inputs.iter().filter(|link| **link >= INTERNAL_LINKS) {
            sinks[*input] = Some(at);
        }
    }
    let mut order = Vec::new();
    let mut is_met = vec![false; apps.len()];
    // Apps without inputs first, so that a chain is walked from its start.
    let (starts, others): (Vec<usize>, Vec<usize>) =
        (0..apps.len()).partition(|at| apps[*at].inputs.is_empty());
    for start in starts.into_iter().chain(others) {
        // Depth first, without recursion: the app and the number of its next output.
        let mut path = Vec::new();
        if !std::mem::replace(&mut is_met[start], true) {
            path.push((start, 0));
        }
        while let Some((at, output)) = path.last_mut() {
            let Some(link) = apps[*at].outputs.get(*output) else {
                order.push(*at);
                path.pop();
                continue;
            };
            *output += 1;
            if let Some(next) = sinks[*link]
                && !std::mem::replace(&mut is_met[next], true)
            {
                path.push((next, 0));
            }
        }
    }
    order.reverse();
    order.retain(|at| !apps[*at].inputs.is_empty());
    order
}

/// Where frames go that an app puts on a port without a link.
const NO_OUTPUT: usize = 0;
/// Where an app finds nothing at a port without a link.
const NO_INPUT: usize = 1;
const INTERNAL_LINKS: usize = 2;

/// The token of the network's own doorbell; apps have their numbers.
const BELL: u64 = u64::MAX;

/// How old the counts of links that others see may be.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
