//! Helpers of the tests to encode and decode PCI.
#![allow(dead_code, reason = "each test needs a part of it")]

use carina_wire::dif::{Control, Decoded, PCI_BYTES_MAX, PciError, PduType, Syntax};

/// Decodes header and control part.
pub(crate) fn decode(
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

/// Parses hexadecimal digits; spaces are skipped.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex"))
        .collect()
}

/// Encodes what was decoded.
pub(crate) fn encode(syntax: Syntax, header: &Decoded, control: Option<&Control>) -> Vec<u8> {
    let user = match control {
        Some(_) => 0,
        None => header.pdu_bytes - header.header_bytes,
    };
    let mut out = [0; PCI_BYTES_MAX];
    let hop_limit = header.hop_limit;
    let length = syntax
        .encode(&header.pci, control, user, hop_limit, &mut out)
        .expect("what was decoded fits");
    assert!(length <= syntax.pci_bytes(header.pci.kind));
    out[..length].to_vec()
}

/// Decodes a PDU that another stack sent, and checks that Carina encodes it to the same bytes.
pub(crate) fn replay(syntax: Syntax, hex: &str) -> (Decoded, Option<Control>) {
    let mut pdu = bytes(hex);
    let sent = pdu.len();
    // Ethernet pads short frames.
    pdu.resize(pdu.len().max(600), 0);
    let (header, control) = decode(syntax, &pdu, pdu.len()).expect(hex);
    let again = encode(syntax, &header, control.as_ref());
    assert_eq!(again, pdu[..again.len()], "{hex}");
    assert!(again.len() <= sent, "{hex}");
    let route = syntax.peek(&pdu[..syntax.base_bytes()]).expect(hex);
    assert_eq!((route.dst, route.src), (header.pci.dst, header.pci.src));
    assert_eq!(route.pdu_bytes, header.pdu_bytes);
    (header, control)
}
