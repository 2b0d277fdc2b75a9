//! Captured packets in words.
//!
//! A packet is taken apart from the outside in: a frame holds ARP or a PDU, a VMPI record a control
//! message or a piece of an SDU, a PDU delimited SDUs, an SDU perhaps a CDAP message. Each becomes
//! a [`Layer`]. What a packet cannot say of itself, the field widths of its DIF, comes from the
//! description of its interface in the capture file: [`Settings`].

mod cdap;
mod delimiting;
mod ethernet;
mod layer;
mod pdu;
mod protobuf;
mod settings;
mod vmpi;

use carina_wire::pcapng::{Interface, LinkType, Packet};

pub use layer::Layer;
pub use settings::Settings;

/// Takes packets apart, in the order in which they were captured.
pub struct Dissector {
    /// What holds for an interface that says nothing of itself.
    fallback: Settings,
    interfaces: Vec<(LinkType, Settings)>,
    pieces: vmpi::Pieces,
}

impl Dissector {
    /// With what holds for interfaces that say nothing of themselves.
    pub fn new(fallback: Settings) -> Dissector {
        Dissector {
            fallback,
            interfaces: Vec::new(),
            pieces: vmpi::Pieces::default(),
        }
    }

    /// A section begins: interfaces are numbered anew.
    pub fn begin_section(&mut self) {
        self.interfaces.clear();
        self.pieces = vmpi::Pieces::default();
    }

    /// The next interface.
    ///
    /// # Errors
    /// Its description is one of Carina's and says something impossible.
    pub fn add_interface(&mut self, interface: &Interface) -> Result<(), String> {
        let settings = Settings::of_interface(&interface.description, self.fallback)?;
        self.interfaces.push((interface.link, settings));
        Ok(())
    }

    /// The layers of a packet, the outermost first.
    pub fn dissect(&mut self, packet: &Packet<'_>) -> Vec<Layer> {
        let index = packet.interface as usize;
        let known = self.interfaces.get(index).copied();
        let (link, settings) = known.unwrap_or((LinkType(0), self.fallback));
        let original = (packet.original_bytes as usize).max(packet.bytes.len());
        let mut layers = Vec::new();
        match link {
            LinkType::ETHERNET => {
                ethernet::dissect(&mut layers, &settings, packet.bytes, original);
            }
            LinkType::PDU => pdu::dissect(&mut layers, &settings, packet.bytes, original),
            LinkType::SDU => pdu::guess(&mut layers, &settings, packet.bytes, original),
            LinkType::VMPI => {
                let key = (packet.interface, packet.direction);
                self.pieces
                    .dissect(&mut layers, &settings, key, packet.bytes, original);
            }
            LinkType(other) => layers.push(Layer::new(
                "unknown",
                format!("link type {other}, {original} bytes"),
            )),
        }
        layers
    }
}

#[cfg(test)]
mod tests;
