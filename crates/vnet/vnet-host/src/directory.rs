//! The files that a host's agent keeps about networks, from which any process can find and remove
//! the networks.
//!
//! ```text
//!   RUN/vnet/removed.json          recent removals that providers have ordered
//!   RUN/vnet/NAME/record.json      the record
//!   RUN/vnet/NAME/NODE.console     socket of the node's console
//!   RUN/vnet/NAME/NODE.carina/     run directory of the Carina node in a namespace
//!   RUN/vnet/NAME/vm/              files of QEMU
//!   RUN/vnet/NAME/to/              files of a QEMU to which a node moves
//!   RUN/vnet/NAME/restoring.json   saved state of nodes that are being restored
//!   RUN/vnet/NAME/groups           control groups of machines
//!   RUN/vnet/NAME/counters         counters of the links
//!   RUN/vnet/NAME/impairments.json links that are impaired
//!   RUN/vnet.pool/                 files of paused machines of the pool
//! ```
//!
//! `NAME` is the network's name, or `@UID` for a part that a provider has ordered, because networks
//! of several operators may have the same name.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use carina_api::paths::RunDir;
use carina_vnet::document::{Document, is_name};
use carina_vnet::host_part::{HostPart, VnetId};
use carina_vnet::layout::Layout;
use serde::{Deserialize, Serialize};

use crate::error::{Attempt, Error, Result};
use crate::filesystem::unmount;
use crate::removal::{remove_directory, remove_file};
use crate::state_file;

/// The directory of all networks of an agent.
#[derive(Clone, Debug)]
pub struct Vnets(PathBuf);

/// The directory of one network.
#[derive(Clone, Debug)]
pub struct VnetDir(PathBuf);

/// The record of a network on a host. The agent writes it before it makes anything of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The uid that the names of everything made on this host contain.
    pub vnet: VnetId,
    /// Who has requested the network.
    pub wanted: Requester,
    /// The part that this host makes.
    pub part: HostPart,
    /// Whether the network was made and no change was in progress when this was written.
    pub is_settled: bool,
    /// When the lease of an operator's network ends, ms since 1970; `None` without a lease. (For a
    /// provider's network, the provider's roles keep the lease.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

/// Who has requested a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Requester {
    /// An operator of this host, who has requested the whole network.
    Here {
        /// The requested network.
        document: Box<Document>,
        /// Numbers and interfaces of its links.
        layout: Layout,
    },
    /// A provider to which this host belongs; other parts may be on other hosts.
    Provider {
        /// Identifier (uid) of the network at the provider. It differs from the record's uid,
        /// because two agents on one machine may have parts of the same network.
        vnet: VnetId,
    },
}

impl Record {
    /// The document of an operator's network; `None` for a provider's.
    #[must_use]
    pub fn document(&self) -> Option<&Document> {
        match &self.wanted {
            Requester::Here { document, .. } => Some(document),
            Requester::Provider { .. } => None,
        }
    }

    /// Whether this is an operator's network of this name. A provider's network of the same name is
    /// a different network.
    #[must_use]
    pub fn is_of_operator(&self, name: &str) -> bool {
        self.part.name == name && matches!(self.wanted, Requester::Here { .. })
    }

    /// The network's uid at its provider; `None` for an operator's network.
    #[must_use]
    pub fn provider_vnet(&self) -> Option<VnetId> {
        match self.wanted {
            Requester::Here { .. } => None,
            Requester::Provider { vnet } => Some(vnet),
        }
    }
}

/// The name on this host of a part that a provider has ordered.
#[must_use]
pub fn part_name(vnet: VnetId) -> String {
    format!("{PART}{vnet}")
}

/// Whether `name` has the form of [`part_name`], the name of a part that a provider ordered.
#[must_use]
pub fn is_part_name(name: &str) -> bool {
    let uid = name.strip_prefix(PART);
    uid.is_some_and(|uid| uid.parse::<VnetId>().is_ok())
}

/// A character that no network's name contains.
const PART: char = '@';

