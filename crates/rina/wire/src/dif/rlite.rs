//! PCI in the layout of rlite, little-endian. `docs/explanation/pci.md` explains it with captured
//! examples.
//!
//! ```text
//! every PDU    version 1 | type 1 | flags 2 | checksum 2 | TTL 2 | sequence number
//!              | destination address | source address | destination CEP-id | source CEP-id
//!              | length | QoS-id
//! control      | last control sequence number | acknowledged | right edge | left edge
//!              | my left edge | my right edge
//! ```
//!
//! Numbers give widths in bytes. Fields without a number have the width that the DIF configures;
//! fields of control PDUs are as wide as sequence numbers. *Acknowledged* is the next expected
//! number. Right edges are the last number that may be sent. In a control PDU, the field *sequence
//! number* contains the control sequence number.

use super::checksum;
use super::field::{Reader, Writer, cut, fits};
use super::header::{Decoded, FieldError, PciError, RelayHeader, check_fields};
use super::{
    Ack, Address, CepId, Control, PCI_BYTES_MAX, Pci, PduType, QosId, Sack, Widths, Window,
};

/// The version that this encoder writes. The decoder accepts any, like rlite.
const VERSION: u8 = 0;

const TYPE_MANAGEMENT: u8 = 0x40;
const TYPE_DATA: u8 = 0x80;
/// Bits in the type of control PDUs.
const CONTROL: u8 = 0xc0;
const HAS_ACK: u8 = 0x04;
const HAS_WINDOW: u8 = 0x08;
/// Mask of the kind of acknowledgement. Only the positive kind is in use.
const ACK_KIND: u8 = 0x03;

/// Flag: a relay marked congestion.
const FLAG_ECN: u8 = 0x01;
/// Data run flag: the first PDU of a run.
const FLAG_DRF: u8 = 0x80;

const FLAGS_AT: usize = 2;
const CHECKSUM_AT: usize = 4;
const TTL_AT: usize = 6;

/// Bytes from the start of the PDU up to and including the TTL.
pub(super) const MARK_BYTES: usize = 8;

/// Number of fields in a control PDU after the base.
const CONTROL_FIELDS: usize = 6;

pub(super) const fn base_bytes(w: Widths) -> usize {
    MARK_BYTES
        + w.seq as usize
        + 2 * w.address as usize
        + 2 * w.cep as usize
        + w.length as usize
        + w.qos as usize
}

pub(super) const fn pci_bytes(w: Widths, kind: PduType) -> usize {
    match kind {
        PduType::Data | PduType::Management => base_bytes(w),
        PduType::Control | PduType::Rendezvous => base_bytes(w) + CONTROL_FIELDS * w.seq as usize,
    }
}

pub(super) fn check(w: Widths) -> Result<(), &'static str> {
    let flavour = |width| matches!(width, 1 | 2 | 4 | 8);
    if ![w.address, w.cep, w.qos, w.seq, w.length]
        .into_iter()
        .all(flavour)
    {
        return Err(
            "in an rlite DIF addresses, CEP-ids, QoS-ids, sequence numbers and lengths have 1, 2, \
             4 or 8 bytes",
        );
    }
    if w.ctrl_seq != w.seq {
        return Err("in an rlite DIF control sequence numbers are as wide as sequence numbers");
    }
    Ok(())
}

pub(super) fn encode(
    w: Widths,
    pci: &Pci,
    control: Option<&Control>,
    payload_len: usize,
    hop_limit: u8,
    out: &mut [u8; PCI_BYTES_MAX],
) -> Result<usize, FieldError> {
    check_fields(w, pci)?;
    let (kind, seq) = match (pci.kind, control) {
        (PduType::Data, None) => (TYPE_DATA, pci.seq),
        (PduType::Management, None) if pci.seq == 0 => (TYPE_MANAGEMENT, 0),
        (PduType::Control, Some(control)) if payload_len == 0 && pci.seq == 0 => {
            (type_of(control)?, control.seq)
        }
        // rlite has no rendezvous PDU.
        _ => return Err(FieldError::Kind),
    };
    let header = pci_bytes(w, pci.kind);
    let length = header
        .checked_add(payload_len)
        .filter(|length| fits(*length as u64, w.length))
        .ok_or(FieldError::Length)?;
    let mut to = Writer::new(out);
    let mut write = || {
        put_base(w, &mut to, pci, (kind, seq), length, hop_limit)?;
        match control {
            Some(control) => put_control(w, &mut to, control),
            None => Some(()),
        }
    };
    write().ok_or(FieldError::Widths)?;
    Ok(header)
}

