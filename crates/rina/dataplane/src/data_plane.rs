//! The data plane as the manager uses it: threads that accept commands and report events.
//!
//! Each thread, a *worker*, has its own engine. An IPCP and the flows that it provides stay on the
//! worker on which the IPCP was placed. Only an N-1 flow whose user is on another worker spans two
//! workers ([`crate::crossing`]).
//!
//! A relay between two applications of this system needs no IPCP, so that any worker can move its
//! bytes. Further workers, which have only relays, start with the first relay.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Instant;

use carina_api::{IpcpId, PortId};
use carina_engine::counters::Table;
use carina_ipcp::N1Port;
use carina_sys::cpus_allowed;

use crate::command::{Command, FlowEnd};
use crate::crossing::{Crossed, Crossing, crossing};
use crate::event::Event;
use crate::ipcp_app::IpcpBuilder;
use crate::mailbox::Mailbox;
use crate::plane::{Plane, thread_name};
use crate::port_table::PortTable;
use crate::trace;

/// The threads of the data plane. Dropping it ends the threads and their flows.
pub struct DataPlane {
    workers: Vec<Worker>,
    /// Workers that have only relays.
    relay_workers: OnceCell<Vec<Worker>>,
    /// Number of these workers.
    relay_worker_count: usize,
    /// Number of relays so far. They take turns on all workers.
    relays: Cell<usize>,
    counters: Table,
    events: Mailbox<Event>,
    is_stopping: Arc<AtomicBool>,
    /// The worker on which each IPCP was placed.
    placed: BTreeMap<IpcpId, usize>,
    can_wake_lightly: bool,
}

/// Number of the data plane's threads, and the processors on which they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Number of threads, from 1 to [`WORKERS_MAX`](crate::WORKERS_MAX).
    pub count: usize,
    /// The processor of each thread; empty to let the scheduler choose.
    pub cpus: Vec<usize>,
}

struct Worker {
    commands: Mailbox<Command>,
    thread: Option<JoinHandle<()>>,
}

impl DataPlane {
    /// Starts a data plane with one thread. Its counters become rows of `counters`.
    ///
    /// # Errors
    /// The system has no free thread or descriptor.
    pub fn spawn(counters: Table) -> io::Result<DataPlane> {
        let one = Workers {
            count: 1,
            cpus: Vec::new(),
        };
        DataPlane::spawn_workers(&one, counters)
    }

    /// Starts a data plane with several threads. Their counters become rows of `counters`.
    ///
    /// # Errors
    /// The system has no free thread or descriptor, or a processor cannot be used.
    pub fn spawn_workers(workers: &Workers, counters: Table) -> io::Result<DataPlane> {
        let wanted = if workers.cpus.is_empty() {
            cpus_allowed().min(RELAY_THREADS_MAX)
        } else {
            workers.count
        };
        let mut plane = DataPlane {
            workers: Vec::new(),
            relay_workers: OnceCell::new(),
            relay_worker_count: wanted.saturating_sub(workers.count),
            relays: Cell::new(0),
            counters,
            events: Mailbox::new()?,
            is_stopping: Arc::new(AtomicBool::new(false)),
            placed: BTreeMap::new(),
            can_wake_lightly: carina_sys::membarrier_register(),
        };
        for number in 0..workers.count {
            let cpu = workers.cpus.get(number).copied();
            let worker = plane.start(number, cpu)?;
            plane.workers.push(worker);
        }
        Ok(plane)
    }

