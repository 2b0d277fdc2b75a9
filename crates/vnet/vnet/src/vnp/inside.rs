//! At which providers nodes are, for what a VNO asks of them.

use super::Vnp;
use crate::host_part::VnetId;
use crate::layout::Layout;
use crate::store::Store;

impl<S: Store> Vnp<S> {
    /// The provider of a node of a VNO's network; all providers of it where no node is named.
    /// Nothing if there is no such network or node, it is another's, or it is not made.
    #[must_use]
    pub fn pips_for(&self, vno: &str, vnet: VnetId, node: Option<&str>) -> Vec<String> {
        let record = self.records.get(&vnet);
        let Some(record) = record.filter(|it| it.vno == vno && it.is_wanted) else {
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

    /// Numbers, interfaces and addresses of the links of a VNO's network; nothing if there is no
    /// such network, or it is another's.
    #[must_use]
    pub fn layout(&self, vno: &str, vnet: VnetId) -> Option<&Layout> {
        let record = self.records.get(&vnet);
        record.filter(|it| it.vno == vno).map(|it| &it.layout)
    }
}
