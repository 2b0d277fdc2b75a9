//! Gives nodes what their document says once they have started.

use std::fs;
use std::path::Path;

use carina_vnet::host_part::{HostPart, NodePart};
use carina_vnet_images::absent_is_done;

use super::{Vnet, lock};
use crate::error::{Attempt, Result};
use crate::threads::each;

impl Vnet {
    /// Writes the files and runs the commands of all nodes that have not had them since they
    /// started. A node that this host has adopted, restored or received has had them.
    pub(super) fn start_nodes(&self, part: &HostPart) -> Result<()> {
        let off = self.switched_off();
        let is_due = |node: &&NodePart| !node.start.is_empty() && !off.nodes.contains(&node.name);
        let due: Vec<&NodePart> = part.nodes.iter().filter(is_due).collect();
        each(&due, |wanted| {
            self.progress.check()?;
            let node = self.node(&wanted.name)?;
            let marker = self.dir.started(&wanted.name);
            let incarnation = node.incarnation()?;
            if started(&marker)? == Some(incarnation.clone()) {
                return Ok(());
            }
            let is_restored = node.machine().is_some() && lock(&self.saved).is_some();
            if !is_restored && !self.has_come(part, &wanted.name) {
                let done = node.start(&wanted.start, &|line| self.progress.tell(line));
                if let Err(error) = &done {
                    let state = error.state();
                    self.progress
                        .node(&wanted.name, |report| report.state = state);
                }
                done?;
            }
            fs::write(&marker, incarnation).attempt(format!("writing {}", marker.display()))
        })
    }
}

/// The incarnation of a node in a marker; `None` without a marker.
fn started(marker: &Path) -> Result<Option<String>> {
    let mut found = None;
    let read = fs::read_to_string(marker).map(|text| found = Some(text));
    absent_is_done(read).attempt(format!("reading {}", marker.display()))?;
    Ok(found)
}
