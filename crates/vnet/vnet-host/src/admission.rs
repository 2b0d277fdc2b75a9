//! Admission: checks whether a network fits on this host, and explains why not.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use carina_embed::embedder::Embedder;
use carina_embed::joint::Joint;
use carina_embed::request::{Node, Request, Sharing, VirtualLink};
use carina_embed::substrate::{Host, Substrate};
use carina_embed::{Label, NodeId, Residual};
use carina_vnet::document::{Document, Kind};
use carina_vnet::host_part::{Far, HostPart};
use carina_vnet::names::{DocumentNames, insufficient};

use crate::error::{Error, Result};

/// The resources that a host has for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Number of virtual processors that the host has for nodes.
    pub cpus: u64,
    /// Memory that the host has for nodes, MiB.
    pub memory_mib: u64,
    /// Number of physical cards that nodes may use.
    pub nics: u64,
}

impl Capacity {
    /// A capacity larger than any document can request.
    pub const MAX: Capacity = Capacity {
        cpus: u32::MAX as u64,
        memory_mib: u32::MAX as u64,
        nics: u32::MAX as u64,
    };

    /// The capacity of this machine: sixteen virtual processors per physical one, and nine tenths
    /// of the memory that is currently available.
    #[must_use]
    pub fn of_this_machine() -> Capacity {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Capacity {
            cpus: cpus * CPUS_SHARED,
            memory_mib: available_mib(&text).unwrap_or_default() / 10 * 9,
            nics: 0,
        }
    }

    /// The capacity that the nodes of the given parts leave free.
    fn beside<'a>(self, parts: impl Iterator<Item = &'a HostPart>) -> Capacity {
        let mut left = self;
        for part in parts {
            let nics = part
                .links
                .iter()
                .filter(|link| matches!(link.far, Far::Nic(_)));
            left.nics = left.nics.saturating_sub(nics.count() as u64);
            for node in &part.nodes {
                let (cpus, memory) = demand(node.kind, node.cpus, node.memory_mib);
                left.cpus = left.cpus.saturating_sub(cpus);
                left.memory_mib = left.memory_mib.saturating_sub(memory);
            }
        }
        left
    }

    /// Checks whether a network fits into the capacity that the parts of other networks leave free.
    ///
    /// # Errors
    /// [`Error::NotAdmitted`], with the binding constraint and the smallest relaxation that would
    /// fit.
    pub fn admit<'a>(
        self,
        document: &Document,
        others: impl Iterator<Item = &'a HostPart>,
    ) -> Result<()> {
        let left = self.beside(others);
        let refuse = |reason| not_admitted(document, reason);
        let request = request_of(document).map_err(refuse)?;
        let host = Host {
            cpu: left.cpus,
            memory: left.memory_mib,
            nics: left.nics,
            ..Host::default()
        };
        let substrate = Substrate::new(vec![host], Vec::new(), 0);
        let substrate = substrate.map_err(|error| refuse(error.to_string()))?;
        let residual = Residual::new(Arc::new(substrate));
        if Joint::default().embed(&residual, &request).is_ok() {
            return Ok(());
        }
        // A host without a provider has no location, and fits every location of a document.
        let names = DocumentNames {
            nodes: document.node.keys().cloned().collect(),
            places: Vec::new(),
        };
        Err(refuse(insufficient(&residual, &request, &names).message))
    }
}

/// Checks that no amount in a document exceeds what the embedder accepts.
///
/// # Errors
/// [`Error::NotAdmitted`] with the excessive amount.
pub fn check_request(document: &Document) -> Result<()> {
    let request = request_of(document).map(drop);
    request.map_err(|reason| not_admitted(document, reason))
}

fn not_admitted(document: &Document, reason: String) -> Error {
    Error::NotAdmitted {
        vnet: document.vnet.name.clone(),
        reason,
    }
}

/// Processors and memory (MiB) charged for a node; a namespace or bridge is charged nothing.
fn demand(kind: Kind, cpus: u32, memory_mib: u64) -> (u64, u64) {
    match kind {
        Kind::Vm => (u64::from(cpus), memory_mib),
        Kind::Namespace | Kind::Bridge => (0, 0),
    }
}

