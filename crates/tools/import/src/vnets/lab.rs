//! Reads `.lab` files: systems and VMs become nodes, links become links.

use carina_topology::{NodeChecks, Topology};
use carina_vnet::document::{Carrier, Kind, Rate};

use super::draft::{Draft, DraftEnd, DraftLink};
use super::{Imported, Source};
use crate::error::ImportError;

pub(super) fn read(source: Source<'_>, checks: &dyn NodeChecks) -> Result<Imported, ImportError> {
    let lab = Topology::parse(source.text, checks).map_err(|error| ImportError::Lab {
        file: source.file.to_owned(),
        source: error,
    })?;
    let mut draft = Draft::new(source, Kind::Namespace);
    for system in &lab.systems {
        draft.node(&system.name, 0);
    }
    for (system, vm) in lab.machines() {
        let node = draft.node(&system.name, 0);
        node.kind = Some(Kind::Vm);
        node.memory = Some(u64::from(vm.memory_mib));
        node.cpus = Some(vm.cpus);
        let ends = [&vm.host, &system.name].map(|node| DraftEnd {
            node,
            interface: None,
        });
        let link = DraftLink {
            carrier: Carrier::Dif,
            ..DraftLink::default()
        };
        draft.link(ends, link, 0);
    }
    for link in &lab.links {
        let ends: Vec<DraftEnd<'_>> = link
            .ends
            .iter()
            .map(|end| DraftEnd {
                node: &end.system,
                interface: None,
            })
            .collect();
        let faults = || link.ends.iter().filter_map(|end| end.fault.as_ref());
        let rates = faults().map(|fault| fault.rate_bps).filter(|bps| *bps > 0);
        let of = DraftLink {
            rate: rates.min().and_then(Rate::from_bps),
            ..DraftLink::default()
        };
        draft.join(&link.name, &ends, of, 0);
        let is_impaired = |fault: &&carina_api::control::FaultSpec| {
            fault.loss + fault.duplicate + fault.reorder + fault.delay_ms > 0.0
        };
        if faults().any(|fault| is_impaired(&fault)) {
            let what = format!("the impairment of {}", link.name);
            draft.note(
                0,
                what,
                "`carina vnet impair` does it once the network is up",
            );
        }
    }
    for dif in &lab.difs {
        let why = "what runs in the nodes is theirs";
        draft.note(0, format!("DIF {}", dif.name), why);
    }
    for app in &lab.apps {
        let what = format!("the application on {}", app.system);
        draft.note(
            0,
            what,
            "`carina vnet exec` starts it once the network is up",
        );
    }
    draft.finish()
}
