//! Dissects packets that were captured without an Ethernet header: raw IP, from a loopback
//! interface, or from all interfaces of a Linux system.

use carina_wire::capture::{Encapsulation, NoFrame};
use carina_wire::pcapng::LinkType;

use super::ethernet;
use super::layer::{Layer, cut_short};
use super::state::State;

/// Adds the layers of a packet.
pub(super) fn dissect(
    layers: &mut Vec<Layer>,
    state: &mut State,
    link: LinkType,
    packet: &[u8],
    original: usize,
) {
    let encapsulation = match Encapsulation::decode(link, packet) {
        Ok(encapsulation) => encapsulation,
        Err(NoFrame::LinkType(_)) => {
            let summary = format!("link type {link}, {original} bytes");
            return layers.push(Layer::new("unknown", summary));
        }
        Err(NoFrame::Short) if packet.len() < original => {
            let summary = format!("link type {link}, {}", cut_short(packet.len(), original));
            return layers.push(Layer::new("link", summary));
        }
        Err(reason) => {
            let summary = format!("link type {link}, {original} bytes, {reason}");
            return layers.push(Layer::new("link", summary));
        }
    };
    let mut layer = Layer::new("link", format!("link type {link}"));
    layer.field("link_type", link.0);
    if let Some(source) = encapsulation.source {
        layer.summary += &format!(" from {source}");
        layer.field("src", source.to_string());
    }
    // In frames of IEEE 802.3 this field is a length, not an Ethertype.
    let ethertype = encapsulation.ethertype.unwrap_or(0);
    layer.field("ethertype", format!("{ethertype:#06x}"));
    let (payload, original) = (
        &packet[encapsulation.bytes..],
        original - encapsulation.bytes,
    );
    ethernet::payload(layers, state, layer, ethertype, payload, original);
}
