//! A network: a graph whose apps run.

mod change;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use carina_frame::Pool;
use carina_sys::{Epoll, Interest};
use carina_time::{Duration, Instant};

use crate::app::{AnyConfig, FrameApp, WhenFull};
use crate::configure_error::ConfigureError;
use crate::counter_file::{Counter, CounterFile};
use crate::difference::Difference;
use crate::doorbell::NetworkDoorbell;
use crate::graph::{Graph, LinkName};
use crate::link::{FrameLink, LinkCounts};
use crate::neighbour::{Incoming, Outgoing};
use crate::notices::Notices;
use crate::part::{Part, drop_together};
use crate::ports::Ports;
use crate::tap::Tap;

/// Running apps and links on one thread: a whole graph, or the part that one worker runs.
pub struct Network {
    pool: Pool,
    counters: CounterFile,
    notices: Notices,
    graph: Graph,
    apps: Vec<RunningApp>,
    /// The two internal links, then the links of `link_names`.
    links: Vec<FrameLink>,
    link_names: Vec<LinkName>,
    /// Receiving ends of links from networks on other threads, with the number of the link.
    incoming: Vec<(usize, Incoming)>,
    outgoing: Vec<(usize, Outgoing)>,
    doorbell: Arc<NetworkDoorbell>,
    /// Numbers of the apps with inputs, in the order in which a burst passes them.
    order: Vec<usize>,
    /// Time of the next tick of any app, or of the next publication of counts.
    next_tick: Instant,
    unlinked: Counter,
    discarded: Counter,
    epoll: Epoll,
    is_armed: bool,
    /// The clock of [`Network::breathe`], if time must advance during a breath.
    clock: Option<fn() -> Instant>,
}

impl Drop for Network {
    /// Drops the parts of apps that take long to free side by side.
    fn drop(&mut self) {
        let apps = std::mem::take(&mut self.apps).into_iter();
        drop_together(apps.filter_map(|app| app.app.dismantle()).collect());
    }
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
    /// Creates a network without apps. Apps take frames from `pool`. Counters of apps and links are
    /// in `counters`.
    ///
    /// # Errors
    /// No epoll descriptor is available.
    pub fn new(pool: Pool, counters: CounterFile) -> io::Result<Network> {
        let internal = || FrameLink::new(None, &counters);
        let (doorbell, epoll) = (Arc::new(NetworkDoorbell::new()?), Epoll::new()?);
        epoll.add(doorbell.event(), DOORBELL, Interest::ReadEdge)?;
        Ok(Network {
            links: vec![internal(), internal()],
            unlinked: counters.counter("network/drop_unlinked"),
            discarded: counters.counter("network/drop_link_removed"),
            pool,
            counters,
            notices: Notices::default(),
            graph: Graph::new(),
            apps: Vec::new(),
            link_names: Vec::new(),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            doorbell,
            order: Vec::new(),
            next_tick: Instant::ZERO,
            epoll,
            is_armed: false,
            clock: None,
        })
    }

    /// Sets the clock for [`Network::breathe`]. Without a clock, time does not advance during a
    /// breath.
    pub fn set_clock(&mut self, clock: fn() -> Instant) {
        self.clock = Some(clock);
    }

    /// Sets the list for notices of apps that are built from now on. By default the network has a
    /// list of its own.
    #[must_use]
    pub fn with_notices(mut self, notices: Notices) -> Network {
        self.notices = notices;
        self
    }

    /// Returns the list of the apps' notices to the operator.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Returns the graph that is running.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the pool from which the network's apps take frames.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Changes the running graph to `graph`. Only the difference changes: apps and links that are
    /// equal in both graphs continue, links with their frames.
    ///
    /// # Errors
    /// The graph is wrong, or an app cannot be built. The network then stays unchanged.
    pub fn configure(&mut self, graph: &Graph) -> Result<Difference, ConfigureError> {
        graph.check()?;
        let part = Part::whole(graph);
        let opening = self.opening(&part);
        // A single new app opens what it needs when it is built; a thread would save nothing.
        let opened = match opening.apps.len() {
            0 | 1 => BTreeMap::new(),
            _ => opening.open(),
        };
        let prepared = self.prepare(part, opened);
        let prepared = prepared.map_err(|refusal| refusal.error)?;
        Ok(self.commit(prepared).0)
    }

