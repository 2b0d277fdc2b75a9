//! The Carina node of a host, whose DIFs carry links to other hosts as flows.
//!
//! ```text
//!    host 192.0.2.1                                host 192.0.2.2
//!    engine -- flow link.7 ====================== flow link.7 -- engine
//!              member ---- DIF 192.0.2.1-192.0.2.2 ---- member
//!              shim underlay --- Ethernet --- shim underlay
//! ```
//!
//! Each pair of hosts with such links has a DIF of its own. Its first member is that of the host
//! with the lower address, so that the hosts need not negotiate this. The node ends with the last
//! link that needs it, or with its agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_api::control::{Client, IpcpInfo, MemberState};
use carina_api::paths::RunDir;
use carina_namespaces::Process;
use carina_sys::end_with_parent;

use crate::directory::Vnets;
use crate::error::{Attempt, Error, Result};
use crate::underlay::Underlay;

/// The Carina node of a host. The node starts when the first link needs it, and ends with the last
/// such link, or when this is dropped.
#[derive(Debug)]
pub(crate) struct HostDif {
    run_dir: RunDir,
    host: String,
    underlay: Underlay,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of links that need the DIF of each pair.
    wanted: BTreeMap<Pair, usize>,
    /// The pairs for which the running node has a member.
    pairs: BTreeSet<Pair>,
    running: Option<Running>,
    /// The members that the node has last reported, and when.
    listed: Option<(Instant, Vec<IpcpInfo>)>,
    /// Since when a member has had no neighbour.
    alone: BTreeMap<Pair, Instant>,
    /// For each pair of hosts, the time at which this host's member last joined again.
    joined: BTreeMap<Pair, Instant>,
}

/// Two hosts by their addresses on the underlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    /// Address of this host on the substrate.
    pub local: Ipv4Addr,
    /// Address of the other host.
    pub remote: Ipv4Addr,
}

#[derive(Debug)]
struct Running {
    process: Process,
    thread: Option<JoinHandle<()>>,
}

impl Pair {
    /// Whether this host's member is the first one, which creates the DIF.
    pub(crate) fn is_first(self) -> bool {
        self.local < self.remote
    }

    /// Name of the DIF of these two hosts: both addresses, the lower one first.
    pub(crate) fn dif(self) -> String {
        let (low, high) = (self.local.min(self.remote), self.local.max(self.remote));
        format!("{low}-{high}")
    }
}

impl HostDif {
    /// Prepares the Carina node of host `host` without starting it.
    pub(crate) fn of(vnets: &Vnets, host: &str, underlay: &Underlay) -> HostDif {
        HostDif {
            run_dir: RunDir::new(vnets.path().with_extension("dif")),
            host: host.to_owned(),
            underlay: underlay.clone(),
            state: Mutex::default(),
        }
    }

    /// Path of the socket at which applications reach the node.
    pub(crate) fn socket(&self) -> PathBuf {
        self.run_dir.ipc_sock()
    }

    /// Registers a link that needs the DIF of a pair. [`HostDif::ensure`] then creates or joins the
    /// DIF.
    pub(crate) fn want(&self, pair: Pair) {
        *self.lock().wanted.entry(pair).or_default() += 1;
    }

    /// Unregisters a link. With the pair's last link the member leaves the DIF; the node ends with
    /// its last member.
    pub(crate) fn release(&self, pair: Pair) {
        let mut state = self.lock();
        if let Some(count) = state.wanted.get_mut(&pair) {
            *count -= 1;
            if *count > 0 {
                return;
            }
        }
        state.wanted.remove(&pair);
        state.alone.remove(&pair);
        state.joined.remove(&pair);
        state.pairs.remove(&pair);
        if state.pairs.is_empty() {
            state.running = None;
        } else if state.runs() {
            // If the node refuses, an unused member remains.
            let _ = self.apply(&state.pairs);
        }
    }

