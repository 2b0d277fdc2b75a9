//! The data plane as the manager sees it: one thread, one engine, orders in and events out.

mod ends;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use carina_api::{IpcpId, PortId};
use carina_engine::counters::{Kind, Table};
use carina_engine::{AppId, Close, Credit, Engine, LinkId, Pool};
use carina_sys::{ask_for_short_slices, monotonic_ns};

use crate::command::{Command, Event, FlowEnd, NewNormal};
use crate::flow::{CloseOrder, Flow};
use crate::hub::{Directory, Holder, Order, Orders, Place, Wires};
use crate::hv::{Hv, Parts};
use crate::mailbox::Mailbox;
use crate::medium::{HubParts, Medium};
use crate::normal::{self, N1Wires, Normal, NormalOrder, NormalOrders};
use crate::ring_flow::{RingFlow, piece_max, window_of};
use crate::socket_flow::{SOCKET_WINDOW, SocketFlow};
use crate::tap::Taps;

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

    /// Gives an order.
    pub fn send(&self, command: Command) {
        self.commands.put(command);
    }

    /// A box for orders, for other parts of the manager.
    #[must_use]
    pub fn commands(&self) -> Mailbox<Command> {
        self.commands.clone()
    }

    /// The next event. [`DataPlane::as_fd`] is readable until this has said `None`.
    #[must_use]
    pub fn poll_event(&self) -> Option<Event> {
        self.events.take()
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

/// The app of an IPCP and its box for orders.
enum Seat {
    /// A shim whose protocol keeps the peer to the credit it was given.
    Shim(AppId, Orders),
    /// A shim over a network, which keeps nobody to anything.
    Medium(AppId, Orders),
    /// A normal IPCP.
    Normal(AppId, NormalOrders),
}

impl Seat {
    fn app(&self) -> AppId {
        match self {
            Seat::Shim(app, _) | Seat::Medium(app, _) | Seat::Normal(app, _) => *app,
        }
    }
}

/// What the thread owns.
struct Plane {
    engine: Engine,
    counters: Table,
    commands: Mailbox<Command>,
    events: Mailbox<Event>,
    directory: Directory,
    ipcps: HashMap<IpcpId, Seat>,
    /// Captures of each IPCP.
    taps: HashMap<IpcpId, Taps>,
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
        let (directory, ipcps) = (Directory::default(), HashMap::new());
        Ok(Plane {
            engine,
            counters,
            commands,
            events,
            directory,
            ipcps,
            taps: HashMap::new(),
        })
    }

    fn run(&mut self, stop: &AtomicBool) {
        // Best effort: everybody waits for this thread, and it never has much to do at once.
        let _ = ask_for_short_slices(SLICE_NS);
        let mut has_orders = true;
        while !stop.load(Ordering::Acquire) {
            if has_orders {
                while let Some(command) = self.commands.take() {
                    self.obey(command);
                }
                // Emptying the box silences its bell, which may have rung for the stop.
                if stop.load(Ordering::Acquire) {
                    return;
                }
            }
            let moved = self.engine.breathe(monotonic_ns());
            has_orders = match self.engine.rest(moved) {
                Ok(rang) => rang,
                // Epoll on descriptors that are open fails only for want of kernel memory.
                Err(_) => {
                    std::thread::yield_now();
                    true
                }
            };
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::AddHv {
                ipcp,
                label,
                device,
                side,
                name,
            } => self.add_hv(ipcp, &label, device, side, name),
            Command::AddMedium { ipcp, medium } => self.add_medium(ipcp, medium),
            Command::AddNormal(new) => self.add_normal(*new),
            Command::Member { ipcp, order } => {
                self.order_normal(ipcp, NormalOrder::Handle(order));
            }
            Command::N1Up { ipcp, n1, props } => {
                self.order_normal(ipcp, NormalOrder::N1Up { n1, props });
            }
            Command::Tap { ipcp, tap } => {
                if let Some(taps) = self.taps.get(&ipcp) {
                    taps.add(tap);
                }
            }
            Command::RemoveIpcp { ipcp } => {
                self.order(ipcp, Order::Remove);
                self.taps.remove(&ipcp);
                self.ipcps.remove(&ipcp);
            }
            Command::Register { ipcp, name } => self.order(ipcp, Order::Register(name)),
            Command::Unregister { ipcp, name } => self.order(ipcp, Order::Unregister(name)),
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
                    Ok(wires) => {
                        self.order(
                            ipcp,
                            Order::Allocate {
                                port,
                                local,
                                remote,
                                spec,
                                wires,
                            },
                        );
                    }
                    Err(reason) => {
                        self.events.put(Event::AllocateResult {
                            port,
                            result: Err(reason),
                        });
                    }
                }
            }
            Command::Respond { port, answer } => self.respond(port, answer),
            Command::Relay { a, b, port } => {
                if let Err(reason) = self.relay(a, b, port) {
                    self.events.put(Event::FlowClosed { port, reason });
                }
            }
            Command::Deallocate { port, reason } => self.deallocate(port, reason),
        }
    }

    fn add_hv(
        &mut self,
        ipcp: IpcpId,
        label: &str,
        device: Box<dyn carina_vmpi::ll::VmpiImpl>,
        side: carina_vmpi::hl::Side,
        name: String,
    ) {
        if self.ipcps.contains_key(&ipcp) {
            let reason = format!("IPCP {ipcp} exists already; choose another id");
            return self.events.put(Event::LinkDown { ipcp, reason });
        }
        let id = self.engine.reserve();
        let orders = Orders::default();
        let row = self
            .counters
            .row(Kind::Ipcp, u64::from(ipcp.0), &format!("hv {label}"));
        let parts = Parts {
            id,
            ipcp,
            device,
            side,
            name,
            orders: Rc::clone(&orders),
            events: self.events.clone(),
            directory: Rc::clone(&self.directory),
            row,
            taps: self.new_taps(ipcp),
        };
        let added = match Hv::new(parts) {
            Ok(hv) => self
                .engine
                .add(id, Box::new(hv))
                .map_err(|error| error.to_string()),
            Err(reason) => {
                self.engine.release(id);
                Err(reason)
            }
        };
        match added {
            Ok(()) => drop(self.ipcps.insert(ipcp, Seat::Shim(id, orders))),
            Err(reason) => self.events.put(Event::LinkDown { ipcp, reason }),
        }
    }

    fn add_medium(&mut self, ipcp: IpcpId, medium: Medium) {
        if self.ipcps.contains_key(&ipcp) {
            let reason = format!("IPCP {ipcp} exists already; choose another id");
            return self.events.put(Event::LinkDown { ipcp, reason });
        }
        let id = self.engine.reserve();
        let orders = Orders::default();
        let label = medium.label();
        let parts = HubParts {
            id,
            ipcp,
            orders: Rc::clone(&orders),
            events: self.events.clone(),
            directory: Rc::clone(&self.directory),
            row: self.counters.row(Kind::Ipcp, u64::from(ipcp.0), &label),
            pool: self.engine.pool().clone(),
            taps: self.new_taps(ipcp),
        };
        let added = match medium.into_app(parts) {
            Ok(app) => self.engine.add(id, app).map_err(|error| error.to_string()),
            Err(reason) => {
                self.engine.release(id);
                Err(reason)
            }
        };
        match added {
            Ok(()) => drop(self.ipcps.insert(ipcp, Seat::Medium(id, orders))),
            Err(reason) => self.events.put(Event::LinkDown { ipcp, reason }),
        }
    }

    fn add_normal(&mut self, new: NewNormal) {
        let ipcp = new.ipcp;
        if self.ipcps.contains_key(&ipcp) {
            let reason = format!("IPCP {ipcp} exists already; choose another id");
            return self.events.put(Event::LinkDown { ipcp, reason });
        }
        let id = self.engine.reserve();
        let orders = NormalOrders::default();
        let name = format!("normal {} in {}", new.config.name, new.config.dif);
        let parts = normal::Parts {
            id,
            orders: Rc::clone(&orders),
            events: self.events.clone(),
            directory: Rc::clone(&self.directory),
            row: self.counters.row(Kind::Ipcp, u64::from(ipcp.0), &name),
            taps: self.new_taps(ipcp),
        };
        let added = match Normal::new(parts, new) {
            Ok(normal) => self
                .engine
                .add(id, Box::new(normal))
                .map_err(|error| error.to_string()),
            Err(reason) => {
                self.engine.release(id);
                Err(reason)
            }
        };
        match added {
            Ok(()) => drop(self.ipcps.insert(ipcp, Seat::Normal(id, orders))),
            Err(reason) => self.events.put(Event::LinkDown { ipcp, reason }),
        }
    }

    /// Captures of an IPCP that is being made.
    fn new_taps(&mut self, ipcp: IpcpId) -> Taps {
        let taps = Taps::default();
        self.taps.insert(ipcp, taps.clone());
        taps
    }

    fn order(&mut self, ipcp: IpcpId, order: Order) {
        let Some(seat) = self.ipcps.get(&ipcp) else {
            return;
        };
        match seat {
            Seat::Shim(_, orders) | Seat::Medium(_, orders) => {
                orders.borrow_mut().push_back(order);
            }
            Seat::Normal(_, orders) => orders.borrow_mut().push_back(NormalOrder::Hub(order)),
        }
        self.engine.wake(seat.app());
    }

    fn order_normal(&mut self, ipcp: IpcpId, order: NormalOrder) {
        if let Some(Seat::Normal(app, orders)) = self.ipcps.get(&ipcp) {
            orders.borrow_mut().push_back(order);
            self.engine.wake(*app);
        }
    }
}

/// Bytes that socket ends may hold in buffers all together.
const POOL_BYTES_MAX: usize = 256 << 20;

/// Time slices of the data-plane thread, in ns: the shortest the scheduler knows.
const SLICE_NS: u64 = 100_000;
