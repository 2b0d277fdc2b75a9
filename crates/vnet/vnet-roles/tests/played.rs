//! Providers on loopback with simulated hosts.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_api::{ErrorBody, ErrorCode};
use carina_sim::vnets::host::{PlayedHost, is_whole};
use carina_vnet::access::Revoked;
use carina_vnet::document::{Document, Form};
use carina_vnet::host_part::{EndPart, LinkPart, LinkState, NodePart, NodeState};
use carina_vnet::message::{FromAgent, ToAgent};
use carina_vnet::report::{ExecReply, NodeReport, Passed};
use carina_vnet::timing::Timing;
use carina_vnet::vno::Seen;
use carina_vnet_agent::{Inside, OpenAgent, Openness};
use carina_vnet_host::Agent;
use carina_vnet_host::underlay::HostSettings;
use carina_vnet_roles::agent::{self, HostError, Hosting};
use carina_vnet_roles::calling::address::Address;
use carina_vnet_roles::configuration::{
    Configuration, PipSpec, Served, VnoSpec, VnpSpec, inventory,
};
use carina_vnet_roles::driver::Clock;
use carina_vnet_roles::identity::{Identity, Role};
use carina_vnet_roles::inside::{Answer, EndReport, Look, NetworkRequest, NodeRequest};
use carina_vnet_roles::keys::{KeyDir, Tls};
use carina_vnet_roles::log::Log;
use carina_vnet_roles::operator::Client;
use carina_vnet_roles::roles::{Lines, Roles};
use carina_vnet_roles::stores::StoreName;
use tempfile::TempDir;

/// Longest time for anything on a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Two providers `uk` and `de` with one host each, a VNP `net` and an operator `acme`.
pub(crate) struct Providers {
    pub directory: TempDir,
    pub configuration: Configuration,
    pub hosts: Arc<Mutex<Vec<PlayedHost>>>,
    pub commands: Arc<Commands>,
    pub ports: Ports,
}

/// Commands `wait` on the hosts, by number; each runs until it is ended.
#[derive(Default)]
pub(crate) struct Commands {
    begun: Mutex<Vec<u64>>,
    ended: Mutex<Vec<u64>>,
    changed: Condvar,
}

impl Commands {
    fn run(&self, number: u64) {
        self.begun.lock().unwrap().push(number);
        let ended = self.ended.lock().unwrap();
        let runs = |ended: &mut Vec<u64>| !ended.contains(&number);
        let waited = self.changed.wait_timeout_while(ended, LIMIT, runs).unwrap();
        assert!(!waited.1.timed_out(), "command {number} runs on");
    }

    fn end(&self, number: u64) {
        self.ended.lock().unwrap().push(number);
        self.changed.notify_all();
    }

