//! The data plane as the manager sees it: threads, commands in and events out.
//!
//! Each thread, a *worker*, has an engine of its own. An IPCP stays on the worker on which it was
//! placed, and so do the flows that it provides. Only an N-1 flow whose user is on another worker
//! spans two ([`crate::crossing`]).

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

use crate::command::{Command, FlowEnd};
use crate::crossing::{Crossed, Crossing, crossing};
use crate::event::Event;
use crate::ipcp_app::IpcpBuilder;
use crate::mailbox::Mailbox;
use crate::plane::{Plane, thread_name};
use crate::port_table::PortTable;
use crate::trace;

/// The data plane's threads. They end when this is dropped, and their flows with them.
pub struct DataPlane {
    workers: Vec<Worker>,
    events: Mailbox<Event>,
    is_stopping: Arc<AtomicBool>,
    /// The worker of each IPCP.
    placed: BTreeMap<IpcpId, usize>,
    can_wake_lightly: bool,
}

/// How many threads the data plane has, and where they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// How many, from 1 to [`WORKERS_MAX`](crate::WORKERS_MAX).
    pub count: usize,
    /// The processor of each; empty to leave them to the scheduler.
    pub cpus: Vec<usize>,
}

struct Worker {
    commands: Mailbox<Command>,
    thread: Option<JoinHandle<()>>,
}

impl DataPlane {
    /// Starts one thread; its counters go to rows of `counters`.
    ///
    /// # Errors
    /// When the system has no thread or descriptor to give.
    pub fn spawn(counters: Table) -> io::Result<DataPlane> {
        let one = Workers {
            count: 1,
            cpus: Vec::new(),
        };
        DataPlane::spawn_workers(&one, counters)
    }

    /// Starts the threads; their counters go to rows of `counters`.
    ///
    /// # Errors
    /// When the system has no thread, descriptor or processor to give.
    pub fn spawn_workers(workers: &Workers, counters: Table) -> io::Result<DataPlane> {
        let mut plane = DataPlane {
            workers: Vec::new(),
            events: Mailbox::new()?,
            is_stopping: Arc::new(AtomicBool::new(false)),
            placed: BTreeMap::new(),
            can_wake_lightly: carina_sys::membarrier_register(),
        };
        for number in 0..workers.count {
            let cpu = workers.cpus.get(number).copied();
            let worker = plane.start(number, cpu, counters.clone())?;
            plane.workers.push(worker);
        }
        Ok(plane)
    }

