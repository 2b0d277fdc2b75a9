//! What a host's agent keeps of networks in files, from which any process can find and remove
//! them.
//!
//! ```text
//!   RUN/vnet/removed.json          what providers have had removed, for a time
//!   RUN/vnet/NAME/record.json      the record
//!   RUN/vnet/NAME/NODE.console     socket of the node's console
//!   RUN/vnet/NAME/NODE.carina/     run directory of the Carina node in a namespace
//!   RUN/vnet/NAME/vm/              files of QEMU
//!   RUN/vnet/NAME/to/              files of a QEMU to which a node moves
//!   RUN/vnet/NAME/restoring.json   where nodes come from that are being restored
//!   RUN/vnet/NAME/groups           control groups of machines
//!   RUN/vnet/NAME/counters         counters of the links
//!   RUN/vnet/NAME/impairments.json links that are impaired
//!   RUN/vnet.pool/                 files of machines that stand ready
//! ```
//!
//! `NAME` is that of the network, or `@UID` for a part that a provider has handed over: networks of
//! several operators may have the same name.

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
use crate::removal::{remove_directory, remove_file};

/// The directory of all networks of an agent.
#[derive(Clone, Debug)]
pub struct Vnets(PathBuf);

/// The directory of one network.
#[derive(Clone, Debug)]
pub struct VnetDir(PathBuf);

/// A network as a host knows it. It is written before anything of the network is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The uid in the names of all that is made of it on this host.
    pub vnet: VnetId,
    /// Who wants it.
    pub wanted: Wanted,
    /// What this host makes of it.
    pub part: HostPart,
    /// Whether it is made: no change was under way when this was written.
    pub is_settled: bool,
    /// When the lease of an operator at this host ends, ms since 1970. (A provider's own roles look
    /// after those of others.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

/// Who wants a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// An operator at this host, all of it.
    Here {
        /// What the operator wants.
        document: Box<Document>,
        /// Numbers and interfaces of its links.
        layout: Layout,
    },
    /// A provider, whose agent this host has; other parts of it are on other hosts.
    Provider {
        /// The uid of the network at the provider. Two agents of one machine may have parts of the
        /// same network: what they make has uids of its own.
        vnet: VnetId,
    },
}

impl Record {
    /// The document of an operator at this host.
    #[must_use]
    pub fn document(&self) -> Option<&Document> {
        match &self.wanted {
            Wanted::Here { document, .. } => Some(document),
            Wanted::Provider { .. } => None,
        }
    }

    /// Whether it is a network of this name that an operator of this host wants. The part of a
    /// provider's network may have the same name, and is another network.
    #[must_use]
    pub fn is_of_operator(&self, name: &str) -> bool {
        self.part.name == name && matches!(self.wanted, Wanted::Here { .. })
    }

    /// The uid at the provider that wants it.
    #[must_use]
    pub fn provider_vnet(&self) -> Option<VnetId> {
        match self.wanted {
            Wanted::Here { .. } => None,
            Wanted::Provider { vnet } => Some(vnet),
        }
    }
}

/// The name on this host of a part that a provider has handed over.
#[must_use]
pub fn part_name(vnet: VnetId) -> String {
    format!("{PART}{vnet}")
}

/// Whether a name is that of a part that a provider has handed over.
#[must_use]
pub fn is_part_name(name: &str) -> bool {
    let uid = name.strip_prefix(PART);
    uid.is_some_and(|uid| uid.parse::<VnetId>().is_ok())
}

/// What no name of a network has.
const PART: char = '@';

impl Vnets {
    /// The networks whose agent has this run directory.
    #[must_use]
    pub fn of(run_dir: &RunDir) -> Vnets {
        Vnets(run_dir.path().join("vnet"))
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The directory of a network, whether it is there or not.
    #[must_use]
    pub fn vnet(&self, name: &str) -> VnetDir {
        VnetDir(self.0.join(name))
    }

    /// The directory of machines that stand ready.
    #[must_use]
    pub fn pool(&self) -> PathBuf {
        self.0.with_extension("pool")
    }

    /// Whether there is anything of a network of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        (is_name(name) || is_part_name(name)) && self.vnet(name).0.exists()
    }

    /// The names of all networks that have a directory, with a record or, from an agent that was
    /// killed before it wrote one, without.
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

    /// The networks with records, by name. A record that cannot be read is passed over.
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

    /// Removes directories without a record: an agent was killed before it wrote one, or after it
    /// had removed everything else. Nothing is there that they could lead to, and a network of the
    /// same name would find its place taken.
    ///
    /// # Errors
    /// One cannot be read or removed.
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
    /// The directory at this path.
    #[cfg(test)]
    pub(crate) fn at(path: &Path) -> VnetDir {
        VnetDir(path.to_owned())
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The name of the network.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }

    /// The directory of QEMU's files.
    #[must_use]
    pub fn machines(&self) -> PathBuf {
        self.0.join("vm")
    }

    /// The directory of files of a QEMU to which a node moves. Its name is no longer than that of
    /// [`VnetDir::machines`], for the paths of sockets are short.
    #[must_use]
    pub fn destination(&self) -> PathBuf {
        self.0.join("to")
    }

    /// What says where nodes come from that are being restored.
    #[must_use]
    pub fn restoring(&self) -> PathBuf {
        self.0.join("restoring.json")
    }

    /// The socket of a node's console.
    #[must_use]
    pub fn console(&self, node: &str) -> PathBuf {
        self.0.join(format!("{node}.console"))
    }

    /// The run directory of the Carina node in a node that is a namespace.
    #[must_use]
    pub fn carina(&self, node: &str) -> PathBuf {
        self.0.join(format!("{node}.carina"))
    }

    /// Removes the sockets of consoles and the run directories of Carina nodes, when no node is
    /// left: numbers of processes in them are those of others later.
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
            match path.extension().and_then(|it| it.to_str()) {
                // One that is just ending removes its own at the same time.
                Some("console") => remove_file(&path)?,
                Some("carina") => remove_directory(&path)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A file that is there once a node has made the DIF of the network, of which other hosts have
    /// members.
    #[must_use]
    pub fn founded(&self, node: &str) -> PathBuf {
        self.0.join(format!("{node}.founded"))
    }

    /// The control groups of machines, a path in each line.
    #[must_use]
    pub fn groups(&self) -> PathBuf {
        self.0.join("groups")
    }

    /// The counters of the links.
    #[must_use]
    pub fn counters(&self) -> PathBuf {
        self.0.join("counters")
    }

    /// The links that are impaired.
    #[must_use]
    pub fn impairments(&self) -> PathBuf {
        self.0.join("impairments.json")
    }

    /// What the operator has stopped or taken down.
    #[must_use]
    pub fn switched_off(&self) -> PathBuf {
        self.0.join("switched-off.json")
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// It is there already, or cannot be made.
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

    /// Reads the record.
    ///
    /// # Errors
    /// It does not exist or cannot be parsed.
    pub fn read(&self) -> Result<Record> {
        let path = self.record();
        let text = fs::read(&path).attempt(format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).attempt(format!("reading {}", path.display()))
    }

    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, record: &Record) -> Result<()> {
        let path = self.record();
        let part = self.0.join("record.json.part");
        let text = serde_json::to_vec_pretty(record).attempt("writing a record")?;
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, &path))
            .attempt(format!("writing {}", path.display()))
    }

    /// Removes the directory; one that is not there is as good as removed. The record goes first:
    /// an agent that is killed meanwhile does not make the network again, with what is left of it.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub fn remove(&self) -> Result<()> {
        remove_file(&self.record())?;
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
