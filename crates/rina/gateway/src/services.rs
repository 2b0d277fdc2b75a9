//! The services that a node's configuration asks for, run by a thread of their own.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_client::Node;
use carina_sys::EventFd;

use crate::error::GatewayError;
use crate::gateway::Gateway;
use crate::settings::Setting;

/// Runs the services of a list in a thread. A service that cannot be started, or has ended, is
/// started again every second until it works. Dropping this value ends the services.
#[derive(Debug)]
pub struct Services {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The services that must run; `None` when all must end.
    wanted: Mutex<Option<Vec<Setting>>>,
    /// Signalled when the list has changed.
    changed: EventFd,
}

impl Services {
    /// Starts the thread. `ipc_sock` is the path of the node's socket for applications; the node
    /// need not answer yet.
    ///
    /// # Errors
    /// The kernel refuses to make the thread or its event descriptor.
    pub fn start(ipc_sock: PathBuf) -> io::Result<Services> {
        let shared = Arc::new(Shared {
            wanted: Mutex::new(Some(Vec::new())),
            changed: EventFd::new()?,
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("gateway".to_owned());
        let thread = thread.spawn(move || {
            let mut runner = Runner::new(ipc_sock);
            while let Some(wanted) = of_thread.wanted() {
                runner.follow(&wanted);
                runner.serve(&of_thread.changed);
            }
        })?;
        Ok(Services {
            shared,
            thread: Some(thread),
        })
    }

    /// Sets the services that must run from now on. Other services end; connections that they have
    /// attached to flows continue.
    pub fn set(&self, wanted: Vec<Setting>) {
        self.change(Some(wanted));
    }

    fn change(&self, wanted: Option<Vec<Setting>>) {
        let lock = self.shared.wanted.lock();
        *lock.unwrap_or_else(PoisonError::into_inner) = wanted;
        self.shared.changed.signal();
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.change(None);
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!(target: "carina::gateway", "the thread of the services panicked");
        }
    }
}

impl Shared {
    fn wanted(&self) -> Option<Vec<Setting>> {
        self.changed.drain();
        let lock = self.wanted.lock();
        lock.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// State of the thread that runs the services.
struct Runner {
    ipc_sock: PathBuf,
    gateway: Option<Gateway>,
    running: Vec<(Setting, u32)>,
    /// Whether a configured service could not be started; the thread tries it again.
    is_incomplete: bool,
    /// The last line in the log, so that the thread does not repeat it every second.
    logged: String,
}

impl Runner {
    fn new(ipc_sock: PathBuf) -> Runner {
        Runner {
            ipc_sock,
            gateway: None,
            running: Vec::new(),
            is_incomplete: false,
            logged: String::new(),
        }
    }

    /// Ends services that are not in the list `wanted`, and starts services of the list that do not
    /// run.
    fn follow(&mut self, wanted: &[Setting]) {
        self.is_incomplete = false;
        if let Some(gateway) = &mut self.gateway {
            self.running.retain(|(setting, id)| {
                let is_wanted = wanted.contains(setting);
                if !is_wanted {
                    gateway.remove(*id);
                    tracing::info!(target: "carina::gateway", service = %setting, "ended");
                }
                is_wanted
            });
        }
        let is_running = |setting: &&Setting| self.running.iter().any(|(one, _)| one == *setting);
        let missing: Vec<_> = wanted
            .iter()
            .filter(|one| !is_running(one))
            .cloned()
            .collect();
        for setting in missing {
            match self.add(&setting) {
                Ok(id) => {
                    tracing::info!(target: "carina::gateway", service = %setting, "started");
                    self.running.push((setting, id));
                }
                Err(error) => {
                    self.is_incomplete = true;
                    self.say(&setting, &error);
                }
            }
        }
    }

    fn add(&mut self, setting: &Setting) -> Result<u32, GatewayError> {
        let gateway = match &mut self.gateway {
            Some(gateway) => gateway,
            None => {
                let node = Node::connect_within(&self.ipc_sock, NODE_LIMIT);
                let node = node.map_err(|error| GatewayError::System {
                    action: "reaching the node",
                    source: io::Error::other(error),
                })?;
                self.gateway.insert(Gateway::new(node)?)
            }
        };
        gateway.add(setting.clone())
    }

    /// Runs the services until the list has changed, or until it is time to start missing services
    /// again.
    fn serve(&mut self, changed: &EventFd) {
        let until = self.is_incomplete.then(|| Instant::now() + RETRY_INTERVAL);
        let Some(gateway) = &mut self.gateway else {
            let limit = until.map(|_| RETRY_INTERVAL.as_nanos() as u64);
            if let Err(error) = changed.wait(limit) {
                tracing::error!(target: "carina::gateway", %error, "waiting for changes of the \
                    services failed");
                std::thread::sleep(RETRY_INTERVAL);
            }
            return;
        };
        let Err(ended) = gateway.serve(changed, until) else {
            return;
        };
        let Some(id) = ended.service else {
            tracing::error!(target: "carina::gateway", error = %ended.error, "serving failed; \
                services are suspended until the next attempt");
            return std::thread::sleep(RETRY_INTERVAL);
        };
        gateway.remove(id);
        if let Some(at) = self.running.iter().position(|(_, one)| *one == id) {
            let (setting, _) = self.running.swap_remove(at);
            self.say(&setting, &ended.error);
        }
        // Without this pause the thread would ask a node that has ended again and again.
        let _ = changed.wait(Some(RETRY_INTERVAL.as_nanos() as u64));
    }

    fn say(&mut self, setting: &Setting, error: &GatewayError) {
        let text = format!("{setting}: {error}");
        if text != self.logged {
            tracing::warn!(target: "carina::gateway", service = %setting, %error, "not served");
            self.logged = text;
        }
    }
}

/// Longest time that the node may take to answer. It is short, because the thread must notice when
/// the node ends.
const NODE_LIMIT: Duration = Duration::from_millis(1500);

/// Pause before a missing service is started again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