    fn start(&self, number: usize, cpu: Option<usize>, counters: Table) -> io::Result<Worker> {
        let commands = Mailbox::new()?;
        let (started, start) = std::sync::mpsc::channel();
        let (inbox, outbox) = (commands.clone(), self.events.clone());
        let stop = Arc::clone(&self.is_stopping);
        let settle = move || cpu.map_or(Ok(()), carina_sys::settle_on_cpu);
        let thread = std::thread::Builder::new()
            .name(thread_name(number))
            .spawn(move || {
                // The engine asks how many processors there are before it has one for itself.
                let plane = Plane::new(number, counters, inbox, outbox);
                match plane.and_then(|plane| settle().map(|()| plane)) {
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

    /// How many threads there are.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Chooses the worker of an IPCP that is about to be added: `wanted`, where that is one; else
    /// the one that has most of the IPCPs in `below`, whose flows it is to use; of several, the one
    /// with the fewest IPCPs. An IPCP that is not placed is on the first.
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
                // The lowest number of those that are alike.
                (users, std::cmp::Reverse((count(&|_| true, number), number)))
            })
        });
        self.placed.insert(ipcp, best.unwrap_or(0));
    }

    /// The worker of an IPCP that was placed.
    #[must_use]
    pub fn worker_of(&self, ipcp: IpcpId) -> Option<usize> {
        self.placed.get(&ipcp).copied()
    }

    fn worker(&self, ipcp: IpcpId) -> &Worker {
        &self.workers[self.worker_of(ipcp).unwrap_or(0)]
    }

    /// Adds an IPCP of any kind; `ipcp` is the id that later commands and events carry, and must be
    /// new. The answer is [`Event::LinkDown`] when the app cannot be made.
    pub fn add_ipcp(&self, ipcp: IpcpId, builder: Box<dyn IpcpBuilder>) {
        let label = builder.label();
        let worker = self.worker_of(ipcp).unwrap_or(0);
        tracing::info!(target: "carina::dataplane", %ipcp, label, worker, "IPCP added");
        self.send(Command::AddIpcp { ipcp, builder });
    }

    /// Ends an IPCP: its flows fail, and its place is free.
    pub fn remove_ipcp(&mut self, ipcp: IpcpId) {
        tracing::info!(target: "carina::dataplane", %ipcp, "IPCP removed");
        self.send(Command::RemoveIpcp { ipcp });
        self.placed.remove(&ipcp);
    }

    /// Gives a command to the worker that it concerns.
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
                // The worker of a relay is nowhere noted; the others pass over it.
                for worker in &self.workers {
                    let (port, reason) = (*port, reason.clone());
                    worker.commands.put(Command::Deallocate { port, reason });
                }
                return;
            }
            Command::Settle { settled } => {
                for worker in &self.workers {
                    let settled = settled.clone();
                    worker.commands.put(Command::Settle { settled });
                }
                return;
            }
        };
        self.worker(ipcp).commands.put(command);
    }

    /// Waits until every worker has carried out the commands so far and moves nothing any more:
    /// what the IPCPs had to send has left them. False when that takes until `deadline`.
    pub fn settle(&self, deadline: Instant) -> bool {
        // What one worker moves to another, the other moves on in the next round.
        let rounds = self.workers.len();
        (0..rounds).all(|_| {
            let (settled, answers) = channel();
            self.send(Command::Settle { settled });
            (0..rounds).all(|_| {
                let left = deadline.saturating_duration_since(Instant::now());
                answers.recv_timeout(left).is_ok()
            })
        })
    }

    /// Joins two ends of this system on the worker of an IPCP that is one of them.
    fn relay(&self, command: Command) {
        let Command::Relay { a, b, port } = command else {
            return;
        };
        let place = |end: &FlowEnd| match end {
            FlowEnd::Ipcp { ipcp, .. } => self.worker_of(*ipcp),
            _ => None,
        };
        let (at_a, at_b) = (place(&a), place(&b));
        let at = at_a.or(at_b).unwrap_or(0);
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

    /// The end of a flow of the IPCP `below` that becomes an N-1 flow of `ipcp`, for
    /// [`Command::Allocate`] and [`Command::Respond`]. Where the two are on different workers, the
    /// user's half is there before a later command about `n1`.
    ///
    /// # Errors
    /// When memory or descriptors are short.
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

    /// Makes a crossing from worker `at` to that of `ipcp`, and gives the end for `at`.
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

    /// The mailbox of commands for an IPCP, for other parts of the manager.
    #[must_use]
    pub fn commands(&self, ipcp: IpcpId) -> Mailbox<Command> {
        self.worker(ipcp).commands.clone()
    }

    /// The next event. [`DataPlane::as_fd`] is readable until this has said `None`.
    #[must_use]
    pub fn poll_event(&self) -> Option<Event> {
        self.events.take().inspect(trace::event)
    }

    /// True when flow rings of this process may be made with `WakeMode::Light`, provided that the
    /// application has registered for membarrier too.
    #[must_use]
    pub fn can_wake_lightly(&self) -> bool {
        self.can_wake_lightly
    }

    /// False when a thread has ended, which only a fault of the system or of this code does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let is_alive = |thread: &JoinHandle<()>| !thread.is_finished();
        let mut workers = self.workers.iter();
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
        for worker in &self.workers {
            worker.commands.ring();
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
