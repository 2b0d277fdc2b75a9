//! Captured packets in words.
//!
//! A packet is taken apart from the outside in: a frame holds ARP or a PDU, a VMPI record a control
//! message or a piece of an SDU, a PDU delimited SDUs, an SDU perhaps a CDAP message. Each becomes
//! a [`Layer`]. What a packet cannot say of itself, the field widths of its DIF, comes from the
//! description of its interface in the capture file: [`Settings`].

mod cdap;
mod classic;
mod delimiting;
mod ethernet;
mod file;
mod layer;
mod pdu;
mod protobuf;
mod schema;
mod settings;
mod state;
mod udp;
mod vmpi;

use carina_wire::pcapng::{Interface, LinkType, Packet};

use self::state::State;

pub use classic::Classic;
pub use file::AnyReader;
pub use layer::Layer;
pub use settings::Settings;

/// Takes packets apart, in the order in which they were captured.
pub struct Dissector {
    /// What holds for an interface that says nothing of itself.
    fallback: Settings,
    interfaces: Vec<(LinkType, State)>,
    /// For packets of interfaces that were never told of.
    unknown: State,
    pieces: vmpi::Pieces,
}

impl Dissector {
    /// With what holds for interfaces that say nothing of themselves.
    pub fn new(fallback: Settings) -> Dissector {
        Dissector {
            fallback,
            unknown: State::new(fallback),
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
        self.interfaces.push((interface.link, State::new(settings)));
        Ok(())
    }

    /// The layers of a packet, the outermost first.
    pub fn dissect(&mut self, packet: &Packet<'_>) -> Vec<Layer> {
        let index = packet.interface as usize;
        let (link, state) = match self.interfaces.get_mut(index) {
            Some((link, state)) => (*link, state),
            None => (LinkType(0), &mut self.unknown),
        };
        let original = (packet.original_bytes as usize).max(packet.bytes.len());
        let mut layers = Vec::new();
        match link {
            LinkType::ETHERNET => {
                ethernet::dissect(&mut layers, state, packet.bytes, original);
            }
            LinkType::PDU => {
                let settings = state.settle(packet.bytes, original);
                pdu::dissect(&mut layers, &settings, packet.bytes, original);
            }
            LinkType::SDU => {
                let settings = state.settle(packet.bytes, original);
                pdu::guess(&mut layers, &settings, packet.bytes, original);
            }
            LinkType::VMPI => {
                let key = (packet.interface, packet.direction);
                self.pieces
                    .dissect(&mut layers, &state.settings, key, packet.bytes, original);
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
mod captured;
#[cfg(test)]
mod tests;
