//! Checks whether this host can make a network, before anything of it is made. `plan`, `up`,
//! `apply`, `restore` and orders of a provider use the same checks.

use std::fs;

use carina_namespaces::check_user_namespaces;
use carina_vnet::document::{Document, Via};
use carina_vnet::host_part::{HostLimits, HostPart, VnetId};
use carina_vnet::layout::Layout;
use carina_vnet_images::ImageStore;

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
    /// Which nodes this host can make, apart from free resources.
    pub limits: HostLimits,
}

impl AdmissionCheck {
    /// The resources and limits of this machine, without physical cards.
    #[must_use]
    pub fn of_this_machine() -> AdmissionCheck {
        AdmissionCheck {
            capacity: Capacity::of_this_machine(),
            limits: limits_of_this_host(),
        }
    }

    /// Checks whether this host can make a network in addition to the parts `others`. `part` is
    /// what the host would make of it.
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
        Ok(self.limits.check(part)?)
    }
}

/// Checks a part against the limits of this host, but not against its free resources.
///
/// # Errors
/// A node exceeds the limits of this host.
pub fn check(part: &HostPart) -> Result<()> {
    Ok(limits_of_this_host().check(part)?)
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
        no_nodes: missing_capabilities().and_then(missing_namespaces),
        no_machines: no_machines(),
        images: images.into_iter().map(|image| image.name).collect(),
        member_memory_mib: member_mib(),
        interfaces_max: MACHINE_INTERFACES_MAX,
    }
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

/// Whether this process may create network namespaces itself. Otherwise its networks need a user
/// namespace.
#[must_use]
pub fn can_make_namespaces() -> bool {
    missing_capabilities().is_none()
}

/// Why a user who lacks the `missing` capabilities cannot create nodes; `None` if the user can
/// create them in a user namespace.
fn missing_namespaces(missing: String) -> Option<String> {
    let refused = check_user_namespaces().err()?;
    Some(format!("{missing}; {refused}"))
}

/// Why this host cannot create virtual machines; `None` if it can.
fn no_machines() -> Option<String> {
    if let Err(error) = carina_vm::qemu() {
        return Some(error.to_string());
    }
    // The links of machines are taps, and this device creates them.
    let opened = fs::File::options().read(true).write(true).open(TUN);
    opened.err().map(|error| {
        format!(
            "links of machines need {TUN}, which this user cannot open: {error}; run the command \
             as root, or give the user access to the device"
        )
    })
}

/// The device that makes taps. (tuntap.rst of the kernel)
const TUN: &str = "/dev/net/tun";

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
            "namespaces and interfaces need {}",
            missing.join(" and ")
        ))
    }
}

/// The value of `CapEff` in `/proc/self/status` (proc(5)).
fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The capabilities that making nodes needs, with their bit numbers. (capabilities(7))
const CAPABILITIES: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

#[cfg(test)]
mod tests {
    use carina_vnet::document::Kind;

    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn images_that_are_not_there_are_refused_by_name() {
        let limits = HostLimits::none();
        let mut part = part(&["a b", "a c dif"]);
        limits.check(&part).unwrap();
        part.nodes[1].kind = Kind::Vm;
        part.nodes[1].image = "no-such-image".to_owned();
        let error = Error::from(limits.check(&part).unwrap_err());
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
