//! The nodes of a network: makes and changes them, and finds them by name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use carina_vnet::host_part::{HostPart, NodePart, NodeState};

use super::{Vnet, lock};
use crate::error::{Error, Result};
use crate::node::{Node, Site};
use crate::port_selection::PortSelection;
use crate::steps::Steps;
use crate::threads::each;

impl Vnet {
    /// Makes the nodes of a part that do not exist, and changes those that `steps` names.
    pub(super) fn make_nodes(&self, part: &HostPart, steps: &Steps) -> Result<()> {
        let off = self.switched_off();
        // Nodes at new links come first, because others only get further routes.
        let is_at_new_link = |node: &&NodePart| {
            let mut interfaces = node.interfaces.iter();
            interfaces.any(|interface| steps.linked.contains(&interface.link))
        };
        let changed: BTreeSet<&String> = steps.changed.iter().collect();
        let is_due = {
            let known = lock(&self.nodes);
            let is_due = |node: &&NodePart| {
                let name = &node.name;
                !known.contains_key(name) || changed.contains(name) || off.nodes.contains(name)
            };
            part.nodes.iter().filter(is_due).collect::<Vec<_>>()
        };
        let (first, last): (Vec<_>, Vec<_>) = is_due.into_iter().partition(is_at_new_link);
        each(&[first, last].concat(), |node| {
            self.progress.check()?;
            if off.nodes.contains(&node.name) {
                self.progress
                    .node(&node.name, |report| report.state = NodeState::Stopped);
                return Ok(());
            }
            let is_new = !lock(&self.nodes).contains_key(&node.name);
            if is_new {
                self.progress
                    .node(&node.name, |report| report.state = NodeState::Starting);
            }
            let done = if is_new {
                self.make_node(part, node)
            } else {
                self.change_node(part, node, &steps.linked)
            };
            let done = done.and_then(|()| self.make_member(part, node));
            self.progress.node(&node.name, |report| match &done {
                Ok(()) => report.state = NodeState::Up,
                Err(error) => report.state = error.state(),
            });
            if done.is_ok() && is_new {
                self.progress.tell(format!("node {} is up", node.name));
            }
            done
        })
    }

    fn make_node(&self, part: &HostPart, wanted: &NodePart) -> Result<()> {
        let second = lock(&self.second).clone();
        let saved = lock(&self.saved).clone();
        let node = Node::make(&self.site(part, &second), wanted, saved.as_deref())?;
        if let Some(confinement) = node.confinement() {
            self.progress.tell(confinement.words(&wanted.name));
        }
        lock(&self.nodes).insert(wanted.name.clone(), Arc::new(node));
        Ok(())
    }

    /// What is needed to make nodes, with link ends at the given ports.
    pub(super) fn site<'a>(&'a self, whole: &'a HostPart, ports: &'a PortSelection) -> Site<'a> {
        Site {
            whole,
            ports,
            dir: &self.dir,
            images: &self.images,
        }
    }

    /// Changes the interfaces and routes of a node that stays. If that fails, the node is replaced.
    fn change_node(&self, part: &HostPart, wanted: &NodePart, fresh: &[u32]) -> Result<()> {
        let node = self.node(&wanted.name)?;
        let second = lock(&self.second).clone();
        let Err(error) = node.rewire(&self.site(part, &second), wanted, fresh) else {
            return node.configure(wanted, part);
        };
        self.progress
            .tell(format!("node {} is recreated: {error}", wanted.name));
        self.progress
            .node(&wanted.name, |report| report.is_console_ready = false);
        let _ = self.take(&wanted.name);
        node.remove()?;
        drop(node);
        self.make_node(part, wanted)
    }

    /// Waits until the console of every node has answered.
    pub(super) fn ask_consoles(&self, part: &HostPart) -> Result<()> {
        each(&part.nodes, |wanted| {
            let known = self.progress.status_of_node(&wanted.name);
            let is_ready = known
                .is_some_and(|known| known.is_console_ready || known.state == NodeState::Stopped);
            if is_ready {
                return Ok(());
            }
            let node = self.node(&wanted.name)?;
            let limit = if node.is_foreign() { IMAGE } else { CONSOLE };
            node.console().wait_for_answer(limit)?;
            self.progress
                .node(&wanted.name, |report| report.is_console_ready = true);
            Ok(())
        })
    }

    /// Removes all nodes from the list.
    pub(super) fn take_nodes(&self) -> Vec<Arc<Node>> {
        let nodes = std::mem::take(&mut *lock(&self.nodes));
        nodes.into_values().collect()
    }

    /// The node of this name.
    ///
    /// # Errors
    /// The network does not have it, or the operator has stopped it.
    pub(super) fn node(&self, name: &str) -> Result<Arc<Node>> {
        let found = lock(&self.nodes).get(name).map(Arc::clone);
        found.ok_or_else(|| {
            if lock(&self.off).nodes.contains(name) {
                Error::NodeStopped(name.to_owned())
            } else {
                self.no_node(name)
            }
        })
    }

    /// Removes a node from the list.
    pub(super) fn take(&self, name: &str) -> Option<Arc<Node>> {
        lock(&self.nodes).remove(name)
    }

    /// The error for a node that the network does not have.
    pub(crate) fn no_node(&self, name: &str) -> Error {
        let known: Vec<String> = lock(&self.nodes).keys().cloned().collect();
        Error::NoNode {
            vnet: self.dir.name(),
            node: name.to_owned(),
            known: known.join(", "),
        }
    }
}

const CONSOLE: Duration = Duration::from_secs(60);
/// Longest time for a machine with an image of the store to boot under emulation.
pub(super) const IMAGE: Duration = Duration::from_secs(600);
