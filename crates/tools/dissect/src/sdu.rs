//! Dissects SDUs that are not PDUs: CDAP messages, and data of applications.

use super::cdap;
use super::layer::{Layer, cut_short, show_bytes};

/// Adds the layer of an SDU: a CDAP message, or bytes of an application.
pub(super) fn content(layers: &mut Vec<Layer>, sdu: &[u8], original: usize) {
    let is_whole = sdu.len() == original;
    if let Some(layer) = cdap::dissect(sdu).filter(|_| is_whole) {
        layers.push(layer);
        // A message carries at most one other message.
        if let Some(layer) = cdap::carried(sdu).and_then(|inner| cdap::dissect(&inner)) {
            layers.push(layer);
        }
        return;
    }
    let summary = if is_whole {
        format!("{original} bytes")
    } else {
        cut_short(sdu.len(), original)
    };
    let mut layer = Layer::new("data", summary);
    layer.field("bytes", original);
    layer.field("content", show_bytes(sdu));
    layers.push(layer);
}
