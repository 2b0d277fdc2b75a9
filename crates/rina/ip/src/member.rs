//! A member at work. Its first thread talks to the node and moves packets of one queue of the TUN
//! interface; a further queue has a further thread.
//!
//! ```text
//!   node -- requests, directory --> first worker -- accepted flows, members --> worker 2 ...
//!                                     | queue 1, its flows                        | queue 2
//! ```

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carina_api::control::Client;
use carina_api::paths::RunDir;
use carina_client::{Node, Registration};
use carina_netdev::{Masquerade, Tap};
use carina_sys::EventFd;

use crate::admission::Admissions;
use crate::directory::{self, Directory};
use crate::error::IpError;
use crate::interface::{self, TunInterface};
use crate::prefix::IpPrefix;
use crate::settings::IpSettings;
use crate::status::{Status, StatusSocket};
use crate::worker::inbox::{Inbox, Message};
use crate::worker::{Link, WAITING, Worker};

mod requests;

use requests::EarlyRequest;

/// A TUN interface whose packets travel over flows of a DIF.
#[derive(Debug)]
pub struct Member {
    settings: IpSettings,
    mtu: usize,
    is_steered: bool,
    own: Vec<IpPrefix>,
    members: BTreeSet<IpPrefix>,
    registrations: Vec<Registration>,
    directory: Directory,
    status: StatusSocket,
    admissions: Admissions,
    /// Flow requests of members whose prefix the directory does not have yet.
    early: Vec<EarlyRequest>,
    /// The worker of this thread.
    first: Worker,
    others: Vec<Other>,
    /// Tells this thread that another worker has ended.
    ended: Ended,
    _masquerade: Option<Masquerade>,
}

/// A worker in a thread of its own.
#[derive(Debug)]
struct Other {
    /// `None` while it runs.
    worker: Option<Worker>,
    inbox: Arc<Inbox>,
}

/// Why a worker has ended before it was stopped.
#[derive(Clone, Debug)]
struct Ended {
    signal: Arc<EventFd>,
    error: Arc<Mutex<Option<IpError>>>,
}

impl Member {
    /// Registers the prefixes of the settings in the DIF, and makes the interface. `run` is the run
    /// directory of the node.
    ///
    /// # Errors
    /// A setting is wrong, no node runs, this system is not in the DIF, the node refuses a name, or
    /// the kernel refuses the interface.
    pub fn start(node: Node, run: &RunDir, settings: IpSettings) -> Result<Member, IpError> {
        settings.check()?;
        let control = || Client::new(run.control_sock()).with_answer_limit(NODE_LIMIT);
        let carried = directory::carried(&control(), &settings.dif)?;
        let mtu = settings.mtu.unwrap_or(carried.mtu);
        let own = settings.own();
        let interface = interface::open(&settings, mtu)?;
        let registrations = own.iter().map(|prefix| {
            let name = prefix.name();
            let registered = node.register(&name, Some(&settings.dif));
            registered.map_err(|source| IpError::Register { name, source })
        });
        let registrations = registrations.collect::<Result<Vec<_>, IpError>>()?;
        let directory = Directory::start(control(), settings.dif.clone());
        let directory = directory.map_err(IpError::system("starting a thread"))?;
        let file = format!("{}-{}", std::process::id(), settings.tun);
        let status = StatusSocket::listen(run, &file);
        let TunInterface {
            queues,
            is_steered,
            masquerade,
        } = interface;
        let link = Link {
            dif: settings.dif.clone(),
            tun: settings.tun.clone(),
            mtu,
            carried,
            idle: Duration::from_millis(settings.idle_ms),
            own: own.clone(),
            workers: queues.len(),
            node,
            directory: directory.asker(),
        };
        let admissions = Admissions::new(queues.len());
        let (first, others) = workers(link, queues)?;
        let member = Member {
            first,
            others,
            status: status.map_err(IpError::system("making the socket of the status"))?,
            ended: Ended::new().map_err(IpError::system(WAITING))?,
            settings,
            mtu,
            is_steered,
            own,
            members: BTreeSet::new(),
            registrations,
            directory,
            admissions,
            early: Vec::new(),
            _masquerade: masquerade,
        };
        member.watch_all()?;
        Ok(member)
    }

    fn watch_all(&self) -> Result<(), IpError> {
        let first = &self.first;
        first.watch(self.directory.changed(), DIRECTORY)?;
        first.watch(&self.status, STATUS)?;
        first.watch(&*self.ended.signal, ENDED)?;
        for (index, registration) in self.registrations.iter().enumerate() {
            first.watch(registration, REGISTRATION + index as u32)?;
        }
        Ok(())
    }

