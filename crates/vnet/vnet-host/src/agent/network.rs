//! One network of an agent, with the thread that makes and watches it.

mod again;
mod flaps;
mod reporting;
mod thread;

pub(super) use self::again::Again;
pub(super) use self::reporting::report_of_absent;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_vnet::host_part::{HostPart, HostStatus, NodeState, NodeStatus};
use carina_vnet::message::{MoveState, MoveStatus};

use crate::change_counter::ChangeCounter;
use crate::directory::{Record, VnetDir};
use crate::error::{Attempt, Error, Result};
use crate::host_dif::HostDif;
use crate::node::Images;
use crate::progress::Progress;
use crate::steps::{Steps, with_new_links};
use crate::underlay::Underlay;
use crate::vnet::Vnet;
use carina_vnet::progress::Event;

/// One network of an agent.
#[derive(Debug)]
pub(super) struct Network {
    dir: VnetDir,
    shared: Arc<Shared>,
    commands: Mutex<Option<Sender<Box<Change>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// When the caller who waits for the network to be ready last asked for events; `None` if the
    /// network does not depend on such a caller.
    followed: Mutex<Option<Instant>>,
    /// Locked by the caller who removes the network.
    removal: Mutex<()>,
}

/// What all networks of a host share.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub images: Arc<Images>,
    pub underlay: Option<Underlay>,
    /// The Carina node whose DIFs carry links to other hosts as flows; `None` if the host has no
    /// underlay.
    pub dif: Option<Arc<HostDif>>,
    /// Rung whenever the status of a network has changed.
    pub changes: Arc<ChangeCounter>,
}

/// State shared between the network's thread and its callers.
#[derive(Debug)]
struct Shared {
    progress: Arc<Progress>,
    /// Whether machines keep running when the thread ends.
    leaves: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    record: Arc<Record>,
    vnet: Option<Arc<Vnet>>,
    outcome: Outcome,
    ready_after: Option<Duration>,
}

#[derive(Clone, Debug)]
enum Outcome {
    Changing,
    Done,
    Failed(Failed),
}

/// Why a network could not be made.
#[derive(Clone, Debug)]
struct Failed {
    reason: String,
    /// The state to report for nodes that do not run.
    state: NodeState,
}

impl From<&Error> for Outcome {
    fn from(error: &Error) -> Outcome {
        Outcome::Failed(Failed {
            reason: error.to_string(),
            state: error.state(),
        })
    }
}

/// A request to change the network, made at `began`.
struct Change {
    record: Arc<Record>,
    /// Whether the request is only to make the new links of the record. Another one for the whole
    /// record follows.
    has_only_links: bool,
    began: Instant,
    /// Time spent before this thread got the request: for admission and for writing the record.
    discovery: Duration,
}

impl Change {
    fn new(record: Arc<Record>, began: Instant) -> Change {
        let discovery = began.elapsed();
        Change {
            record,
            has_only_links: false,
            began,
            discovery,
        }
    }
}

impl Network {
    /// Starts the thread that makes the recorded network.
    pub(super) fn start(
        dir: VnetDir,
        record: Record,
        host: &Host,
        began: Instant,
    ) -> Result<Network> {
        let progress = Progress::with_changes(&record.part, Arc::clone(&host.changes));
        let progress = Arc::new(progress);
        let record = Arc::new(record);
        let shared = Arc::new(Shared {
            progress,
            leaves: AtomicBool::new(false),
            state: Mutex::new(State {
                record: Arc::clone(&record),
                vnet: None,
                outcome: Outcome::Changing,
                ready_after: None,
            }),
        });
        let (commands, changes) = channel();
        let (thread_dir, thread_shared) = (dir.clone(), Arc::clone(&shared));
        let host = host.clone();
        let first = Box::new(Change::new(record, began));
        let run = move || {
            thread_shared.run(&thread_dir, first, &host, &changes);
        };
        let thread = std::thread::Builder::new().name("vnet".into());
        Ok(Network {
            dir,
            shared,
            commands: Mutex::new(Some(commands)),
            thread: Mutex::new(Some(thread.spawn(run).attempt("starting a thread")?)),
            followed: Mutex::default(),
            removal: Mutex::default(),
        })
    }

