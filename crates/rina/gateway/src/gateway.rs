//! The event loop of a gateway: one thread and one epoll set for all its services.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use carina_api::DifName;
use carina_client::Node;
use carina_sys::{Epoll, Interest, Ready};

use crate::connector::Connector;
use crate::endpoint::Endpoint;
use crate::error::GatewayError;
use crate::exposed::Exposed;
use crate::internet::Internet;
use crate::name_server::{NameServer, NameService};
use crate::proxy::{Proxy, ProxyService};
use crate::service::{Service, Watch};
use crate::settings::{Connect, Expose, Setting};
use crate::udp_connector::UdpConnector;
use crate::udp_exposed::UdpExposed;

/// Services that connect kernel sockets with application names; one thread runs all of them.
pub struct Gateway {
    node: Node,
    epoll: Rc<Epoll>,
    services: BTreeMap<u32, Box<dyn Service>>,
    last_id: u32,
    /// Services that have ended and were not reported yet.
    ended: VecDeque<Ended>,
}

/// Which service of a gateway has ended, and why.
pub(crate) struct Ended {
    pub service: Option<u32>,
    pub error: GatewayError,
}

impl Gateway {
    /// Makes a gateway without services that uses `node`.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new(node: Node) -> Result<Gateway, GatewayError> {
        let epoll = Epoll::new().map_err(GatewayError::system(WAITING))?;
        Ok(Gateway {
            node,
            epoll: Rc::new(epoll),
            services: BTreeMap::new(),
            last_id: 0,
            ended: VecDeque::new(),
        })
    }

    /// Adds a service that registers a name and connects its flows to a server. Returns the DIFs in
    /// which the name is registered now.
    ///
    /// # Errors
    /// A setting is invalid, the server's host is unknown, or the node refuses the name.
    pub fn expose(&mut self, settings: Expose) -> Result<Vec<DifName>, GatewayError> {
        self.add_exposed(settings).map(|(_, difs)| difs)
    }

    /// Adds a service that listens on a socket and connects its connections to an application name.
    /// Returns the address on which it listens; if the settings have port 0, with the port that the
    /// kernel chose.
    ///
    /// # Errors
    /// A setting is invalid, or the gateway cannot listen on the address.
    pub fn connect(&mut self, settings: Connect) -> Result<Endpoint, GatewayError> {
        self.add_connector(settings).map(|(_, endpoint)| endpoint)
    }

    /// Adds a proxy, which listens for clients that name their destinations. Returns the address on
    /// which it listens; if the settings have port 0, with the port that the kernel chose.
    ///
    /// # Errors
    /// A setting is invalid, or the gateway cannot listen on the address.
    pub fn proxy(&mut self, settings: Proxy) -> Result<Endpoint, GatewayError> {
        settings.check()?;
        let (id, watch) = self.next();
        let asked = settings.listen.clone();
        let service = ProxyService::listen(self.node.clone(), settings, watch)?;
        let endpoint = service.endpoint().unwrap_or(asked);
        self.services.insert(id, Box::new(service));
        Ok(endpoint)
    }

    /// Adds a DNS server that answers questions about names of DIFs. Returns the address on which
    /// it listens; if the settings have port 0, with the port that the kernel chose.
    ///
    /// # Errors
    /// The gateway cannot listen on the address.
    pub fn names(&mut self, settings: NameServer) -> Result<Endpoint, GatewayError> {
        let (id, watch) = self.next();
        let service = NameService::new(settings, watch)?;
        let endpoint = service.endpoint();
        self.services.insert(id, Box::new(service));
        Ok(endpoint)
    }

    /// Adds a proxy that is registered as an application: clients that request flows to it reach
    /// servers in the network of this host, as far as its rules allow.
    ///
    /// # Errors
    /// The node refuses the name.
    pub fn internet(&mut self, settings: Internet) -> Result<(), GatewayError> {
        self.add_internet(settings).map(drop)
    }

    /// Adds a service of any kind. Returns its number, with which [`Gateway::remove`] ends it.
    pub(crate) fn add(&mut self, service: Setting) -> Result<u32, GatewayError> {
        match service {
            Setting::Expose(settings) => self.add_exposed(settings).map(|(id, _)| id),
            Setting::Connect(settings) => self.add_connector(settings).map(|(id, _)| id),
            Setting::Internet(settings) => self.add_internet(settings),
        }
    }

    /// Ends a service. Connections that it has attached to flows continue.
    pub(crate) fn remove(&mut self, service: u32) {
        self.services.remove(&service);
    }

    fn add_exposed(&mut self, settings: Expose) -> Result<(u32, Vec<DifName>), GatewayError> {
        settings.check()?;
        let (id, watch) = self.next();
        let (service, difs): (Box<dyn Service>, _) = if matches!(settings.to, Endpoint::Udp(_)) {
            let (service, difs) = UdpExposed::new(&self.node, settings, watch)?;
            (Box::new(service), difs)
        } else {
            let (service, difs) = Exposed::new(&self.node, settings, watch)?;
            (Box::new(service), difs)
        };
        self.services.insert(id, service);
        Ok((id, difs))
    }

    fn add_connector(&mut self, settings: Connect) -> Result<(u32, Endpoint), GatewayError> {
        settings.check()?;
        let (id, watch) = self.next();
        let node = self.node.clone();
        let (service, endpoint): (Box<dyn Service>, _) =
            if matches!(settings.listen, Endpoint::Udp(_)) {
                let service = UdpConnector::new(node, settings, watch)?;
                let endpoint = service.endpoint();
                (Box::new(service), endpoint)
            } else {
                let service = Connector::new(node, settings, watch)?;
                let endpoint = service.endpoint();
                (Box::new(service), endpoint)
            };
        self.services.insert(id, service);
        Ok((id, endpoint))
    }

    fn add_internet(&mut self, settings: Internet) -> Result<u32, GatewayError> {
        let (id, watch) = self.next();
        let service = ProxyService::door(self.node.clone(), settings, watch)?;
        self.services.insert(id, Box::new(service));
        Ok(id)
    }

    fn next(&mut self) -> (u32, Watch) {
        // The highest number is not used: with it, a token could equal `STOP`.
        self.last_id = (self.last_id + 1) % (u32::MAX - 1);
        let watch = Watch::new(Rc::clone(&self.epoll), self.last_id);
        (self.last_id, watch)
    }

    /// Runs the services in the calling thread until `stop` is readable. Connections that they have
    /// attached to flows continue.
    ///
    /// # Errors
    /// A registration has ended, for instance because the node has ended; or the system refuses to
    /// wait.
    pub fn run(&mut self, stop: impl AsFd) -> Result<(), GatewayError> {
        self.serve(stop, None).map_err(|ended| ended.error)
    }

    /// Runs the services until `stop` is readable, the time `until` has come, or a service has
    /// ended.
    pub(crate) fn serve(&mut self, stop: impl AsFd, until: Option<Instant>) -> Result<(), Ended> {
        let system = |error| Ended {
            service: None,
            error: GatewayError::system(WAITING)(error),
        };
        self.epoll
            .add(&stop, STOP, Interest::Read)
            .map_err(system)?;
        let served = self.serve_until(until, system);
        self.epoll.del(&stop).map_err(system)?;
        served
    }

    fn serve_until(
        &mut self,
        until: Option<Instant>,
        system: impl Fn(std::io::Error) -> Ended,
    ) -> Result<(), Ended> {
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return Err(ended);
            }
            let deadlines = self.services.values().filter_map(|s| s.deadline());
            let deadline = deadlines.chain(until).min();
            let now = Instant::now();
            // Not before the deadline: the loop would find nothing due, and wait for no time again.
            let wait = deadline.map(|at| at.saturating_duration_since(now).as_nanos() as u64 + 1);
            self.epoll.wait(&mut ready, wait).map_err(&system)?;
            let now = Instant::now();
            // All of them, also after one that ends a service or the loop: an edge is reported
            // once.
            let mut stops = false;
            for ready in &ready {
                let (id, item) = ((ready.token >> 32) as u32, ready.token as u32);
                if ready.token == STOP {
                    stops = true;
                } else if let Some(service) = self.services.get_mut(&id)
                    && let Err(error) = service.handle(item, now)
                {
                    self.ended.push_back(ended(id)(error));
                }
            }
            if stops {
                return Ok(());
            }
            for (id, service) in &mut self.services {
                if service.deadline().is_some_and(|at| at <= now) {
                    service.handle_due(now).map_err(ended(*id))?;
                }
            }
            if until.is_some_and(|until| until <= now) {
                return Ok(());
            }
        }
    }
}

fn ended(id: u32) -> impl FnOnce(GatewayError) -> Ended {
    move |error| Ended {
        service: Some(id),
        error,
    }
}

const STOP: u64 = u64::MAX;

const WAITING: &str = "waiting for sockets";
