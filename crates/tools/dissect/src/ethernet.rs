//! Dissects Ethernet frames with VLAN tags (802.1Q), RINA ARP, or PDUs and other SDUs directly in
//! frames.

use carina_wire::arp::{Arp, ArpError, Dialect, Operation};
use carina_wire::ether::{ETHERTYPE_RINA, Header, TPID_CUSTOMER, TPID_PRISTINE, TPID_PROVIDER};

use super::internet;
use super::layer::{Layer, cut_short};
use super::pdu;
use super::state::State;

/// Adds the layers of a frame.
pub(super) fn dissect(layers: &mut Vec<Layer>, state: &mut State, frame: &[u8], original: usize) {
    let tpids = [TPID_CUSTOMER, TPID_PROVIDER, TPID_PRISTINE];
    let (header, length) = match Header::decode(frame, &tpids) {
        Ok(decoded) => decoded,
        Err(_) if frame.len() < original => {
            let summary = cut_short(frame.len(), original);
            return layers.push(Layer::new("ethernet", summary));
        }
        Err(error) => return layers.push(Layer::new("ethernet", error.to_string())),
    };
    let mut layer = Layer::new("ethernet", format!("{} > {}", header.src, header.dst));
    layer.field("src", header.src.to_string());
    layer.field("dst", header.dst.to_string());
    if let Some(tag) = header.tag {
        layer.summary += &format!(" vlan {}", tag.vlan);
        layer.field("tpid", format!("{:#06x}", tag.tpid));
        layer.field("vlan", tag.vlan);
        layer.field("priority", tag.priority);
        layer.field("drop_eligible", tag.drop_eligible);
    }
    layer.field("ethertype", format!("{:#06x}", header.ethertype));
    let (bytes, original) = (&frame[length..], original - length);
    payload(layers, state, layer, header.ethertype, bytes, original);
}

/// Adds the layer of a frame's header and the layers of its payload.
pub(super) fn payload(
    layers: &mut Vec<Layer>,
    state: &mut State,
    mut layer: Layer,
    ethertype: u16,
    payload: &[u8],
    original: usize,
) {
    let is_arp = [Dialect::NATIVE, Dialect::IRATI]
        .iter()
        .any(|dialect| dialect.ethertype == ethertype);
    if ethertype == ETHERTYPE_RINA {
        layers.push(layer);
        pdu::guess(layers, &state.decide(payload, original), payload, original);
    } else if is_arp && Arp::decode(payload) != Err(ArpError::Other) {
        layers.push(layer);
        layers.push(arp(payload, original));
        if ethertype == Dialect::IRATI.ethertype && Arp::decode(payload).is_ok() {
            state.suppose(carina_wire::dif::Dialect::Irati);
        }
    } else if let Some((datagram, bytes)) = state.datagram(ethertype, payload, original) {
        layers.push(layer);
        layers.push(datagram.layer());
        pdu::guess(
            layers,
            &state.decide(bytes, datagram.bytes),
            bytes,
            datagram.bytes,
        );
    } else {
        let mut inner = Vec::new();
        if internet::dissect(&mut inner, ethertype, payload, original) {
            layers.push(layer);
            return layers.append(&mut inner);
        }
        layer.summary += &format!(" type {ethertype:#06x}, {original} bytes");
        layers.push(layer);
    }
}

fn arp(payload: &[u8], original: usize) -> Layer {
    let message = match Arp::decode(payload) {
        Ok(message) => message,
        Err(ArpError::Other) => return Layer::new("arp", "of another protocol"),
        Err(ArpError::Short) if payload.len() < original => {
            return Layer::new("arp", cut_short(payload.len(), original));
        }
        Err(error) => return Layer::new("arp", format!("malformed: {error}")),
    };
    let (operation, summary) = match message.operation {
        Operation::Request => (
            "request",
            format!("{} asks for {}", message.sender, message.target),
        ),
        Operation::Reply => (
            "reply",
            format!("{} is at {}", message.sender, message.sender_mac),
        ),
    };
    let mut layer = Layer::new("arp", summary);
    layer.field("operation", operation);
    layer.field("sender", message.sender);
    layer.field("sender_mac", message.sender_mac.to_string());
    layer.field("target", message.target);
    layer.field("target_mac", message.target_mac.to_string());
    layer
}