impl Vnets {
    /// The networks of the agent with this run directory.
    #[must_use]
    pub fn of(run_dir: &RunDir) -> Vnets {
        Vnets(run_dir.path().join("vnet"))
    }

    /// Path of the directory of all networks, `RUN/vnet`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The directory of the network `name`, `RUN/vnet/NAME`; it need not exist.
    #[must_use]
    pub fn vnet(&self, name: &str) -> VnetDir {
        VnetDir(self.0.join(name))
    }

    /// Path of the directory with the files of the pool's paused machines, `RUN/vnet.pool`.
    #[must_use]
    pub fn pool(&self) -> PathBuf {
        self.0.with_extension("pool")
    }

    /// Whether a network of this name has a directory.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        (is_name(name) || is_part_name(name)) && self.vnet(name).0.exists()
    }

    /// The names of all networks that have a directory. The directory may lack a record, if the
    /// agent was killed before it wrote one.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.attempt(format!("reading {}", self.0.display()))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names
            .filter(|name| self.has(name) && self.vnet(name).0.is_dir())
            .collect();
        names.sort();
        Ok(names)
    }

    /// The networks with a readable record, by name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<(String, Record)>> {
        let names = self.names()?.into_iter();
        let read = |name: String| {
            let record = self.vnet(&name).read().ok()?;
            Some((name, record))
        };
        Ok(names.filter_map(read).collect())
    }

    /// Removes directories without a record: the agent was killed before it wrote the record, or
    /// after it had removed everything else. Nothing else of the network exists then, and the
    /// directory would block a network of the same name.
    ///
    /// # Errors
    /// A directory cannot be read or removed.
    pub(crate) fn remove_unrecorded(&self) -> Result<()> {
        for name in self.names()? {
            let dir = self.vnet(&name);
            let path = dir.record();
            if !path
                .try_exists()
                .attempt(format!("looking for {}", path.display()))?
            {
                dir.remove()?;
            }
        }
        Ok(())
    }
}

impl VnetDir {
    /// The network directory at this path.
    #[cfg(test)]
    pub(crate) fn at(path: &Path) -> VnetDir {
        VnetDir(path.to_owned())
    }

    /// Path of the network's directory, `RUN/vnet/NAME`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Name of the network on this host.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }

    /// Path of the directory with the files of QEMU for the network's machines, `RUN/vnet/NAME/vm`.
    #[must_use]
    pub fn machines(&self) -> PathBuf {
        self.0.join("vm")
    }

    /// Path of the directory with the files of a QEMU that receives a moving node,
    /// `RUN/vnet/NAME/to`. The name is short, like that of [`VnetDir::machines`], because paths of
    /// sockets have a length limit.
    #[must_use]
    pub fn destination(&self) -> PathBuf {
        self.0.join("to")
    }

    /// Path of the file that records, while a network is being restored, where the saved states of
    /// its nodes are.
    #[must_use]
    pub fn restoring(&self) -> PathBuf {
        self.0.join("restoring.json")
    }

    /// Path of the socket of a node's console.
    #[must_use]
    pub fn console(&self, node: &str) -> PathBuf {
        self.0.join(format!("{node}.console"))
    }

    /// Path of the run directory of the Carina node in a namespace node.
    #[must_use]
    pub fn carina(&self, node: &str) -> PathBuf {
        self.0.join(format!("{node}.carina"))
    }

    /// Path of the directory where the file system of a namespace node is mounted.
    #[must_use]
    pub fn filesystem(&self, node: &str) -> PathBuf {
        self.0.join(format!("{node}.root"))
    }

    /// Path of the file that identifies the run of a node (its process or namespace) in which the
    /// agent has written the files of the document and run its commands. While this run lasts, no
    /// agent repeats them.
    #[must_use]
    pub fn started(&self, node: &str) -> PathBuf {
        self.0.join(format!("{node}.started"))
    }

