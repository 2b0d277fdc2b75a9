//! The access points of a network on this host, through which end users join.
//!
//! ```text
//!   node           namespace of ports                       host
//!  +------+      +--------------------------------------+
//!  | ethN |------| l{n}.0 - shaper - wireguard_access ==|== UDP, in the namespace of the underlay
//!  +------+      +--------------------------|-----------+
//!                                        mailbox -- register: access-NAME.json
//! ```
//!
//! The engine never waits for a decision: it puts requests into the mailbox. A thread per access
//! point decides about them, stores the decisions, and puts the admitted users into the mailbox,
//! where the engine finds them.

mod address;
mod refusals;
mod report;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carina_apps::mac_text::MacText;
use carina_frame_engine::Graph;
use carina_vnet::access::{AccessReport, Revoked, TokenReport, TokenWanted};
use carina_vnet::host_part::{Far, HostPart, LinkPart, Users};
use carina_vnet_access::access_app::AccessConfig;
use carina_vnet_access::control::{Reply, Request};
use carina_vnet_access::key::HostKeys;
use carina_vnet_access::mailbox::{AccessMailbox, Asked};
pub use carina_vnet_access::register::RegisterError;
use carina_vnet_access::register::{DifFacts, Facts, Register};
use carina_vnet_access::{Refusal, Refused};
use carina_wire::ether::Mac;

use self::refusals::Refusals;
use crate::directory::VnetDir;
use crate::error::{Attempt, Error, Result};
use crate::graph::{add_port_app, rate_of, shaper};
use crate::names::{access_app, rate_app};
use crate::port_selection::PortSelection;
use crate::progress::Progress;
use crate::underlay::Underlay;

/// The access points of a network on this host, through which end users join over WireGuard. Each
/// has a register (a file of tokens and sessions) and a thread that decides which users may join.
#[derive(Debug)]
pub struct AccessPoints {
    dir: VnetDir,
    /// Path of the network namespace in which the access points listen.
    netns: PathBuf,
    progress: Arc<Progress>,
    /// The access points by the numbers of their links.
    points: Mutex<BTreeMap<u32, Point>>,
}

/// An access point and the thread that decides about its users.
#[derive(Debug)]
struct Point {
    name: String,
    keys: HostKeys,
    register: Arc<Mutex<Register>>,
    mailbox: AccessMailbox,
    listen: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl AccessPoints {
    /// Prepares the access points of a network without creating any. [`AccessPoints::become_part`]
    /// creates them.
    pub fn new(
        dir: &VnetDir,
        underlay: Option<&Underlay>,
        progress: &Arc<Progress>,
    ) -> AccessPoints {
        let own = || Underlay::of("").netns;
        AccessPoints {
            dir: dir.clone(),
            netns: underlay.map_or_else(own, |underlay| underlay.netns.clone()),
            progress: Arc::clone(progress),
            points: Mutex::default(),
        }
    }

    /// Creates and removes access points until this host has those of `part`, the host's part of
    /// the network. Users of an access point that stays remain connected, except users that `part`
    /// does not list any more.
    ///
    /// # Errors
    /// The register of an access point (its file of tokens and sessions) cannot be read or written,
    /// or no UDP port is free.
    pub fn become_part(&self, part: &HostPart) -> Result<()> {
        let mut points = self.lock();
        let wanted: BTreeMap<u32, (&LinkPart, &Users)> = access_links(part).collect();
        let is_wanted = |number: &u32, point: &Point| {
            let wanted = wanted.get(number);
            wanted.is_some_and(|(_, users)| users.access == point.name)
        };
        let gone: Vec<u32> = points
            .iter()
            .filter(|(number, point)| !is_wanted(number, point))
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            if let Some(point) = points.remove(&number) {
                let path = self.register_of(&point.name);
                drop(point);
                // The engine holds the port a little longer, so that a new point of this name gets
                // another port.
                Register::retire(&path)?;
            }
        }
        // Also retires registers that an agent which was killed left behind.
        let names: Vec<&str> = wanted
            .values()
            .map(|(_, point)| point.access.as_str())
            .collect();
        for (name, path) in self.registers()? {
            if !names.contains(&name.as_str()) {
                Register::retire(&path)?;
            }
        }
        for (number, (link, users)) in wanted {
            let facts = facts_of(part, link, users);
            match points.get(&number) {
                Some(point) => point.refresh(facts)?,
                None => {
                    points.insert(number, self.make(facts)?);
                }
            }
        }
        Ok(())
    }

