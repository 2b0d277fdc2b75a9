//! The engine: it visits the apps that have work, and sleeps when no app has any.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

use carina_frame_engine::idle::{AdaptiveSpin, IdlePolicy};
use carina_sys::{
    Epoll, Interest, Ready, SchedulePeriod, cpus_allowed, hold_processor, monotonic_ns,
    wait_for_turns,
};
use carina_time::Instant;

use crate::app::{App, BURST, BURST_BYTES};
use crate::counters::{Row, Value};
use crate::credit::Credit;
use crate::ids::{AppId, LinkId};
use crate::link::Links;
use crate::pool::Pool;

/// A graph of apps and links on one thread.
///
/// The cost of a breath depends on the apps that are awake. Apps that sleep, even thousands, are
/// only entries in an epoll set.
pub struct Engine {
    slots: Vec<Slot>,
    free: Vec<u32>,
    links: Links,
    pool: Pool,
    epoll: Epoll,
    ready: Vec<Ready>,
    /// The apps that are visited in every breath.
    awake: Vec<AppId>,
    /// The deadlines of sleeping apps.
    deadlines: BTreeSet<(Instant, AppId)>,
    idle: IdlePolicy,
    /// The only processor, while this thread keeps it.
    held: Option<SchedulePeriod>,
    breaths: u64,
    idle_turns: u32,
    removed: Vec<AppId>,
    row: Row,
}

struct Slot {
    generation: u32,
    app: Option<Box<dyn App>>,
    awake: bool,
    /// Whether the app moved anything in the last breath.
    has_moved: bool,
    /// Time at the end of the last breath in which the app moved anything.
    moved_at: Instant,
    /// How long the app stays awake after that.
    budget: AdaptiveSpin,
    /// The app's entry in `deadlines`; `None` while it is awake.
    deadline: Option<Instant>,
    /// Number of the breath in which the app last released its burst.
    released: u64,
}

impl Engine {
    /// Creates an engine without apps. `row` receives its counters. Copies are made in buffers of
    /// `pool`, which becomes the pool of the calling thread; the engine must run on that thread.
    ///
    /// # Errors
    /// No epoll descriptor is available.
    pub fn new(row: Row, pool: Pool) -> io::Result<Engine> {
        pool.serve_thread();
        Ok(Engine {
            slots: Vec::new(),
            free: Vec::new(),
            links: Links::default(),
            pool,
            epoll: Epoll::new()?,
            ready: Vec::with_capacity(64),
            awake: Vec::new(),
            deadlines: BTreeSet::new(),
            idle: IdlePolicy::new(cpus_allowed()),
            held: None,
            breaths: 0,
            idle_turns: 0,
            removed: Vec::new(),
            row,
        })
    }

    /// Watches a descriptor that belongs to no app. [`Engine::rest`] reports when it is readable.
    ///
    /// # Errors
    /// Errors of epoll.
    pub fn watch_outside(&self, fd: impl AsFd) -> io::Result<()> {
        self.epoll.add(fd, OUTSIDE, Interest::ReadEdge)
    }

