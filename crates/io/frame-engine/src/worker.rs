//! A worker: a thread with a network that runs a part of the graph.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use carina_frame::{Pool, PoolConfig};
use carina_sys::{CpuClock, EventFd, ask_for_short_slices, bind_to_cpu, cpu_time_ns, monotonic_ns};
use carina_time::Instant;

use crate::app::Opened;
use crate::configure_error::{ConfigureError, WorkerError};
use crate::counter_file::CounterFile;
use crate::doorbell::NetworkDoorbell;
use crate::graph::LinkName;
use crate::link::LinkCounts;
use crate::network::Network;
use crate::notices::Notices;
use crate::part::{Discarded, Part, Prepared, Refusal, drop_together};
use crate::rest::Rest;
use crate::tap::Tap;

/// The settings for starting a worker.
pub(super) struct Start {
    pub(super) number: usize,
    pub(super) cpu: Option<usize>,
    pub(super) pool: PoolConfig,
    pub(super) counters: CounterFile,
    pub(super) notices: Notices,
}

/// The handle of a running worker. Dropping it ends the worker.
pub(super) struct Worker {
    number: usize,
    commands: Sender<Command>,
    doorbell: Arc<EventFd>,
    network_doorbell: Arc<NetworkDoorbell>,
    thread: Option<JoinHandle<()>>,
}

/// What a worker reports about its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) cpu_ns: u64,
    pub(super) links: Vec<(LinkName, LinkCounts)>,
}

/// Whether the new apps of a part were built.
type Made = Result<(), Box<Refusal>>;

enum Command {
    Prepare(Part, Sender<Made>),
    /// What the apps of a part have opened, for the `Prepare` with this number.
    Opened(u64, Part, BTreeMap<String, Opened>, Sender<Made>),
    Commit(Sender<Discarded>),
    Abandon(Sender<Discarded>),
    Pin(Option<usize>, Sender<io::Result<()>>),
    Report(Sender<Work>),
    Trace(LinkName, Tap, Sender<bool>),
    Stop,
}

