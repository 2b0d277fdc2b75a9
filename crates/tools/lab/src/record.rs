//! The record of a running lab on disk, from which any process can find it and take it down.
//!
//! ```text
//!   LABS/NAME/lab.json        the record
//!   LABS/NAME/topology.lab    the text of the file, as it was
//!   LABS/NAME/SYSTEM          run directory of the system's node
//!   LABS/NAME/SYSTEM.toml     its configuration
//!   LABS/NAME/SYSTEM.log      its standard error
//!   LABS/NAME/.bin/carina     the program of all systems
//!   LABS/NAME/SYSTEM.app-N    the output of its application number N
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use carina_api::paths::RunDir;
use carina_namespaces::{NamespaceAccess, Process};
use serde::{Deserialize, Serialize};

use crate::CarinaNode;
use crate::error::{Attempt, Error, Result};
use carina_topology::Topology;

/// The directory that contains the directories of all labs of this user.
#[derive(Debug, Clone)]
pub struct Labs(PathBuf);

/// Everything that a lab has made, by which another process finds and removes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the lab.
    pub name: String,
    /// Name of the lab file.
    pub file: String,
    /// Path of the program that runs as its nodes.
    pub program: PathBuf,
    /// The process that makes the lab, or made it.
    pub maker: Process,
    /// Whether the lab has been made completely.
    pub is_up: bool,
    /// The process that holds the lab's user namespace open; `None` for root.
    pub keeper: Option<Process>,
    /// Network namespaces, each recorded before it is made.
    pub namespaces: Vec<String>,
    /// The nodes of systems that are namespaces.
    pub nodes: BTreeMap<String, Process>,
    /// The applications that were started.
    pub apps: Vec<AppRecord>,
}

/// An application that was started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppRecord {
    /// Name of the system in which the application runs.
    pub system: String,
    /// Shell command of the application.
    pub command: String,
    /// The application's process; `None` for an application in a VM, whose process is not known.
    pub process: Option<Process>,
}

/// The directory of one lab, `LABS/NAME`.
#[derive(Debug, Clone)]
pub struct LabDir(PathBuf);

impl Labs {
    /// The labs in the directory `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The default directory: `labs` in the default run directory of a node, such as
    /// `/run/carina/labs`. If that is on a disk, a directory in `/dev/shm`, because regions of VMs
    /// are shared memory.
    pub fn usual() -> Self {
        let uid = rustix::process::geteuid();
        let xdg = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
        let beside = match xdg {
            _ if uid.is_root() => PathBuf::from("/run/carina"),
            Some(dir) => PathBuf::from(dir).join("carina"),
            None => PathBuf::from(format!("/tmp/carina-{}", uid.as_raw())),
        };
        let shared = Path::new("/dev/shm");
        let is_memory = |path: &Path| {
            let existing = path.ancestors().find(|path| path.is_dir());
            let kind = existing.and_then(|path| rustix::fs::statfs(path).ok());
            kind.is_some_and(|kind| kind.f_type as u64 == TMPFS_MAGIC)
        };
        if !is_memory(&beside) && is_memory(shared) {
            Self(shared.join(format!("carina-labs-{}", uid.as_raw())))
        } else {
            Self(beside.join("labs"))
        }
    }

    /// The directory of a lab, whether or not it exists.
    pub fn lab(&self, name: &str) -> LabDir {
        LabDir(self.0.join(name))
    }

    /// The records of the labs in this directory, sorted by name. Skips a lab whose record cannot
    /// be read. If the directory does not exist, the list is empty.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<Record>> {
        let entries = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.attempt(format!("reading {}", self.0.display()))?,
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut records: Vec<Record> = paths.filter_map(|path| LabDir(path).read().ok()).collect();
        records.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(records)
    }

    /// The lab with this name, or without a name the only one.
    ///
    /// # Errors
    /// There is no such lab, or `name` is `None` and several labs are up.
    pub fn find(&self, name: Option<&str>) -> Result<(LabDir, Record)> {
        let records = self.list()?;
        let names = || records.iter().map(|record| record.name.clone()).collect();
        let found = match (name, &records[..]) {
            (Some(name), all) => {
                all.iter()
                    .find(|record| record.name == name)
                    .ok_or_else(|| Error::NoSuchLab {
                        name: name.to_owned(),
                        labs: names(),
                    })?
            }
            (None, [only]) => only,
            (None, []) => return Err(Error::NoLab),
            (None, _) => return Err(Error::WhichLab(names())),
        };
        Ok((self.lab(&found.name), found.clone()))
    }
}

