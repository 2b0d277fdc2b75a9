//! Describes captured packets as text or JSON.
//!
//! `carina_wire::capture` reads a capture file. [`Dissector`] takes each packet apart from the
//! outside in: a frame contains ARP or a PDU, a VMPI record contains a control message or a piece
//! of an SDU, a PDU contains delimited SDUs, and an SDU may be a CDAP message. Each of them becomes
//! a [`Layer`]. PDUs do not contain the field widths of their DIF; the description of the interface
//! in the capture file does: [`Settings`].
#![forbid(unsafe_code)]

mod cdap;
mod delimiting;
mod encapsulated;
mod error;
mod ethernet;
mod internet;
mod layer;
mod pdu;
mod protobuf;
mod schema;
mod sdu;
mod settings;
mod state;
mod udp;
mod vmpi;

use carina_wire::pcapng::{Interface, LinkType, Packet};

use self::state::State;

pub use error::SettingsError;
pub use layer::Layer;
pub use settings::Settings;

/// Takes packets apart. Packets must be given in the order in which they were captured.
pub struct Dissector {
    /// Settings for interfaces without a description.
    fallback: Settings,
    interfaces: Vec<(LinkType, State)>,
    /// State for packets of interfaces that the file does not describe.
    unknown: State,
    pieces: vmpi::Pieces,
}

impl Dissector {
    /// A dissector. `fallback` has the settings for interfaces without a description.
    pub fn new(fallback: Settings) -> Dissector {
        Dissector {
            fallback,
            unknown: State::new(fallback),
            interfaces: Vec::new(),
            pieces: vmpi::Pieces::default(),
        }
    }

    /// Begins a section of the capture. Its interfaces are numbered from 0 again.
    pub fn begin_section(&mut self) {
        self.interfaces.clear();
        self.pieces = vmpi::Pieces::default();
    }

    /// Adds the next interface of the section, with the settings in its description.
    ///
    /// # Errors
    /// Carina wrote the description, but it contains an invalid value.
    pub fn add_interface(&mut self, interface: &Interface) -> Result<(), SettingsError> {
        let settings = Settings::of_interface(&interface.description, self.fallback)?;
        self.interfaces.push((interface.link, State::new(settings)));
        Ok(())
    }

    /// Describes a packet: its layers, the outermost first.
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
                let settings = state.decide(packet.bytes, original);
                pdu::dissect(&mut layers, &settings, packet.bytes, original);
            }
            LinkType::SDU => {
                let settings = state.decide(packet.bytes, original);
                pdu::guess(&mut layers, &settings, packet.bytes, original);
            }
            LinkType::VMPI => {
                let key = (packet.interface, packet.direction);
                self.pieces
                    .dissect(&mut layers, &state.settings, key, packet.bytes, original);
            }
            other => encapsulated::dissect(&mut layers, state, other, packet.bytes, original),
        }
        layers
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_captured;
