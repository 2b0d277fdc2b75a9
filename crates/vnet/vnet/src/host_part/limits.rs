//! Limits of a host: which nodes it can make.
//!
//! A host reports its limits to its provider. The provider checks a part against them before it
//! reserves anything. With the same function the host checks the parts that its provider sends, and
//! the documents that an operator plans or applies at the host itself.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Cause, HostPart, NodePart};
use crate::document::{Kind, OWN_IMAGE};

/// The limits of a host: which nodes it can make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLimits {
    /// Why the host can make no node at all, for the provider to read; `None` if it can make some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_nodes: Option<String>,
    /// Why the host can make no virtual machine, for the provider to read; `None` if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_machines: Option<String>,
    /// The images that the host's machines can boot, in addition to [`OWN_IMAGE`].
    pub images: BTreeSet<String>,
    /// The least memory of a machine that is a member of a DIF, MiB.
    pub member_memory_mib: u64,
    /// The largest number of interfaces of a machine.
    pub interfaces_max: usize,
}

/// A limit of a host because of which the host cannot make a node. A retry helps only after the
/// host's limits have changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The host can make no node at all.
    #[error("node {node}: this host cannot create nodes: {why}")]
    NoNodes {
        /// Name of the node that the host cannot make.
        node: String,
        /// Why the host can make no node, as the host reports.
        why: String,
    },
    /// The host can make no virtual machines.
    #[error("node {node}: this host cannot create virtual machines: {why}")]
    NoMachines {
        /// Name of the node that is a virtual machine.
        node: String,
        /// Why the host can make no virtual machine, as the host reports.
        why: String,
    },
    /// The host does not have the image.
    #[error(
        "node {node}: there is no image {image:?} here; there are: {known}; \
         `carina vnet image add` adds one"
    )]
    NoImage {
        /// Name of the node that boots the image.
        node: String,
        /// Name of the image that the host does not have.
        image: String,
        /// The images that the host has, as a list in text.
        known: String,
    },
    /// A node with a link of carrier `dif` has an image that does not run a Carina node.
    #[error(
        "node {node}: a link as a flow of a DIF: image {image:?} has no Carina node; \
         `ipip`, `gre` and `vxlan` need none"
    )]
    NoMemberImage {
        /// Name of the node that would be a member of a DIF.
        node: String,
        /// Name of the image, which runs no Carina node.
        image: String,
    },
    /// The memory is too small for a member of a DIF.
    #[error(
        "node {node} has {has} MiB of memory; a machine that is a member of a DIF needs {needs}"
    )]
    MemberMemory {
        /// Name of the node that would be a member of a DIF.
        node: String,
        /// The node's memory, MiB.
        has: u64,
        /// The least memory that suffices, MiB.
        needs: u64,
    },
    /// A machine has more interfaces than the host supports.
    #[error("node {node} has {has} interfaces; a virtual machine has at most {max}")]
    Interfaces {
        /// Name of the node with too many interfaces.
        node: String,
        /// The node's number of interfaces.
        has: usize,
        /// The largest number of interfaces.
        max: usize,
    },
}

impl HostLimits {
    /// Limits that no node exceeds, except that no image but [`OWN_IMAGE`] is known.
    #[must_use]
    pub fn none() -> HostLimits {
        HostLimits {
            no_nodes: None,
            no_machines: None,
            images: BTreeSet::new(),
            member_memory_mib: 0,
            interfaces_max: usize::MAX,
        }
    }

    /// Checks whether all nodes of a part are within these limits.
    ///
    /// # Errors
    /// The first node that exceeds the limits of this host.
    pub fn check(&self, part: &HostPart) -> Result<(), LimitError> {
        part.nodes.iter().try_for_each(|node| self.check_node(node))
    }

    /// Checks whether a node is within these limits.
    ///
    /// # Errors
    /// The node exceeds the limits of this host.
    pub fn check_node(&self, node: &NodePart) -> Result<(), LimitError> {
        let name = || node.name.clone();
        if let Some(why) = &self.no_nodes {
            let (node, why) = (name(), why.clone());
            return Err(LimitError::NoNodes { node, why });
        }
        if node.kind != Kind::Vm {
            return Ok(());
        }
        if let Some(why) = &self.no_machines {
            let (node, why) = (name(), why.clone());
            return Err(LimitError::NoMachines { node, why });
        }
        let image = || node.image.clone();
        let is_own = node.image == OWN_IMAGE;
        if !is_own && !self.images.contains(&node.image) {
            let others = self.images.iter().map(String::as_str);
            let known: Vec<&str> = std::iter::once(OWN_IMAGE).chain(others).collect();
            return Err(LimitError::NoImage {
                node: name(),
                image: image(),
                known: known.join(", "),
            });
        }
        if node.founder.is_some() && !is_own {
            let (node, image) = (name(), image());
            return Err(LimitError::NoMemberImage { node, image });
        }
        let (has, needs) = (node.memory_mib, self.member_memory_mib);
        if node.founder.is_some() && has < needs {
            let node = name();
            return Err(LimitError::MemberMemory { node, has, needs });
        }
        let (has, max) = (node.interfaces.len(), self.interfaces_max);
        if has > max {
            let node = name();
            return Err(LimitError::Interfaces { node, has, max });
        }
        Ok(())
    }
}

