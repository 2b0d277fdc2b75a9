//! Checks whether this host can make a network, before anything of it is made. `plan`, `up`,
//! `apply`, `restore` and orders of a provider use the same checks.

use std::fs;

use carina_vnet::document::{Document, Kind, Via};
use carina_vnet::host_part::{Far, HostLimits, HostPart, NodePart, VnetId};
use carina_vnet::layout::Layout;
use carina_vnet_images::{ImageStore, OWN};

use crate::admission::{Capacity, check_request};
use crate::alone::record_of;
use crate::error::{Error, Result};
pub use crate::node::MACHINE_INTERFACES_MAX;
use crate::node::member_mib;

/// The resources and limits of a host, against which its agent checks networks before it makes
/// them.
#[derive(Clone, Debug)]
pub struct AdmissionCheck {
    /// The resources that the host has for nodes.
    pub capacity: Capacity,
    /// Which nodes the host can make at all.
    pub limits: HostLimits,
}

impl AdmissionCheck {
    /// A judge for this machine, without physical cards.
    #[must_use]
    pub fn of_this_machine() -> AdmissionCheck {
        AdmissionCheck {
            capacity: Capacity::of_this_machine(),
            limits: limits_of_this_host(),
        }
    }

    /// Checks whether this host can make a network beside the parts `others`. `part` is what the
    /// host would make of it.
    ///
    /// # Errors
    /// The host cannot make the network; the error has the binding constraint and what would fit.
    pub fn check_network<'a>(
        &self,
        document: &Document,
        part: &HostPart,
        others: impl Iterator<Item = &'a HostPart>,
    ) -> Result<()> {
        check_cards(document)?;
        self.capacity.admit(document, others)?;
        check_part(&self.limits, part)
    }
}

/// Checks a part against the limits of this host, but not against its free resources.
///
/// # Errors
/// A node exceeds the limits of this host, or a link has no end from which it can be probed.
pub fn check(part: &HostPart) -> Result<()> {
    check_part(&limits_of_this_host(), part)
}

/// Checks whether hosts that have the images of a document and enough resources could make it. The
/// number of hosts does not matter.
///
/// # Errors
/// The document cannot be divided into parts, or no host can make one of its nodes.
pub fn check_document(document: &Document) -> Result<()> {
    let document = &document.extended();
    let layout = Layout::of(document, &Layout::default());
    let part = record_of(document, VnetId::new(0), 0, layout)?.part;
    check_cards(document)?;
    check_request(document)?;
    let limits = HostLimits {
        images: part.nodes.iter().map(|node| node.image.clone()).collect(),
        // The memory of members depends on the build of a host's program, and is not checked here.
        interfaces_max: MACHINE_INTERFACES_MAX,
        ..HostLimits::none()
    };
    Ok(limits.check(&part)?)
}

/// The limits of this host.
#[must_use]
pub fn limits_of_this_host() -> HostLimits {
    let images = ImageStore::of_this_host().list().unwrap_or_default();
    HostLimits {
        no_nodes: missing_capabilities(),
        no_machines: carina_vm::qemu().err().map(|error| error.to_string()),
        images: images.into_iter().map(|image| image.name).collect(),
        member_memory_mib: member_mib(),
        interfaces_max: MACHINE_INTERFACES_MAX,
    }
}

fn check_part(limits: &HostLimits, part: &HostPart) -> Result<()> {
    limits.check(part)?;
    let is_foreign = |node: &NodePart| node.kind == Kind::Vm && node.image != OWN;
    for link in &part.links {
        let mut ends = link.ends().filter_map(|end| part.node(&end.node));
        if matches!(link.far, Far::Here(_)) && ends.all(is_foreign) {
            return Err(Error::Unsupported {
                what: format!(
                    "link {} between two nodes with images of their own",
                    link.number
                ),
                instead: "probes leave from a namespace or from the image `carina` at one end",
            });
        }
    }
    Ok(())
}

/// Refuses physical cards that are not connected through the engine.
fn check_cards(document: &Document) -> Result<()> {
    for name in document.node.keys() {
        let Some(node) = document.resolved(name) else {
            continue;
        };
        if node.nics.count > 0 && node.nics.via != Via::Forwarder {
            return Err(Error::Unsupported {
                what: format!("node {name}: cards by other ways than the forwarder"),
                instead: "`via = \"forwarder\"` is what this host has",
            });
        }
    }
    Ok(())
}

/// The capabilities that this process lacks to make namespaces and interfaces, as text; `None` if
/// it has them.
fn missing_capabilities() -> Option<String> {
    // If they cannot be read, making the first namespace shows whether they suffice.
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let effective = effective_capabilities(&status)?;
    let missing = CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective >> bit & 1 == 0);
    let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
    if missing.is_empty() {
        None
    } else {
        Some(format!(
            "namespaces and interfaces need {}; run it as root",
            missing.join(" and ")
        ))
    }
}

/// The value of `CapEff` in `/proc/self/status` (proc(5)).
fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The capabilities that making nodes needs, with their bit numbers. (capabilities(7))
const CAPABILITIES: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn images_that_are_not_there_are_refused_by_name() {
        let limits = HostLimits::none();
        let mut part = part(&["a b", "a c dif"]);
        check_part(&limits, &part).unwrap();
        part.nodes[1].kind = Kind::Vm;
        part.nodes[1].image = "no-such-image".to_owned();
        let error = check_part(&limits, &part).unwrap_err();
        assert!(error.is_final());
        let error = error.to_string();
        assert!(
            error.contains("no-such-image") && error.contains("carina"),
            "{error}"
        );
    }

    #[test]
    fn capabilities_are_read_from_the_status_of_a_process() {
        let status = "Name:\tcarina\nCapEff:\t0000000000201000\n";
        assert_eq!(effective_capabilities(status), Some(1 << 12 | 1 << 21));
        assert_eq!(effective_capabilities("CapInh:\t0\n"), None);
    }
}
