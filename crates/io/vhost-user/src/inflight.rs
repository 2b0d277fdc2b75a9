//! The in-flight region, in which a front end keeps the chains that its back end has taken.
//! (vhost-user, "Inflight I/O tracking")

use std::sync::Arc;

use carina_sys::Mapping;
use carina_vring::SplitInflight;

/// The in-flight regions of several rings, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Inflight {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) offset: usize,
    pub(crate) rings: usize,
    pub(crate) size: u16,
}

impl Inflight {
    /// The region of a split ring. Chains that a predecessor left in it are counted as not taken:
    /// the device half takes them again, in the order of the ring. `None` if the front end has
    /// given no region for the ring, or an invalid one.
    pub(crate) fn of_ring(&self, index: usize, size: u16, used: u16) -> Option<SplitInflight> {
        if index >= self.rings || size != self.size {
            return None;
        }
        let offset = self.offset + index * SplitInflight::bytes(size);
        let region = SplitInflight::new(Arc::clone(&self.mapping), offset, size);
        let mut region = region.inspect_err(|error| not_used(index, error)).ok()?;
        let recovered = region.recover(used);
        recovered
            .inspect_err(|fault| not_used(index, fault))
            .is_ok()
            .then_some(region)
    }
}

/// Logs that a ring runs without an in-flight region. If this back end dies, the chains that it has
/// taken are lost.
fn not_used(ring: usize, reason: &dyn std::fmt::Display) {
    tracing::warn!(ring, %reason, "in-flight region is not used");
}
