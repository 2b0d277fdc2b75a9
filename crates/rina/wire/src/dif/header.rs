//! A decoded header, the part of it that a relay reads, and errors of headers.

use core::fmt;

use super::field::fits;
use super::{Address, CepId, Pci, PduType, QosId, Widths};

/// The decoded PCI of a received PDU, and the lengths of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The header. Sequence numbers are as on the wire: truncated to
    /// [`Syntax::seq_bits`](super::Syntax::seq_bits).
    pub pci: Pci,
    /// How many more relays the PDU may pass, at most 255. Dialects without hop limit have 255.
    pub hop_limit: u8,
    /// Length of the header in bytes. After it come the user data, or the contents of a control or
    /// rendezvous PDU: see [`Syntax::decode_control`](super::Syntax::decode_control).
    pub header_bytes: usize,
    /// Length of the PDU in bytes. Bytes after it are padding by the medium of the N-1 flow.
    pub pdu_bytes: usize,
}

/// The prefix of a PCI that a relay reads. All fields lie at fixed offsets within
/// [`Syntax::base_bytes`](super::Syntax::base_bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayHeader {
    /// Type of the PDU: data, management, control or rendezvous.
    pub kind: PduType,
    /// Address of the member to which the PDU is sent; 0 for the neighbour.
    pub dst: Address,
    /// Address of the member that sent the PDU.
    pub src: Address,
    /// QoS-id of the connection's QoS cube.
    pub qos: QosId,
    /// CEP-id of the connection at the destination.
    pub dst_cep: CepId,
    /// CEP-id of the connection at the source.
    pub src_cep: CepId,
    /// How many more relays the PDU may pass, at most 255. Dialects without hop limit have 255.
    pub hop_limit: u8,
    /// Whether an earlier relay marked congestion (ECN).
    pub ecn: bool,
    /// Length of the PDU in bytes including the header, as the header states it. Not yet compared
    /// with the number of received bytes.
    pub pdu_bytes: usize,
}

impl RelayHeader {
    /// Combines the relay header with the other fields. Only data PDUs have a sequence number.
    pub(super) fn decoded(&self, drf: bool, seq: u64, header_bytes: usize) -> Decoded {
        Decoded {
            pci: Pci {
                kind: self.kind,
                dst: self.dst,
                src: self.src,
                qos: self.qos,
                dst_cep: self.dst_cep,
                src_cep: self.src_cep,
                drf,
                ecn: self.ecn,
                seq: if self.kind == PduType::Data { seq } else { 0 },
            },
            hop_limit: self.hop_limit,
            header_bytes,
            pdu_bytes: self.pdu_bytes,
        }
    }
}

/// Why bytes are not a valid PDU of this DIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PciError {
    /// The bytes end before the header does.
    Short,
    /// The version is unknown.
    Version,
    /// The PDU type is unknown.
    Type,
    /// The PDU type is defined in this dialect, but no implementation sends it.
    ReservedType(&'static str),
    /// Reserved bits are set, or an acknowledgement is too short for its announced contents.
    Reserved,
    /// A CEP-id or QoS-id is too large to be in use.
    Range,
    /// The length is smaller than the header or larger than the received bytes, or a control PDU
    /// has user data.
    Length,
    /// A configured field width is invalid: see [`Syntax::check`](super::Syntax::check).
    Widths,
}

/// Why a header cannot be encoded: a value does not fit the DIF's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FieldError {
    /// An address is too large.
    Address,
    /// A CEP-id is too large.
    Cep,
    /// A QoS-id is too large.
    Qos,
    /// The length of the PDU is too large.
    Length,
    /// A rate is too large.
    Rate,
    /// The time frame of a rate is too large.
    Frame,
    /// The control part is missing, or present although the PDU type has none. Or a control PDU has
    /// user data, or a management or control PDU has a sequence number in its [`Pci`].
    Kind,
    /// A configured field width is invalid: see [`Syntax::check`](super::Syntax::check).
    Widths,
}

impl PciError {
    /// Returns the name under which counters show this error.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PciError::Short => "short",
            PciError::Version => "version",
            PciError::Type => "type",
            PciError::ReservedType(_) => "reserved-type",
            PciError::Reserved => "reserved",
            PciError::Range => "range",
            PciError::Length => "length",
            PciError::Widths => "widths",
        }
    }
}

impl fmt::Display for PciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PciError::ReservedType(name) => {
                return write!(f, "PDUs of the reserved type {name} are not supported");
            }
            PciError::Range => "a CEP-id or QoS-id is larger than any in use",
            PciError::Short => "the PDU ends within its header",
            PciError::Version => "the version of the PCI is unknown",
            PciError::Type => "the PDU type is unknown",
            PciError::Reserved => "reserved bits are set",
            PciError::Length => "the PDU length does not fit the PDU",
            PciError::Widths => "the field widths are impossible",
        })
    }
}

impl core::error::Error for PciError {}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FieldError::Address => "the address does not fit its field",
            FieldError::Cep => "the CEP-id does not fit its field",
            FieldError::Qos => "the QoS-id does not fit its field",
            FieldError::Length => "the PDU is too long for its length field",
            FieldError::Rate => "the rate does not fit its field",
            FieldError::Frame => "the time frame does not fit its field",
            FieldError::Kind => "the PDU type does not go with what is in the PDU",
            FieldError::Widths => "the field widths are impossible",
        })
    }
}

impl core::error::Error for FieldError {}

/// Checks that addresses, CEP-ids and the QoS-id fit the widths.
#[inline(always)]
pub(super) fn check_fields(w: Widths, pci: &Pci) -> Result<(), FieldError> {
    if !fits(pci.dst.0 | pci.src.0, w.address) {
        return Err(FieldError::Address);
    }
    if !fits(u64::from(pci.dst_cep.0 | pci.src_cep.0), w.cep) {
        return Err(FieldError::Cep);
    }
    if !fits(u64::from(pci.qos.0), w.qos) {
        return Err(FieldError::Qos);
    }
    Ok(())
}
