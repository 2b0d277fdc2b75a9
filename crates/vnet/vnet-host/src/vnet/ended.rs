//! Nodes that have ended by themselves.

use std::sync::Arc;

use carina_vnet::host_part::{Cause, HostPart, LinkPart, NodeState};

use super::{Vnet, lock, observed};
use crate::error::Result;
use crate::leftovers;
use crate::node::Node;

impl Vnet {
    /// Reports nodes that have ended by themselves since the last check. Returns whether there are
    /// any.
    pub(crate) fn look_after_nodes(&self) -> bool {
        let ended = self.note_ended();
        if !ended.is_empty() {
            let links = lock(&self.part).links.clone();
            self.links_are_down(&links, &ended);
        }
        !ended.is_empty()
    }

    /// Reports nodes that have ended since they were up, and returns their names.
    fn note_ended(&self) -> Vec<String> {
        let nodes: Vec<(String, Arc<Node>)> = {
            let all = lock(&self.nodes);
            let pairs = all
                .iter()
                .map(|(name, node)| (name.clone(), Arc::clone(node)));
            pairs.collect()
        };
        let status = self.progress.status();
        let was_up = |name: &str| {
            let known = status.nodes.get(name);
            known.is_some_and(|known| known.state == NodeState::Up)
        };
        let mut ended = Vec::new();
        for (name, node) in nodes {
            if was_up(&name) && !node.is_alive() {
                self.progress.node(&name, |report| {
                    let (reason, cause) = ("it has ended".to_owned(), Cause::Ended);
                    report.state = NodeState::Failed { reason, cause };
                    report.is_console_ready = false;
                });
                self.progress.tell(format!("node {name} has ended"));
                ended.push(name);
            }
        }
        ended
    }

    /// Removes what is left of nodes that have ended, and takes them out of `current`. The next
    /// change makes them again, together with those links whose ports vanished with them.
    pub(super) fn forget_ended(&self, current: &mut HostPart) -> Result<()> {
        let noted = self.note_ended();
        self.links_are_down(&current.links, &noted);
        let ended: Vec<String> = {
            let all = lock(&self.nodes);
            let ended = all.iter().filter(|(_, node)| !node.is_alive());
            ended.map(|(name, _)| name.clone()).collect()
        };
        if ended.is_empty() {
            return Ok(());
        }
        for name in &ended {
            if let Some(node) = self.take(name) {
                node.remove()?;
            }
        }
        let living = leftovers::living_namespaces(current.vnet)?;
        let left = observed(&self.dir, current, &living)?;
        let is_left = |link: &LinkPart| {
            left.links
                .iter()
                .any(|candidate| candidate.number == link.number)
        };
        let lost = current.links.iter().filter(|link| !is_left(link));
        let lost: Vec<u32> = lost.map(|link| link.number).collect();
        *current = left;
        if !lost.is_empty() {
            lock(&self.second).forget(&lost);
            lock(&self.paths).forget(&lost);
            // The engine must close ports that will be made again with the same names.
            self.run_links(current)?;
        }
        Ok(())
    }
}
