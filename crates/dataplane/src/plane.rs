//! The data plane as the manager sees it: one thread, one engine, commands in and events out.

mod flows;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use carina_api::IpcpId;
use carina_engine::counters::{Kind, Table};
use carina_engine::{AppId, Engine, Pool};
use carina_sys::{ask_for_short_slices, monotonic_ns};

use crate::command::Command;
use crate::event::Event;
use crate::ipcp_app::{AppContext, BuildError, IpcpBuilder, MemberRequest, Request, RequestQueue};
use crate::mailbox::Mailbox;
use crate::port_table::PortTable;
use crate::socket_flow::Lingering;
use crate::tap::Taps;
use crate::trace;

/// The data plane's thread. Ends when dropped, and its flows with it.
pub struct DataPlane {
    commands: Mailbox<Command>,
    events: Mailbox<Event>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    can_wake_lightly: bool,
}

impl DataPlane {
    /// Starts the thread; its counters go to rows of `counters`.
    ///
    /// # Errors
    /// When the system has no thread or descriptor to give.
    pub fn spawn(counters: Table) -> io::Result<DataPlane> {
        let (commands, events) = (Mailbox::new()?, Mailbox::new()?);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (started, start) = std::sync::mpsc::channel();
        let (inbox, outbox, stop) = (commands.clone(), events.clone(), Arc::clone(&is_stopping));
        let thread = std::thread::Builder::new()
            .name("data-plane".to_owned())
            .spawn(move || match Plane::new(counters, inbox, outbox) {
                Ok(mut plane) => {
                    let _ = started.send(Ok(()));
                    plane.run(&stop);
                }
                Err(error) => drop(started.send(Err(error))),
            })?;
        let result = start.recv();
        let plane = DataPlane {
            can_wake_lightly: carina_sys::membarrier_register(),
            commands,
            events,
            is_stopping,
            thread: Some(thread),
        };
        match result {
            Ok(result) => result.map(|()| plane),
            Err(_) => Err(io::Error::other(
                "the data plane's thread ended at its start",
            )),
        }
    }

    /// Adds an IPCP of any kind; `ipcp` is the id that later commands and events carry, and must be
    /// new. The answer is [`Event::LinkDown`] when the app cannot be made.
    pub fn add_ipcp(&self, ipcp: IpcpId, builder: Box<dyn IpcpBuilder>) {
        let label = builder.label();
        tracing::info!(target: "carina::dataplane", %ipcp, label, "IPCP added");
        self.send(Command::AddIpcp { ipcp, builder });
    }

    /// Gives a command.
    pub fn send(&self, command: Command) {
        if let Command::RemoveIpcp { ipcp } = &command {
            tracing::info!(target: "carina::dataplane", %ipcp, "IPCP removed");
        }
        self.commands.put(command);
    }