    /// Waits until no other caller removes the network. Removals exclude each other while the value
    /// exists.
    pub(super) fn lock_removal(&self) -> MutexGuard<'_, ()> {
        lock(&self.removal)
    }

    /// Writes the new record, then begins to change the network to match it.
    pub(super) fn change(&self, record: Record, began: Instant) -> Result<()> {
        self.dir.write(&record)?;
        let record = Arc::new(record);
        let mut state = self.shared.lock();
        state.record = Arc::clone(&record);
        state.outcome = Outcome::Changing;
        drop(state);
        self.begin(record, began)
    }

    /// Begins to make links that `record` adds to a network that is ready, ahead of the rest of the
    /// change. The nodes of `record` have no routes yet, and keep those they have. Does nothing if
    /// the change is of another kind.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(super) fn make_links(&self, record: &Record, began: Instant) -> Result<()> {
        let before = {
            let state = self.shared.lock();
            let is_ready = matches!(state.outcome, Outcome::Done) && state.record.is_settled;
            is_ready.then(|| Arc::clone(&state.record))
        };
        let part = before.and_then(|before| with_new_links(&before.part, &record.part));
        let Some(part) = part else {
            return Ok(());
        };
        // An agent that finds this record makes the links that are missing, and changes nothing
        // else.
        let record = Record {
            vnet: record.vnet,
            wanted: record.wanted.clone(),
            part,
            is_settled: true,
            until_ms: record.until_ms,
        };
        self.dir.write(&record)?;
        let change = Change {
            has_only_links: true,
            ..Change::new(Arc::new(record), began)
        };
        self.send(change)
    }

    /// Begins to make the missing parts of the network again.
    pub(super) fn make_again(&self, began: Instant) -> Result<()> {
        let mut state = self.shared.lock();
        let record = Arc::clone(&state.record);
        state.outcome = Outcome::Changing;
        drop(state);
        self.begin(record, began)
    }

    fn begin(&self, record: Arc<Record>, began: Instant) -> Result<()> {
        self.send(Change::new(record, began))
    }

    fn send(&self, change: Change) -> Result<()> {
        let commands = lock(&self.commands);
        let commands = commands.as_ref().ok_or(Error::Cancelled)?;
        let sent = commands.send(Box::new(change));
        sent.map_err(|_| Error::Cancelled)
    }

    /// The record of the requested network.
    pub(super) fn record(&self) -> Arc<Record> {
        Arc::clone(&self.shared.lock().record)
    }

    /// The generation of the requested network.
    pub(super) fn generation(&self) -> u64 {
        self.shared.lock().record.part.generation
    }

    /// The status that the network's provider gets; `None` for a network of an operator of this
    /// host.
    pub(super) fn status_for_provider(&self) -> Option<HostStatus> {
        let state = self.shared.lock();
        let vnet = state.record.provider_vnet()?;
        let mut status = HostStatus {
            vnet,
            ..self.shared.progress.status()
        };
        if let Outcome::Failed(failed) = &state.outcome {
            // Nodes that have a reason of their own keep it.
            let waits =
                |node: &NodeStatus| matches!(node.state, NodeState::Absent | NodeState::Starting);
            for node in status.nodes.values_mut().filter(|node| waits(node)) {
                node.state = failed.state.clone();
            }
        }
        Some(status)
    }

    /// The parts of the network that exist.
    pub(super) fn vnet(&self) -> Result<Arc<Vnet>> {
        let vnet = self.shared.lock().vnet.clone();
        vnet.ok_or_else(|| Error::NotMade(self.dir.name()))
    }

    /// Adds an event to the network's log.
    pub(super) fn tell(&self, what: String) {
        self.shared.progress.tell(what);
    }

    /// Time since this agent created the network or took it over.
    pub(super) fn age(&self) -> Duration {
        self.shared.progress.age()
    }

    pub(super) fn events(&self, since: u64, wait: Duration) -> Vec<Event> {
        let events = self.shared.progress.events(since, wait);
        if let Some(last) = &mut *lock(&self.followed) {
            *last = Instant::now();
        }
        events
    }

    /// Records that a caller keeps asking for events while the network is made. If that caller
    /// stops asking, the network is removed.
    pub(super) fn set_followed(&self) {
        *lock(&self.followed) = Some(Instant::now());
    }

    /// Whether the caller who has to ask for events has stopped asking before the network was
    /// ready.
    pub(super) fn is_abandoned(&self) -> bool {
        let mut followed = lock(&self.followed);
        if self.shared.lock().ready_after.is_some() {
            *followed = None;
        }
        followed.is_some_and(|last| last.elapsed() > ABANDONED)
    }

    /// Makes the members in the network's nodes leave its DIF.
    pub(super) fn leave_dif(&self) {
        if let Ok(vnet) = self.vnet() {
            vnet.leave_dif();
        }
    }

    /// Ends the thread. Stops machines for which the thread waits.
    pub(super) fn stop(&self) {
        self.shared.progress.cancel();
        *lock(&self.commands) = None;
        let Some(thread) = lock(&self.thread).take() else {
            return;
        };
        while !thread.is_finished() {
            for machines in [self.dir.machines(), self.dir.destination()] {
                for machine in carina_vm::list(&machines).unwrap_or_default() {
                    // The machine may end by itself at the same moment.
                    let _ = carina_vm::stop(&machines, &machine.name, Duration::ZERO);
                }
            }
            std::thread::sleep(LOOK);
        }
        // A thread that panicked has ended, too.
        let _ = thread.join();
    }

    /// The moves of nodes to and from other hosts, for the provider.
    pub(super) fn moves(&self) -> Vec<MoveStatus> {
        let Some(vnet) = self.record().provider_vnet() else {
            return Vec::new();
        };
        let status = |(number, state)| MoveStatus {
            vnet,
            number,
            state,
        };
        let moves = self.shared.progress.moves();
        moves.into_iter().map(status).collect()
    }

    /// Whether the network takes part in the move of this number.
    pub(super) fn has_move(&self, number: u64) -> bool {
        self.shared.progress.moves().contains_key(&number)
    }

    /// Records the state of a move.
    pub(super) fn set_move(&self, number: u64, state: MoveState) {
        self.shared.progress.set_move(number, Some(state));
    }

    /// Records that a move has failed.
    pub(super) fn fail_move(&self, number: u64, error: &Error) {
        let reason = error.to_string();
        self.set_move(number, MoveState::Failed { reason });
    }

    /// Whether changing to `part` is so light that the network stays valid if the change is
    /// interrupted: the change only adds nodes that have arrived, or redirects links.
    pub(super) fn stays_settled(&self, part: &HostPart) -> bool {
        let record = self.record();
        let arrived = self.vnet().map(|vnet| vnet.arrived_for(part));
        let steps = Steps::between(&record.part, part);
        record.is_settled && steps.is_light(&arrived.unwrap_or_default())
    }
}

impl Drop for Network {
    /// Leaves the parts of the network running, unless the network was stopped.
    fn drop(&mut self) {
        self.shared.progress.cancel();
        self.shared.leaves.store(true, Ordering::Release);
        *lock(&self.commands) = None;
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the value consistent, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const LOOK: Duration = Duration::from_millis(20);
/// Time without a request for events after which the caller counts as disconnected.
const ABANDONED: Duration = Duration::from_secs(30);
