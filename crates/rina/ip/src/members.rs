//! The members that a node's configuration asks for, each in a thread of its own.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use carina_api::paths::RunDir;
use carina_client::Node;
use carina_sys::EventFd;

use crate::error::IpError;
use crate::member::Member;
use crate::settings::IpSettings;

/// Runs a member for each table `[[ip]]`. A member that cannot be started, or has ended, is started
/// again every second until it works. Dropping this value ends the members.
#[derive(Debug)]
pub struct Members {
    run: RunDir,
    running: Vec<Running>,
    /// Threads of members that must end.
    ending: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Running {
    settings: IpSettings,
    stop: Arc<EventFd>,
    /// Why the last attempt failed; `None` while the member runs.
    error: Arc<Mutex<Option<String>>>,
    thread: JoinHandle<()>,
}

impl Members {
    /// Makes an empty list. `run` is the run directory of the node, which need not answer yet.
    #[must_use]
    pub fn new(run: RunDir) -> Members {
        Members {
            run,
            running: Vec::new(),
            ending: Vec::new(),
        }
    }

    /// Sets the members that must run from now on. Others end, with their interfaces. Does not wait
    /// for their ends, because a member may wait for the caller.
    ///
    /// # Errors
    /// The kernel refuses a thread or an event descriptor. The members before it run.
    pub fn set(&mut self, wanted: &[IpSettings]) -> io::Result<()> {
        let all = std::mem::take(&mut self.running);
        for running in all {
            if wanted.contains(&running.settings) {
                self.running.push(running);
            } else {
                running.stop.signal();
                self.ending.push(running.thread);
            }
        }
        self.ending.retain(|thread| !thread.is_finished());
        for settings in wanted {
            if self
                .running
                .iter()
                .any(|candidate| candidate.settings == *settings)
            {
                continue;
            }
            let stop = Arc::new(EventFd::new()?);
            let error = Arc::new(Mutex::new(None));
            let (run, of_thread, own) = (self.run.clone(), Arc::clone(&stop), settings.clone());
            let noted = Arc::clone(&error);
            let thread = std::thread::Builder::new().name(format!("ip {}", settings.tun));
            let thread = thread.spawn(move || keep_running(&run, &own, &of_thread, &noted))?;
            self.running.push(Running {
                settings: settings.clone(),
                stop,
                error,
                thread,
            });
        }
        Ok(())
    }

    /// Returns why the last attempt to start the member of an interface failed. `None` while the
    /// member runs, and before the first attempt ends.
    #[must_use]
    pub fn error_of(&self, tun: &str) -> Option<String> {
        let member = self
            .running
            .iter()
            .find(|candidate| candidate.settings.tun == tun)?;
        let error = member.error.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for running in std::mem::take(&mut self.running) {
            running.stop.signal();
            self.ending.push(running.thread);
        }
        for thread in std::mem::take(&mut self.ending) {
            if thread.join().is_err() {
                tracing::error!(target: "carina::ip", "the thread of an interface panicked");
            }
        }
    }
}

/// Runs a member until `stop` is signalled.
fn keep_running(
    run: &RunDir,
    settings: &IpSettings,
    stop: &EventFd,
    error: &Mutex<Option<String>>,
) {
    let note = |text: Option<String>| {
        *error.lock().unwrap_or_else(PoisonError::into_inner) = text;
    };
    let mut logged = String::new();
    loop {
        let ended = start(run, settings).and_then(|mut member| {
            tracing::info!(target: "carina::ip", "{} is up in DIF {}", settings.tun, settings.dif);
            logged.clear();
            note(None);
            member.run(stop)
        });
        let Err(error) = ended else {
            return;
        };
        let line = error.to_string();
        note(Some(line.clone()));
        if line != logged {
            let (tun, again) = (&settings.tun, RETRY.as_secs());
            tracing::warn!(target: "carina::ip", "{tun}: {line}; tried again every {again} s");
            logged = line;
        }
        if stop.wait(Some(RETRY.as_nanos() as u64)).unwrap_or(true) {
            return;
        }
    }
}

fn start(run: &RunDir, settings: &IpSettings) -> Result<Member, IpError> {
    let node = Node::connect_within(run.ipc_sock(), NODE_LIMIT);
    let node = node.map_err(|source| IpError::Node { source })?;
    Member::start(node, run, settings.clone())
}

const RETRY: Duration = Duration::from_secs(1);
/// How long the node may take for one answer.
const NODE_LIMIT: Duration = Duration::from_millis(1500);
