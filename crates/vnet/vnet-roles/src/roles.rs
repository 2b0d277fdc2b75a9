//! Runs roles in this process: each with its state machine, its socket, and connections to the
//! roles that it calls.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use carina_random::Random;
use carina_vnet::pip::Pip;
use carina_vnet::pip::inventory::InventoryError;
use carina_vnet::store::StoreError;
use carina_vnet::timing::Timing;
use carina_vnet::vno::Vno;
use carina_vnet::vnp::Vnp;
use carina_vnet_web::{Kind, PageServer, WebError};
use tokio::sync::oneshot;

use crate::calling::address::Address;
use crate::calling::connection::Callee;
use crate::calling::link::Link;
use crate::configuration::{Configuration, PipSpec, Served, VnoSpec, VnpSpec};
use crate::driver::Handle;
use crate::identity::{Identity, IdentityError, Role};
use crate::inside::below::Below;
use crate::keys::{KeyDir, KeyError, Tls};
use crate::log::Log;
use crate::machine::Machine;
use crate::mailbox::Mailboxes;
use crate::serving::asks::{self, VnpHandlers};
use crate::serving::entrance::{Caller, Entrance};
use crate::serving::listening::Listening;
use crate::serving::messages::{self, Service};
use crate::serving::operations::Operations;
use crate::serving::page;
use crate::serving::pip_handlers::PipHandlers;
use crate::serving::provider::Provider;
use crate::serving::verbs::{self, Verbs};
use crate::serving::watching::Watching;

/// Receives the lines of roles' logs.
pub type Lines = Arc<dyn Fn(&str) + Send + Sync>;

/// The PIPs, VNPs and VNOs that run in this process. Dropping this value ends them all.
#[derive(Debug)]
pub struct Roles {
    served: Vec<(Identity, String)>,
    pages: Vec<(Identity, String)>,
    _links: Vec<Link>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why the PIPs, VNPs and VNOs of a configuration cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoleError {
    /// No role is configured.
    #[error("no role is configured; give at least one of [[pip]], [[vnp]], [[vno]]")]
    None,
    /// A role cannot listen at its address.
    #[error("{party}: listening at {listen}: {source}")]
    Listen {
        /// The role that cannot listen.
        party: Identity,
        /// The configured address, as text.
        listen: String,
        /// Why the operating system refused to listen at the address.
        source: io::Error,
    },
    /// A role's web page cannot be served.
    #[error("{party}: serving its page: {source}")]
    Page {
        /// The role whose web page cannot be served.
        party: Identity,
        /// Why the page cannot be served.
        source: WebError,
    },
    /// A role's store cannot be opened.
    #[error("{party}: opening its store: {source}")]
    Store {
        /// The role whose store cannot be opened.
        party: Identity,
        /// Why the store cannot be opened.
        source: StoreError,
    },
    /// A PIP's inventory contradicts itself, such as two hosts with one name.
    #[error("{party}: reading its inventory: {source}")]
    Inventory {
        /// The PIP whose inventory contradicts itself.
        party: Identity,
        /// Where the inventory contradicts itself.
        source: InventoryError,
    },
    /// A name is not well-formed.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// Keys or certificates are unusable.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The system cannot provide a thread, socket or random number.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A role that is ready to listen.
struct Ready {
    party: Identity,
    listening: Listening,
    tls: Tls,
    router: Router,
    log: Log,
}

/// The web page of a role.
struct Page {
    party: Identity,
    web: PageServer,
    kind: Kind,
    router: Router,
    log: Log,
}

/// Roles that are being started.
struct Start<'a> {
    keys: KeyDir,
    timing: Timing,
    lines: &'a Lines,
    links: Vec<Link>,
    ready: Vec<Ready>,
    pages: Vec<Page>,
}

/// A role without its state machine yet.
struct Begun {
    party: Identity,
    listening: Listening,
    tls: Tls,
    mailboxes: Arc<Mailboxes>,
    log: Log,
}

impl Roles {
    /// Starts all roles of a configuration, each on threads of its own, and returns when all of
    /// them listen.
    ///
    /// # Errors
    /// A role cannot be started; then none of them runs.
    pub fn start(
        configuration: &Configuration,
        timing: Timing,
        lines: &Lines,
    ) -> Result<Roles, RoleError> {
        let mut start = Start {
            keys: KeyDir::new(&configuration.keys),
            timing,
            lines,
            links: Vec::new(),
            ready: Vec::new(),
            pages: Vec::new(),
        };
        for pip in &configuration.pips {
            start.pip(pip)?;
        }
        for vnp in &configuration.vnps {
            start.vnp(vnp)?;
        }
        for vno in &configuration.vnos {
            start.vno(vno)?;
        }
        start.serve()
    }

