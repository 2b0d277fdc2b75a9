//! Joins the tunnel ends of links between two providers.

use std::collections::BTreeMap;

use crate::host_part::EndPart;
use crate::layout::Layout;
use crate::message::TunnelEnd;

/// For each provider, the far tunnel end of each link that leaves it. Both providers have offered a
/// tag for the link; the tag of the provider whose name sorts first is used.
pub(super) fn far(
    layout: &Layout,
    offers: &BTreeMap<String, Vec<(EndPart, TunnelEnd)>>,
) -> BTreeMap<String, Vec<(EndPart, TunnelEnd)>> {
    let mut ends = BTreeMap::new();
    for (pip, offered) in offers {
        for (near, far_end) in offered {
            ends.insert(near, (pip, far_end));
        }
    }
    let mut far: BTreeMap<String, Vec<(EndPart, TunnelEnd)>> = BTreeMap::new();
    for (_, link) in layout.links() {
        let [Some(one), Some(other)] = [0, 1].map(|side| ends.get(&link.ends[side])) else {
            continue;
        };
        let (_, tag) = (one.0, one.1.tag).min((other.0, other.1.tag));
        for (side, (own, beyond)) in [(one, other), (other, one)].into_iter().enumerate() {
            let far_end = TunnelEnd {
                tag,
                ..beyond.1.clone()
            };
            let list = far.entry(own.0.clone()).or_default();
            list.push((link.ends[side].clone(), far_end));
        }
    }
    far
}