    /// The mailbox of commands, for other parts of the manager.
    #[must_use]
    pub fn commands(&self) -> Mailbox<Command> {
        self.commands.clone()
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

    /// False when the thread has ended, which only a fault of the system or of this code does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
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
        self.commands.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An IPCP on the data plane.
struct IpcpHandle {
    app: AppId,
    requests: RequestQueue,
    /// Its protocol keeps the peer within the credit that it was given.
    enforces_credit: bool,
    uses_n1_flows: bool,
    taps: Taps,
}

/// What the thread owns.
struct Plane {
    engine: Engine,
    counters: Table,
    commands: Mailbox<Command>,
    events: Mailbox<Event>,
    ports: PortTable,
    ipcps: HashMap<IpcpId, IpcpHandle>,
    lingering: Lingering,
}

impl Plane {
    fn new(
        counters: Table,
        commands: Mailbox<Command>,
        events: Mailbox<Event>,
    ) -> io::Result<Plane> {
        let row = counters.row(Kind::Engine, 0, "data-plane");
        let engine = Engine::new(row, Pool::new(POOL_BYTES_MAX))?;
        engine.watch_outside(&commands)?;
        Ok(Plane {
            engine,
            counters,
            commands,
            events,
            ports: PortTable::default(),
            ipcps: HashMap::new(),
            lingering: Lingering::default(),
        })
    }

    fn run(&mut self, stop: &AtomicBool) {
        // Best effort: all applications wait for this thread, and it never has much to do at once.
        let _ = ask_for_short_slices(SLICE_NS);
        let mut has_commands = true;
        while !stop.load(Ordering::Acquire) {
            if has_commands {
                while let Some(command) = self.commands.take() {
                    self.execute(command);
                }
                // Emptying the mailbox silences its doorbell, which may have rung for the stop.
                if stop.load(Ordering::Acquire) {
                    return;
                }
            }
            let moved = self.engine.breathe(monotonic_ns());
            has_commands = match self.engine.rest(moved) {
                Ok(rang) => rang,
                // Epoll on descriptors that are open fails only for want of kernel memory.
                Err(_) => {
                    std::thread::yield_now();
                    true
                }
            };
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::AddIpcp { ipcp, builder } => {
                if let Err(error) = self.add_ipcp(ipcp, builder) {
                    let reason = error.to_string();
                    self.events.put(Event::LinkDown { ipcp, reason });
                }
            }
            Command::Member { ipcp, command } => {
                self.request_member(ipcp, MemberRequest::Command(command));
            }
            Command::N1Up { ipcp, n1, props } => {
                self.request_member(ipcp, MemberRequest::N1Up { n1, props });
            }
            Command::Tap { ipcp, tap } => {
                if let Some(handle) = self.ipcps.get(&ipcp) {
                    handle.taps.add(tap);
                }
            }
            Command::RemoveIpcp { ipcp } => {
                self.request(ipcp, Request::Remove);
                self.ipcps.remove(&ipcp);
            }
            Command::Register { ipcp, name, reader } => {
                self.request(ipcp, Request::Register(name, reader));
            }
            Command::Unregister { ipcp, name } => self.request(ipcp, Request::Unregister(name)),
            Command::Allocate {
                ipcp,
                port,
                local,
                remote,
                spec,
                end,
            } => {
                let name = format!("{local} > {remote} via ipcp {ipcp}");
                match self.attach(ipcp, port, name, end) {
                    Ok(links) => {
                        self.request(
                            ipcp,
                            Request::Allocate {
                                port,
                                local,
                                remote,
                                spec,
                                links,
                            },
                        );
                    }
                    Err(error) => {
                        self.events.put(Event::AllocateResult {
                            port,
                            result: Err(error.to_string()),
                        });
                    }
                }
            }
            Command::Respond { port, answer } => self.respond(port, answer),
            Command::Relay { a, b, port } => {
                if let Err(error) = self.relay(a, b, port) {
                    let reason = error.to_string();
                    self.events.put(Event::FlowClosed { port, reason });
                }
            }
            Command::Deallocate { port, reason } => self.deallocate(port, reason),
        }
    }

    fn add_ipcp(&mut self, ipcp: IpcpId, builder: Box<dyn IpcpBuilder>) -> Result<(), BuildError> {
        if self.ipcps.contains_key(&ipcp) {
            return Err(BuildError::Exists(ipcp));
        }
        let id = self.engine.reserve();
        let handle = IpcpHandle {
            app: id,
            requests: RequestQueue::default(),
            enforces_credit: builder.enforces_credit(),
            uses_n1_flows: builder.uses_n1_flows(),
            taps: Taps::default(),
        };
        let label = builder.label();
        let context = AppContext {
            id,
            ipcp,
            requests: handle.requests.clone(),
            events: self.events.clone(),
            ports: self.ports.clone(),
            row: self.counters.row(Kind::Ipcp, u64::from(ipcp.0), &label),
            pool: self.engine.pool().clone(),
            taps: handle.taps.clone(),
        };
        let app = builder
            .build(context)
            .inspect_err(|_| self.engine.release(id))?;
        self.engine.add(id, app)?;
        self.ipcps.insert(ipcp, handle);
        Ok(())
    }

    fn request(&mut self, ipcp: IpcpId, request: Request) {
        if let Some(handle) = self.ipcps.get(&ipcp) {
            handle.requests.push(request);
            self.engine.wake(handle.app);
        }
    }

    /// Leaves a request that only a normal IPCP can carry out; others never see it.
    fn request_member(&mut self, ipcp: IpcpId, request: MemberRequest) {
        if self.ipcps.get(&ipcp).is_some_and(|ipcp| ipcp.uses_n1_flows) {
            self.request(ipcp, Request::Member(request));
        }
    }
}

/// Bytes that socket ends may hold in buffers all together.
const POOL_BYTES_MAX: usize = 256 << 20;

/// Time slices of the data-plane thread, in ns: the shortest the scheduler knows.
const SLICE_NS: u64 = 100_000;