    /// The numbers of the commands that have begun, and of those that were ended.
    pub(crate) fn seen(&self) -> [Vec<u64>; 2] {
        [&self.begun, &self.ended].map(|list| list.lock().unwrap().clone())
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Ports {
    pub uk: u16,
    pub de: u16,
    pub net: u16,
    pub acme: u16,
}

/// One of the simulated hosts, as its agent.
pub(crate) struct Played {
    pub hosts: Arc<Mutex<Vec<PlayedHost>>>,
    pub commands: Arc<Commands>,
    pub number: usize,
    clock: Clock,
}

impl Providers {
    pub(crate) fn new() -> Providers {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyDir::new(directory.path().join("keys"));
        keys.create_authority().unwrap();
        for (role, name) in [
            (Role::Pip, "uk"),
            (Role::Pip, "de"),
            (Role::Vnp, "net"),
            (Role::Vno, "acme"),
            (Role::Operator, "acme"),
            (Role::Delegate, "bob"),
            (Role::Delegate, "eve"),
            (Role::Agent, "secret-a"),
            (Role::Agent, "secret-b"),
        ] {
            let party = Identity::new(role, name).unwrap();
            keys.issue(&party, 2, &keys).unwrap();
        }
        let [uk, de, net, acme] = free_ports();
        let ports = Ports { uk, de, net, acme };
        let configuration = configuration(directory.path(), ports);
        let inventories = configuration.pips.iter().map(|pip| &pip.inventory);
        let hosts = inventories.map(|inventory| PlayedHost::new(&inventory.hosts[0], inventory));
        Providers {
            hosts: Arc::new(Mutex::new(hosts.collect())),
            commands: Arc::default(),
            configuration,
            directory,
            ports,
        }
    }

    pub(crate) fn keys(&self) -> KeyDir {
        KeyDir::new(&self.configuration.keys)
    }

    pub(crate) fn tls(&self, role: Role, name: &str) -> Tls {
        Tls::of(&self.keys(), &Identity::new(role, name).unwrap()).unwrap()
    }

    /// Starts the configured roles that are in `only`.
    pub(crate) fn start(&self, only: &[Role]) -> Roles {
        let mut configuration = self.configuration.clone();
        if !only.contains(&Role::Pip) {
            configuration.pips.clear();
        }
        if !only.contains(&Role::Vnp) {
            configuration.vnps.clear();
        }
        if !only.contains(&Role::Vno) {
            configuration.vnos.clear();
        }
        Roles::start(&configuration, Timing::default(), &lines()).unwrap()
    }

    pub(crate) fn agent(&self, number: usize) -> agent::Service {
        let (pip, port) = [("uk", self.ports.uk), ("de", self.ports.de)][number];
        let name = self.hosts.lock().unwrap()[number].name.clone();
        let tls = self.tls(Role::Agent, &name);
        let host = Played {
            hosts: Arc::clone(&self.hosts),
            commands: Arc::clone(&self.commands),
            number,
            clock: Clock::start(),
        };
        let log = Log::new(tls.party(), lines());
        let addresses = [at(port)];
        agent::Service::start(&Arc::new(host), &tls, pip, &addresses, &log).unwrap()
    }

    /// The first host with a real agent, which carries out orders and allows access to namespaces.
    pub(crate) fn real_agent(&self) -> (Arc<OpenAgent>, agent::Service) {
        let tls = self.tls(Role::Agent, "secret-a");
        let log = Log::new(tls.party(), lines());
        let settings = HostSettings {
            name: "secret-a".to_owned(),
            underlay: None,
        };
        let run = RunDir::new(self.directory.path().join("secret-run"));
        let agent = Arc::new(Agent::of_host(&run, settings).unwrap());
        let openness = Openness {
            opens_namespaces: true,
        };
        let inside = Inside::new(openness, agent.access_log(), log.clone());
        let open = Arc::new(OpenAgent { agent, inside });
        let addresses = [at(self.ports.uk)];
        let service = agent::Service::start(&open, &tls, "uk", &addresses, &log).unwrap();
        (open, service)
    }

    pub(crate) fn operator(&self) -> Client {
        let keys = self.directory.path().join("operator");
        if !keys.exists() {
            std::fs::create_dir(&keys).unwrap();
            for file in ["ca.pem", "acme.operator.pem", "acme.operator.key"] {
                let from = self.configuration.keys.join(file);
                std::fs::copy(from, keys.join(file)).unwrap();
            }
        }
        Client::new(&KeyDir::new(keys), at(self.ports.acme)).unwrap()
    }

    /// A client of a delegate, to whom the operator may grant something.
    pub(crate) fn delegate(&self, name: &str) -> Client {
        let keys = self.directory.path().join(name);
        std::fs::create_dir(&keys).unwrap();
        let own = ["pem", "key"].map(|ending| format!("{name}.delegate.{ending}"));
        for file in own.iter().map(String::as_str).chain(["ca.pem"]) {
            std::fs::copy(self.configuration.keys.join(file), keys.join(file)).unwrap();
        }
        Client::of(&KeyDir::new(keys), "acme", at(self.ports.acme)).unwrap()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let hosts = self.hosts.lock().unwrap();
        hosts.iter().all(|host| host.parts.is_empty())
    }
}

impl Hosting for Played {
    fn tell(&self, message: &ToAgent) -> Result<(), HostError> {
        let now = self.clock.now();
        let mut hosts = self.hosts.lock().unwrap();
        let boot = carina_time::Duration::from_millis(50);
        hosts[self.number].handle(now, message.clone(), boot);
        Ok(())
    }

    fn say(&self) -> FromAgent {
        let hosts = self.hosts.lock().unwrap();
        let here = &hosts[self.number];
        here.report(self.clock.now(), |vnet, link| {
            let find = |name: &str| hosts.iter().find(|host| host.name == name);
            is_whole(find, &here.name, vnet, link)
        })
    }

    fn changed(&self, seen: u64, wait: Duration) -> u64 {
        // Simulated hosts change only with time.
        std::thread::sleep(wait.min(Duration::from_millis(50)));
        seen + 1
    }

    /// A command prints the node in which it runs, and on whose behalf.
    fn inside(&self, wanted: &NetworkRequest) -> Result<Answer, ErrorBody> {
        let hosts = self.hosts.lock().unwrap();
        let part = hosts[self.number].parts.get(&wanted.vnet);
        let has = |node: &str| part.is_some_and(|(part, _)| part.node(node).is_some());
        match &wanted.ask {
            NodeRequest::Exec {
                command,
                session: Some(session),
                ..
            } if command == "wait" => {
                drop(hosts);
                self.commands.run(*session);
                Err(ErrorBody::new(ErrorCode::Conflict, "it is ended"))
            }
            NodeRequest::EndExec { session, .. } => {
                self.commands.end(*session);
                Ok(Answer::Done {})
            }
            NodeRequest::Exec { node, .. } if has(node) => {
                let output = format!("{node}: {}", wanted.who.join(", "));
                Ok(Answer::Ran(ExecReply {
                    status: 0,
                    stdout: output.into_bytes(),
                    stderr: Vec::new(),
                    dropped: 0,
                }))
            }
            NodeRequest::Look {} => {
                let nodes = part.into_iter().flat_map(|(part, _)| &part.nodes);
                let output = hosts[self.number].report(self.clock.now(), |_, _| true);
                let mut parts = output.parts.into_iter();
                let output = parts.find(|part| part.vnet == wanted.vnet);
                // As a host reports it: the reason of a failure contains the host's name.
                let state_of = |node: &str| {
                    let status = output.as_ref().and_then(|output| output.nodes.get(node));
                    status.map_or(NodeState::Absent, |status| status.state.clone())
                };
                let node = |node: &NodePart| NodeReport {
                    name: node.name.clone(),
                    kind: node.kind,
                    state: state_of(&node.name),
                    is_console_ready: true,
                    interfaces: Vec::new(),
                    position: None,
                };
                let links = part.into_iter().flat_map(|(part, _)| &part.links);
                let ends = links.flat_map(|link| link.ends().map(move |end| (link, end)));
                let end = |(link, end): (&LinkPart, &EndPart)| EndReport {
                    link: link.number,
                    end: end.to_string(),
                    carrier: link.carrier,
                    rate: link.rate,
                    state: LinkState::Up,
                    rtt_ns: None,
                    sent: Passed::default(),
                    received: None,
                    impairment: None,
                };
                Ok(Answer::Looked(Look {
                    nodes: nodes.map(node).collect(),
                    ends: ends.map(end).collect(),
                    layout: None,
                }))
            }
            NodeRequest::Watch { node, .. } | NodeRequest::Type { node, .. } if has(node) => {
                Ok(Answer::Done {})
            }
            NodeRequest::Access { node, user, .. } if has(node) => Ok(Answer::Revoked(Revoked {
                was_joined: user == "alice",
            })),
            other => panic!("{other:?}"),
        }
    }
}

/// A network with a node at each provider and a link between them. It queues for resources, because
/// an agent may not have reported yet.
pub(crate) fn document(name: &str) -> Document {
    let text = format!(
        "[vnet]\nname = \"{name}\"\non_insufficient = \"queue 2m\"\n\
         [defaults]\nkind = \"namespace\"\n\
         [node.a]\nlocation = [\"uk\"]\n[node.b]\nlocation = [\"de\"]\n\
         [[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\nas = \"gre\"\n"
    );
    Document::read(&text, Form::Toml).unwrap()
}

/// Waits until the state of a network satisfies a condition.
pub(crate) fn wait_until(client: &Client, name: &str, is_right: impl Fn(&Seen) -> bool) -> Seen {
    let begin = Instant::now();
    loop {
        let seen = client.seen(name);
        if let Ok(seen) = &seen
            && is_right(seen)
        {
            return seen.clone();
        }
        assert!(begin.elapsed() < LIMIT, "{seen:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a network is removed.
pub(crate) fn wait_until_gone(client: &Client, name: &str) {
    let begin = Instant::now();
    while let Ok(seen) = client.seen(name) {
        assert!(begin.elapsed() < LIMIT, "{seen:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn lines() -> Lines {
    Arc::new(|line| println!("{line}"))
}

fn configuration(directory: &Path, ports: Ports) -> Configuration {
    let served = |name: &str, port: u16| Served {
        name: name.to_owned(),
        listen: at(port),
        store: StoreName::File(directory.join(format!("{name}.db"))),
    };
    let pip = |name: &str, host: &str, last: u8, port: u16| {
        let text = format!(
            "[[hosts]]\nname = \"{host}\"\ncpus = 8\nmemory_mib = 4096\nlocation = \"{name}\"\n\
             address = \"172.31.{last}.1\"\ntunnel_addresses = 8\n\
             labels = {{ rack = \"<img src=x onerror=alert(1)>\" }}\n\
             [[borders]]\nname = \"secret-border\"\n\
             host = \"{host}\"\nrate_bps = 1000000000\n"
        );
        let path = directory.join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        PipSpec {
            served: served(name, port),
            inventory: inventory(&path).unwrap(),
            web: Some(([127, 0, 0, 1], 0).into()),
        }
    };
    Configuration {
        keys: directory.join("keys"),
        pips: vec![
            pip("uk", "secret-a", 1, ports.uk),
            pip("de", "secret-b", 2, ports.de),
        ],
        vnps: vec![VnpSpec {
            served: served("net", ports.net),
            pips: [
                ("uk".into(), vec![at(ports.uk)]),
                ("de".into(), vec![at(ports.de)]),
            ]
            .into(),
            networks_per_vno: 100,
        }],
        vnos: vec![VnoSpec {
            served: served("acme", ports.acme),
            vnp: "net".into(),
            vnp_at: vec![at(ports.net)],
            // Any free port.
            web: Some(([127, 0, 0, 1], 0).into()),
        }],
    }
}

/// An address on loopback.
pub(crate) fn at(port: u16) -> Address {
    Address::Tcp(format!("127.0.0.1:{port}"))
}

/// Free ports on loopback, below those that the system assigns to connections
/// (`ip_local_port_range`), so that no other test takes them before they are bound here.
fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 100).unwrap() * 200;
    [(); N].map(|()| {
        loop {
            let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return port;
            }
        }
    })
}
