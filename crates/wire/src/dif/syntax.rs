//! Encoding and decoding of PCI in the layout of one DIF.

use super::field::fits;
use super::{
    Address, CepId, Control, Dialect, PCI_BYTES_MAX, Pci, PduType, QosId, Syntax, Widths, irati,
    native, rlite,
};
use core::fmt;

/// PCI of a PDU that came, with what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The header. Sequence numbers are as on the wire: truncated to [`Syntax::seq_bits`].
    pub pci: Pci,
    /// Relays that the PDU may still pass; 255 also for more, and where the dialect has no limit.
    pub hop_limit: u8,
    /// Length of the header in bytes. The user data begin here, or what a control or rendezvous
    /// PDU says: [`Syntax::decode_control`].
    pub header_bytes: usize,
    /// Length of the PDU in bytes; what comes after is padding of the N-1 flow's medium.
    pub pdu_bytes: usize,
}

/// What a relay needs of a PDU: all of it lies at fixed places within [`Syntax::base_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayHeader {
    /// What it is.
    pub kind: PduType,
    /// Where it goes.
    pub dst: Address,
    /// Where it comes from.
    pub src: Address,
    /// QoS cube of the connection.
    pub qos: QosId,
    /// CEP-id at the destination.
    pub dst_cep: CepId,
    /// CEP-id at the source.
    pub src_cep: CepId,
    /// Relays that the PDU may still pass; 255 also for more, and where the dialect has no limit.
    pub hop_limit: u8,
    /// A relay before met congestion.
    pub ecn: bool,
    /// Length of the PDU in bytes, header included, as the header says; not yet compared with what
    /// came.
    pub pdu_bytes: usize,
}

impl RelayHeader {
    /// With what the rest of the header says. Only data PDUs have a sequence number.
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

/// Why bytes are no PDU of this DIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PciError {
    /// They end before the header does.
    Short,
    /// The version is unknown.
    Version,
    /// The PDU type is unknown.
    Type,
    /// The PDU type has a name in this dialect, but no implementation sends it.
    ReservedType(&'static str),
    /// Reserved bits are set, or an acknowledgement has no place for what it announces.
    Reserved,
    /// A CEP-id or a QoS-id is larger than any that can be in use.
    Range,
    /// The length is smaller than the header, larger than what came, or a control PDU has user
    /// data.
    Length,
    /// The DIF's widths are none: see [`Syntax::check`].
    Widths,
}

/// Why a header cannot be written: the value does not fit the DIF's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FieldError {
    /// An address.
    Address,
    /// A CEP-id.
    Cep,
    /// A QoS-id.
    Qos,
    /// The length of the PDU.
    Length,
    /// A rate.
    Rate,
    /// A time frame of a rate.
    Frame,
    /// A control part is missing or is there although the PDU type has none, a control PDU has
    /// user data, or a management or control PDU has a sequence number in its [`Pci`].
    Kind,
    /// The DIF's widths are none: see [`Syntax::check`].
    Widths,
}