/// The document as a request to the embedder. Locations are left out, because this host fits all of
/// them.
fn request_of(document: &Document) -> std::result::Result<Request, String> {
    let names = document.node.keys().enumerate();
    let numbers: BTreeMap<&str, NodeId> = names
        .map(|(index, name)| (name.as_str(), NodeId::of(index)))
        .collect();
    let number = |name: &String| numbers.get(name.as_str()).copied();
    let nodes = document.node.keys().map(|name| {
        let wanted = document
            .resolved(name)
            .ok_or_else(|| format!("no node {name}"))?;
        let (cpu, memory) = demand(wanted.kind, wanted.cpus, wanted.memory);
        let apart = document.node.get(name).map(|node| &node.apart_from);
        let labels = 0..wanted.labels.len();
        Ok(Node {
            cpu,
            memory,
            nics: u64::from(wanted.nics.count),
            locations: Vec::new(),
            labels: labels.map(Label::of).collect(),
            apart_from: apart.into_iter().flatten().filter_map(number).collect(),
            barred: Vec::new(),
        })
    });
    let nodes: Vec<Node> = nodes.collect::<std::result::Result<_, String>>()?;
    let links = document.link.iter().filter_map(|link| {
        let [one, other] = &link.ends;
        Some(VirtualLink {
            ends: [number(&one.node)?, number(&other.node)?],
            rate: link.rate.bps(),
            delay_max: link.delay_max.map(|span| span.duration()),
        })
    });
    let request = Request::new(nodes, links.collect(), Sharing::UnlessApart);
    request.map_err(|error| error.to_string())
}

/// `MemAvailable` of `/proc/meminfo` (proc(5)), in MiB.
fn available_mib(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024)
}

/// Virtual processors per physical processor.
const CPUS_SHARED: u64 = 16;

#[cfg(test)]
mod tests {
    use carina_vnet::document::Form;

    use super::*;

    const ROOM: Capacity = Capacity {
        cpus: 4,
        memory_mib: 1000,
        nics: 0,
    };

    fn refusal(text: &str) -> Option<String> {
        let text = format!("[vnet]\nname = \"x\"\n{text}");
        let document = Document::read(&text, Form::Toml).unwrap();
        let refusal = ROOM.admit(&document, std::iter::empty());
        refusal.err().map(|error| error.to_string())
    }

    #[test]
    fn network_that_fits_is_admitted_wherever_it_wants_to_be() {
        let link = "[[link]]\nends = [\"a\", \"b\"]\nrate = \"10Gbps\"\n";
        let nodes = "[node.a]\nlocation = [\"uk\"]\nmemory = 500\n[node.b]\nmemory = 500\n";
        assert_eq!(refusal(&format!("{nodes}{link}")), None);
        let many: String = (0..100).map(|n| format!("[node.n{n}]\n")).collect();
        assert_eq!(
            refusal(&format!("[defaults]\nkind = \"namespace\"\n{many}")),
            None
        );
    }

    #[test]
    fn refusal_names_what_binds_and_what_would_fit() {
        let error = refusal("[node.a]\nmemory = 2000\n").unwrap();
        assert!(
            error.contains("2000 MiB") && error.contains("1000 MiB"),
            "{error}"
        );
        let error = refusal("[node.a]\n[node.b]\napart_from = [\"a\"]\n").unwrap();
        assert!(error.contains('a') && error.contains("fit"), "{error}");
        let error = refusal("[node.a]\nnics = { count = 1 }\n").unwrap();
        assert!(error.contains("network card"), "{error}");
        let error = refusal("[node.a]\nlabels = { rack = \"1\" }\n").unwrap();
        assert!(error.contains("label"), "{error}");
        let nodes: String = (0..5).map(|n| format!("[node.n{n}]\n")).collect();
        assert!(refusal(&nodes).is_some());
    }

    #[test]
    fn available_memory_is_read_in_mib() {
        let text = "MemTotal:  8000000 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(available_mib(text), Some(2));
        assert_eq!(available_mib("MemFree: 1 kB"), None);
    }
}