    /// The running roles, each with the address at which it listens, as text.
    #[must_use]
    pub fn served(&self) -> &[(Identity, String)] {
        &self.served
    }

    /// The roles that have a web page, and the URL of each page.
    #[must_use]
    pub fn pages(&self) -> &[(Identity, String)] {
        &self.pages
    }

    /// Whether all roles are still running.
    #[must_use]
    pub fn are_served(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl Start<'_> {
    fn begin(&self, role: Role, served: &Served) -> Result<Begun, RoleError> {
        let party = Identity::new(role, &served.name)?;
        let tls = Tls::of(&self.keys, &party)?;
        let listening = Listening::open(&served.listen, &party);
        let listening = listening.map_err(|source| RoleError::Listen {
            party: party.clone(),
            listen: served.listen.to_string(),
            source,
        })?;
        Ok(Begun {
            log: Log::new(&party, Arc::clone(self.lines)),
            party,
            listening,
            tls,
            mailboxes: Arc::default(),
        })
    }

    fn pip(&mut self, spec: &PipSpec) -> Result<(), RoleError> {
        let begun = self.begin(Role::Pip, &spec.served)?;
        for host in &spec.inventory.hosts {
            // Without a valid name the host's agent could not have a certificate.
            Identity::new(Role::Agent, &host.name)?;
        }
        let store = begun.opened(&spec.served)?;
        let name = &spec.served.name;
        let machine = Pip::new(name, spec.inventory.clone(), store, self.timing);
        let machine = machine.map_err(|source| RoleError::Inventory {
            party: begun.party.clone(),
            source,
        })?;
        let handle = begun.start(machine)?;
        if let Some(address) = spec.web {
            let provider = Provider::start(handle.clone(), name)?;
            self.shows(&begun, address, Kind::Provider, provider.router())?;
        }
        let asks = asks::pip_router(PipHandlers {
            name: name.clone(),
            handle: handle.clone(),
            queue: Arc::default(),
        });
        self.listens(begun, |mailboxes| {
            messages::router(Service { handle, mailboxes }).merge(asks)
        });
        Ok(())
    }

    fn vnp(&mut self, spec: &VnpSpec) -> Result<(), RoleError> {
        let begun = self.begin(Role::Vnp, &spec.served)?;
        let store = begun.opened(&spec.served)?;
        let name = &spec.served.name;
        let pips = spec.pips.keys().cloned();
        let machine = Vnp::new(name, pips, store, self.timing, random()?)
            .with_networks_per_vno(spec.networks_per_vno);
        let handle = begun.start(machine)?;
        let mut below = BTreeMap::new();
        for (name, addresses) in &spec.pips {
            let pip = Identity::new(Role::Pip, name)?;
            self.call(&begun, &handle, &pip, addresses)?;
            below.insert(name.clone(), begun.callees(&pip, addresses));
        }
        let asks = asks::vnp_router(VnpHandlers {
            handle: handle.clone(),
            below: Below::new(below, begun.log.clone()),
        });
        self.listens(begun, |mailboxes| {
            messages::router(Service { handle, mailboxes }).merge(asks)
        });
        Ok(())
    }

    fn vno(&mut self, spec: &VnoSpec) -> Result<(), RoleError> {
        let begun = self.begin(Role::Vno, &spec.served)?;
        let store = begun.opened(&spec.served)?;
        let mut vno = Vno::new(&spec.served.name, store, self.timing, random()?);
        let refreshed = vno.refresh(crate::driver::Clock::start().now());
        refreshed.map_err(|source| begun.store_error(source))?;
        let machine = Operations::new(vno, &spec.vnp);
        let happened = machine.happened();
        let handle = begun.start(machine)?;
        let vnp = Identity::new(Role::Vnp, &spec.vnp)?;
        self.call(&begun, &handle, &vnp, &spec.vnp_at)?;
        let party = begun.party.clone();
        let vnp_at = begun.callees(&vnp, &spec.vnp_at);
        let below = Below::new([(vnp.name.clone(), vnp_at)].into(), begun.log.clone());
        let names = (party.name.as_str(), vnp.name.as_str());
        let keeps = spec.web.is_some();
        let watching = Watching::start(handle.clone(), below.clone(), names, keeps)?;
        let verbs = Verbs {
            handle,
            party,
            happened,
            vnp: vnp.name,
            below,
            watching,
        };
        if let Some(address) = spec.web {
            let router = page::router(verbs.clone(), random()?);
            self.shows(&begun, address, Kind::Networks, router)?;
        }
        self.listens(begun, |_| verbs::router(verbs));
        Ok(())
    }

    /// Starts links to the processes of a party.
    fn call<M: Machine>(
        &mut self,
        begun: &Begun,
        handle: &Handle<M>,
        party: &Identity,
        addresses: &[Address],
    ) -> Result<(), RoleError> {
        for callee in begun.callees(party, addresses) {
            let (handle, party) = (handle.clone(), party.clone());
            let listener = Box::new(move |heard: &[u8]| {
                let (heard, party) = (heard.to_vec(), party.clone());
                let work = move |machine: &mut M, now| machine.handle(now, &party, &heard);
                handle.ask_and_wait(work)?
            });
            let mailbox = begun.mailboxes.of(&callee.party);
            let link = Link::start(callee, mailbox, listener, begun.log.clone())?;
            self.links.push(link);
        }
        Ok(())
    }

    /// Prepares the web page of a role.
    fn shows(
        &mut self,
        begun: &Begun,
        address: SocketAddr,
        kind: Kind,
        router: Router,
    ) -> Result<(), RoleError> {
        let party = begun.party.clone();
        let page_server = PageServer::bind(address).map_err(|source| RoleError::Page {
            party: party.clone(),
            source,
        })?;
        self.pages.push(Page {
            router,
            kind,
            log: begun.log.clone(),
            party,
            web: page_server,
        });
        Ok(())
    }

    fn listens(&mut self, begun: Begun, router: impl FnOnce(Arc<Mailboxes>) -> Router) {
        self.ready.push(Ready {
            router: router(begun.mailboxes),
            party: begun.party,
            listening: begun.listening,
            tls: begun.tls,
            log: begun.log,
        });
    }

    fn serve(self) -> Result<Roles, RoleError> {
        if self.ready.is_empty() {
            return Err(RoleError::None);
        }
        let mut served = Vec::new();
        for ready in &self.ready {
            served.push((ready.party.clone(), ready.listening.place()));
        }
        let pages = self.pages.iter();
        let pages = pages.map(|page| (page.party.clone(), page.web.url()));
        let pages = pages.collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let (ready, shown) = (self.ready, self.pages);
        let run = move || {
            runtime.block_on(async move {
                for ready in ready {
                    tokio::spawn(serve(ready));
                }
                for page in shown {
                    tokio::spawn(show(page));
                }
                // It ends when the sender is dropped.
                let _ = stopped.await;
            });
            // Requests to nodes may still be running; their answers are not needed.
            runtime.shutdown_timeout(LEFT);
        };
        let thread = std::thread::Builder::new().name("roles".to_owned());
        Ok(Roles {
            served,
            pages,
            _links: self.links,
            stop: Some(stop),
            thread: Some(thread.spawn(run)?),
        })
    }
}

impl Begun {
    /// How to call the processes of a party.
    fn callees(&self, party: &Identity, addresses: &[Address]) -> Vec<Callee> {
        let callee = |address: &Address| Callee {
            party: party.clone(),
            address: address.clone(),
            tls: self.tls.clone(),
        };
        addresses.iter().map(callee).collect()
    }