impl Syntax {
    /// Checks the widths.
    ///
    /// # Errors
    /// The field whose width is not possible, in words.
    pub fn check(&self) -> Result<(), &'static str> {
        match self.dialect {
            Dialect::Native => {}
            Dialect::Rlite => return rlite::check(self.widths),
            Dialect::Irati => return irati::check(self.widths),
        }
        let Widths {
            address,
            cep,
            qos,
            seq,
            ctrl_seq,
            length,
            rate,
            frame,
        } = self.widths;
        let rules = [
            (
                matches!(address, 1 | 2 | 4 | 8),
                "addresses have 1, 2, 4 or 8 bytes",
            ),
            (matches!(cep, 1 | 2 | 4), "CEP-ids have 1, 2 or 4 bytes"),
            (matches!(qos, 1 | 2), "QoS-ids have 1 or 2 bytes"),
            (
                matches!(seq, 2 | 4 | 8),
                "sequence numbers have 2, 4 or 8 bytes",
            ),
            (
                matches!(ctrl_seq, 2 | 4 | 8),
                "control sequence numbers have 2, 4 or 8 bytes",
            ),
            (matches!(length, 2 | 4), "PDU lengths have 2 or 4 bytes"),
            (matches!(rate, 1 | 2 | 4), "rates have 1, 2 or 4 bytes"),
            (
                matches!(frame, 1 | 2 | 4),
                "time frames of rates have 1, 2 or 4 bytes",
            ),
        ];
        match rules.iter().find(|(is_met, _)| !is_met) {
            None => Ok(()),
            Some((_, words)) => Err(words),
        }
    }

    /// Bytes at the front of every PDU that [`Syntax::peek`] needs.
    #[must_use]
    pub fn base_bytes(&self) -> usize {
        match self.dialect {
            Dialect::Native => native::base_bytes(self.widths),
            Dialect::Rlite => rlite::base_bytes(self.widths),
            Dialect::Irati => irati::base_bytes(self.widths),
        }
    }

    /// Length of the header of a PDU of this type in bytes: exact for data and management, the
    /// most that it can be for control and rendezvous. At most [`PCI_BYTES_MAX`].
    #[must_use]
    pub fn pci_bytes(&self, kind: PduType) -> usize {
        match self.dialect {
            Dialect::Native => native::pci_bytes(self.widths, kind),
            Dialect::Rlite => rlite::pci_bytes(self.widths, kind),
            Dialect::Irati => irati::pci_bytes(self.widths, kind),
        }
    }

    /// Bits of a data sequence number on the wire. An encoder truncates to them; the receiver's
    /// EFCP extends what it decodes by serial arithmetic around what it expects.
    #[must_use]
    pub fn seq_bits(&self) -> u32 {
        8 * u32::from(self.widths.seq)
    }

    /// Bits of a control sequence number on the wire; truncated and extended likewise.
    #[must_use]
    pub fn ctrl_seq_bits(&self) -> u32 {
        8 * u32::from(self.widths.ctrl_seq)
    }

    /// The longest PDU that the length field can express, in bytes.
    #[must_use]
    pub fn pdu_bytes_max(&self) -> usize {
        match self.widths.length {
            1 => usize::from(u8::MAX),
            2 => usize::from(u16::MAX),
            _ => u32::MAX as usize,
        }
    }

    /// Writes the header of a PDU with `payload_len` bytes of user data; returns its length.
    /// Control and rendezvous PDUs need a `control` part and have no user data.
    ///
    /// # Errors
    /// The value that does not fit its field. Sequence numbers always fit: they are truncated.
    #[inline]
    pub fn encode(
        &self,
        pci: &Pci,
        control: Option<&Control>,
        payload_len: usize,
        hop_limit: u8,
        out: &mut [u8; PCI_BYTES_MAX],
    ) -> Result<usize, FieldError> {
        match self.dialect {
            Dialect::Native if self.widths == Widths::DEFAULT => {
                native::encode(Widths::DEFAULT, pci, control, payload_len, hop_limit, out)
            }
            Dialect::Native => {
                native::encode(self.widths, pci, control, payload_len, hop_limit, out)
            }
            Dialect::Rlite => rlite::encode(self.widths, pci, control, payload_len, hop_limit, out),
            Dialect::Irati => irati::encode(self.widths, pci, control, payload_len, out),
        }
    }

    /// Reads the header of a PDU of which `present` bytes came and at least the first
    /// [`Syntax::pci_bytes`] (or all, when there are fewer) are in `prefix`.
    ///
    /// # Errors
    /// Why it is to be discarded.
    #[inline]
    pub fn decode(&self, prefix: &[u8], present: usize) -> Result<Decoded, PciError> {
        match self.dialect {
            Dialect::Native if self.widths == Widths::DEFAULT => {
                native::decode(Widths::DEFAULT, prefix, present)
            }
            Dialect::Native => native::decode(self.widths, prefix, present),
            Dialect::Rlite => rlite::decode(self.widths, prefix, present),
            Dialect::Irati => irati::decode(self.widths, prefix, present),
        }
    }

    /// Reads what a control or rendezvous PDU says. `prefix` is what [`Syntax::decode`] read the
    /// `header` from, and has the whole PDU.
    ///
    /// # Errors
    /// Why it is to be discarded.
    pub fn decode_control(&self, prefix: &[u8], header: &Decoded) -> Result<Control, PciError> {
        match self.dialect {
            Dialect::Native => native::decode_control(self.widths, prefix, header),
            Dialect::Rlite => rlite::decode_control(self.widths, prefix, header),
            Dialect::Irati => irati::decode_control(self.widths, prefix, header),
        }
    }

    /// Reads what a relay needs from the first [`Syntax::base_bytes`] of a PDU. Nothing is checked
    /// but that they are there and that version and type are known.
    ///
    /// # Errors
    /// Why it is to be discarded.
    #[inline]
    pub fn peek(&self, prefix: &[u8]) -> Result<RelayHeader, PciError> {
        match self.dialect {
            Dialect::Native if self.widths == Widths::DEFAULT => {
                native::peek(Widths::DEFAULT, prefix)
            }
            Dialect::Native => native::peek(self.widths, prefix),
            Dialect::Rlite => rlite::peek(self.widths, prefix),
            Dialect::Irati => irati::peek(self.widths, prefix),
        }
    }

    /// Bytes at the front of a PDU that [`Syntax::mark`] changes: to relay a PDU, take them off
    /// its front and put the changed ones back.
    #[must_use]
    pub fn mark_bytes(&self) -> usize {
        match self.dialect {
            Dialect::Native => native::MARK_BYTES,
            Dialect::Rlite => rlite::MARK_BYTES,
            Dialect::Irati => irati::mark_bytes(self.widths),
        }
    }

    /// Rewrites the hop limit (where the dialect has one) in the first [`Syntax::mark_bytes`] of a
    /// PDU, and sets the ECN flag when `ecn` (it is never taken away). A checksum that the PDU has
    /// is changed with them. Fewer bytes stay as they are.
    #[inline]
    pub fn mark(&self, prefix: &mut [u8], hop_limit: u8, ecn: bool) {
        match self.dialect {
            Dialect::Native => native::mark(prefix, hop_limit, ecn),
            Dialect::Rlite => rlite::mark(prefix, hop_limit, ecn),
            Dialect::Irati => irati::mark(self.widths, prefix, ecn),
        }
    }

    /// The PCI has a place for a checksum of the PDU. Its use is a matter of the DIF:
    /// [`Syntax::write_checksum`], [`Syntax::has_valid_checksum`].
    #[must_use]
    pub fn has_checksum(&self) -> bool {
        self.dialect == Dialect::Rlite
    }

    /// Writes the checksum (RFC 1071) of a whole PDU into its PCI. Without effect in a dialect
    /// that has none.
    pub fn write_checksum(&self, pdu: &mut [u8]) {
        if self.has_checksum() {
            rlite::write_checksum(pdu);
        }
    }

    /// True when a whole PDU, without padding, has the right checksum in its PCI.
    #[must_use]
    pub fn has_valid_checksum(&self, pdu: &[u8]) -> bool {
        self.has_checksum() && rlite::has_valid_checksum(pdu)
    }
}

