//! Where nodes of a part are, for what a VNP asks of them.

use carina_time::Instant;

use super::Pip;
use crate::host_part::VnetId;
use crate::store::Store;

impl<S: Store> Pip<S> {
    /// The host of a node that a VNP has; all hosts of its part where no node is named. Nothing if
    /// there is no such part or node, it is another's, or it is being removed.
    pub fn hosts_for(
        &mut self,
        now: Instant,
        vnp: &str,
        vnet: VnetId,
        node: Option<&str>,
    ) -> Vec<String> {
        let is_own = self.owner(now, vnet) == Some(vnp);
        let made = self.books.made(vnet);
        let Some(made) = made.filter(|made| is_own && !made.is_leaving) else {
            return Vec::new();
        };
        let hosts = &made.laid.placement.hosts;
        match node {
            Some(node) => hosts.get(node).cloned().into_iter().collect(),
            None => made.laid.hosts().into_iter().map(str::to_owned).collect(),
        }
    }
}