    fn start(&self, number: usize, cpu: Option<usize>) -> io::Result<Worker> {
        let (commands, counters) = (Mailbox::new()?, self.counters.clone());
        let (started, start) = std::sync::mpsc::channel();
        let (inbox, outbox) = (commands.clone(), self.events.clone());
        let stop = Arc::clone(&self.is_stopping);
        let bind = move || cpu.map_or(Ok(()), carina_sys::bind_to_cpu);
        let thread = std::thread::Builder::new()
            .name(thread_name(number))
            .spawn(move || {
                // Create the engine first: it counts the processors that its thread may use, before
                // the thread is pinned to one.
                let plane = Plane::new(number, counters, inbox, outbox);
                match plane.and_then(|plane| bind().map(|()| plane)) {
                    Ok(mut plane) => {
                        let _ = started.send(Ok(()));
                        plane.run(&stop);
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            })?;
        start.recv().unwrap_or_else(|_| {
            let text = "a thread of the data plane ended at its start";
            Err(io::Error::other(text))
        })?;
        let thread = Some(thread);
        Ok(Worker { commands, thread })
    }

    /// Returns the number of the data plane's threads (workers).
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Chooses the worker of an IPCP that is about to be added: `wanted`, if that worker exists.
    /// Otherwise the worker with most of the IPCPs in `below`, whose flows the IPCP will use; among
    /// equals, the worker with the fewest IPCPs. An IPCP that was not placed runs on the first
    /// worker.
    pub fn place(&mut self, ipcp: IpcpId, wanted: Option<usize>, below: &[IpcpId]) {
        let count = |is_counted: &dyn Fn(&IpcpId) -> bool, number| {
            let placed = self.placed.iter();
            placed
                .filter(|(id, at)| **at == number && is_counted(id))
                .count()
        };
        let numbers = 0..self.workers.len();
        let wanted = wanted.filter(|number| numbers.contains(number));
        let best = wanted.or_else(|| {
            numbers.max_by_key(|&number| {
                let users = count(&|id| below.contains(id), number);
                // Among equals, the worker with the lowest number.
                (users, std::cmp::Reverse((count(&|_| true, number), number)))
            })
        });
        self.placed.insert(ipcp, best.unwrap_or(0));
    }

    /// Returns the number of the worker on which an IPCP was placed; `None` if it was not placed.
    #[must_use]
    pub fn worker_of(&self, ipcp: IpcpId) -> Option<usize> {
        self.placed.get(&ipcp).copied()
    }

    fn worker(&self, ipcp: IpcpId) -> &Worker {
        &self.workers[self.worker_of(ipcp).unwrap_or(0)]
    }

    /// All workers, including those that have only relays.
    fn all_workers(&self) -> impl Iterator<Item = &Worker> {
        let relay_workers = self.relay_workers.get().into_iter().flatten();
        self.workers.iter().chain(relay_workers)
    }

    /// The worker for a relay between two applications: each in turn.
    fn next_relay_worker(&self) -> &Worker {
        let more = self.relay_workers.get_or_init(|| {
            let first = self.workers.len();
            let numbers = first..first + self.relay_worker_count;
            // Without a free thread or descriptor, those that exist do the work.
            numbers
                .map_while(|number| self.start(number, None).ok())
                .collect()
        });
        let turn = self.relays.get();
        self.relays.set(turn.wrapping_add(1));
        let number = turn % (self.workers.len() + more.len());
        match number.checked_sub(self.workers.len()) {
            Some(number) => &more[number],
            None => &self.workers[number],
        }
    }

    /// Adds an IPCP of any kind. `ipcp` is its id in later commands and events, and must be new.
    /// The data plane reports [`Event::LinkDown`] when the app cannot be created.
    pub fn add_ipcp(&self, ipcp: IpcpId, builder: Box<dyn IpcpBuilder>) {
        let label = builder.label();
        let worker = self.worker_of(ipcp).unwrap_or(0);
        tracing::info!(target: "carina::dataplane", %ipcp, label, worker, "IPCP added");
        self.send(Command::AddIpcp { ipcp, builder });
    }

    /// Removes an IPCP: its flows fail, and its place on a worker becomes free.
    pub fn remove_ipcp(&mut self, ipcp: IpcpId) {
        tracing::info!(target: "carina::dataplane", %ipcp, "IPCP removed");
        self.send(Command::RemoveIpcp { ipcp });
        self.placed.remove(&ipcp);
    }

    /// Sends a command to the worker that must execute it; does not wait for the result.
    pub fn send(&self, command: Command) {
        let ipcp = match &command {
            Command::AddIpcp { ipcp, .. }
            | Command::Member { ipcp, .. }
            | Command::N1Up { ipcp, .. }
            | Command::Tap { ipcp, .. }
            | Command::RemoveIpcp { ipcp }
            | Command::Register { ipcp, .. }
            | Command::Unregister { ipcp, .. }
            | Command::Allocate { ipcp, .. } => *ipcp,
            Command::Cross(Crossed { ipcp, .. }) => *ipcp,
            Command::Respond { port, .. } => {
                let worker = PortTable::worker_of(*port).min(self.workers.len() - 1);
                return self.workers[worker].commands.put(command);
            }
            Command::Relay { .. } => return self.relay(command),
            Command::Deallocate { port, reason } => {
                // The worker of a relay is not recorded, so all workers get the command. Those that
                // do not know the port-id ignore it.
                for worker in self.all_workers() {
                    let (port, reason) = (*port, reason.clone());
                    worker.commands.put(Command::Deallocate { port, reason });
                }
                return;
            }
            Command::NotifyWhenIdle { idle } => {
                for worker in self.all_workers() {
                    let idle = idle.clone();
                    worker.commands.put(Command::NotifyWhenIdle { idle });
                }
                return;
            }
        };
        self.worker(ipcp).commands.put(command);
    }

    /// Waits until every worker has executed all earlier commands and no packets move any more, so
    /// that IPCPs have sent everything. Returns false if `deadline` passes first.
    pub fn wait_until_idle(&self, deadline: Instant) -> bool {
        // What a worker has moved to another worker moves on in the next round.
        let rounds = self.all_workers().count();
        (0..rounds).all(|_| {
            let (idle, answers) = channel();
            self.send(Command::NotifyWhenIdle { idle });
            (0..rounds).all(|_| {
                let left = deadline.saturating_duration_since(Instant::now());
                answers.recv_timeout(left).is_ok()
            })
        })
    }

    /// Connects two ends on this system, on the worker of an IPCP that is one of the ends. A relay
    /// without an IPCP goes to the worker whose turn it is.
    fn relay(&self, command: Command) {
        let Command::Relay { a, b, port } = command else {
            return;
        };
        let place = |end: &FlowEnd| match end {
            FlowEnd::Ipcp { ipcp, .. } => self.worker_of(*ipcp),
            _ => None,
        };
        let (at_a, at_b) = (place(&a), place(&b));
        let Some(at) = at_a.or(at_b) else {
            let worker = self.next_relay_worker();
            return worker.commands.put(Command::Relay { a, b, port });
        };
        let b = match b {
            FlowEnd::Ipcp { ipcp, n1 } if at_b != Some(at) => self.cross(at, ipcp, n1, port),
            b => Ok(b),
        };
        match b {
            Ok(b) => self.workers[at].commands.put(Command::Relay { a, b, port }),
            Err(error) => {
                let reason = format!("a channel between two data-plane threads: {error}");
                self.events.put(Event::FlowClosed { port, reason });
            }
        }
    }

    /// The end of a flow that the IPCP `below` provides and the IPCP `ipcp` uses as an N-1 flow;
    /// for [`Command::Allocate`] and [`Command::Respond`]. If the two IPCPs are on different
    /// workers, this call also sends [`Command::Cross`] to the user's worker, so that later
    /// commands about `n1` find the flow there.
    ///
    /// # Errors
    /// Memory or descriptors are used up.
    pub fn n1_end(
        &self,
        below: IpcpId,
        ipcp: IpcpId,
        n1: N1Port,
        port: PortId,
    ) -> io::Result<FlowEnd> {
        match (self.worker_of(below), self.worker_of(ipcp)) {
            (Some(lower), Some(upper)) if lower != upper => self.cross(lower, ipcp, n1, port),
            _ => Ok(FlowEnd::Ipcp { ipcp, n1 }),
        }
    }

    /// Creates a crossing between worker `at` and the worker of `ipcp`. Returns the end for `at`,
    /// and sends the other end to the user's worker.
    fn cross(&self, at: usize, ipcp: IpcpId, n1: N1Port, port: PortId) -> io::Result<FlowEnd> {
        let user = self.worker(ipcp).commands.clone();
        tracing::debug!(target: "carina::dataplane", %port, %ipcp, at, "flow to another worker");
        let [near, far] = crossing()?;
        let (end, with): (_, Crossing) = far;
        user.put(Command::Cross(Crossed {
            ipcp,
            n1,
            port,
            end,
            with,
        }));
        let (end, with) = near;
        Ok(FlowEnd::Elsewhere { end, with, user })
    }

    /// Returns the mailbox for commands about an IPCP, for other parts of the manager.
    #[must_use]
    pub fn commands(&self, ipcp: IpcpId) -> Mailbox<Command> {
        self.worker(ipcp).commands.clone()
    }

    /// Returns the next event, or `None`; does not wait. [`DataPlane::as_fd`] stays readable until
    /// this returns `None`.
    #[must_use]
    pub fn poll_event(&self) -> Option<Event> {
        self.events.take().inspect(trace::event)
    }

    /// Whether rings of flows in this process may use `WakeMode::Light`, provided that the
    /// application has also registered for membarrier.
    #[must_use]
    pub fn can_wake_lightly(&self) -> bool {
        self.can_wake_lightly
    }

    /// Whether all threads run. A thread ends only because of a fault of the system or of this
    /// code.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let is_alive = |thread: &JoinHandle<()>| !thread.is_finished();
        let mut workers = self.all_workers();
        workers.all(|worker| worker.thread.as_ref().is_some_and(is_alive))
    }
}

impl AsFd for DataPlane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        for worker in self.all_workers() {
            worker.commands.ring();
        }
        let relay_workers = self.relay_workers.get_mut().into_iter().flatten();
        for worker in self.workers.iter_mut().chain(relay_workers) {
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// Largest number of threads that move the bytes of relays, where no processors are configured.
const RELAY_THREADS_MAX: usize = 8;