    fn make(&self, facts: Facts) -> Result<Point> {
        let name = facts.access.clone();
        let keys = {
            // Networks that are made at the same time create the file only once.
            let _one = lock(&KEYS);
            HostKeys::at(&self.keys_file()).map_err(RegisterError::from)?
        };
        let path = self.register_of(&name);
        let free = address::free_port(&self.netns);
        let port = || free.unwrap_or_default();
        let mut register = Register::open(&path, keys.clone(), facts.clone(), port)?;
        // An agent may have been killed before it disconnected users who are not listed any more.
        register.refresh(facts)?;
        let port = register.port();
        if port == 0 {
            return Err(Error::Unsupported {
                what: format!("access point {name}"),
                instead: "no UDP port is free from 51820 on",
            });
        }
        let listen = address::listening(&self.netns, port)?;
        address::choose(port);
        let mailbox = AccessMailbox::with_peers(register.peers());
        let register = Arc::new(Mutex::new(register));
        let (of_thread, of_decisions, progress) = (
            Arc::clone(&register),
            mailbox.clone(),
            Arc::clone(&self.progress),
        );
        let thread = std::thread::Builder::new().name("vnet-access".into());
        let thread = thread
            .spawn(move || decide(&of_thread, &of_decisions, &progress))
            .attempt("starting a thread")?;
        Ok(Point {
            name,
            keys,
            register,
            mailbox,
            listen,
            thread: Some(thread),
        })
    }

    /// Adds the access points of a part to the part's graph.
    ///
    /// # Errors
    /// An access point of the part has not been created.
    pub fn add(&self, graph: &mut Graph, part: &HostPart, ports: &PortSelection) -> Result<()> {
        let points = self.lock();
        for (number, (link, users)) in access_links(part) {
            let point = points.get(&number);
            let point = point.ok_or_else(|| Error::NotMade(format!("access {}", users.access)))?;
            let interface = part.interface(&link.near);
            let interface = interface.expect("the part was checked: its links end at interfaces");
            let Mac([rest @ .., last]) = interface.mac;
            let [a, b, c, d, e] = rest;
            let config = AccessConfig {
                key: point.keys.tunnel().clone(),
                listen: point.listen,
                netns: Some(self.netns.clone()),
                address: interface.peer,
                // Any address other than the node's.
                mac: MacText(Mac([a, b, c, d, e, last ^ 1])),
                node_mac: MacText(interface.mac),
                mtu: interface.mtu,
                mailbox: point.mailbox.clone(),
            };
            let (own, rate, access) = (
                ports.app((number, 0)),
                rate_app(number, 0),
                access_app(number),
            );
            add_port_app(graph, (number, 0), ports);
            graph.app(&rate, shaper(rate_of(link)));
            graph.app(&access, config);
            graph.link(&format!("{own}.output -> {rate}.input"))?;
            graph.link(&format!("{rate}.output -> {access}.input"))?;
            graph.link(&format!("{access}.output -> {own}.input"))?;
        }
        Ok(())
    }