impl LimitError {
    /// Name of the node that the host cannot make.
    #[must_use]
    pub fn node(&self) -> &str {
        match self {
            LimitError::NoNodes { node, .. }
            | LimitError::NoMachines { node, .. }
            | LimitError::NoImage { node, .. }
            | LimitError::NoMemberImage { node, .. }
            | LimitError::MemberMemory { node, .. }
            | LimitError::Interfaces { node, .. } => node,
        }
    }

    /// Returns the class of this error. Operators may see the class, because it names nothing of
    /// the host. Of the text, they may see only [`LimitError::for_operators`].
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            LimitError::NoNodes { .. } => Cause::Host,
            LimitError::NoImage { .. } => Cause::Image,
            LimitError::MemberMemory { .. } => Cause::Room,
            LimitError::NoMachines { .. }
            | LimitError::NoMemberImage { .. }
            | LimitError::Interfaces { .. } => Cause::Impossible,
        }
    }

    /// The text for an operator, who must not know the host: the fault of the node in the
    /// operator's document, and what would be right.
    #[must_use]
    pub fn for_operators(&self) -> String {
        match self {
            LimitError::NoNodes { node, .. } => {
                format!("node {node}: no host of the provider can create it now; ask the provider")
            }
            LimitError::NoMachines { node, .. } => format!(
                "node {node}: no host of the provider supports virtual machines; use `kind = \
                 \"namespace\"`"
            ),
            LimitError::NoImage { node, image, .. } => format!(
                "node {node}: the provider has no image {image:?}; every host has `image = \
                 \"{OWN_IMAGE}\"`"
            ),
            LimitError::NoMemberImage { .. }
            | LimitError::MemberMemory { .. }
            | LimitError::Interfaces { .. } => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Boot;

    fn node() -> NodePart {
        NodePart {
            name: "r1".to_owned(),
            kind: Kind::Vm,
            image: OWN_IMAGE.to_owned(),
            cpus: 1,
            memory_mib: 256,
            boot: Boot::Clone,
            interfaces: vec![],
            routes: vec![],
            routes6: vec![],
            founder: None,
            has_loop: false,
            start: Default::default(),
        }
    }

    #[test]
    fn node_beyond_a_limit_is_refused_with_what_would_be_right() {
        let limits = HostLimits {
            images: ["debian".to_owned()].into(),
            member_memory_mib: 512,
            interfaces_max: 16,
            ..HostLimits::none()
        };
        limits.check_node(&node()).unwrap();
        let member = NodePart {
            founder: Some("r1".to_owned()),
            ..node()
        };
        let refused = |node: &NodePart| limits.check_node(node).unwrap_err();
        let error = refused(&member);
        assert_eq!((error.cause(), error.node()), (Cause::Room, "r1"));
        let words = error.for_operators();
        assert!(
            words.contains("256 MiB") && words.contains("512"),
            "{words}"
        );
        let error = refused(&NodePart {
            image: "other".to_owned(),
            ..node()
        });
        assert!(error.to_string().contains("debian"), "{error}");
        // The list of images must stay with the host.
        let words = error.for_operators();
        assert!(
            words.contains("other") && !words.contains("debian"),
            "{words}"
        );
        let error = refused(&NodePart {
            image: "debian".to_owned(),
            ..member
        });
        assert_eq!(error.cause(), Cause::Impossible);
    }

    #[test]
    fn host_without_machines_makes_namespaces() {
        let mut limits = HostLimits {
            no_machines: Some("there is no QEMU".to_owned()),
            ..HostLimits::none()
        };
        let space = NodePart {
            kind: Kind::Namespace,
            ..node()
        };
        limits.check_node(&space).unwrap();
        let error = limits.check_node(&node()).unwrap_err();
        assert!(!error.for_operators().contains("QEMU"), "{error}");
        limits.no_nodes = Some("it is not root".to_owned());
        assert!(limits.check_node(&space).is_err());
    }
}
