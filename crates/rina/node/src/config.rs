//! The configuration: TOML, every key known, every error with its line.
//!
//! The keys are described in `docs/reference/configuration.md`.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use carina_api::control::{IpcpCreate, IpcpType, VmCreate};
use carina_api::{DifName, LocalName};
use carina_dataplane::{WORKERS_MAX, Workers};
use carina_gateway::{Connect, Expose, Setting};
use carina_ip::IpSettings;
use carina_text::toml_fault::TomlFault;
use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use crate::ipcp_kinds;
use crate::member_spec::{MemberSpec, MemberSpecError};
use crate::rules::Rule;
use crate::vm_port::{check_socket, default_dif, internet_of, ip_of, region_bytes};

mod origin;
mod rings;

pub use self::origin::Origin;

/// Configuration of a node, as read from TOML.
#[derive(Default, Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Settings of the node as a whole (table `[node]`).
    #[serde(default)]
    pub node: NodeConfig,
    /// Limits on what applications and users may request.
    #[serde(default)]
    pub limits: Limits,
    /// Shim IPCPs, in the order in which their DIFs are searched.
    #[serde(default, rename = "ipcp")]
    pub ipcps: Vec<Spanned<IpcpCreate>>,
    /// VM ports to create; their DIFs are searched after the DIFs of `ipcps`.
    #[serde(default, rename = "vm")]
    pub vms: Vec<Spanned<VmCreate>>,
    /// Members of normal DIFs. The node creates them after all other IPCPs, in this order.
    #[serde(default, rename = "dif")]
    pub difs: Vec<Spanned<MemberSpec>>,
    /// Servers outside of DIFs that the node makes reachable by application names (tables
    /// `[[expose]]`).
    #[serde(default, rename = "expose")]
    pub exposes: Vec<Spanned<Expose>>,
    /// Application names that the node makes reachable by sockets (tables `[[connect]]`).
    #[serde(default, rename = "connect")]
    pub connects: Vec<Spanned<Connect>>,
    /// TUN interfaces whose packets travel over flows (tables `[[ip]]`).
    #[serde(default, rename = "ip")]
    pub ips: Vec<Spanned<IpSettings>>,
    /// Access rules; the first rule that matches decides.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
    /// The file and the lines of the configuration, for errors.
    #[serde(skip)]
    pub origin: Origin,
}

/// The table `[node]`: name, run directory, and threads of the data plane.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// Name of the node that peers see; default: the name of the host.
    pub name: Option<String>,
    /// Path of the run directory; default: see `docs/reference/configuration.md`.
    pub run_dir: Option<PathBuf>,
    /// Whether the node creates a `loopback` IPCP in the DIF `local` if none is configured.
    pub loopback: bool,
    /// DIFs in which the node first searches the destination of a flow, in this order, if the
    /// application names no DIF. The other DIFs follow in the order of creation.
    pub dif_order: Vec<DifName>,
    /// Number of data-plane threads (default: 1); cannot change while the node runs.
    pub workers: Option<Spanned<usize>>,
    /// Processor of each data-plane thread; empty: the kernel's scheduler chooses.
    pub cpus: Vec<Spanned<usize>>,
    /// Number of the data-plane thread (worker) on which an IPCP or a VM runs, by its name.
    pub placement: BTreeMap<LocalName, Spanned<usize>>,
}

/// Number of the data-plane thread (worker) on which an IPCP or a VM runs, by its name.
pub type Placement = BTreeMap<LocalName, usize>;

/// The table `[limits]`: how much applications and users may have at a time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest number of open connections to `ipc.sock` of one user.
    pub connections_per_uid: u32,
    /// Largest number of flows of one user.
    pub flows_per_uid: u32,
    /// Largest number of flow requests that one application has not answered.
    pub flow_requests_per_app: u32,
    /// Longest time that an application may take to answer a flow request, in milliseconds.
    pub answer_ms: u64,
    /// Largest total of ring bytes that the flows of one user may have.
    pub ring_bytes_per_uid: u64,
    /// Size of each ring of a flow for which the application requests no size, in bytes: a power of
    /// two from 4 KiB to 64 MiB.
    #[serde(deserialize_with = "rings::parse")]
    pub ring_bytes: u64,
}

