//! Finds the providers of a network's nodes, for requests that a VNO forwards to nodes.

use super::Vnp;
use crate::host_part::VnetId;
use crate::layout::Layout;
use crate::store::Store;

impl<S: Store> Vnp<S> {
    /// The provider of a node of this VNO's network, or all its providers if `node` is `None`.
    /// Empty if there is no such network or node, if it belongs to another VNO, or if it is not
    /// made.
    #[must_use]
    pub fn pips_for(&self, vno: &str, vnet: VnetId, node: Option<&str>) -> Vec<String> {
        let record = self.records.get(&vnet);
        let Some(record) = record.filter(|record| record.vno == vno && record.is_wanted) else {
            return Vec::new();
        };
        let Some(live) = &record.live else {
            return Vec::new();
        };
        match node {
            Some(node) => record.at.get(node).cloned().into_iter().collect(),
            None => live.pips.iter().cloned().collect(),
        }
    }

    /// The layout of a VNO's network: numbers, interfaces and addresses of its links. `None` if
    /// there is no such network, or if it belongs to another VNO.
    #[must_use]
    pub fn layout(&self, vno: &str, vnet: VnetId) -> Option<&Layout> {
        let record = self.records.get(&vnet);
        record
            .filter(|record| record.vno == vno)
            .map(|record| &record.layout)
    }
}
