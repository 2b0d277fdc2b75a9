//! PCI in the layout of IRATI, little-endian. `docs/explanation/pci.md` explains it with captured
//! examples.
//!
//! ```text
//! every PDU    version 1 | destination address | source address | QoS-id
//!              | destination CEP-id | source CEP-id | type 1 | flags 1 | length
//! data,        | sequence number
//! management
//! flow control | control sequence number | right edge | my left edge | my right edge | rate
//!              | frame
//! ack          | control sequence number | acknowledged
//! ack and      | control sequence number | acknowledged | last control sequence number
//! flow control | left edge | right edge | my left edge | my right edge | rate | frame
//! control ack, | control sequence number | last control sequence number
//! rendezvous   | left edge | right edge | my left edge | my right edge | rate | frame
//! ```
//!
//! Numbers give widths in bytes. Fields without a number have the width that the DIF configures;
//! edges are as wide as sequence numbers. *Acknowledged* and the left edge are the last number
//! received. Right edges are the last number that may be sent. My left edge is the first
//! unacknowledged number. In a PDU with flow control only, it is the last number sent, or 0 if none
//! was. There is no hop limit: see [`HOP_LIMIT`].

use super::field::{Reader, Writer, cut, fits};
use super::header::{Decoded, FieldError, PciError, RelayHeader, check_fields};
use super::{
    Ack, Address, CepId, Control, PCI_BYTES_MAX, Pci, PduType, QosId, Sack, Widths, Window,
};

const VERSION: u8 = 1;

const TYPE_MANAGEMENT: u8 = 0x40;
const TYPE_DATA: u8 = 0x80;
const TYPE_CONTROL_ACK: u8 = 0xc0;
const TYPE_ACK: u8 = 0xc1;
const TYPE_WINDOW: u8 = 0xc4;
const TYPE_ACK_WINDOW: u8 = 0xc5;
const TYPE_RENDEZVOUS: u8 = 0xcf;

/// Flag: a relay marked congestion.
const FLAG_ECN: u8 = 0x01;
/// The data run flag. IRATI sets it on every PDU of a connection with DTCP.
const FLAG_DRF: u8 = 0x80;

/// The hop limit of decoded PDUs. It means no limit, because relays do not decrement it.
pub(super) const HOP_LIMIT: u8 = u8::MAX;

/// Offset of the type field; the flags follow it.
const fn type_at(w: Widths) -> usize {
    1 + 2 * w.address as usize + w.qos as usize + 2 * w.cep as usize
}

/// Bytes from the start of the PDU up to and including the flags.
pub(super) const fn mark_bytes(w: Widths) -> usize {
    type_at(w) + 2
}

pub(super) const fn base_bytes(w: Widths) -> usize {
    mark_bytes(w) + w.length as usize
}

pub(super) const fn pci_bytes(w: Widths, kind: PduType) -> usize {
    base_bytes(w)
        + match kind {
            PduType::Data | PduType::Management => w.seq as usize,
            PduType::Control | PduType::Rendezvous => control_bytes(w, TYPE_ACK_WINDOW),
        }
}

/// Length of the part after the base in a control PDU of this type.
const fn control_bytes(w: Widths, kind: u8) -> usize {
    let (number, seq) = (w.ctrl_seq as usize, w.seq as usize);
    let rate = w.rate as usize + w.frame as usize;
    match kind {
        TYPE_ACK => number + seq,
        TYPE_WINDOW => number + 3 * seq + rate,
        TYPE_ACK_WINDOW => 2 * number + 5 * seq + rate,
        _ => 2 * number + 4 * seq + rate,
    }
}

pub(super) fn check(w: Widths) -> Result<(), &'static str> {
    let width = |width| matches!(width, 1 | 2 | 4);
    let all = [
        w.address, w.cep, w.qos, w.seq, w.ctrl_seq, w.length, w.rate, w.frame,
    ];
    if !all.into_iter().all(width) {
        return Err("in an IRATI DIF all fields have 1, 2 or 4 bytes");
    }
    if w.ctrl_seq != w.seq {
        // IRATI uses the width of sequence numbers for the last control sequence number.
        return Err("in an IRATI DIF control sequence numbers are as wide as sequence numbers");
    }
    Ok(())
}