    /// Makes sure that the node runs and has a member in the DIF of a pair.
    ///
    /// # Errors
    /// The node does not start, or refuses.
    pub(crate) fn ensure(&self, pair: Pair) -> Result<()> {
        let mut state = self.lock();
        let mut pairs = state.pairs.clone();
        let is_new = pairs.insert(pair);
        if !state.runs() {
            state.running = None;
            state.alone.clear();
            state.running = Some(self.start(&pairs)?);
        } else if is_new {
            self.apply(&pairs)?;
        }
        state.pairs = pairs;
        Ok(())
    }

    /// Checks that this host's member in the DIF of a pair has the other host's member as a
    /// neighbour. A second member that has been alone for [`ANEW`] joins again, because the first
    /// one may have created the DIF again.
    ///
    /// # Errors
    /// Why the member has no neighbour.
    pub(crate) fn neighbour(&self, pair: Pair) -> Result<(), String> {
        let mut state = self.lock();
        let is_fresh = |(at, _): &(Instant, _)| at.elapsed() < FRESH;
        if !state.listed.as_ref().is_some_and(is_fresh) {
            let client = Client::new(self.run_dir.control_sock());
            let ipcps = client.ipcps().map_err(|error| error.to_string())?;
            state.listed = Some((Instant::now(), ipcps));
        }
        let dif = pair.dif();
        let listed = state.listed.iter().flat_map(|(_, ipcps)| ipcps);
        let mut members = listed.filter(|listed| listed.dif.as_str() == dif);
        let member = members.find_map(|member| member.member.clone());
        let remote = pair.remote;
        let member = member.ok_or_else(|| format!("this host is not yet a member of DIF {dif}"))?;
        if member.state != MemberState::Enrolled {
            let why = member.last_error.unwrap_or(member.step);
            return Err(format!("this host has not joined DIF {dif}: {why}"));
        }
        if !member.neighbours.is_empty() {
            state.alone.remove(&pair);
            return Ok(());
        }
        let since = *state.alone.entry(pair).or_insert_with(Instant::now);
        if !pair.is_first() && since.elapsed() > ANEW {
            let again = self.again(&mut state, pair);
            again.map_err(|error| error.to_string())?;
        }
        Err(format!("host {remote} does not answer in DIF {dif}"))
    }

    /// Makes this host's member leave the DIF of a pair and join again, unless it is the first
    /// member, or has just done so for another link.
    ///
    /// # Errors
    /// The node refuses.
    pub(crate) fn join_anew(&self, pair: Pair) -> Result<()> {
        let mut state = self.lock();
        let is_new = state
            .joined
            .get(&pair)
            .is_some_and(|at| at.elapsed() < ANEW);
        if pair.is_first() || is_new {
            Ok(())
        } else {
            self.again(&mut state, pair)
        }
    }

    fn again(&self, state: &mut State, pair: Pair) -> Result<()> {
        state.alone.remove(&pair);
        state.joined.insert(pair, Instant::now());
        state.listed = None;
        let mut others = state.pairs.clone();
        others.remove(&pair);
        self.apply(&others)?;
        self.apply(&state.pairs)
    }

    fn apply(&self, pairs: &BTreeSet<Pair>) -> Result<()> {
        let client = Client::new(self.run_dir.control_sock());
        let applied = client.apply(&self.configuration(pairs));
        applied.map(drop).map_err(|error| Error::Tool {
            what: "the Carina node of this host".to_owned(),
            output: error.to_string(),
        })
    }

    fn configuration(&self, pairs: &BTreeSet<Pair>) -> String {
        let interface = serde_json::Value::from(self.underlay.interface.as_str());
        let mut text = format!(
            "[node]\nname = \"{}\"\nloopback = false\n\n[[ipcp]]\nname = \"{UNDERLAY}\"\n\
             type = \"eth\"\ndif = \"{UNDERLAY}\"\ninterface = {interface}\nvlan = 0\n",
            self.host
        );
        for pair in pairs {
            let (dif, local) = (pair.dif(), pair.local);
            let role = if pair.is_first() { "create" } else { "join" };
            let _ = write!(
                text,
                "\n[[dif]]\nname = \"{dif}\"\nrole = \"{role}\"\nover = [\"{UNDERLAY}\"]\n\
                 ipcp = \"{dif}.{local}\"\n"
            );
            if pair.is_first() {
                let _ = writeln!(text, "[dif.config]\nkeepalive_ms = {KEEPALIVE_MS}");
            }
        }
        text
    }