    /// Makes a token for a user of an access point.
    ///
    /// # Errors
    /// There is no such access point or user, or the address or lease is invalid.
    pub fn token(&self, access: &str, wanted: &TokenWanted) -> Result<TokenReport> {
        let points = self.lock();
        let point = self.find(&points, access)?;
        let port = point.listen.port();
        let at = if wanted.at.is_empty() {
            address::addresses(&self.netns)?
                .into_iter()
                .map(|address| SocketAddr::new(address, port))
                .collect()
        } else {
            wanted
                .at
                .iter()
                .map(|address| address.with_port(port))
                .collect()
        };
        let now = unix_now();
        let what = (at, wanted.rights.clone());
        let token = lock(&point.register).issue(now, &wanted.user, wanted.lease_s, what)?;
        Ok(TokenReport {
            token: token.text().to_owned(),
            at: token.claims().at.clone(),
            until: token.claims().exp,
        })
    }

    /// Revokes the tokens of a user and disconnects the user's system.
    ///
    /// # Errors
    /// There is no such access point or user, or the register cannot be written.
    pub fn revoke(&self, access: &str, user: &str) -> Result<Revoked> {
        let points = self.lock();
        let point = self.find(&points, access)?;
        let mut register = lock(&point.register);
        let cut = register.revoke(user)?;
        let what = format!("the access of {user} at access point {access} was revoked");
        let news = cut.map(|key| (key, Reply::Refused(Refused::new(Refusal::Revoked, &*what))));
        point
            .mailbox
            .set_peers(register.peers(), news.into_iter().collect());
        self.progress.tell(what);
        Ok(Revoked {
            was_joined: cut.is_some(),
        })
    }

    /// The state of all access points with their users.
    pub fn reports(&self) -> Vec<AccessReport> {
        let points = self.lock();
        let reports = points.iter().map(|(number, point)| {
            let register = lock(&point.register);
            report::of(
                &register,
                *number,
                point.listen.port(),
                &point.mailbox.seen(),
                &self.dir.counters(),
            )
        });
        reports.collect()
    }

    fn find<'a>(&self, points: &'a BTreeMap<u32, Point>, access: &str) -> Result<&'a Point> {
        let found = points.values().find(|point| point.name == access);
        found.ok_or_else(|| {
            let known: Vec<&str> = points.values().map(|point| point.name.as_str()).collect();
            Error::NoAccess {
                vnet: self.dir.name(),
                access: access.to_owned(),
                known: if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                },
            }
        })
    }

    fn register_of(&self, access: &str) -> PathBuf {
        self.dir.path().join(format!("access-{access}.json"))
    }

    /// The names of access points that have a register file, with the paths of the files.
    fn registers(&self) -> Result<Vec<(String, PathBuf)>> {
        let directory = self.dir.path();
        let what = || format!("reading {}", directory.display());
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.attempt(what())?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.attempt(what())?.path();
            let file = path.file_name().and_then(|file_name| file_name.to_str());
            let name = file.and_then(|file| file.strip_prefix("access-")?.strip_suffix(".json"));
            if let Some(name) = name {
                all.push((name.to_owned(), path));
            }
        }
        Ok(all)
    }

    /// Path of the keys. All networks of an agent share them, so that a token presented to the
    /// wrong network can still be answered.
    fn keys_file(&self) -> PathBuf {
        let all = self.dir.path().parent().unwrap_or(self.dir.path());
        all.with_extension("access-keys")
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Point>> {
        lock(&self.points)
    }
}

