//! Saves a running network to a directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use carina_vnet::document::Kind;
use carina_vnet::host_part::{HostPart, NodePart};

use super::{Vnet, lock};
use crate::error::{Error, Result};
use crate::node::{Move, Node};
use crate::saved::{self, Manifest, SavedNode};
use crate::threads::each;
use carina_vnet::report::SaveReport;

impl Vnet {
    /// Saves the network into a new directory. All its machines are paused meanwhile, at the same
    /// time, and resume afterwards.
    ///
    /// # Errors
    /// A node is stopped, the directory exists already or cannot be written, or a machine cannot be
    /// saved. A directory that this call has created is then removed.
    pub(crate) fn save(&self, mut manifest: Manifest, into: &Path) -> Result<SaveReport> {
        // Locked until the network is saved, so that no change interferes.
        let part = lock(&self.part);
        let is_machine = |node: &&NodePart| node.kind == Kind::Vm;
        let machines: Vec<&NodePart> = part.nodes.iter().filter(is_machine).collect();
        let off = self.switched_off();
        if let Some(stopped) = off.nodes.iter().next() {
            return Err(Error::NodeStopped(stopped.clone()));
        }
        (manifest.impairments, manifest.links_down) = (self.impairments(), off.links);
        let nodes: Result<Vec<_>> = machines
            .iter()
            .map(|machine| self.node(&machine.name))
            .collect();
        let nodes = nodes?;
        saved::create(into)?;
        let began = Instant::now();
        let done = save_all(&machines, &nodes, into).and_then(|machines| {
            manifest.machines = machines;
            saved::complete(into, &manifest)
        });
        if let Err(error) = done {
            // The first error is reported.
            let _ = std::fs::remove_dir_all(into);
            self.progress
                .tell(format!("saving the network failed: {error}"));
            return Err(error);
        }
        let report = self.save_report(&part, &manifest, into, began);
        self.progress
            .tell(format!("the network is saved to {}", into.display()));
        Ok(report)
    }

    fn save_report(
        &self,
        part: &HostPart,
        manifest: &Manifest,
        into: &Path,
        began: Instant,
    ) -> SaveReport {
        let machines = manifest.machines.iter();
        let namespaces = part.nodes.iter().filter(|node| node.kind.has_namespace());
        SaveReport {
            name: self.dir.name(),
            path: into.to_owned(),
            machines: machines
                .map(|(name, saved)| (name.clone(), saved.guest.bytes))
                .collect(),
            namespaces: namespaces.map(|namespace| namespace.name.clone()).collect(),
            stood_still_ms: began.elapsed().as_secs_f64() * 1000.0,
        }
    }

    /// Ends the restoring: from now on nodes that are made again boot. An agent that is killed
    /// before the record says that the network is complete starts the restoring again.
    pub(super) fn forget_saved(&self) {
        drop(lock(&self.saved).take());
    }
}

/// Pauses all machines, saves each, and resumes them.
fn save_all(
    machines: &[&NodePart],
    nodes: &[std::sync::Arc<Node>],
    into: &Path,
) -> Result<BTreeMap<String, SavedNode>> {
    let mut moves: Vec<(&NodePart, Move<'_>)> = Vec::new();
    for (part, node) in machines.iter().zip(nodes) {
        if let Some(machine) = node.machine() {
            if machine.is_foreign() {
                return Err(Error::Unsupported {
                    what: format!("saving VM {}", part.name),
                    instead: "the node has a disk of its own, which is not saved",
                });
            }
            moves.push((part, machine.begin_move(part)?));
        }
    }
    let paused = moves.iter().try_for_each(|(_, machine)| machine.pause());
    let done = std::sync::Mutex::new(BTreeMap::new());
    let saved = paused.and_then(|()| {
        each(&moves, |(part, machine)| {
            let guest = machine.save(&saved::state_of(into, &part.name))?;
            let node = SavedNode {
                hardware: machine.hardware().clone(),
                cards: machine.cards_of(part),
                guest,
            };
            lock(&done).insert(part.name.clone(), node);
            Ok(())
        })
    });
    let mut resumed = Ok(());
    for (_, machine) in &moves {
        let one = machine.go_on();
        resumed = resumed.and(one);
    }
    saved?;
    resumed?;
    let saved = lock(&done).clone();
    Ok(saved)
}