pub(super) fn encode(
    w: Widths,
    pci: &Pci,
    control: Option<&Control>,
    payload_len: usize,
    out: &mut [u8; PCI_BYTES_MAX],
) -> Result<usize, FieldError> {
    check_fields(w, pci)?;
    let kind = match (pci.kind, control) {
        (PduType::Data, None) => TYPE_DATA,
        (PduType::Management, None) if pci.seq == 0 => TYPE_MANAGEMENT,
        (PduType::Control | PduType::Rendezvous, Some(control))
            if payload_len == 0 && pci.seq == 0 =>
        {
            type_of(w, pci.kind, control)?
        }
        _ => return Err(FieldError::Kind),
    };
    let header = match control {
        None => pci_bytes(w, pci.kind),
        Some(_) => base_bytes(w) + control_bytes(w, kind),
    };
    let length = header
        .checked_add(payload_len)
        .filter(|length| fits(*length as u64, w.length))
        .ok_or(FieldError::Length)?;
    let mut to = Writer::new(out);
    let mut write = || {
        put_base(w, &mut to, pci, kind, length)?;
        match control {
            None => to.put_le(w.seq, pci.seq),
            Some(control) => put_control(w, &mut to, kind, control),
        }
    };
    write().ok_or(FieldError::Widths)?;
    Ok(header)
}

fn type_of(w: Widths, kind: PduType, control: &Control) -> Result<u8, FieldError> {
    if let Some(ack) = &control.ack
        && !ack.sack.as_slice().is_empty()
    {
        return Err(FieldError::Kind);
    }
    if let Some(window) = &control.window {
        if !fits(u64::from(window.rate), w.rate) {
            return Err(FieldError::Rate);
        }
        if !fits(u64::from(window.frame), w.frame) {
            return Err(FieldError::Frame);
        }
    }
    match (kind, &control.ack, &control.window) {
        (PduType::Rendezvous, None, Some(_)) => Ok(TYPE_RENDEZVOUS),
        (PduType::Control, Some(_), None) => Ok(TYPE_ACK),
        (PduType::Control, None, Some(_)) => Ok(TYPE_WINDOW),
        (PduType::Control, Some(_), Some(_)) => Ok(TYPE_ACK_WINDOW),
        _ => Err(FieldError::Kind),
    }
}

fn put_base(w: Widths, to: &mut Writer<'_>, pci: &Pci, kind: u8, length: usize) -> Option<()> {
    let flags = if pci.drf { FLAG_DRF } else { 0 } | if pci.ecn { FLAG_ECN } else { 0 };
    to.put_le(1, u64::from(VERSION))?;
    to.put_le(w.address, pci.dst.0)?;
    to.put_le(w.address, pci.src.0)?;
    to.put_le(w.qos, u64::from(pci.qos.0))?;
    to.put_le(w.cep, u64::from(pci.dst_cep.0))?;
    to.put_le(w.cep, u64::from(pci.src_cep.0))?;
    to.put_le(1, u64::from(kind))?;
    to.put_le(1, u64::from(flags))?;
    to.put_le(w.length, length as u64)
}

fn put_control(w: Widths, to: &mut Writer<'_>, kind: u8, control: &Control) -> Option<()> {
    to.put_le(w.ctrl_seq, control.seq)?;
    if let Some(ack) = &control.ack {
        to.put_le(w.seq, ack.next.wrapping_sub(1))?;
    }
    if kind != TYPE_ACK && kind != TYPE_WINDOW {
        to.put_le(w.ctrl_seq, control.last_seq)?;
    }
    let Some(window) = &control.window else {
        return Some(());
    };
    if kind != TYPE_WINDOW {
        to.put_le(w.seq, window.left.wrapping_sub(1))?;
    }
    to.put_le(w.seq, window.right.wrapping_sub(1))?;
    let my_left = match kind {
        TYPE_WINDOW if window.my_left != 0 => window.my_left.wrapping_sub(1),
        _ => window.my_left,
    };
    to.put_le(w.seq, my_left)?;
    to.put_le(w.seq, window.my_right.wrapping_sub(1))?;
    to.put_le(w.rate, u64::from(window.rate))?;
    to.put_le(w.frame, u64::from(window.frame))
}