impl Point {
    fn refresh(&self, facts: Facts) -> Result<()> {
        let mut register = lock(&self.register);
        if *register.facts() == facts {
            return Ok(());
        }
        let gone = register.refresh(facts)?;
        // Tells users who stay about changed addresses. If such a message is lost, the user's
        // system asks again.
        let told = register.news().into_iter();
        let told = told.map(|(key, joined)| (key, Reply::Joined(joined)));
        let news = news(gone).into_iter().chain(told).collect();
        self.mailbox.set_peers(register.peers(), news);
        Ok(())
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        address::give_back(self.listen.port());
        self.mailbox.close();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// Decides requests and disconnects users whose token has expired, until the mailbox is closed.
fn decide(register: &Mutex<Register>, mailbox: &AccessMailbox, progress: &Progress) {
    let mut refusals = Refusals::default();
    while !mailbox.is_closed() {
        let asked = mailbox.next(LOOK);
        let mut register = lock(register);
        if let Some(asked) = asked
            && let Some(refused) = answer(&mut register, mailbox, &asked, progress)
            && let Some(event) = refusals.note(Instant::now(), asked.from, &refused)
        {
            progress.tell_frequent(event);
        }
        for event in refusals.due(Instant::now()) {
            progress.tell_frequent(event);
        }
        match register.expire(unix_now()) {
            Ok(over) if over.is_empty() => {}
            Ok(over) => {
                let count = over.len();
                mailbox.set_peers(register.peers(), news(over));
                progress.tell(format!("the access of {count} users has expired"));
            }
            Err(error) => progress.tell(format!("the access of a user cannot be ended: {error}")),
        }
    }
}

/// Answers a request to join. Returns why it was refused, if it was.
fn answer(
    register: &mut Register,
    mailbox: &AccessMailbox,
    asked: &Asked,
    progress: &Progress,
) -> Option<String> {
    let Request::Join(token) = &asked.request;
    match register.admit(unix_now(), asked.key, token) {
        // The user's system repeats its request.
        Err(error) => return Some(error.to_string()),
        Ok(Err(refused)) => {
            let what = refused.what.clone();
            mailbox.answer(asked.index, Reply::Refused(refused), None);
            return Some(what);
        }
        Ok(Ok(taken)) => {
            mailbox.answer(asked.index, Reply::Joined(taken.joined), None);
            if taken.is_new {
                let user = taken.user;
                let what = format!("another system has joined as {user}");
                let replaced = taken
                    .replaced
                    .map(|key| (key, Refused::new(Refusal::Replaced, what)));
                mailbox.set_peers(register.peers(), news(replaced.into_iter().collect()));
                let access = &register.facts().access;
                progress.tell(format!("user {user} has joined at access point {access}"));
            }
        }
    }
    None
}

fn news<K>(refused: Vec<(K, Refused)>) -> Vec<(K, Reply)> {
    let all = refused.into_iter();
    all.map(|(key, reason)| (key, Reply::Refused(reason)))
        .collect()
}

/// The links of a part that are access points.
fn access_links(part: &HostPart) -> impl Iterator<Item = (u32, (&LinkPart, &Users))> {
    part.links.iter().filter_map(|link| match &link.far {
        Far::Users(users) => Some((link.number, (link, users))),
        Far::Here(_) | Far::Host(_) | Far::Nic(_) => None,
    })
}

fn facts_of(part: &HostPart, link: &LinkPart, users: &Users) -> Facts {
    let node = part.node(&link.near.node);
    let interface = part.interface(&link.near);
    let (node, interface) = node
        .zip(interface)
        .expect("the part was checked: its links end at interfaces");
    let own = node
        .interfaces
        .iter()
        .map(|interface| interface.address.prefix());
    let routes = node.routes.iter().map(|route| route.to);
    Facts {
        // The issuer does not name the host, because users of a token must not need to know it.
        issuer: format!("{}.{}", users.access, part.name),
        vnet: part.vnet,
        network: part.name.clone(),
        access: users.access.clone(),
        node: interface.address,
        users: users.addresses.clone(),
        rate_bps: link.rate.bps(),
        mtu: interface.mtu,
        prefixes: own.chain(routes).collect(),
        dif: node.founder.as_ref().map(|_| DifFacts {
            name: part.name.clone(),
            member: node.name.clone(),
        }),
    }
}

/// The current time, in seconds since 1970.
fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the value consistent, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locked while the file of keys is created or read.
static KEYS: Mutex<()> = Mutex::new(());
/// Time between two checks for expired tokens.
const LOOK: Duration = Duration::from_secs(1);
