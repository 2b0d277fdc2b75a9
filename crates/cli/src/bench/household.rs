//! A node and its applications that live as long as a bench.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carina_api::AppName;
use carina_api::control::Client;
use carina_api::paths::RunDir;
use carina_client::Node;
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Attempt, Failure, failed};

/// How long a child may take until it can be used.
const START: Duration = Duration::from_secs(20);
/// How long a child may take to end when it is asked to.
const STOP: Duration = Duration::from_secs(5);

/// A child process that ends when this value is dropped.
#[derive(Debug)]
pub struct Servant {
    child: Child,
    what: String,
}

impl Servant {
    fn start_in(within: &Within, arguments: &[&str], log: &Path) -> Result<Self, Failure> {
        let program = std::env::current_exe().attempt("finding this program")?;
        let what = format!("carina {}", arguments.join(" "));
        let log = std::fs::File::create(log).attempt(format!("writing {}", log.display()))?;
        let mut command = match within {
            Within::Here => Command::new(program),
            // Both become the program itself: the child's number is the program's.
            Within::NewNamespace => {
                let mut command = Command::new("unshare");
                command.arg("--net").arg("--").arg(program);
                command
            }
            Within::NamespaceOf(pid) => {
                let mut command = Command::new("nsenter");
                command.arg(namespace_of(*pid)).arg("--").arg(program);
                command
            }
        };
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .attempt(format!("starting {what}"))?;
        Ok(Self { child, what })
    }

    fn check_alive(&mut self) -> Result<(), Failure> {
        match self.child.try_wait().attempt("looking after a child")? {
            None => Ok(()),
            Some(status) => Err(failed(format!("{} ended at once: {status}", self.what))),
        }
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In which network namespace something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// That of the bench.
    Here,
    /// One of its own, which ends with it.
    NewNamespace,
    /// That of a process.
    NamespaceOf(u32),
}

fn namespace_of(pid: u32) -> String {
    format!("--net=/proc/{pid}/ns/net")
}

/// A node of its own in a directory of its own, both gone when dropped.
#[derive(Debug)]
pub struct Household {
    // Dropped in this order: applications before their node, the directory last.
    servants: Vec<Servant>,
    node: Servant,
    directory: Directory,
    within: Within,
}

#[derive(Debug)]
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is a temporary file.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Household {
    /// Starts a node and waits until it answers.
    ///
    /// # Errors
    /// The node does not start; the end of its log is in the error.
    pub fn start(name: &str) -> Result<Self, Failure> {
        Self::start_in(name, Within::Here)
    }

    /// The same with a configuration of its own, in TOML.
    ///
    /// # Errors
    /// The node does not start; the end of its log is in the error.
    pub fn start_with(name: &str, config: &str) -> Result<Self, Failure> {
        Self::start_node(name, Within::Here, Some(config))
    }

    /// The same in a certain network namespace, which is that of its applications as well.
    ///
    /// # Errors
    /// The node does not start; the end of its log is in the error.
    pub fn start_in(name: &str, within: Within) -> Result<Self, Failure> {
        Self::start_node(name, within, None)
    }

    fn start_node(name: &str, within: Within, config: Option<&str>) -> Result<Self, Failure> {
        // On tmpfs where there is one: the memory of rings and regions lies in these files.
        let base = ["/dev/shm", "/tmp"]
            .map(PathBuf::from)
            .into_iter()
            .find(|base| base.is_dir());
        let base = base.unwrap_or_else(std::env::temp_dir);
        let path = base.join(format!("carina-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).attempt(format!("making {}", path.display()))?;
        let directory = Directory(path.clone());
        let run = path.to_string_lossy().into_owned();
        let mut arguments = vec!["node", "--run", &run];
        let file = path.join("node.toml");
        let file_name = file.to_string_lossy();
        if let Some(config) = config {
            std::fs::write(&file, config).attempt(format!("writing {}", file.display()))?;
            arguments.extend(["--config", &file_name]);
        }
        let node = Servant::start_in(&within, &arguments, &path.join("node.log"))?;
        let within = match within {
            Within::NewNamespace => Within::NamespaceOf(node.child.id()),
            other => other,
        };
        let mut household = Self {
            servants: Vec::new(),
            node,
            directory,
            within,
        };
        let control = household.control();
        household.wait("the node to answer", || control.node().is_ok())?;
        Ok(household)
    }

    /// The directory of the node and of the bench's own files.
    pub fn path(&self) -> &Path {
        &self.directory.0
    }

    /// The node's control socket.
    pub fn control(&self) -> Client {
        Client::new(RunDir::new(self.path()).control_sock())
    }

    /// The node as applications see it.
    ///
    /// # Errors
    /// It has ended.
    pub fn node(&self) -> Result<Node, Failure> {
        Node::connect_to(RunDir::new(self.path()).ipc_sock()).attempt("reaching the bench's node")
    }

    /// Starts the other side of a bench on this node and waits until its name is registered.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_peer(&mut self, name: &AppName) -> Result<(), Failure> {
        self.start_servant(&["bench-peer", name.as_str(), "--stay"], "peer.log")?;
        self.wait_for_name(name, START)
    }

    /// Starts an application of this node, with its log in the node's directory.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_servant(&mut self, arguments: &[&str], log: &str) -> Result<(), Failure> {
        let run = self.path().to_string_lossy().into_owned();
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--run", &run]).collect();
        let log = self.path().join(log);
        let servant = Servant::start_in(&self.within, &arguments, &log)?;
        self.servants.push(servant);
        Ok(())
    }

    /// Ends the application that was started last.
    pub fn stop_last_servant(&mut self) {
        self.servants.pop();
    }

    /// Number of the node's process.
    pub fn pid(&self) -> u32 {
        self.node.child.id()
    }

    /// The argument of `nsenter` for the node's network namespace.
    pub fn namespace_argument(&self) -> String {
        namespace_of(self.pid())
    }

    /// Waits until a name is registered, here or at a peer.
    ///
    /// # Errors
    /// It is not after `limit`.
    pub fn wait_for_name(&mut self, name: &AppName, limit: Duration) -> Result<(), Failure> {
        let control = self.control();
        let known = || {
            control
                .apps()
                .is_ok_and(|apps| apps.iter().any(|app| app.name == *name))
        };
        self.wait_for(&format!("{name} to be registered"), limit, known)
    }

    fn wait(&mut self, what: &str, ready: impl Fn() -> bool) -> Result<(), Failure> {
        self.wait_for(what, START, ready)
    }

    fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        ready: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + limit;
        while !ready() {
            let servants = self.servants.iter_mut().chain([&mut self.node]);
            let dead = servants.map(Servant::check_alive).find_map(Result::err);
            if let Some(failure) = dead {
                return Err(failed(format!("{failure}\n{}", self.logs())));
            }
            if Instant::now() > deadline {
                return Err(failed(format!(
                    "waited {limit:?} for {what}\n{}",
                    self.logs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The ends of the logs of the node and the peer.
    pub fn logs(&self) -> String {
        let end = |name: &str| {
            let text = std::fs::read_to_string(self.path().join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let from = lines.len().saturating_sub(20);
            format!("--- end of {name}\n{}", lines[from..].join("\n"))
        };
        [end("node.log"), end("peer.log")].join("\n")
    }
}