    fn opened(&self, served: &Served) -> Result<crate::stores::NamedStore, RoleError> {
        let store = served.store.open();
        store.map_err(|source| self.store_error(source))
    }

    fn store_error(&self, source: StoreError) -> RoleError {
        let party = self.party.clone();
        RoleError::Store { party, source }
    }

    fn start<M: Machine>(&self, machine: M) -> io::Result<Handle<M>> {
        Handle::start(machine, Arc::clone(&self.mailboxes), self.log.clone())
    }
}

/// Serves one role until the runtime ends.
async fn serve(ready: Ready) {
    let log = ready.log.clone();
    let entrance = match Entrance::open(ready.listening, &ready.tls, ready.log) {
        Ok(entrance) => entrance,
        Err(error) => return log.say(format_args!("its socket is unusable: {error}")),
    };
    let service = ready.router.into_make_service_with_connect_info::<Caller>();
    if let Err(error) = axum::serve(entrance, service).await {
        log.say(format_args!("serving has ended: {error}"));
    }
}

/// Serves one web page until the runtime ends.
async fn show(page: Page) {
    if let Err(error) = page.web.of(page.kind, page.router).await {
        page.log.say(format_args!("its page has ended: {error}"));
    }
}

/// A random generator with an unpredictable seed.
fn random() -> io::Result<Random> {
    crate::random::drawn().map(Random::new)
}

/// How long work in progress may continue when roles end.
const LEFT: std::time::Duration = std::time::Duration::from_millis(100);