    /// Moves packets until `stop` is readable. The calling thread serves the first queue; each
    /// further queue has a thread. The interface and its routes disappear when the member is
    /// dropped.
    ///
    /// # Errors
    /// A registration has ended, for instance because the node has ended; the interface was
    /// removed; or the system refuses to wait or another thread.
    pub fn run(&mut self, stop: impl AsFd) -> Result<(), IpError> {
        self.first.watch(&stop, STOP)?;
        let mut workers: Vec<Option<Worker>> = Vec::new();
        workers.extend(self.others.iter_mut().map(|other| other.worker.take()));
        let outcome = std::thread::scope(|scope| {
            let mut started = Ok(());
            for worker in workers.iter_mut().flatten() {
                let ended = self.ended.clone();
                let thread = std::thread::Builder::new().name(format!("ip {}", self.settings.tun));
                let thread = thread.spawn_scoped(scope, move || ended.run(worker));
                started = started.and(thread.map(drop));
            }
            let outcome = started.map_err(IpError::system("starting a thread"));
            let outcome = outcome.and_then(|()| self.run_first());
            for other in &self.others {
                other.inbox.send(Message::Stop);
            }
            outcome
        });
        for (other, worker) in self.others.iter_mut().zip(workers) {
            other.worker = worker;
        }
        self.ended.signal.drain();
        outcome?;
        self.first.unwatch(&stop)
    }

    fn run_first(&mut self) -> Result<(), IpError> {
        let mut items = Vec::new();
        loop {
            let early = self.early.iter().map(|early| early.until).min();
            let now = self.first.turn(early, &mut items)?;
            for item in items.drain(..) {
                match item {
                    STOP => return Ok(()),
                    DIRECTORY => self.take_prefixes(now),
                    STATUS => self.status.answer(|| self.status()),
                    ENDED => self.ended.take()?,
                    registration => {
                        self.take_requests((registration - REGISTRATION) as usize, now)?
                    }
                }
            }
            if self.early.iter().any(|early| early.until <= now) {
                self.answer_early(now);
            }
        }
    }

    fn take_prefixes(&mut self, now: Instant) {
        let Some(prefixes) = self.directory.take() else {
            return;
        };
        let others = prefixes.all.into_iter();
        let settings = &self.settings;
        let others = others.filter(|other| settings.may_have(*other));
        self.members = others.filter(|other| !self.own.contains(other)).collect();
        let members = self.members.iter().copied();
        let is_complete = prefixes.is_complete;
        self.first.router.set_members(members.clone(), is_complete);
        if !self.others.is_empty() {
            let members: Arc<[IpPrefix]> = members.collect();
            for other in &self.others {
                let message = Message::Members(Arc::clone(&members), is_complete);
                other.inbox.send(message);
            }
        }
        self.answer_early(now);
    }

    /// Returns the state of the member. Workers other than the first report theirs with a delay of
    /// up to 50 ms.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut state = self.first.state();
        for other in &self.others {
            let report = other.inbox.report();
            state.flows.extend(report.flows);
            state.counters.add(&report.counters);
        }
        Status {
            dif: self.settings.dif.clone(),
            tun: self.settings.tun.clone(),
            addresses: self.settings.address.clone(),
            mtu: self.mtu,
            queues: 1 + self.others.len(),
            is_steered: self.is_steered,
            offloads: self.first.tap().offload().into(),
            own: self.own.clone(),
            members: self.members.iter().copied().collect(),
            is_complete: self.first.router.is_complete(),
            flows: state.flows,
            counters: state.counters,
        }
    }
}

/// Makes a worker for each queue of the interface.
fn workers(link: Link, queues: Vec<Tap>) -> Result<(Worker, Vec<Other>), IpError> {
    let mut queues = queues.into_iter();
    let queue = queues.next().expect("an interface has a queue");
    let others = queues.map(|queue| {
        let inbox = Arc::new(Inbox::new().map_err(IpError::system(WAITING))?);
        let worker = Worker::new(link.clone(), queue, Some(Arc::clone(&inbox)))?;
        let worker = Some(worker);
        Ok(Other { worker, inbox })
    });
    let others = others.collect::<Result<Vec<_>, IpError>>()?;
    Ok((Worker::new(link, queue, None)?, others))
}

impl Ended {
    fn new() -> std::io::Result<Ended> {
        Ok(Ended {
            signal: Arc::new(EventFd::new()?),
            error: Arc::default(),
        })
    }

    /// Runs a worker, and tells the first one how it ended.
    fn run(&self, worker: &mut Worker) {
        /// Tells of the end also if the thread panics.
        struct Signal<'a>(&'a EventFd);
        impl Drop for Signal<'_> {
            fn drop(&mut self) {
                self.0.signal();
            }
        }
        let _signal = Signal(&self.signal);
        if let Err(error) = worker.run() {
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    /// Returns why a worker has ended.
    fn take(&self) -> Result<(), IpError> {
        self.signal.drain();
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let panicked = || IpError::system("moving packets")(std::io::ErrorKind::Other.into());
        Err(error.take().unwrap_or_else(panicked))
    }
}

const STOP: u32 = 0;
const DIRECTORY: u32 = 1;
const STATUS: u32 = 2;
const ENDED: u32 = 3;
/// The first registration; others follow.
const REGISTRATION: u32 = 4;

/// How long the node may take for one answer.
const NODE_LIMIT: Duration = Duration::from_millis(1500);