impl PciError {
    /// A word for counters.
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
                return write!(f, "PDUs of the reserved type {name} are not understood");
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

/// Checks that addresses, CEP-ids and QoS-id fit the widths.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Pci {
        Pci {
            kind: PduType::Data,
            dst: Address(0x0102),
            src: Address(0x0304),
            qos: QosId(3),
            dst_cep: CepId(0x0506),
            src_cep: CepId(0x0708),
            drf: true,
            ecn: false,
            seq: 0x1_0000_000a,
        }
    }

    #[test]
    fn a_data_pdu_has_19_bytes_of_pci_and_a_truncated_sequence_number() {
        let syntax = Syntax::default();
        let mut out = [0; PCI_BYTES_MAX];
        let bytes = syntax.encode(&data(), None, 100, 64, &mut out).unwrap();
        assert_eq!(
            out[..bytes],
            [
                1, 0x80, 0x80, 64, 3, 0, 119, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 10
            ]
        );
        let decoded = syntax.decode(&out[..bytes], 119).unwrap();
        let seq = data().seq & 0xffff_ffff;
        assert_eq!(decoded.pci, Pci { seq, ..data() });
        assert_eq!((decoded.header_bytes, decoded.pdu_bytes), (19, 119));
        assert_eq!(syntax.decode(&out[..bytes], 118), Err(PciError::Length));
        assert_eq!(syntax.decode(&out[..18], 119), Err(PciError::Short));
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused() {
        let syntax = Syntax::default();
        let mut out = [0; PCI_BYTES_MAX];
        let mut refuse = |pci: &Pci, payload| syntax.encode(pci, None, payload, 1, &mut out);
        let mut pci = data();
        pci.dst = Address(70_000);
        assert_eq!(refuse(&pci, 0), Err(FieldError::Address));
        pci = data();
        pci.src_cep = CepId(65_536);
        assert_eq!(refuse(&pci, 0), Err(FieldError::Cep));
        pci = data();
        pci.qos = QosId(256);
        assert_eq!(refuse(&pci, 0), Err(FieldError::Qos));
        assert_eq!(refuse(&data(), 65_517), Err(FieldError::Length));
        assert_eq!(refuse(&data(), 65_516), Ok(19));
        pci = data();
        pci.kind = PduType::Control;
        assert_eq!(refuse(&pci, 0), Err(FieldError::Kind));
    }

    #[test]
    fn a_relay_changes_hop_limit_and_ecn_in_place() {
        let syntax = Syntax::default();
        let mut out = [0; PCI_BYTES_MAX];
        let bytes = syntax.encode(&data(), None, 0, 64, &mut out).unwrap();
        syntax.mark(&mut out[..syntax.mark_bytes()], 63, true);
        syntax.mark(&mut out[..syntax.mark_bytes()], 62, false);
        let route = syntax.peek(&out[..syntax.base_bytes()]).unwrap();
        assert_eq!((route.hop_limit, route.ecn), (62, true));
        assert_eq!((route.dst, route.src), (data().dst, data().src));
        assert!(syntax.decode(&out[..bytes], bytes).unwrap().pci.ecn);
    }
}