    /// Removes the consoles' sockets, file systems and the Carina nodes' run directories once no
    /// node is left.
    /// The process IDs in them may later belong to other processes.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub(crate) fn remove_places_of_nodes(&self) -> Result<()> {
        let what = || format!("reading {}", self.0.display());
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.attempt(what())?,
        };
        for entry in entries {
            let path = entry.attempt(what())?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                // A process that is just ending removes its own files at the same time.
                Some("console" | "started") => remove_file(&path)?,
                Some("root") => unmount(&path)?,
                Some("carina") => remove_directory(&path)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Path of a file that exists once a node has created a DIF that has members on other hosts.
    #[must_use]
    pub fn founded(&self, node: &str) -> PathBuf {
        self.0.join(format!("{node}.founded"))
    }

    /// Path of the file that lists the control groups (cgroups) of the network's VMs, one path per
    /// line. Carina removes these groups when it ends the network.
    #[must_use]
    pub fn groups(&self) -> PathBuf {
        self.0.join("groups")
    }

    /// Path of the counter file of the links.
    #[must_use]
    pub fn counters(&self) -> PathBuf {
        self.0.join("counters")
    }

    /// Path of the file of the links' impairments.
    #[must_use]
    pub fn impairments(&self) -> PathBuf {
        self.0.join("impairments.json")
    }

    /// Path of the file that lists the nodes and links that the operator has switched off.
    #[must_use]
    pub fn switched_off(&self) -> PathBuf {
        self.0.join("switched-off.json")
    }

    /// Path of the file that says when the timetables of links have begun.
    #[must_use]
    pub fn timetables(&self) -> PathBuf {
        self.0.join("timetables.json")
    }

    /// Creates the network's directory.
    ///
    /// # Errors
    /// The directory exists already, or cannot be created.
    pub fn create(&self) -> Result<()> {
        let what = || format!("making {}", self.0.display());
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        if let Some(parent) = self.0.parent() {
            builder.recursive(true).create(parent).attempt(what())?;
        }
        match builder.recursive(false).create(&self.0) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(Error::Exists(self.name()))
            }
            made => made.attempt(what()),
        }
    }

    /// Reads the record from `record.json` in this directory.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn read(&self) -> Result<Record> {
        let path = self.record();
        let text = fs::read(&path).attempt(format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).attempt(format!("reading {}", path.display()))
    }

    /// Writes the network's record: a reader sees either the old or the new record.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, record: &Record) -> Result<()> {
        state_file::write(&self.record(), record)
    }

    /// Removes the network's directory, if it exists. Removes the record first, so that an agent
    /// that is killed in between does not make the network again from the remaining files.
    ///
    /// # Errors
    /// Something in the directory cannot be removed.
    pub fn remove(&self) -> Result<()> {
        remove_file(&self.record())?;
        self.remove_places_of_nodes()?;
        remove_directory(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_found_with_and_without_records() {
        let directory = tempfile::tempdir().unwrap();
        let vnets = Vnets::of(&RunDir::new(directory.path()));
        assert!(vnets.names().unwrap().is_empty());
        let part = part_name(VnetId::new(7));
        for name in ["b", &part] {
            vnets.vnet(name).create().unwrap();
        }
        fs::create_dir(vnets.path().join("no name")).unwrap();
        fs::write(vnets.path().join("removed.json"), "{}").unwrap();
        assert_eq!(vnets.names().unwrap(), [part.as_str(), "b"]);
        assert!(vnets.list().unwrap().is_empty());
        assert!(is_part_name(&part) && !is_part_name("@7") && !is_name(&part));
    }

    #[test]
    fn directories_without_records_go_and_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let vnets = Vnets::of(&RunDir::new(directory.path()));
        vnets.remove_unrecorded().unwrap();
        for name in ["begun", "unreadable"] {
            vnets.vnet(name).create().unwrap();
        }
        fs::write(vnets.vnet("begun").path().join("record.json.part"), "{").unwrap();
        fs::write(vnets.vnet("unreadable").record(), "{").unwrap();
        vnets.remove_unrecorded().unwrap();
        assert_eq!(vnets.names().unwrap(), ["unreadable"]);
        vnets.vnet("begun").create().unwrap();
    }
}
