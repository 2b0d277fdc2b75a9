//! Forwards messages between two providers about links whose ends move with a node.

use std::collections::BTreeMap;

use super::Vnp;
use super::record::Record;
use crate::host_part::EndPart;
use crate::message::{PartKey, Reason, Repoint, RepointAnswer, ToPip, TunnelEnd};
use crate::store::Store;

impl<S: Store> Vnp<S> {
    /// Forwards a `Repoint` to the providers at the other ends of the links.
    pub(super) fn pass_repoint(&mut self, pip: &str, wanted: Repoint) {
        let Some(record) = self.live_at(pip, wanted.key) else {
            return self.count("end of a link that moves, of a part that is not live");
        };
        let mut beyond: BTreeMap<String, Vec<(EndPart, TunnelEnd)>> = BTreeMap::new();
        for (near, far_end) in wanted.ends {
            // A tunnel end for another provider's link end would redirect that provider's link.
            let Some((end, other)) = across(record, pip, &near) else {
                return self.count("move of ends of others");
            };
            let ends = beyond.entry(other.to_owned()).or_default();
            ends.push((end.clone(), far_end));
        }
        for (other, ends) in beyond {
            let message = Repoint { ends, ..wanted };
            self.send(&other, ToPip::Repoint(message));
        }
    }

    /// Forwards the answer to a `Repoint` to the providers of the moving nodes.
    pub(super) fn pass_repoint_answer(&mut self, pip: &str, answer: RepointAnswer) {
        let Some(record) = self.live_at(pip, answer.key) else {
            return self.count("end of a link that moves, of a part that is not live");
        };
        let mut beyond: BTreeMap<String, Vec<EndPart>> = BTreeMap::new();
        for near in &answer.ends {
            let Some((end, other)) = across(record, pip, near) else {
                return self.count("move of ends of others");
            };
            beyond
                .entry(other.to_owned())
                .or_default()
                .push(end.clone());
        }
        for (other, ends) in beyond {
            let refusal = answer.refusal.clone().map(Reason::in_short);
            let message = RepointAnswer {
                ends,
                refusal,
                ..answer
            };
            self.send(&other, ToPip::RepointAnswer(message));
        }
    }

    /// The record of a network, if `key` names its live round and this provider has a part of it.
    fn live_at(&self, pip: &str, key: PartKey) -> Option<&Record> {
        let record = self.records.get(&key.vnet)?;
        let live = record.live.as_ref()?;
        let is_live = live.round == key.round && live.pips.contains(pip);
        (is_live && !record.is_being_removed()).then_some(record)
    }
}

/// The other end of the link that ends at `near`, a node of provider `pip`, and that end's
/// provider. `None` if the link does not lead to another provider.
fn across<'a>(record: &'a Record, pip: &str, near: &EndPart) -> Option<(&'a EndPart, &'a str)> {
    let of = |end: &EndPart| record.at.get(&end.node).map(String::as_str);
    let mut ends = record.layout.links().map(|(_, link)| &link.ends);
    let ends = ends.find(|ends| ends.contains(near) && of(near) == Some(pip))?;
    let other = ends.iter().find(|end| *end != near)?;
    let provider = of(other).filter(|provider| *provider != pip)?;
    Some((other, provider))
}