fn kind_of(kind: u8) -> Result<PduType, PciError> {
    match kind {
        TYPE_DATA => Ok(PduType::Data),
        TYPE_MANAGEMENT => Ok(PduType::Management),
        TYPE_CONTROL_ACK | TYPE_ACK | TYPE_WINDOW | TYPE_ACK_WINDOW => Ok(PduType::Control),
        TYPE_RENDEZVOUS => Ok(PduType::Rendezvous),
        0xc2 => Err(PciError::ReservedType("nack")),
        0xc6 => Err(PciError::ReservedType("nack and flow control")),
        0xc9 => Err(PciError::ReservedType("sack")),
        0xca => Err(PciError::ReservedType("snack")),
        0xcd => Err(PciError::ReservedType("sack and flow control")),
        0xce => Err(PciError::ReservedType("snack and flow control")),
        _ => Err(PciError::Type),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the widths of these fields are checked before"
)]
pub(super) fn peek(w: Widths, prefix: &[u8]) -> Result<RelayHeader, PciError> {
    if w.cep > 4 || w.qos > 4 || w.length > 4 {
        return Err(PciError::Widths);
    }
    let base = prefix.get(..base_bytes(w)).ok_or(PciError::Short)?;
    let mut from = Reader::new(base);
    let mut take = |width| from.take_le(width).ok_or(PciError::Widths);
    if take(1)? != u64::from(VERSION) {
        return Err(PciError::Version);
    }
    let (dst, src) = (Address(take(w.address)?), Address(take(w.address)?));
    let qos = take(w.qos)?;
    let (dst_cep, src_cep) = (CepId(take(w.cep)? as u32), CepId(take(w.cep)? as u32));
    let kind = kind_of(take(1)? as u8)?;
    let flags = take(1)? as u8;
    Ok(RelayHeader {
        kind,
        dst,
        src,
        qos: QosId(u16::try_from(qos).map_err(|_| PciError::Range)?),
        dst_cep,
        src_cep,
        hop_limit: HOP_LIMIT,
        ecn: flags & FLAG_ECN != 0,
        pdu_bytes: take(w.length)? as usize,
    })
}

pub(super) fn decode(w: Widths, prefix: &[u8], present: usize) -> Result<Decoded, PciError> {
    let route = peek(w, prefix)?;
    let mut header_bytes = base_bytes(w);
    let mut seq = 0;
    if matches!(route.kind, PduType::Data | PduType::Management) {
        let field = prefix.get(header_bytes..).unwrap_or_default();
        seq = Reader::new(field).take_le(w.seq).ok_or(PciError::Short)?;
        header_bytes += usize::from(w.seq);
    }
    if route.pdu_bytes < header_bytes || route.pdu_bytes > present {
        return Err(PciError::Length);
    }
    let drf = prefix[type_at(w) + 1] & FLAG_DRF != 0;
    Ok(route.decoded(drf, seq, header_bytes))
}

/// Decodes the part after the header of a control or rendezvous PDU. Fields that its type does not
/// have are 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the widths of rates and frames are checked before"
)]
pub(super) fn decode_control(
    w: Widths,
    prefix: &[u8],
    header: &Decoded,
) -> Result<Control, PciError> {
    if !matches!(header.pci.kind, PduType::Control | PduType::Rendezvous) {
        return Err(PciError::Type);
    }
    if w.rate > 4 || w.frame > 4 {
        return Err(PciError::Widths);
    }
    let kind = *prefix.get(type_at(w)).ok_or(PciError::Short)?;
    if header.pdu_bytes != header.header_bytes + control_bytes(w, kind) {
        return Err(PciError::Length);
    }
    let mut from = Reader::new(prefix.get(header.header_bytes..).unwrap_or_default());
    let mut take = |width| from.take_le(width).ok_or(PciError::Short);
    let after = |last: u64| cut(last.wrapping_add(1), w.seq);
    let mut control = Control {
        seq: take(w.ctrl_seq)?,
        ..Control::default()
    };
    if matches!(kind, TYPE_ACK | TYPE_ACK_WINDOW) {
        let last = take(w.seq)?;
        control.ack = Some(Ack {
            next: after(last),
            sack: Sack::default(),
            cause: last,
            delay_us: 0,
            ecn_marks: 0,
        });
    }
    if kind == TYPE_ACK {
        return Ok(control);
    }
    let mut left = 0;
    if kind != TYPE_WINDOW {
        control.last_seq = take(w.ctrl_seq)?;
        left = after(take(w.seq)?);
    }
    control.window = Some(Window {
        left,
        right: after(take(w.seq)?),
        my_left: match take(w.seq)? {
            last if kind == TYPE_WINDOW && last != 0 => after(last),
            first => first,
        },
        my_right: after(take(w.seq)?),
        rate: take(w.rate)? as u32,
        frame: take(w.frame)? as u32,
    });
    Ok(control)
}

/// Sets the ECN flag if `ecn` is true.
pub(super) fn mark(w: Widths, prefix: &mut [u8], ecn: bool) {
    if let Some(flags) = prefix.get_mut(type_at(w) + 1)
        && ecn
    {
        *flags |= FLAG_ECN;
    }
}