impl Worker {
    /// Starts a thread, and waits until it runs.
    pub(super) fn start(start: Start) -> Result<Worker, WorkerError> {
        let (commands, inbox) = mpsc::channel();
        let own_commands = commands.clone();
        let (ready, started) = mpsc::channel();
        let doorbell = Arc::new(EventFd::new()?);
        let (number, theirs) = (start.number, Arc::clone(&doorbell));
        let thread = std::thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(
                move || match Inside::new(start, (own_commands, inbox), theirs) {
                    Ok(inside) => {
                        let _ = ready.send(Ok(Arc::clone(inside.network.shared_doorbell())));
                        inside.run();
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                },
            )?;
        let ended = || io::Error::other("the thread of the worker has ended");
        let network_doorbell = started.recv_timeout(PATIENCE).map_err(|_| ended())??;
        Ok(Worker {
            number,
            commands,
            doorbell,
            network_doorbell,
            thread: Some(thread),
        })
    }

    pub(super) fn network_doorbell(&self) -> Arc<NetworkDoorbell> {
        Arc::clone(&self.network_doorbell)
    }

    /// Sends a command that has an answer. [`Worker::answer`] waits for it.
    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Receiver<T> {
        let (reply, answer) = mpsc::channel();
        self.tell(command(reply));
        answer
    }

    fn tell(&self, command: Command) {
        // If the thread has ended, the missing answer shows that.
        let _ = self.commands.send(command);
        self.doorbell.signal();
    }

    /// Waits for the answer to a command.
    pub(super) fn answer<T>(&self, answer: &Receiver<T>) -> Result<T, ConfigureError> {
        let worker = self.number;
        let answer = answer.recv_timeout(PATIENCE);
        answer.map_err(|_| ConfigureError::Silent { worker })
    }

    pub(super) fn prepare(&self, part: Part) -> Receiver<Made> {
        self.ask(|reply| Command::Prepare(part, reply))
    }

    /// Commits the prepared part. The answer is what the worker has given up; the caller must drop
    /// it.
    pub(super) fn commit(&self) -> Receiver<Discarded> {
        self.ask(Command::Commit)
    }

    /// Discards the prepared part. The answer is that part; the caller must drop it.
    pub(super) fn abandon(&self) -> Receiver<Discarded> {
        self.ask(Command::Abandon)
    }

    pub(super) fn pin(&self, cpu: Option<usize>) -> Receiver<io::Result<()>> {
        self.ask(|reply| Command::Pin(cpu, reply))
    }

    pub(super) fn report(&self) -> Receiver<Work> {
        self.ask(Command::Report)
    }

    pub(super) fn trace(&self, link: LinkName, tap: Tap) -> Receiver<bool> {
        self.ask(|reply| Command::Trace(link, tap, reply))
    }

    pub(super) fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state on the worker's thread.
struct Inside {
    rest: Rest,
    network: Network,
    /// The processors that the thread was allowed to use at its start.
    cpus: Vec<usize>,
    number: usize,
    inbox: Receiver<Command>,
    /// Sends to `inbox`, for threads that this thread starts.
    commands: Sender<Command>,
    doorbell: Arc<EventFd>,
    /// Number of preparations that were started or abandoned.
    preparations: u64,
    prepared: Option<Prepared>,
}

impl Inside {
    fn new(
        start: Start,
        (commands, inbox): (Sender<Command>, Receiver<Command>),
        doorbell: Arc<EventFd>,
    ) -> Result<Inside, WorkerError> {
        let cpus = carina_sys::allowed_cpus()?;
        if let Some(cpu) = start.cpu {
            bind_to_cpu(cpu)?;
        }
        let network = Network::new(Pool::new(start.pool)?, start.counters)?;
        let mut network = network.with_notices(start.notices);
        network.set_clock(|| Instant::from_nanos(monotonic_ns()));
        let rest = Rest::new(&network, &doorbell)?;
        Ok(Inside {
            rest,
            network,
            cpus,
            number: start.number,
            inbox,
            commands,
            doorbell,
            preparations: 0,
            prepared: None,
        })
    }

    fn run(mut self) {
        // Best effort. If another program fills a queue within one long time slice, everything
        // beyond the full queue is lost before this thread runs.
        let _ = ask_for_short_slices();
        loop {
            let now = Instant::from_nanos(monotonic_ns());
            let moved = self.rest.breathe(&mut self.network, now);
            // epoll does not fail for open descriptors. If it does, commands are checked in every
            // breath.
            if self.rest.rest(moved).unwrap_or(true) && self.obey().is_break() {
                return;
            }
        }
    }

    /// Executes the commands that have arrived.
    fn obey(&mut self) -> std::ops::ControlFlow<()> {
        self.doorbell.drain();
        while let Ok(command) = self.inbox.try_recv() {
            match command {
                Command::Prepare(part, reply) => self.open(part, reply),
                Command::Opened(number, part, opened, reply) => {
                    // The caller may have given up and requested something else since.
                    if number == self.preparations {
                        self.prepare(part, opened, &reply)
                    } else {
                        drop(std::thread::Builder::new().spawn(move || drop_opened(opened)))
                    }
                }
                Command::Commit(reply) => {
                    let mut discarded = Discarded::default();
                    if let Some(prepared) = self.prepared.take() {
                        discarded = self.network.commit(prepared).1;
                        self.rest.wake();
                    }
                    let _ = reply.send(discarded);
                }
                Command::Abandon(reply) => {
                    self.preparations += 1;
                    let prepared = self.prepared.take();
                    let _ = reply.send(prepared.map(Prepared::dismantle).unwrap_or_default());
                }
                Command::Pin(cpu, reply) => {
                    let all = || carina_sys::allow_cpus(None, &self.cpus);
                    let _ = reply.send(cpu.map_or_else(all, bind_to_cpu));
                }
                Command::Report(reply) => {
                    let links = self.network.link_counts();
                    let _ = reply.send(Work {
                        cpu_ns: cpu_time_ns(CpuClock::Thread),
                        links: links.map(|(name, counts)| (name.clone(), counts)).collect(),
                    });
                }
                Command::Trace(link, tap, reply) => {
                    let _ = reply.send(self.network.trace(&link, tap));
                }
                Command::Stop => return std::ops::ControlFlow::Break(()),
            }
        }
        std::ops::ControlFlow::Continue(())
    }

    /// Starts a thread on which apps open what they need, while this thread moves frames.
    fn open(&mut self, part: Part, reply: Sender<Made>) {
        self.preparations += 1;
        let opening = self.network.opening(&part);
        if opening.apps.is_empty() {
            return self.prepare(part, BTreeMap::new(), &reply);
        }
        let (number, commands) = (self.preparations, self.commands.clone());
        let (cpus, doorbell) = (self.cpus.clone(), Arc::clone(&self.doorbell));
        let job = move || {
            // The new thread must not run on the processor that this worker may have for itself.
            let _ = carina_sys::allow_cpus(None, &cpus);
            let opened = opening.open();
            // The worker may have ended in the meantime.
            let _ = commands.send(Command::Opened(number, part, opened, reply));
            doorbell.signal();
        };
        // If no thread can be started, `reply` is dropped with the job, and the caller gets no
        // answer.
        let _ = std::thread::Builder::new()
            .name(format!("worker-{}-open", self.number))
            .spawn(job);
    }

    fn prepare(&mut self, part: Part, opened: BTreeMap<String, Opened>, reply: &Sender<Made>) {
        let made = self.network.prepare(part, opened);
        let _ = reply.send(made.map(|made| self.prepared = Some(made)));
    }
}

fn drop_opened(opened: BTreeMap<String, Opened>) {
    drop_together(opened.into_values().filter_map(Result::ok).collect());
}

/// How long a worker may take for an answer: an app may be opening a table of millions of rows.
const PATIENCE: Duration = Duration::from_secs(60);