    fn start(&self, pairs: &BTreeSet<Pair>) -> Result<Running> {
        let path = self.run_dir.path();
        let what = || {
            format!(
                "starting the Carina node of this host in {}",
                path.display()
            )
        };
        fs::create_dir_all(path).attempt(what())?;
        let config = path.join("host.toml");
        fs::write(&config, self.configuration(pairs)).attempt(what())?;
        let log = path.join("node.log");
        let mut command = Command::new("nsenter");
        command
            .arg(format!(
                "--net={}",
                own_path(&self.underlay.netns).display()
            ))
            .arg("--")
            .arg(std::env::current_exe().attempt(what())?)
            .args(["node", "--run"])
            .arg(path)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).attempt(what())?)
            .env_remove("CARINA_RUN");
        let (begun, is_begun) = sync_channel(1);
        // The process ends with the thread that started it; therefore the thread waits for its end.
        let run = move || match end_with_parent(&mut command).spawn() {
            Ok(mut child) => {
                let _ = begun.send(Ok(Process::of_child(&child)));
                let _ = child.wait();
            }
            Err(error) => {
                let _ = begun.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("host-dif".into());
        let thread = thread.spawn(run).attempt(what())?;
        let begun = is_begun
            .recv()
            .unwrap_or_else(|_| Err(std::io::Error::other("it ended")));
        let running = Running {
            process: begun.attempt(what())??,
            thread: Some(thread),
        };
        self.wait(&running, &log)?;
        Ok(running)
    }

    fn wait(&self, running: &Running, log: &Path) -> Result<()> {
        let client = Client::new(self.run_dir.control_sock());
        let deadline = Instant::now() + START;
        while client.node().is_err() {
            if !running.process.is_alive() || Instant::now() > deadline {
                let log_text = fs::read_to_string(log).unwrap_or_default();
                let last: Vec<&str> = log_text.lines().rev().take(3).collect();
                return Err(Error::Tool {
                    what: "the Carina node of this host".to_owned(),
                    output: last.join("; "),
                });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent, even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A path below `/proc/self`, written so that another process can use it.
fn own_path(path: &Path) -> PathBuf {
    match path.strip_prefix("/proc/self") {
        Ok(rest) => Path::new("/proc")
            .join(std::process::id().to_string())
            .join(rest),
        Err(_) => path.to_owned(),
    }
}

impl State {
    fn runs(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.process.is_alive())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.signal(rustix::process::Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while self.process.is_alive() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        self.process.signal(rustix::process::Signal::KILL);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Name of the shim IPCP over the underlay.
const UNDERLAY: &str = "underlay";
/// Interval of keep-alives. Three lost ones count as loss of the neighbour, so that this takes some
/// seconds.
const KEEPALIVE_MS: u32 = 1000;
/// How long the reported members are cached.
const FRESH: Duration = Duration::from_millis(400);
/// Time without a neighbour after which a member joins again.
const ANEW: Duration = Duration::from_secs(5);
const START: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hosts_of_a_pair_name_the_same_dif_and_one_makes_it() {
        let [low, high] = [[192, 0, 2, 9], [192, 0, 2, 10]].map(Ipv4Addr::from);
        let one = Pair {
            local: low,
            remote: high,
        };
        let other = Pair {
            local: high,
            remote: low,
        };
        assert_eq!(
            (one.dif(), other.dif()),
            (other.dif(), "192.0.2.9-192.0.2.10".to_owned())
        );
        assert_eq!([one, other].map(Pair::is_first), [true, false]);
        let vnets = Vnets::of(&RunDir::new("/nowhere"));
        let host = HostDif::of(&vnets, "h1", &Underlay::of("eth\"1"));
        let text = host.configuration(&BTreeSet::from([other]));
        for want in [
            "interface = \"eth\\\"1\"\nvlan = 0\n",
            "role = \"join\"\nover = [\"underlay\"]\nipcp = \"192.0.2.9-192.0.2.10.192.0.2.10\"\n",
        ] {
            assert!(text.contains(want), "{text}");
        }
    }
}