/// Why a configuration is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration {}: {source}", path.display())]
    Read {
        /// Path of the configuration file that cannot be read.
        path: PathBuf,
        /// Why the operating system could not read the file.
        source: std::io::Error,
    },
    /// The text is not TOML, or has an unknown key or a wrong value.
    #[error("configuration{}: {text}", in_file(path))]
    Parse {
        /// Path of the file; `None` for a text that is not from a file.
        path: Option<PathBuf>,
        /// The error message: the number of the line, the wrong key or value, and what would be
        /// right.
        text: String,
    },
    /// Two tables contradict each other, or a value is not possible.
    #[error("configuration{}: {}{what}", in_file(path), on_line(*line))]
    Meaning {
        /// Path of the file; `None` for a text that is not from a file.
        path: Option<PathBuf>,
        /// The line, counted from 1; `None` for a part that is in no file.
        line: Option<usize>,
        /// The error message: the fault, and a valid alternative.
        what: String,
    },
}

/// Why a node would not start with a configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TextError {
    /// The configuration has a wrong syntax, or its parts contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The settings of a DIF are invalid.
    #[error("DIF {dif}: {source}")]
    Dif {
        /// Name of the DIF whose settings are invalid.
        dif: String,
        /// The setting that is invalid, and why.
        source: MemberSpecError,
    },
}