fn type_of(control: &Control) -> Result<u8, FieldError> {
    let mut kind = CONTROL;
    if let Some(ack) = &control.ack {
        if !ack.sack.as_slice().is_empty() {
            return Err(FieldError::Kind);
        }
        kind |= HAS_ACK;
    }
    if let Some(window) = &control.window {
        if window.rate != 0 {
            return Err(FieldError::Rate);
        }
        kind |= HAS_WINDOW;
    }
    Ok(kind)
}

fn put_base(
    w: Widths,
    to: &mut Writer<'_>,
    pci: &Pci,
    (kind, seq): (u8, u64),
    length: usize,
    hop_limit: u8,
) -> Option<()> {
    let flags = if pci.drf { FLAG_DRF } else { 0 } | if pci.ecn { FLAG_ECN } else { 0 };
    to.put_le(1, u64::from(VERSION))?;
    to.put_le(1, u64::from(kind))?;
    to.put_le(2, u64::from(flags))?;
    // The checksum covers the whole PDU, so it is written later, when the PDU is complete.
    to.put_le(2, 0)?;
    to.put_le(2, u64::from(hop_limit))?;
    to.put_le(w.seq, seq)?;
    to.put_le(w.address, pci.dst.0)?;
    to.put_le(w.address, pci.src.0)?;
    to.put_le(w.cep, u64::from(pci.dst_cep.0))?;
    to.put_le(w.cep, u64::from(pci.src_cep.0))?;
    to.put_le(w.length, length as u64)?;
    to.put_le(w.qos, u64::from(pci.qos.0))
}

fn put_control(w: Widths, to: &mut Writer<'_>, control: &Control) -> Option<()> {
    let window = control.window.unwrap_or(Window {
        right: 1,
        my_right: 1,
        ..Window::default()
    });
    let fields = [
        control.last_seq,
        control.ack.map_or(0, |ack| ack.next),
        window.right.wrapping_sub(1),
        window.left,
        window.my_left,
        window.my_right.wrapping_sub(1),
    ];
    fields
        .into_iter()
        .try_for_each(|field| to.put_le(w.seq, field))
}

fn kind_of(kind: u8) -> Result<PduType, PciError> {
    match kind {
        TYPE_DATA => Ok(PduType::Data),
        TYPE_MANAGEMENT => Ok(PduType::Management),
        _ if kind & !(HAS_ACK | HAS_WINDOW | ACK_KIND) != CONTROL => Err(PciError::Type),
        _ => match (kind & HAS_ACK != 0, kind & ACK_KIND) {
            (_, 0) => Ok(PduType::Control),
            (true, 1) => Err(PciError::ReservedType("nack")),
            (true, 2) => Err(PciError::ReservedType("sack")),
            (true, _) => Err(PciError::ReservedType("snack")),
            (false, _) => Err(PciError::Type),
        },
    }
}

/// Reads the fields that every PDU has. The second value is the sequence number or control sequence
/// number.
fn read(w: Widths, prefix: &[u8]) -> Result<(RelayHeader, u64), PciError> {
    let base = prefix.get(..base_bytes(w)).ok_or(PciError::Short)?;
    let (&[_, kind, flags, _, _, _, ttl_low, ttl_high], rest) =
        base.split_first_chunk().ok_or(PciError::Short)?;
    let kind = kind_of(kind)?;
    let mut from = Reader::new(rest);
    let mut take = |width| from.take_le(width).ok_or(PciError::Widths);
    let seq = take(w.seq)?;
    let (dst, src) = (Address(take(w.address)?), Address(take(w.address)?));
    let narrow = |value| u32::try_from(value).map_err(|_| PciError::Range);
    let (dst_cep, src_cep) = (CepId(narrow(take(w.cep)?)?), CepId(narrow(take(w.cep)?)?));
    let pdu_bytes = usize::try_from(take(w.length)?).map_err(|_| PciError::Length)?;
    let qos = QosId(u16::try_from(take(w.qos)?).map_err(|_| PciError::Range)?);
    let ttl = u16::from_le_bytes([ttl_low, ttl_high]);
    let route = RelayHeader {
        kind,
        dst,
        src,
        qos,
        dst_cep,
        src_cep,
        hop_limit: u8::try_from(ttl).unwrap_or(u8::MAX),
        ecn: flags & FLAG_ECN != 0,
        pdu_bytes,
    };
    Ok((route, seq))
}

