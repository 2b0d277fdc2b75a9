//! Checks whether each node that needs a host of its own can get one, by P. Hall's theorem.

use std::collections::BTreeSet;

use crate::attempt::Attempt;
use crate::id::{HostId, NodeId};
use crate::request::Request;
use crate::residual::Residual;

/// A set of nodes that has fewer suitable hosts than nodes, and these hosts; `None` if there is no
/// such set.
pub(crate) fn too_few_hosts(
    residual: &Residual,
    request: &Request,
) -> Option<(Vec<NodeId>, Vec<HostId>)> {
    let attempt = Attempt::new(residual, request);
    let mut matching = Matching {
        node_on: vec![None; attempt.hosts() as usize],
        attempt: &attempt,
    };
    for node in (0..request.nodes().len()).map(NodeId::of) {
        let mut seen = BTreeSet::new();
        if !matching.place(node, &mut seen) {
            // All hosts that the search has visited are taken, each by a node that has no other
            // suitable host left.
            let taken = seen
                .iter()
                .filter_map(|host| matching.node_on[*host as usize]);
            let mut nodes: Vec<NodeId> = taken.chain([node]).collect();
            nodes.sort_unstable();
            return Some((nodes, seen.into_iter().map(HostId).collect()));
        }
    }
    None
}

struct Matching<'a> {
    attempt: &'a Attempt<'a>,
    node_on: Vec<Option<NodeId>>,
}

impl Matching<'_> {
    /// Finds a host for a node; moves other nodes to other hosts if needed (Kuhn's algorithm).
    fn place(&mut self, node: NodeId, seen: &mut BTreeSet<u32>) -> bool {
        for host in 0..self.attempt.hosts() {
            if !self.attempt.accepts(node, host) || !seen.insert(host) {
                continue;
            }
            let is_free = match self.node_on[host as usize] {
                Some(other) => self.place(other, seen),
                None => true,
            };
            if is_free {
                self.node_on[host as usize] = Some(node);
                return true;
            }
        }
        false
    }
}