impl LabDir {
    /// Path of the lab's directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The run directory of a system's node, `LABS/NAME/SYSTEM`.
    pub fn run_dir(&self, system: &str) -> RunDir {
        RunDir::new(self.0.join(system))
    }

    /// Path of the configuration of a system's node.
    pub fn config(&self, system: &str) -> PathBuf {
        self.0.join(format!("{system}.toml"))
    }

    /// Path of the log of a system's node.
    pub fn log(&self, system: &str) -> PathBuf {
        self.0.join(format!("{system}.log"))
    }

    /// Path of the output of a system's application.
    pub fn app_log(&self, system: &str, number: usize) -> PathBuf {
        self.0.join(format!("{system}.app-{number}"))
    }

    /// Path of the directory with the program `carina` of all systems, `LABS/NAME/.bin`.
    pub fn programs(&self) -> PathBuf {
        self.0.join(".bin")
    }

    /// Makes the directory, and puts the text of the topology and the program into it.
    ///
    /// # Errors
    /// The directory exists already, or cannot be made.
    pub fn create(&self, text: &str, program: &Path) -> Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        let what = || format!("making {}", self.0.display());
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        if let Some(parent) = self.0.parent() {
            builder.recursive(true).create(parent).attempt(what())?;
        }
        match builder.recursive(false).create(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let name = self.0.file_name().unwrap_or_default().to_string_lossy();
                return Err(Error::LabExists(name.into_owned()));
            }
            made => made.attempt(what())?,
        }
        std::fs::write(self.0.join("topology.lab"), text).attempt(what())?;
        std::fs::create_dir(self.programs()).attempt(what())?;
        std::os::unix::fs::symlink(program, self.programs().join("carina")).attempt(what())
    }

    /// Reads the lab's record from `lab.json` in this directory.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn read(&self) -> Result<Record> {
        let path = self.0.join("lab.json");
        let text = std::fs::read(&path).attempt(format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).attempt(format!("reading {}", path.display()))
    }

    /// Writes the record by replacing the file, so that a reader sees the old or the new record.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, record: &Record) -> Result<()> {
        let path = self.0.join("lab.json");
        let part = self.0.join("lab.json.part");
        let text = serde_json::to_vec_pretty(record).attempt("writing JSON")?;
        std::fs::write(&part, text)
            .and_then(|()| std::fs::rename(&part, &path))
            .attempt(format!("writing {}", path.display()))
    }

    /// The topology from which the lab was made.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn topology(&self) -> Result<Topology> {
        Topology::load(&self.0.join("topology.lab"), &CarinaNode)
            .attempt("reading the lab's topology")
    }

    /// Removes the directory with all its files.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub fn remove(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.attempt(format!("removing {}", self.0.display())),
        }
    }
}

impl Record {
    /// The permission with which processes enter the lab's namespaces.
    pub fn access(&self) -> NamespaceAccess {
        self.keeper
            .as_ref()
            .map_or_else(NamespaceAccess::of_root, NamespaceAccess::held_by)
    }

    /// State of the lab: `up`, `starting`, or `broken` if a process that should run has ended.
    pub fn state(&self) -> &'static str {
        match self.is_up {
            false if self.maker.is_alive() => "starting",
            true if self.nodes.values().all(Process::is_alive) => "up",
            _ => "broken",
        }
    }
}

/// The magic number of tmpfs in statfs(2).
const TMPFS_MAGIC: u64 = 0x0102_1994;