pub(super) fn peek(w: Widths, prefix: &[u8]) -> Result<RelayHeader, PciError> {
    read(w, prefix).map(|(route, _)| route)
}

pub(super) fn decode(w: Widths, prefix: &[u8], present: usize) -> Result<Decoded, PciError> {
    let (route, seq) = read(w, prefix)?;
    let header_bytes = base_bytes(w);
    if route.pdu_bytes < header_bytes || route.pdu_bytes > present {
        return Err(PciError::Length);
    }
    let drf = prefix[FLAGS_AT] & FLAG_DRF != 0;
    Ok(route.decoded(drf, seq, header_bytes))
}

/// Decodes the part after the header of a control PDU.
pub(super) fn decode_control(
    w: Widths,
    prefix: &[u8],
    header: &Decoded,
) -> Result<Control, PciError> {
    if header.pci.kind != PduType::Control {
        return Err(PciError::Type);
    }
    if header.pdu_bytes != pci_bytes(w, PduType::Control) {
        return Err(PciError::Length);
    }
    let (_, seq) = read(w, prefix)?;
    let kind = prefix[1];
    let mut from = Reader::new(prefix.get(header.header_bytes..).unwrap_or_default());
    let mut take = || from.take_le(w.seq).ok_or(PciError::Short);
    let (last_seq, next) = (take()?, take()?);
    let (right, left, my_left, my_right) = (take()?, take()?, take()?, take()?);
    let after = |last: u64| cut(last.wrapping_add(1), w.seq);
    Ok(Control {
        seq,
        last_seq,
        ack: (kind & HAS_ACK != 0).then(|| Ack {
            next,
            sack: Sack::default(),
            cause: cut(next.wrapping_sub(1), w.seq),
            delay_us: 0,
            ecn_marks: 0,
        }),
        window: (kind & HAS_WINDOW != 0).then(|| Window {
            left,
            right: after(right),
            my_left,
            my_right: after(my_right),
            rate: 0,
            frame: 0,
        }),
    })
}

/// Rewrites the TTL and sets the ECN flag if `ecn` is true. If the PDU has a checksum, updates it,
/// even if this member does not use checksums.
pub(super) fn mark(prefix: &mut [u8], hop_limit: u8, ecn: bool) {
    let Some(prefix) = prefix.get_mut(..MARK_BYTES) else {
        return;
    };
    let before = [word(prefix, FLAGS_AT), word(prefix, TTL_AT)];
    prefix[TTL_AT] = hop_limit;
    prefix[TTL_AT + 1] = 0;
    if ecn {
        prefix[FLAGS_AT] |= FLAG_ECN;
    }
    let mut sum = word(prefix, CHECKSUM_AT);
    if sum != 0 {
        sum = checksum::changed(sum, before[0], word(prefix, FLAGS_AT));
        sum = checksum::changed(sum, before[1], word(prefix, TTL_AT));
        set_checksum(prefix, sum);
    }
}

/// Writes the checksum of a whole PDU into its PCI.
pub(super) fn write_checksum(pdu: &mut [u8]) {
    if pdu.len() < MARK_BYTES {
        return;
    }
    set_checksum(pdu, 0);
    let sum = checksum::of(pdu);
    set_checksum(pdu, sum);
}

/// Whether a whole PDU has the right checksum. A computed checksum of 0 is also accepted as 0,
/// because other implementations may write it so.
pub(super) fn has_valid_checksum(pdu: &[u8]) -> bool {
    pdu.len() >= MARK_BYTES && checksum::is_right(pdu)
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn set_checksum(pdu: &mut [u8], sum: u16) {
    pdu[CHECKSUM_AT..][..2].copy_from_slice(&sum.to_le_bytes());
}
