//! The Carina node of a host, whose DIFs carry links to other hosts.
//!
//! ```text
//!    host 192.0.2.1                                host 192.0.2.2
//!    engine -- flow link.7 ====================== flow link.7 -- engine
//!              member ---- DIF 192.0.2.1-192.0.2.2 ---- member
//!              shim underlay --- Ethernet --- shim underlay
//! ```
//!
//! Each pair of hosts between which there are such links has a DIF of its own. Its first member is
//! that of the host with the lower address, so that nothing has to be agreed upon. The node ends
//! with its agent.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_api::control::Client;
use carina_api::paths::RunDir;
use carina_lab::Process;
use carina_sys::end_with_parent;

use crate::directory::Vnets;
use crate::error::{Attempt, Error, Result};
use crate::underlay::Underlay;

/// The Carina node of a host. It is started when the first link needs it, and ends with this value.
#[derive(Debug)]
pub struct HostDif {
    run_dir: RunDir,
    host: String,
    underlay: Underlay,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pairs: BTreeSet<Pair>,
    running: Option<Running>,
}

/// Two hosts by their addresses on the underlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// That of this host.
    pub local: Ipv4Addr,
    /// That of the other.
    pub remote: Ipv4Addr,
}

#[derive(Debug)]
struct Running {
    process: Process,
    thread: Option<JoinHandle<()>>,
}

impl Pair {
    /// Whether this host's member is the first of the DIF.
    pub fn is_first(self) -> bool {
        self.local < self.remote
    }

    /// The name of the DIF.
    pub fn dif(self) -> String {
        let (low, high) = (self.local.min(self.remote), self.local.max(self.remote));
        format!("{low}-{high}")
    }
}

impl HostDif {
    /// The node of a host, which does not run yet.
    pub fn of(vnets: &Vnets, host: &str, underlay: &Underlay) -> HostDif {
        HostDif {
            run_dir: RunDir::new(vnets.path().with_extension("dif")),
            host: host.to_owned(),
            underlay: underlay.clone(),
            state: Mutex::default(),
        }
    }

    /// Where applications reach it.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.ipc_sock()
    }

    /// Has the node run, with the DIF of a pair of hosts.
    ///
    /// # Errors
    /// It does not start, or refuses.
    pub fn ensure(&self, pair: Pair) -> Result<()> {
        let mut state = self.lock();
        let is_new = state.pairs.insert(pair);
        let runs = state
            .running
            .as_ref()
            .is_some_and(|it| it.process.is_alive());
        if runs && is_new {
            self.apply(&state.pairs)?;
        }
        if !runs {
            state.running = None;
            state.running = Some(self.start(&state.pairs)?);
        }
        Ok(())
    }

    /// Has the member of this host leave the DIF of a pair and join anew: the first member may have
    /// been started again.
    ///
    /// # Errors
    /// The node refuses.
    pub fn join_anew(&self, pair: Pair) -> Result<()> {
        let state = self.lock();
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
            said: error.to_string(),
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
            .arg(format!("--net={}", self.underlay.netns.display()))
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
        // It ends with the thread that has started it, which waits for its end.
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
                let said = fs::read_to_string(log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(3).collect();
                return Err(Error::Tool {
                    what: "the Carina node of this host".to_owned(),
                    said: last.join("; "),
                });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The shim over the underlay.
const UNDERLAY: &str = "underlay";
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
