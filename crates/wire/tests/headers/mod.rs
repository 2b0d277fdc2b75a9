//! PCI as the tests read it.

use carina_wire::dif::{Control, Decoded, PciError, PduType, Syntax};

/// Header and control part.
pub fn decode(
    syntax: Syntax,
    prefix: &[u8],
    present: usize,
) -> Result<(Decoded, Option<Control>), PciError> {
    let header = syntax.decode(prefix, present)?;
    let control = match header.pci.kind {
        PduType::Control | PduType::Rendezvous => Some(syntax.decode_control(prefix, &header)?),
        PduType::Data | PduType::Management => None,
    };
    Ok((header, control))
}
