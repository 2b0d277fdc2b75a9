//! Reads `.lab` files: systems and VMs become nodes, links become links.

use carina_api::control::FaultSpec;
use carina_topology::{NodeChecks, Topology};
use carina_vnet::document::{Carrier, Impairment, Kind, LinkImpairment, Rate};

use super::draft::{Draft, DraftEnd, DraftLink};
use super::quantities::{milliseconds, share};
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
        let rate = rates.min().and_then(Rate::from_bps);
        let impaired = link
            .ends
            .iter()
            .map(|end| end.fault.as_ref().map(impairment));
        let impaired: Vec<Option<Impairment>> = impaired.collect();
        if impaired.len() > 2 && impaired.iter().any(|candidate| *candidate != impaired[0]) {
            let what = format!("the impairment of {} at its other ends", link.name);
            draft.note(0, what, "all ends get that of the first");
        }
        let mtu = link.mtu.and_then(|mtu| u16::try_from(mtu).ok());
        let side = |side: usize| impaired.get(side).copied().flatten();
        let of = DraftLink {
            rate,
            mtu,
            impairment: LinkImpairment {
                there: side(0),
                back: side(1),
            },
            ..DraftLink::default()
        };
        draft.join(&link.name, &ends, of, 0);
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

/// The impairment of what an end sends. Its rate is that of the link.
fn impairment(fault: &FaultSpec) -> Impairment {
    let some = |number: f64| Some(number).filter(|number| *number > 0.0);
    Impairment {
        delay: some(fault.delay_ms).and_then(milliseconds),
        jitter: some(fault.jitter_ms).and_then(milliseconds),
        loss: some(fault.loss).and_then(share),
        duplicate: some(fault.duplicate).and_then(share),
        reorder: some(fault.reorder).and_then(share),
        ..Impairment::default()
    }
}