impl Config {
    /// Reads a configuration from a file.
    ///
    /// # Errors
    /// [`ConfigError`] with the file, the line and what would be right.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read {
            path: path.into(),
            source,
        };
        let length = std::fs::metadata(path).map_err(read)?.len();
        if length > TEXT_BYTES_MAX as u64 {
            return Err(Self::too_long(Some(path), length as usize));
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        Self::parse(&text, Some(path))
    }

    /// Reads a configuration from text; `path` only serves the errors.
    ///
    /// # Errors
    /// [`ConfigError`] with the line and what would be right.
    pub fn parse(text: &str, path: Option<&Path>) -> Result<Self, ConfigError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Self::too_long(path, text.len()));
        }
        let mut config: Self = toml::from_str(text).map_err(|e| ConfigError::Parse {
            path: path.map(Into::into),
            text: match e.span() {
                Some(_) => {
                    let TomlFault { line, text } = TomlFault::of(text, &e);
                    format!("line {line}: {text}")
                }
                // The one error of the parser that has no place.
                None => format!("nested too deeply: {}", e.message()),
            },
        })?;
        config.origin = Origin::new(text, path);
        let checked = config.check();
        checked.map_err(|(at, what)| config.meaning_error(&(at..at + 1), what))?;
        Ok(config)
    }

    /// The error for a part of this configuration, with its line.
    pub(crate) fn meaning_error(&self, span: &Range<usize>, what: String) -> ConfigError {
        ConfigError::Meaning {
            path: self.origin.path().map(Into::into),
            line: self.origin.line_of(span),
            what,
        }
    }

    /// Adds the IPCPs of a configuration from another text. Errors about them have no line.
    pub fn add_ipcps(&mut self, other: Config) {
        let added = other.ipcps.into_iter().map(Spanned::into_inner);
        self.ipcps
            .extend(added.map(|create| Spanned::new(0..0, create)));
    }

    /// Whether the node must create a loopback IPCP that the configuration does not contain.
    pub fn wants_implicit_loopback(&self) -> bool {
        let explicit = |ipcp: &Spanned<IpcpCreate>| ipcp.get_ref().kind == IpcpType::Loopback;
        self.node.loopback && !self.ipcps.iter().any(explicit)
    }

    /// Checks a configuration text with the checks of a node that starts with it: its syntax,
    /// contradictions between its parts, and the settings of each DIF.
    ///
    /// # Errors
    /// [`TextError`] with the place and what would be right.
    pub fn check_text(text: &str) -> Result<(), TextError> {
        for dif in &Self::parse(text, None)?.difs {
            let dif = dif.get_ref();
            dif.dif_config(None).map_err(|source| TextError::Dif {
                dif: dif.name.to_string(),
                source,
            })?;
        }
        Ok(())
    }

    /// Checks what concerns several tables at once. An error has the byte offset of its cause.
    fn check(&self) -> Result<(), (usize, String)> {
        let mut names: HashSet<&LocalName> = HashSet::new();
        let ipcps = self
            .ipcps
            .iter()
            .map(|i| (i.span().start, &i.get_ref().name));
        let vms = self.vms.iter().map(|v| (v.span().start, &v.get_ref().name));
        let members = self
            .difs
            .iter()
            .filter_map(|d| Some((d.span().start, d.get_ref().ipcp.as_ref()?)));
        for (at, name) in ipcps.chain(vms).chain(members) {
            if name.as_str() == LOOPBACK && self.wants_implicit_loopback() {
                let what = "the name loopback belongs to the IPCP of DIF local, which every \
                            node has; use another name, or set `loopback = false` in [node]";
                return Err((at, what.to_owned()));
            }
            if !names.insert(name) {
                return Err((
                    at,
                    format!("the name {name} is used twice; VMs and IPCPs share names"),
                ));
            }
        }
        self.node.check()?;
        for ipcp in &self.ipcps {
            ipcp_kinds::check(ipcp.get_ref())
                .map_err(|error| (ipcp.span().start, error.to_string()))?;
        }
        for dif in &self.difs {
            let new = dif.get_ref();
            new.check()
                .map_err(|error| (dif.span().start, error.to_string()))?;
        }
        for vm in &self.vms {
            let (at, new) = (vm.span().start, vm.get_ref());
            region_bytes(new).map_err(|error| (at, error.to_string()))?;
            check_socket(new).map_err(|error| (at, format!("VM {}: {error}", new.name)))?;
            if let Some(dif) = new.dif.clone().or_else(|| default_dif(&new.name)) {
                let door = internet_of(new, &dif);
                door.map_err(|error| (at, format!("VM {}: internet: {error}", new.name)))?;
                ip_of(new, &dif).map_err(|error| (at, format!("VM {}: {error}", new.name)))?;
            }
        }
        self.check_services()?;
        self.check_ips()
    }

    /// Checks `[[ip]]`; an error carries its byte offset.
    fn check_ips(&self) -> Result<(), (usize, String)> {
        for (n, ip) in self.ips.iter().enumerate() {
            let (at, new) = (ip.span().start, ip.get_ref());
            let tun = &new.tun;
            new.check()
                .map_err(|error| (at, format!("[[ip]] {tun}: {error}")))?;
            for other in self.ips[..n].iter().map(Spanned::get_ref) {
                if (&other.tun, &other.netns) == (tun, &new.netns) {
                    let what = format!("[[ip]]: two interfaces have the name {tun}; set `tun`");
                    return Err((at, what));
                }
                let twice = new.own().into_iter().find(|own| other.own().contains(own));
                if let Some(twice) = twice.filter(|_| other.dif == new.dif) {
                    let dif = &new.dif;
                    let what = format!(
                        "[[ip]] {tun}: {} is registered in DIF {dif} by {} too",
                        twice.name(),
                        other.tun
                    );
                    return Err((at, what));
                }
            }
        }
        Ok(())
    }

    /// The interfaces of `[[ip]]`.
    pub(crate) fn ip_settings(&self) -> Vec<IpSettings> {
        self.ips.iter().map(|one| one.get_ref().clone()).collect()
    }

    /// Checks `[[expose]]` and `[[connect]]`; an error carries its byte offset.
    fn check_services(&self) -> Result<(), (usize, String)> {
        for (n, expose) in self.exposes.iter().enumerate() {
            let (at, new) = (expose.span().start, expose.get_ref());
            new.check().map_err(|error| (at, error.to_string()))?;
            let is_same = |other: &Spanned<Expose>| {
                let other = other.get_ref();
                let same_dif = other.dif == new.dif || other.dif.is_none() || new.dif.is_none();
                other.name == new.name && same_dif
            };
            if self.exposes[..n].iter().any(is_same) {
                let what = format!(
                    "{} is exposed twice; give each server a name of its own",
                    new.name
                );
                return Err((at, what));
            }
        }
        for (n, connect) in self.connects.iter().enumerate() {
            let (at, new) = (connect.span().start, connect.get_ref());
            new.check().map_err(|error| (at, error.to_string()))?;
            let is_same = |other: &Spanned<Connect>| other.get_ref().listen == new.listen;
            if self.connects[..n].iter().any(is_same) {
                let what = format!(
                    "two listeners have the address {}; use another address for \
                    one of them",
                    new.listen
                );
                return Err((at, what));
            }
        }
        Ok(())
    }

    /// The settings of `[[expose]]` and `[[connect]]`.
    pub(crate) fn services(&self) -> Vec<Setting> {
        let exposes = self
            .exposes
            .iter()
            .map(|one| Setting::Expose(one.get_ref().clone()));
        let connects = self
            .connects
            .iter()
            .map(|one| Setting::Connect(one.get_ref().clone()));
        exposes.chain(connects).collect()
    }

    fn too_long(path: Option<&Path>, bytes: usize) -> ConfigError {
        ConfigError::Parse {
            path: path.map(Into::into),
            text: format!("it has {bytes} bytes; at most {TEXT_BYTES_MAX} are allowed"),
        }
    }
}

