//! Progress of a network's creation, for callers that wait for it: status, phases and events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_vnet::host_part::{HostPart, HostStatus, LinkStatus, NodeStatus};
use carina_vnet::message::MoveState;
use carina_vnet::progress::{Event, Phase, PhaseTime};

use crate::change_counter::ChangeCounter;
use crate::error::{Error, Result};

/// Progress of a network: the thread that creates the network writes it, other threads read it.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
    is_cancelled: AtomicBool,
    /// Counts up when the status has changed, and wakes those who wait for a change.
    changes: Arc<ChangeCounter>,
}

#[derive(Debug)]
struct State {
    status: HostStatus,
    phases: Vec<PhaseTime>,
    events: VecDeque<Event>,
    /// Numbers of the events that may come often.
    frequent: VecDeque<u64>,
    last: u64,
    /// Moves of nodes to and from other hosts, by number.
    moves: BTreeMap<u64, MoveState>,
}

impl Progress {
    /// Progress of a part of which nothing exists yet.
    #[must_use]
    pub fn new(part: &HostPart) -> Progress {
        Progress::with_changes(part, Arc::default())
    }

    /// Like [`Progress::new`], with a bell that rings when the status has changed.
    #[must_use]
    pub(crate) fn with_changes(part: &HostPart, changes: Arc<ChangeCounter>) -> Progress {
        Progress {
            began: Instant::now(),
            state: Mutex::new(State {
                status: part.absent(),
                phases: Vec::new(),
                events: VecDeque::new(),
                frequent: VecDeque::new(),
                last: 0,
                moves: BTreeMap::new(),
            }),
            changed: Condvar::new(),
            is_cancelled: AtomicBool::new(false),
            changes,
        }
    }

    /// Time since this value was created. [`Event::at_ms`] counts from the same moment.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Current status of the nodes and links on this host.
    #[must_use]
    pub fn status(&self) -> HostStatus {
        self.lock().status.clone()
    }

    /// Current status of one node; `None` if the part does not have it.
    pub(crate) fn status_of_node(&self, name: &str) -> Option<NodeStatus> {
        self.lock().status.nodes.get(name).cloned()
    }

    /// Current status of one link; `None` if the part does not have it.
    pub(crate) fn status_of_link(&self, number: u32) -> Option<LinkStatus> {
        self.lock().status.links.get(&number).cloned()
    }

    /// Moves of nodes to and from other hosts, by number.
    pub(crate) fn moves(&self) -> BTreeMap<u64, MoveState> {
        self.lock().moves.clone()
    }

    /// Records the state of a move. `None` removes the record.
    pub(crate) fn set_move(&self, number: u64, state: Option<MoveState>) {
        let mut all = self.lock();
        match state {
            Some(state) => drop(all.moves.insert(number, state)),
            None => drop(all.moves.remove(&number)),
        }
        drop(all);
        self.changes.add();
    }

    /// The phases of the last change that have ended.
    #[must_use]
    pub fn phases(&self) -> Vec<PhaseTime> {
        self.lock().phases.clone()
    }