    /// Runs one breath at the time `now`: every app pulls, then every app with frames at its inputs
    /// pushes. Returns true if anything moved.
    pub fn breathe(&mut self, now: Instant) -> bool {
        let (mut moved, clock) = (false, self.clock);
        for (link, end) in &mut self.incoming {
            moved |= end.fetch(&mut self.links[*link]);
        }
        for running in &mut self.apps {
            running.app.pull(&mut Ports {
                links: &mut self.links,
                inputs: &running.inputs,
                outputs: &running.outputs,
                now,
                clock,
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
                clock,
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

    /// Calls the `tick` of apps that are due, and publishes the counts of the links.
    fn tick(&mut self, now: Instant) {
        self.next_tick = now + PUBLISH_EVERY;
        let clock = self.clock;
        for running in &mut self.apps {
            let Some(every) = running.tick else { continue };
            if now >= running.next_tick {
                running.next_tick = now + every;
                running.app.tick(&mut Ports {
                    links: &mut self.links,
                    inputs: &running.inputs,
                    outputs: &running.outputs,
                    now,
                    clock,
                });
            }
            self.next_tick = self.next_tick.min(running.next_tick);
        }
        self.publish();
    }

    /// Writes the counts of the links to the counter file.
    pub(super) fn publish(&self) {
        self.links.iter().for_each(FrameLink::publish);
    }

    /// Returns every link with its counts. A link to another network is counted by the network
    /// where it begins.
    pub fn link_counts(&self) -> impl Iterator<Item = (&LinkName, LinkCounts)> {
        let links = self.link_names.iter().zip(&self.links[INTERNAL_LINKS..]);
        links
            .filter(|(_, link)| link.is_shown())
            .map(|(name, link)| (name, link.counts()))
    }

    /// Starts a capture: copies frames that are put on a link from now on to `tap`, as long as the
    /// link exists. Returns false if no such link begins in this network.
    pub fn trace(&mut self, link: &LinkName, tap: Tap) -> bool {
        let at = self.link_names.iter().position(|name| name == link);
        let link = at.map(|at| &mut self.links[INTERNAL_LINKS + at]);
        let link = link.filter(|link| link.is_shown());
        link.map(|link| link.trace(tap)).is_some()
    }

    /// Returns the app of this name; `None` if there is no such app, or if the app is not of type
    /// `A`.
    #[must_use]
    pub fn app<A: FrameApp>(&self, name: &str) -> Option<&A> {
        let running = self.apps.iter().find(|app| app.name == name)?;
        (&*running.app as &dyn std::any::Any).downcast_ref()
    }

    /// Like [`Network::app`], but the caller can change the app. `None` if no app has this name, or
    /// if the app is of another type.
    #[must_use]
    pub fn app_mut<A: FrameApp>(&mut self, name: &str) -> Option<&mut A> {
        let running = self.apps.iter_mut().find(|app| app.name == name)?;
        (&mut *running.app as &mut dyn std::any::Any).downcast_mut()
    }

    /// Whether frames wait on any link of the network.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.links.iter().any(|link| !link.queue.is_empty())
    }

    /// Whether frames wait for an app that can process them now, or for another network.
    pub(super) fn has_work(&self) -> bool {
        let waits = |link: usize| !self.links[link].queue.is_empty();
        let here = self.apps.iter().any(|running| {
            let inputs = running.inputs.iter().enumerate();
            let mut waiting = inputs.filter(|(_, link)| waits(**link));
            waiting.any(|(input, _)| !running.is_blocked(input, &self.links))
        });
        here || self.outgoing.iter().any(|(link, _)| waits(*link))
    }

    /// Returns the earliest time at which an app must be visited although no frame waits; `None` if
    /// none asks for it.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let ticks = self.apps.iter().filter(|app| app.tick.is_some());
        let ticks = ticks.map(|app| app.next_tick);
        let own = self.apps.iter().filter_map(|app| app.app.next_deadline());
        ticks.chain(own).min()
    }

    /// Arms every app, so that doorbells ring while the thread sleeps. Returns false if frames wait
    /// on a link, or an app has frames to pull and room for them: the thread must not sleep then.
    pub fn arm(&mut self) -> bool {
        self.publish();
        if self.has_work() {
            return false;
        }
        self.is_armed = true;
        self.doorbell.announce_sleep();
        let may_sleep = self.incoming.iter_mut().all(|(_, end)| !end.has_frames())
            && self
                .apps
                .iter_mut()
                .all(|running| running.app.arm() || running.is_held_back(&self.links));
        if !may_sleep {
            self.doorbell.withdraw();
        }
        may_sleep
    }

    /// Disarms every app; cheap when none is armed. The thread calls it before the next breath.
    pub fn disarm(&mut self) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        self.doorbell.withdraw();
        self.apps
            .iter_mut()
            .for_each(|running| running.app.disarm());
        // The events are cleared, so that the descriptors can ring again.
        let mut ready = Vec::new();
        let _ = self.epoll.wait(&mut ready, Some(0));
    }

    /// Returns the descriptor that is readable when a doorbell has rung for this network. It is
    /// watched edge-triggered.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The doorbell that networks on other threads ring when they have frames for this one.
    pub(super) fn shared_doorbell(&self) -> &Arc<NetworkDoorbell> {
        &self.doorbell
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

    /// Whether the app can do nothing about the frames that wait at an input.
    fn is_blocked(&self, input: usize, links: &[FrameLink]) -> bool {
        let is_full =
            |output: &usize| links[*output].has_back_pressure && links[*output].room() == 0;
        match self.when_full {
            WhenFull::Waits => self.outputs.get(input).is_some_and(is_full),
            _ => self.app.is_blocked(),
        }
    }

    /// Whether the app cannot pull, because its outputs have no room.
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

/// Number of the link for frames that an app puts on a port without a link.
const NO_OUTPUT: usize = 0;
/// Number of the empty link for inputs without a link.
const NO_INPUT: usize = 1;
const INTERNAL_LINKS: usize = 2;

/// The token of the network's own doorbell. Apps use their numbers.
const DOORBELL: u64 = u64::MAX;

/// How often the counts of links are published.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
