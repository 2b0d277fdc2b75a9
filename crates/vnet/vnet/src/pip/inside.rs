//! Finds the hosts of a network's nodes, for requests that a VNP forwards to nodes.

use carina_time::Instant;

use super::Pip;
use crate::host_part::VnetId;
use crate::store::Store;

impl<S: Store> Pip<S> {
    /// The host of a node of this VNP's part, or all hosts of the part if `node` is `None`. Empty
    /// if there is no such part or node, if it belongs to another VNP, or if it is being removed.
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