    /// Returns the events with a number above `since`. Waits up to `wait` for the first.
    #[must_use]
    pub fn events(&self, since: u64, wait: Duration) -> Vec<Event> {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, wait, |state| state.last <= since);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let after = state.events.iter().filter(|event| event.number > since);
        after.cloned().collect()
    }

    /// Appends an event and wakes the threads that wait for one.
    pub fn tell(&self, what: impl Into<String>) {
        self.lock().add(self.began.elapsed(), what.into());
        self.changed.notify_all();
    }

    /// Appends an event that may come often, such as one that a caller without rights has caused.
    /// The log keeps only the latest few of such events, so that they cannot displace the others.
    pub fn tell_frequent(&self, what: impl Into<String>) {
        let mut state = self.lock();
        state.add(self.began.elapsed(), what.into());
        let number = state.last;
        state.frequent.push_back(number);
        if state.frequent.len() > FREQUENT_MAX
            && let Some(oldest) = state.frequent.pop_front()
        {
            state.events.retain(|event| event.number != oldest);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Rings the bell: the status has changed.
    pub(crate) fn ring(&self) {
        self.changes.add();
    }

    /// Makes the thread that creates the network stop at its next step. Does not wait for that.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    /// Checks that the creation was not cancelled.
    ///
    /// # Errors
    /// [`Error::Cancelled`] after [`Progress::cancel`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled.load(Ordering::Acquire) {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Begins a change to another part. Nodes and links that both parts have keep their status.
    pub(crate) fn begin(&self, part: &HostPart) {
        let mut state = self.lock();
        let mut status = part.absent();
        let before = std::mem::replace(&mut state.status, part.absent());
        for (name, node) in before.nodes {
            status.nodes.entry(name).and_modify(|now| *now = node);
        }
        for (number, link) in before.links {
            status.links.entry(number).and_modify(|now| *now = link);
        }
        state.status = status;
        state.phases.clear();
        self.changes.add();
    }

    /// Does the work of a phase and records its duration.
    pub(crate) fn phase(&self, phase: Phase, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.check()?;
        let began = Instant::now();
        work()?;
        self.note(phase, began.elapsed());
        Ok(())
    }

    /// Records how long a phase of the current change took.
    pub fn note(&self, phase: Phase, duration: Duration) {
        let took_ms = duration.as_secs_f64() * 1000.0;
        self.lock().phases.push(PhaseTime { phase, took_ms });
        self.tell(format!("{}: {took_ms:.0} ms", phase.name()));
    }

    pub(crate) fn node(&self, name: &str, change: impl FnOnce(&mut NodeStatus)) {
        if let Some(node) = self.lock().status.nodes.get_mut(name) {
            change(node);
        }
        self.changed.notify_all();
        self.changes.add();
    }

    pub(crate) fn link(&self, number: u32, change: impl FnOnce(&mut LinkStatus)) {
        if let Some(link) = self.lock().status.links.get_mut(&number) {
            change(link);
        }
        self.changed.notify_all();
        self.changes.add();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent, even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, age: Duration, mut what: String) {
        if let Some((end, _)) = what.char_indices().nth(WORDS_MAX) {
            what.truncate(end);
        }
        self.last += 1;
        self.events.push_back(Event {
            number: self.last,
            at_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            what,
        });
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }
}

const EVENTS_MAX: usize = 1000;
/// Largest number of events that may come often that the log keeps.
const FREQUENT_MAX: usize = 100;
/// Largest number of characters of an event, because guests and QEMU may print much.
const WORDS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use carina_vnet::host_part::NodeState;

    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn waiting_for_events_ends_with_the_next_one() {
        let progress = Progress::new(&part(&["a b"]));
        assert!(progress.events(0, Duration::ZERO).is_empty());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| progress.events(0, Duration::from_secs(60)));
            progress.tell("one");
            let events = waits.join().unwrap();
            assert_eq!(events[0].what, "one");
        });
        progress.note(Phase::Probes, Duration::from_millis(2));
        let events = progress.events(1, Duration::from_secs(60));
        assert_eq!((events.len(), events[0].number), (1, 2));
        assert_eq!(progress.phases()[0].took_ms, 2.0);
    }

    #[test]
    fn strangers_leave_the_other_events_their_room() {
        let progress = Progress::new(&part(&["a b"]));
        progress.tell("node a is up");
        for number in 0..EVENTS_MAX * 2 {
            progress.tell_frequent(format!("token {number} is refused"));
        }
        let events = progress.events(0, Duration::ZERO);
        assert_eq!(events[0].what, "node a is up");
        assert_eq!(events.len(), 1 + FREQUENT_MAX);
        let last = events.last().unwrap();
        assert_eq!(
            last.what,
            format!("token {} is refused", EVENTS_MAX * 2 - 1)
        );
        assert_eq!(last.number, 1 + 2 * EVENTS_MAX as u64);
    }

    #[test]
    fn what_two_parts_share_keeps_its_status() {
        let progress = Progress::new(&part(&["a b"]));
        progress.node("a", |node| node.state = NodeState::Up);
        progress.begin(&part(&["a b", "b c"]));
        let status = progress.status();
        assert_eq!(status.nodes["a"].state, NodeState::Up);
        assert_eq!(status.links.len(), 2);
        progress.cancel();
        assert!(progress.phase(Phase::Nodes, || Ok(())).is_err());
    }
}