impl NodeConfig {
    /// Returns the number of data-plane threads and their processors.
    pub fn data_plane(&self) -> Workers {
        Workers {
            count: self
                .workers
                .as_ref()
                .map_or(1, |workers| *workers.get_ref()),
            cpus: self.cpus.iter().map(|cpu| *cpu.get_ref()).collect(),
        }
    }

    /// Returns the worker on which each IPCP or VM runs, by its name.
    pub fn placement(&self) -> Placement {
        let placed = self.placement.iter();
        placed
            .map(|(name, worker)| (name.clone(), *worker.get_ref()))
            .collect()
    }

    /// Checks the settings of the workers. An error has the byte offset of its cause.
    fn check(&self) -> Result<(), (usize, String)> {
        let Workers { count, cpus } = self.data_plane();
        let at = |place: Option<&Spanned<usize>>| place.map_or(0, |place| place.span().start);
        if !(1..=WORKERS_MAX).contains(&count) {
            let what = format!("workers is {count}; it must be 1 to {WORKERS_MAX}");
            return Err((at(self.workers.as_ref()), what));
        }
        if !cpus.is_empty() && cpus.len() != count {
            let what = format!(
                "cpus has {} processors for {count} workers; give one processor for each \
                 worker, or none",
                cpus.len()
            );
            return Err((at(self.cpus.first()), what));
        }
        let mut placed = self.placement.iter();
        match placed.find(|(_, worker)| *worker.get_ref() >= count) {
            None => Ok(()),
            Some((name, worker)) => {
                let what = format!(
                    "{name} is placed on worker {}; the highest of {count} is {}",
                    worker.get_ref(),
                    count - 1
                );
                Err((worker.span().start, what))
            }
        }
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: None,
            run_dir: None,
            loopback: true,
            dif_order: Vec::new(),
            workers: None,
            cpus: Vec::new(),
            placement: BTreeMap::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_per_uid: 512,
            flows_per_uid: 32_768,
            flow_requests_per_app: 64,
            answer_ms: 10_000,
            ring_bytes_per_uid: 8 << 30,
            ring_bytes: rings::for_this_system(),
        }
    }
}

pub(crate) fn in_file(path: &Option<PathBuf>) -> String {
    path.as_ref()
        .map_or(String::new(), |path| format!(" {}", path.display()))
}

/// The prefix `line N: ` of an error message; empty without a line.
pub(crate) fn on_line(line: Option<usize>) -> String {
    line.map_or(String::new(), |line| format!("line {line}: "))
}

/// Name of the loopback IPCP that a node has by default.
pub const LOOPBACK: &str = "loopback";

/// Longest text of a configuration, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