    /// Reserves an id for an app that is added later, so that its links can be created first.
    pub fn reserve(&mut self) -> AppId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                app: None,
                awake: false,
                has_moved: false,
                moved_at: Instant::ZERO,
                budget: AdaptiveSpin::default(),
                deadline: None,
                released: 0,
            });
            (self.slots.len() - 1) as u32
        });
        let id = AppId {
            index,
            generation: self.slots[index as usize].generation,
        };
        self.links.admit(id);
        id
    }

    /// Adds an app under its reserved id and wakes it.
    ///
    /// # Errors
    /// The app's descriptors cannot be watched; the id is free again.
    pub fn add(&mut self, id: AppId, app: Box<dyn App>) -> io::Result<()> {
        for (fd, interest) in app.wait_fds() {
            if let Err(error) = self.epoll.add(fd, id.token(), interest) {
                for (fd, _) in app.wait_fds() {
                    let _ = self.epoll.del(fd);
                }
                self.release(id);
                return Err(error);
            }
        }
        let slot = &mut self.slots[id.index as usize];
        slot.app = Some(app);
        slot.budget = AdaptiveSpin::default();
        self.links.wake(id);
        Ok(())
    }

    /// Frees a reserved id under which no app was added.
    pub fn release(&mut self, id: AppId) {
        let Some(slot) = self.slots.get_mut(id.index as usize) else {
            return;
        };
        if slot.generation == id.generation {
            slot.generation = slot.generation.wrapping_add(1);
            self.links.dismiss(id);
            self.free.push(id.index);
        }
    }

    /// Creates a link from the app `from` to the app `to`. The sink grants credit as `credit` says;
    /// packets have at most `piece_max` bytes.
    pub fn connect(&mut self, from: AppId, to: AppId, credit: Credit, piece_max: usize) -> LinkId {
        self.links.connect(from, to, credit, piece_max)
    }

    /// Returns the links, for the code that builds the graph.
    pub fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Returns the pool from which apps take buffers.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Makes the engine visit `app` in the next breath.
    pub fn wake(&mut self, app: AppId) {
        self.links.wake(app);
    }

    /// Returns the ids of the apps that were removed since the last call.
    pub fn take_removed(&mut self) -> Vec<AppId> {
        std::mem::take(&mut self.removed)
    }

    /// Returns the number of apps that are awake.
    #[must_use]
    pub fn awake_count(&self) -> usize {
        self.awake.len()
    }

    /// Runs one breath at the monotonic time `now`: visits every app that is awake once.
    /// Returns true if anything moved.
    pub fn breathe(&mut self, now: Instant) -> bool {
        self.breaths += 1;
        self.wake_due(now);
        self.links.apply_retries();
        self.admit_woken(now);
        let count = self.awake.len();
        for at in 0..count {
            let slot = &mut self.slots[self.awake[at].index as usize];
            // The time counts from the end of the breath, because a breath may take longer than an
            // app stays awake.
            if std::mem::take(&mut slot.has_moved) {
                slot.moved_at = now;
            }
            if let Some(app) = slot.app.as_mut() {
                app.prepare(now, &mut self.links);
            }
        }
        // The app that pulls first gets the room of a shared sink, so the order rotates.
        let first = if count == 0 {
            0
        } else {
            self.breaths as usize % count
        };
        let mut moved = false;
        for at in (first..count).chain(0..first) {
            let slot = &mut self.slots[self.awake[at].index as usize];
            if let Some(app) = slot.app.as_mut()
                && app.pull(now, &mut self.links)
            {
                slot.has_moved = true;
                moved = true;
            }
        }
        moved |= self.push_all(now);
        self.share_processor(now);
        for at in 0..count {
            self.release_burst(self.awake[at], now);
        }
        self.remove_finished();
        self.put_idle_to_sleep(now);
        if moved {
            self.row.add(Value::Breaths, 1);
        }
        moved
    }

    /// Decides how this thread shares its processor with the threads that it serves, by what this
    /// breath moved.
    fn share_processor(&mut self, now: Instant) {
        let (packets, bytes) = self.links.take_pushed();
        let is_full = packets >= BURST || bytes >= BURST_BYTES;
        self.links
            .defer_doorbells(self.idle.defers_doorbells(is_full));
        if !self.idle.keeps_processor() {
            self.held = None;
        } else if self.held.is_none() {
            self.held = hold_processor();
            if self.held.is_none() {
                self.idle.cannot_keep_processor();
            }
        }
        if let Some(wanted) = self.idle.turns_change(is_full, now.as_nanos()) {
            self.held = None;
            let is_done = wait_for_turns(wanted);
            self.idle.set_waits_for_turns(wanted, is_done);
        }
    }

    /// Visits sinks until every packet on a link was offered to its sink.
    fn push_all(&mut self, now: Instant) -> bool {
        let mut moved = false;
        let mut touched = Vec::new();
        while let Some(id) = self.links.next_dirty() {
            let slot = &mut self.slots[id.index as usize];
            if slot.generation != id.generation {
                continue;
            }
            let Some(app) = slot.app.as_mut() else {
                continue;
            };
            if app.push(now, &mut self.links) {
                slot.has_moved = true;
                moved = true;
            }
            if !slot.awake {
                // A doorbell that rings next is probably an answer to this visit.
                slot.moved_at = now;
                touched.push(id);
            }
        }
        self.copy_left_over();
        if !touched.is_empty() {
            self.idle.woke_sleepers();
        }
        for id in touched {
            self.release_burst(id, now);
        }
        moved
    }

    /// Copies packets that a sink left on its link into buffers, before their rings are released.
    fn copy_left_over(&mut self) {
        for id in self.links.take_left_over() {
            let mut lost = 0;
            if let Some(queue) = self.links.queue_mut(id) {
                let before = queue.len();
                queue.retain_mut(|packet| packet.materialise(&self.pool));
                lost = before - queue.len();
            }
            self.row.add(Value::DropNoBuffer, lost as u64);
        }
    }

    fn release_burst(&mut self, id: AppId, now: Instant) {
        let slot = &mut self.slots[id.index as usize];
        if slot.generation != id.generation || slot.released == self.breaths {
            return;
        }
        slot.released = self.breaths;
        if let Some(app) = slot.app.as_mut() {
            app.release_burst(now, &mut self.links);
        }
    }

    fn wake_due(&mut self, now: Instant) {
        while let Some(&(deadline, id)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            self.slots[id.index as usize].deadline = None;
            self.links.wake(id);
        }
    }

    fn admit_woken(&mut self, now: Instant) {
        let from = self.awake.len();
        self.links.take_woken(&mut self.awake);
        let mut at = from;
        while at < self.awake.len() {
            let id = self.awake[at];
            let slot = &mut self.slots[id.index as usize];
            let Some(app) = slot
                .app
                .as_mut()
                .filter(|_| slot.generation == id.generation)
            else {
                self.awake.swap_remove(at);
                continue;
            };
            app.disarm();
            if slot.awake {
                self.awake.swap_remove(at);
                continue;
            }
            slot.awake = true;
            slot.moved_at = now;
            if let Some(deadline) = slot.deadline.take() {
                self.deadlines.remove(&(deadline, id));
            }
            at += 1;
        }
    }

    fn remove_finished(&mut self) {
        for id in self.links.take_finished() {
            let slot = &mut self.slots[id.index as usize];
            if slot.generation != id.generation {
                continue;
            }
            let Some(app) = slot.app.take() else { continue };
            // Another process may have the descriptors open too; epoll would then keep watching
            // them.
            for (fd, _) in app.wait_fds() {
                let _ = self.epoll.del(fd);
            }
            drop(app);
            slot.awake = false;
            if let Some(deadline) = slot.deadline.take() {
                self.deadlines.remove(&(deadline, id));
            }
            self.awake.retain(|awake| *awake != id);
            self.release(id);
            self.removed.push(id);
        }
    }

    fn put_idle_to_sleep(&mut self, now: Instant) {
        let (slots, links, deadlines) = (&mut self.slots, &mut self.links, &mut self.deadlines);
        let idle = &self.idle;
        links.leave_processor(idle.leaves_processor(now.as_nanos()));
        self.awake.retain(|id| {
            let slot = &mut slots[id.index as usize];
            let Some(app) = slot.app.as_mut() else {
                return false;
            };
            let patience = idle.spin_ns(slot.budget, now.as_nanos());
            let idle = now.since(slot.moved_at).as_nanos();
            if slot.has_moved || idle < patience || !app.arm(now, links) {
                return true;
            }
            slot.awake = false;
            slot.deadline = app.next_deadline();
            if let Some(deadline) = slot.deadline {
                deadlines.insert((deadline, *id));
            }
            false
        });
    }

    /// Runs between two breaths. `moved` is the result of the breath. While there is work, it
    /// checks the doorbells now and then. Without work, it pauses while apps stay awake, and sleeps
    /// when all apps sleep. Returns true if the outside descriptor is readable.
    ///
    /// # Errors
    /// Errors of epoll.
    pub fn rest(&mut self, moved: bool) -> io::Result<bool> {
        if moved {
            self.idle_turns = 0;
            return if self.breaths.is_multiple_of(LOOK_BREATHS) {
                self.wait_events(Some(0))
            } else {
                Ok(false)
            };
        }
        if self.links.has_work() {
            return Ok(false);
        }
        if !self.awake.is_empty() {
            self.idle_turns = self.idle_turns.wrapping_add(1);
            return if self.idle.pause(self.idle_turns) {
                self.wait_events(Some(0))
            } else {
                Ok(false)
            };
        }
        let timeout = self.deadlines.first().map(|(deadline, _)| {
            deadline
                .since(Instant::from_nanos(monotonic_ns()))
                .as_nanos()
        });
        self.row.add(Value::Sleeps, 1);
        self.wait_events(timeout)
    }

    fn wait_events(&mut self, timeout_ns: Option<u64>) -> io::Result<bool> {
        self.epoll.wait(&mut self.ready, timeout_ns)?;
        if self.ready.is_empty() {
            return Ok(false);
        }
        let (mut outside, now) = (false, Instant::from_nanos(monotonic_ns()));
        for ready in &self.ready {
            if ready.token == OUTSIDE {
                outside = true;
                continue;
            }
            let id = AppId::from_token(ready.token);
            if let Some(slot) = self.slots.get_mut(id.index as usize)
                && slot.generation == id.generation
                && !slot.awake
            {
                slot.budget.rang_after(now.since(slot.moved_at).as_nanos());
            }
            self.links.wake(id);
        }
        Ok(outside)
    }
}

/// The token of the outside descriptor. An app has generation `u32::MAX` only after 2^32 removals.
const OUTSIDE: u64 = u64::MAX;
/// Number of busy breaths between two checks of the doorbells of sleeping apps.
const LOOK_BREATHS: u64 = 16;
