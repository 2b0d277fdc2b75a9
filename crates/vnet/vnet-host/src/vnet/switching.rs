//! Stops and starts nodes, and takes links down and up, for the operator.

use carina_vnet::host_part::{Cause, HostPart, LinkPart, NodeState};

use super::{Vnet, lock};
use crate::error::{Error, Result};
use crate::making;
use crate::switched_off::{self, SwitchedOff};

impl Vnet {
    /// The nodes and links that the operator has switched off.
    pub(crate) fn switched_off(&self) -> SwitchedOff {
        lock(&self.off).clone()
    }

    /// Stops a node until [`Vnet::start_node`]. The ports of its links go down, so that its
    /// neighbours lose their carrier. Stopping a stopped node does nothing.
    ///
    /// # Errors
    /// There is no such node, or it cannot be ended.
    pub(crate) fn stop_node(&self, name: &str) -> Result<()> {
        // Locked until the node has ended, so that no other change interferes.
        let part = lock(&self.part);
        part.node(name).ok_or_else(|| self.no_node(name))?;
        self.switch(|off| off.nodes.insert(name.to_owned()))?;
        self.end_node(name)?;
        self.progress.node(name, |report| {
            report.state = NodeState::Stopped;
            report.is_console_ready = false;
        });
        self.progress.tell(format!("node {name} is stopped"));
        self.keep_off(&part)
    }

    /// Marks a stopped node, so that the next change starts it. A running node stays as it is.
    ///
    /// # Errors
    /// There is no such node.
    pub(crate) fn start_node(&self, name: &str) -> Result<()> {
        let part = lock(&self.part);
        part.node(name).ok_or_else(|| self.no_node(name))?;
        self.switch(|off| off.nodes.remove(name))?;
        self.progress.node(name, |report| {
            if report.state == NodeState::Stopped {
                report.state = NodeState::Starting;
            }
        });
        self.keep_off(&part)
    }

    /// Ends a node, so that the next change makes it again, even if it was stopped.
    ///
    /// # Errors
    /// There is no such node, or it cannot be ended.
    pub(crate) fn restart_node(&self, name: &str) -> Result<()> {
        self.start_node(name)?;
        let _part = lock(&self.part);
        self.end_node(name)?;
        self.progress.node(name, |report| {
            report.state = NodeState::Starting;
            report.is_console_ready = false;
        });
        self.progress.tell(format!("node {name} is restarted"));
        Ok(())
    }

    /// Takes a link down or up. While it is down, its ends have no carrier, and nothing passes.
    ///
    /// # Errors
    /// There is no such link, or its ports cannot be changed.
    pub(crate) fn switch_link(&self, number: u32, is_up: bool) -> Result<()> {
        let part = lock(&self.part);
        if part.links.iter().all(|link| link.number != number) {
            return Err(Error::NoLink {
                vnet: self.dir.name(),
                link: number,
            });
        }
        self.switch(|off| {
            if is_up {
                off.links.remove(&number)
            } else {
                off.links.insert(number)
            }
        })?;
        if is_up {
            self.progress.tell(format!("link {number} is taken up"));
        }
        self.keep_off(&part)
    }

    /// Sets the ports of all links up or down as the operator wants, and reports why links are
    /// down.
    pub(super) fn keep_off(&self, part: &HostPart) -> Result<()> {
        self.keep_links_off(part, &part.links.iter().collect::<Vec<_>>())
    }

    /// Like [`Vnet::keep_off`], for these links of the part.
    pub(super) fn keep_links_off(&self, part: &HostPart, links: &[&LinkPart]) -> Result<()> {
        if links.is_empty() {
            return Ok(());
        }
        let (off, second) = (self.switched_off(), lock(&self.second).clone());
        let mut ports = Vec::new();
        for link in links {
            let is_up = off.reason(link).is_none();
            let sides = 0..link.ends().count();
            ports.extend(sides.map(|side| (second.port((link.number, side)), is_up)));
        }
        making::switch(part, &ports)?;
        self.set_carriers(part, links, &off);
        for link in links {
            if let Some(reason) = off.reason(link) {
                self.link_is_down(link, reason, Cause::Operator);
            }
        }
        Ok(())
    }

    /// Sets the carriers that guests see at their cards, for machines that this agent has started.
    /// Other machines only notice that nothing passes.
    fn set_carriers(&self, part: &HostPart, links: &[&LinkPart], off: &SwitchedOff) {
        for link in links {
            let is_up = off.reason(link).is_none();
            for end in link.ends() {
                let interface = part.interface(end);
                let node = self.node(&end.node).ok();
                let machine = node.as_ref().and_then(|node| node.machine());
                let (Some(interface), Some(machine)) = (interface, machine) else {
                    continue;
                };
                if let Err(error) = machine.set_carrier(interface.mac.0, is_up) {
                    let what = format!(
                        "{end} cannot be notified whether link {} is up",
                        link.number
                    );
                    self.progress.tell(format!("{what}: {error}"));
                }
            }
        }
    }

    /// Ends what runs of a node. Its ports stay.
    fn end_node(&self, name: &str) -> Result<()> {
        match self.take(name) {
            Some(node) => node.stop(),
            None => Ok(()),
        }
    }

    fn switch(&self, change: impl FnOnce(&mut SwitchedOff) -> bool) -> Result<()> {
        let mut off = lock(&self.off);
        let mut wanted = off.clone();
        if change(&mut wanted) {
            switched_off::write(&self.dir, &wanted)?;
            *off = wanted;
        }
        Ok(())
    }

    /// Removes nodes and links from the list that `part` does not have: later ones of the same name
    /// or number are different.
    pub(super) fn forget_switched_off(&self, part: &HostPart) -> Result<()> {
        let mut off = lock(&self.off);
        if off.keep_only(part) {
            switched_off::write(&self.dir, &off)
        } else {
            Ok(())
        }
    }
}
