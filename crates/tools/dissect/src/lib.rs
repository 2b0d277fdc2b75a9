//! Captured packets in words.
//!
//! `carina_wire::capture` reads a capture file, [`Dissector`] takes its packets apart from the
//! outside in: a frame holds ARP or a PDU, a VMPI record a control message or a piece of an SDU, a
//! PDU delimited SDUs, an SDU perhaps a CDAP message. Each becomes a [`Layer`], as text or as JSON.
//! Field widths of the DIF are not in its PDUs; they come from the description of the interface in
//! the capture file: [`Settings`].
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

/// Takes packets apart, in the order in which they were captured.
pub struct Dissector {
    /// Settings of interfaces without a description.
    fallback: Settings,
    interfaces: Vec<(LinkType, State)>,
    /// For packets of interfaces that were not announced.
    unknown: State,
    pieces: vmpi::Pieces,
}

impl Dissector {
    /// A dissector with the settings of interfaces without a description.
    pub fn new(fallback: Settings) -> Dissector {
        Dissector {
            fallback,
            unknown: State::new(fallback),
            interfaces: Vec::new(),
            pieces: vmpi::Pieces::default(),
        }
    }

    /// Begins a section, whose interfaces are numbered from 0 again.
    pub fn begin_section(&mut self) {
        self.interfaces.clear();
        self.pieces = vmpi::Pieces::default();
    }

    /// Adds the next interface of the section.
    ///
    /// # Errors
    /// Its description is one of Carina's and has an impossible value.
    pub fn add_interface(&mut self, interface: &Interface) -> Result<(), SettingsError> {
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
