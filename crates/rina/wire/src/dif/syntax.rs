//! Encodes and decodes PCI in the layout of one DIF.

use super::header::{Decoded, FieldError, PciError, RelayHeader};
use super::{Control, Dialect, PCI_BYTES_MAX, Pci, PduType, Syntax, Widths, irati, native, rlite};

impl Syntax {
    /// Checks that the dialect supports the widths.
    ///
    /// # Errors
    /// A text that names the field with an unsupported width.
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

    /// Number of bytes at the start of every PDU that [`Syntax::peek`] needs.
    #[must_use]
    pub fn base_bytes(&self) -> usize {
        match self.dialect {
            Dialect::Native => native::base_bytes(self.widths),
            Dialect::Rlite => rlite::base_bytes(self.widths),
            Dialect::Irati => irati::base_bytes(self.widths),
        }
    }

    /// Length of the header of a PDU of this type, in bytes. It is exact for data and management
    /// PDUs, and an upper limit for control and rendezvous PDUs. At most [`PCI_BYTES_MAX`].
    #[must_use]
    pub fn pci_bytes(&self, kind: PduType) -> usize {
        match self.dialect {
            Dialect::Native => native::pci_bytes(self.widths, kind),
            Dialect::Rlite => rlite::pci_bytes(self.widths, kind),
            Dialect::Irati => irati::pci_bytes(self.widths, kind),
        }
    }

    /// Width in bits of data sequence numbers on the wire. The encoder truncates to it. The
    /// receiver's EFCP extends decoded numbers to the closest number to the one it expects.
    #[must_use]
    pub fn seq_bits(&self) -> u32 {
        8 * u32::from(self.widths.seq)
    }

    /// Width in bits of control sequence numbers on the wire, which are truncated and extended like
    /// data sequence numbers.
    #[must_use]
    pub fn ctrl_seq_bits(&self) -> u32 {
        8 * u32::from(self.widths.ctrl_seq)
    }

    /// Returns the length of the longest PDU that the length field can express, in bytes.
    #[must_use]
    pub fn pdu_bytes_max(&self) -> usize {
        match self.widths.length {
            1 => usize::from(u8::MAX),
            2 => usize::from(u16::MAX),
            _ => u32::MAX as usize,
        }
    }

    /// Writes the header of a PDU with `payload_len` bytes of user data, and returns the header's
    /// length. Control and rendezvous PDUs need `control` and have no user data.
    ///
    /// # Errors
    /// Which value does not fit its field. Sequence numbers always fit, because they are truncated.
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

    /// Decodes the header of a PDU. `present` is the number of received bytes. `prefix` must
    /// contain at least the first [`Syntax::pci_bytes`] of them, or all if there are fewer.
    ///
    /// # Errors
    /// Why the PDU must be discarded.
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

    /// Decodes the contents of a control or rendezvous PDU. `header` is what [`Syntax::decode`]
    /// returned for `prefix`, which must contain the whole PDU.
    ///
    /// # Errors
    /// Why the PDU must be discarded.
    pub fn decode_control(&self, prefix: &[u8], header: &Decoded) -> Result<Control, PciError> {
        match self.dialect {
            Dialect::Native => native::decode_control(self.widths, prefix, header),
            Dialect::Rlite => rlite::decode_control(self.widths, prefix, header),
            Dialect::Irati => irati::decode_control(self.widths, prefix, header),
        }
    }

    /// Reads the fields that a relay needs from the first [`Syntax::base_bytes`] of a PDU. Checks
    /// only that these bytes are present, and that version and type are known.
    ///
    /// # Errors
    /// Why the PDU must be discarded.
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

    /// Number of bytes at the start of a PDU that [`Syntax::mark`] changes. To relay a PDU, remove
    /// these bytes, change them, and put them in front again.
    #[must_use]
    pub fn mark_bytes(&self) -> usize {
        match self.dialect {
            Dialect::Native => native::MARK_BYTES,
            Dialect::Rlite => rlite::MARK_BYTES,
            Dialect::Irati => irati::mark_bytes(self.widths),
        }
    }

    /// Rewrites the hop limit, if the dialect has one, in the first [`Syntax::mark_bytes`] of a
    /// PDU. Sets the ECN flag if `ecn` is true, and never clears it. Updates the checksum of the
    /// PDU, if it has one. Does nothing if `prefix` is shorter.
    #[inline]
    pub fn mark(&self, prefix: &mut [u8], hop_limit: u8, ecn: bool) {
        match self.dialect {
            Dialect::Native => native::mark(prefix, hop_limit, ecn),
            Dialect::Rlite => rlite::mark(prefix, hop_limit, ecn),
            Dialect::Irati => irati::mark(self.widths, prefix, ecn),
        }
    }

    /// Whether the PCI has a field for a checksum. The DIF decides whether to use it: see
    /// [`Syntax::write_checksum`] and [`Syntax::has_valid_checksum`].
    #[must_use]
    pub fn has_checksum(&self) -> bool {
        self.dialect == Dialect::Rlite
    }

    /// Writes the checksum (RFC 1071) of a whole PDU into its PCI. Does nothing in a dialect
    /// without checksum.
    pub fn write_checksum(&self, pdu: &mut [u8]) {
        if self.has_checksum() {
            rlite::write_checksum(pdu);
        }
    }

    /// Whether the PCI of `pdu` has the right checksum. `pdu` must be the whole PDU; the caller
    /// removes padding of the N-1 DIF first. Returns false in a dialect without checksums.
    #[must_use]
    pub fn has_valid_checksum(&self, pdu: &[u8]) -> bool {
        self.has_checksum() && rlite::has_valid_checksum(pdu)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Address, CepId, QosId};
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
    fn a_data_pdu_has_19_bytes_of_pci_and_a_short_sequence_number() {
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
