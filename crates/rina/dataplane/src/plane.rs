//! A thread of the data plane: an engine, with commands as input and events as output.

mod flows;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use carina_api::IpcpId;
use carina_engine::counters::{Kind, Table};
use carina_engine::{AppId, Engine, Pool};
use carina_frame_engine::tap::Taps;
use carina_sys::{ask_for_short_slices, monotonic_ns};
use carina_time::Instant;

use crate::breath_budget::BreathBudget;
use crate::command::Command;
use crate::event::Event;
use crate::ipcp_app::{AppContext, BuildError, IpcpBuilder, MemberRequest, Request, RequestQueue};
use crate::mailbox::Mailbox;
use crate::port_table::PortTable;
use crate::socket_end::Lingering;

/// An IPCP on this thread.
struct IpcpHandle {
    app: AppId,
    requests: RequestQueue,
    /// Whether the IPCP's protocol keeps the peer within its credit.
    enforces_credit: bool,
    uses_n1_flows: bool,
    taps: Taps,
}

/// The state of a data-plane thread.
pub(crate) struct Plane {
    engine: Engine,
    counters: Table,
    commands: Mailbox<Command>,
    events: Mailbox<Event>,
    ports: PortTable,
    ipcps: HashMap<IpcpId, IpcpHandle>,
    lingering: Lingering,
    /// What the stream sockets of this worker may read in a breath.
    budget: BreathBudget,
    /// Threads that wait until nothing moves any more; each is sent one message then.
    idle_waiters: Vec<Sender<()>>,
    /// Breaths since a packet last moved.
    quiet_breaths: u32,
}

impl Plane {
    /// Creates the state of worker `number`.
    pub(crate) fn new(
        number: usize,
        counters: Table,
        commands: Mailbox<Command>,
        events: Mailbox<Event>,
    ) -> io::Result<Plane> {
        let row = counters.row(Kind::Engine, number as u64, &thread_name(number));
        let engine = Engine::new(row, Pool::new(POOL_BYTES_MAX))?;
        engine.watch_outside(&commands)?;
        Ok(Plane {
            engine,
            counters,
            commands,
            events,
            ports: PortTable::of_worker(number),
            ipcps: HashMap::new(),
            lingering: Lingering::default(),
            budget: BreathBudget::default(),
            idle_waiters: Vec::new(),
            quiet_breaths: 0,
        })
    }

    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        // A failure is ignored. Short time slices help because all applications wait for this
        // thread, which never has much to do at once.
        let _ = ask_for_short_slices();
        let mut has_commands = true;
        while !stop.load(Ordering::Acquire) {
            if has_commands {
                while let Some(command) = self.commands.take() {
                    self.execute(command);
                }
                // Emptying the mailbox has silenced its doorbell, which may have rung because of
                // the stop.
                if stop.load(Ordering::Acquire) {
                    return;
                }
            }
            let moved = self.engine.breathe(Instant::from_nanos(monotonic_ns()));
            let moved = self.is_settling(moved) || moved;
            has_commands = match self.engine.rest(moved) {
                Ok(rang) => rang,
                // With valid descriptors, waiting fails only if the kernel lacks memory.
                Err(_) => {
                    std::thread::yield_now();
                    true
                }
            };
        }
    }

    /// Whether a [`Command::NotifyWhenIdle`] needs further breaths. Answers those that do not.
    fn is_settling(&mut self, moved: bool) -> bool {
        if self.idle_waiters.is_empty() {
            return false;
        }
        self.quiet_breaths = if moved { 0 } else { self.quiet_breaths + 1 };
        if self.quiet_breaths < QUIET_BREATHS {
            return true;
        }
        for idle in self.idle_waiters.drain(..) {
            // The manager may have given up waiting.
            let _ = idle.send(());
        }
        false
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
            Command::Cross(crossed) => self.cross(crossed),
            Command::Deallocate { port, reason } => self.deallocate(port, reason),
            Command::NotifyWhenIdle { idle } => {
                self.idle_waiters.push(idle);
                self.quiet_breaths = 0;
            }
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

    /// Adds a request that only a normal IPCP can process. Ignored for other IPCPs.
    fn request_member(&mut self, ipcp: IpcpId, request: MemberRequest) {
        if self.ipcps.get(&ipcp).is_some_and(|ipcp| ipcp.uses_n1_flows) {
            self.request(ipcp, Request::Member(request));
        }
    }
}

/// Name of a worker's thread, and of its row in the counters.
pub(crate) fn thread_name(number: usize) -> String {
    match number {
        0 => "data-plane".to_owned(),
        number => format!("data-plane-{number}"),
    }
}

/// Number of breaths without movement after which a plane has settled. A packet that moves to an
/// app that was already visited in a breath moves on in the next one.
const QUIET_BREATHS: u32 = 2;

/// Largest number of bytes in all buffers of socket ends together.
const POOL_BYTES_MAX: usize = 256 << 20;
