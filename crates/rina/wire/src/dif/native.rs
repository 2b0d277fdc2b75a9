//! PCI in Carina's native layout, in network byte order. `docs/explanation/pci.md` explains it with
//! examples.
//!
//! ```text
//! every PDU    version 1 | type 1 | flags 1 | hop limit 1 | QoS-id | length
//!              | destination address | source address | destination CEP-id | source CEP-id
//! data         | sequence number
//! control,     | control sequence number | last control sequence number | parts 1
//! rendezvous   | if parts has ACK:    next | cause | delay 4 | ECN marks 2
//!              |                      | as many times as parts says: start | end
//!              | if parts has WINDOW: left | right | my left | my right | rate | frame
//! ```
//!
//! Numbers give widths in bytes. Fields without a number have the width that the DIF configures.

use super::field::{Reader, Writer, fits};
use super::header::{Decoded, FieldError, PciError, RelayHeader, check_fields};
use super::{
    Ack, Address, CepId, Control, PCI_BYTES_MAX, Pci, PduType, QosId, SACK_RANGES_MAX, Sack,
    Widths, Window,
};

const VERSION: u8 = 1;

const TYPE_MANAGEMENT: u8 = 0x40;
const TYPE_DATA: u8 = 0x80;
const TYPE_CONTROL: u8 = 0xc0;
const TYPE_RENDEZVOUS: u8 = 0xcf;

/// Flag: a relay marked congestion.
const FLAG_ECN: u8 = 0x01;
/// Data run flag: the first PDU of a run.
const FLAG_DRF: u8 = 0x80;

/// Bit of *parts*: an acknowledgement follows.
const PART_ACK: u8 = 0x01;
/// Bit of *parts*: flow control follows.
const PART_WINDOW: u8 = 0x02;
/// Position of the bits of *parts* with the number of ranges in the acknowledgement.
const PART_RANGES_SHIFT: u32 = 4;
const PART_RANGES: u8 = 0x70;

const FLAGS_AT: usize = 2;
const HOP_LIMIT_AT: usize = 3;

/// Bytes from the start of the PDU up to and including the hop limit.
pub(super) const MARK_BYTES: usize = 4;

/// Widths of the delay and the ECN marks of an acknowledgement.
const DELAY: u8 = 4;
const MARKS: u8 = 2;

#[inline(always)]
pub(super) const fn base_bytes(w: Widths) -> usize {
    MARK_BYTES + w.qos as usize + w.length as usize + 2 * w.address as usize + 2 * w.cep as usize
}

const fn control_bytes_max(w: Widths) -> usize {
    let seq = w.seq as usize;
    let ack = 2 * seq + DELAY as usize + MARKS as usize + SACK_RANGES_MAX * 2 * seq;
    let window = 4 * seq + w.rate as usize + w.frame as usize;
    2 * w.ctrl_seq as usize + 1 + ack + window
}

#[inline(always)]
pub(super) const fn pci_bytes(w: Widths, kind: PduType) -> usize {
    base_bytes(w)
        + match kind {
            PduType::Data => w.seq as usize,
            PduType::Management => 0,
            PduType::Control | PduType::Rendezvous => control_bytes_max(w),
        }
}

const _: () = assert!(pci_bytes(Widths::WIDEST, PduType::Control) == PCI_BYTES_MAX);

#[inline(always)]
pub(super) fn encode(
    w: Widths,
    pci: &Pci,
    control: Option<&Control>,
    payload_len: usize,
    hop_limit: u8,
    out: &mut [u8; PCI_BYTES_MAX],
) -> Result<usize, FieldError> {
    check_fields(w, pci)?;
    let (kind, header) = match (pci.kind, control) {
        (PduType::Data, None) => (TYPE_DATA, base_bytes(w) + w.seq as usize),
        (PduType::Management, None) if pci.seq == 0 => (TYPE_MANAGEMENT, base_bytes(w)),
        (PduType::Control | PduType::Rendezvous, Some(control)) => {
            return encode_control(w, pci, control, payload_len, hop_limit, out);
        }
        _ => return Err(FieldError::Kind),
    };
    let length = header
        .checked_add(payload_len)
        .filter(|length| fits(*length as u64, w.length))
        .ok_or(FieldError::Length)?;
    let mut to = Writer::new(out);
    put_base(w, &mut to, pci, kind, length, hop_limit).ok_or(FieldError::Widths)?;
    if pci.kind == PduType::Data {
        to.put(w.seq, pci.seq).ok_or(FieldError::Widths)?;
    }
    Ok(to.written())
}

#[inline(never)]
fn encode_control(
    w: Widths,
    pci: &Pci,
    control: &Control,
    payload_len: usize,
    hop_limit: u8,
    out: &mut [u8; PCI_BYTES_MAX],
) -> Result<usize, FieldError> {
    if payload_len != 0 || pci.seq != 0 {
        return Err(FieldError::Kind);
    }
    let kind = match pci.kind {
        PduType::Rendezvous => TYPE_RENDEZVOUS,
        _ => TYPE_CONTROL,
    };
    let length = base_bytes(w) + control_bytes(w, control)?;
    let mut to = Writer::new(out);
    let mut write = || {
        put_base(w, &mut to, pci, kind, length, hop_limit)?;
        put_control(w, &mut to, control)
    };
    write().ok_or(FieldError::Widths)?;
    Ok(length)
}

#[inline(always)]
fn put_base(
    w: Widths,
    to: &mut Writer<'_>,
    pci: &Pci,
    kind: u8,
    length: usize,
    hop_limit: u8,
) -> Option<()> {
    let flags = if pci.drf { FLAG_DRF } else { 0 } | if pci.ecn { FLAG_ECN } else { 0 };
    to.put(
        4,
        u64::from(u32::from_be_bytes([VERSION, kind, flags, hop_limit])),
    )?;
    to.put(w.qos, u64::from(pci.qos.0))?;
    to.put(w.length, length as u64)?;
    to.put(w.address, pci.dst.0)?;
    to.put(w.address, pci.src.0)?;
    to.put(w.cep, u64::from(pci.dst_cep.0))?;
    to.put(w.cep, u64::from(pci.src_cep.0))
}

/// Length of a control part. Fails if one of its values does not fit its field.
fn control_bytes(w: Widths, control: &Control) -> Result<usize, FieldError> {
    let seq = usize::from(w.seq);
    let mut bytes = 2 * usize::from(w.ctrl_seq) + 1;
    if let Some(ack) = &control.ack {
        let ranges = ack.sack.as_slice().len();
        bytes += 2 * seq + usize::from(DELAY + MARKS) + ranges * 2 * seq;
    }
    if let Some(window) = &control.window {
        if !fits(u64::from(window.rate), w.rate) {
            return Err(FieldError::Rate);
        }
        if !fits(u64::from(window.frame), w.frame) {
            return Err(FieldError::Frame);
        }
        bytes += 4 * seq + usize::from(w.rate) + usize::from(w.frame);
    }
    Ok(bytes)
}

fn put_control(w: Widths, to: &mut Writer<'_>, control: &Control) -> Option<()> {
    to.put(w.ctrl_seq, control.seq)?;
    to.put(w.ctrl_seq, control.last_seq)?;
    let ranges = control.ack.as_ref().map_or(&[][..], |a| a.sack.as_slice());
    let mut parts = (ranges.len() as u64) << PART_RANGES_SHIFT;
    if control.ack.is_some() {
        parts |= u64::from(PART_ACK);
    }
    if control.window.is_some() {
        parts |= u64::from(PART_WINDOW);
    }
    to.put(1, parts)?;
    if let Some(ack) = &control.ack {
        to.put(w.seq, ack.next)?;
        to.put(w.seq, ack.cause)?;
        to.put(DELAY, u64::from(ack.delay_us))?;
        to.put(MARKS, u64::from(ack.ecn_marks))?;
        for (start, end) in ranges {
            to.put(w.seq, *start)?;
            to.put(w.seq, *end)?;
        }
    }
    if let Some(window) = &control.window {
        to.put(w.seq, window.left)?;
        to.put(w.seq, window.right)?;
        to.put(w.seq, window.my_left)?;
        to.put(w.seq, window.my_right)?;
        to.put(w.rate, u64::from(window.rate))?;
        to.put(w.frame, u64::from(window.frame))?;
    }
    Some(())
}

/// Writes the fields that every PDU has.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the widths of these fields are checked before"
)]
pub(super) fn peek(w: Widths, prefix: &[u8]) -> Result<RelayHeader, PciError> {
    if w.cep > 4 || w.qos > 2 || w.length > 4 {
        return Err(PciError::Widths);
    }
    let base = prefix.get(..base_bytes(w)).ok_or(PciError::Short)?;
    let (&[version, kind, flags, hop_limit], rest) =
        base.split_first_chunk().ok_or(PciError::Short)?;
    if version != VERSION {
        return Err(PciError::Version);
    }
    let kind = match kind {
        TYPE_DATA => PduType::Data,
        TYPE_MANAGEMENT => PduType::Management,
        TYPE_CONTROL => PduType::Control,
        TYPE_RENDEZVOUS => PduType::Rendezvous,
        _ => return Err(PciError::Type),
    };
    let mut from = Reader::new(rest);
    let mut take = |width| from.take(width).ok_or(PciError::Widths);
    let qos = QosId(take(w.qos)? as u16);
    let pdu_bytes = take(w.length)? as usize;
    Ok(RelayHeader {
        kind,
        qos,
        pdu_bytes,
        dst: Address(take(w.address)?),
        src: Address(take(w.address)?),
        dst_cep: CepId(take(w.cep)? as u32),
        src_cep: CepId(take(w.cep)? as u32),
        hop_limit,
        ecn: flags & FLAG_ECN != 0,
    })
}

#[inline(always)]
pub(super) fn decode(w: Widths, prefix: &[u8], present: usize) -> Result<Decoded, PciError> {
    let route = peek(w, prefix)?;
    let flags = prefix[FLAGS_AT];
    if flags & !(FLAG_DRF | FLAG_ECN) != 0 {
        return Err(PciError::Reserved);
    }
    let base = base_bytes(w);
    let mut seq = 0;
    let mut header_bytes = base;
    if route.kind == PduType::Data {
        let field = prefix.get(base..).unwrap_or_default();
        seq = Reader::new(field).take(w.seq).ok_or(PciError::Short)?;
        header_bytes += usize::from(w.seq);
    }
    if route.pdu_bytes < header_bytes || route.pdu_bytes > present {
        return Err(PciError::Length);
    }
    Ok(Decoded {
        pci: Pci {
            kind: route.kind,
            dst: route.dst,
            src: route.src,
            qos: route.qos,
            dst_cep: route.dst_cep,
            src_cep: route.src_cep,
            drf: flags & FLAG_DRF != 0,
            ecn: route.ecn,
            seq,
        },
        hop_limit: route.hop_limit,
        header_bytes,
        pdu_bytes: route.pdu_bytes,
    })
}

/// Decodes the part after the header of a control or rendezvous PDU.
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
    let bytes = prefix.get(header.header_bytes..).unwrap_or_default();
    let mut from = Reader::new(bytes);
    let mut take = |width| from.take(width).ok_or(PciError::Short);
    let mut control = Control {
        seq: take(w.ctrl_seq)?,
        last_seq: take(w.ctrl_seq)?,
        ack: None,
        window: None,
    };
    let parts = take(1)? as u8;
    let ranges = usize::from((parts & PART_RANGES) >> PART_RANGES_SHIFT);
    let is_odd = parts & !(PART_ACK | PART_WINDOW | PART_RANGES) != 0
        || ranges > SACK_RANGES_MAX
        || ranges > 0 && parts & PART_ACK == 0;
    if is_odd {
        return Err(PciError::Reserved);
    }
    if parts & PART_ACK != 0 {
        let mut ack = Ack {
            next: take(w.seq)?,
            sack: Sack::default(),
            cause: take(w.seq)?,
            delay_us: take(DELAY)? as u32,
            ecn_marks: take(MARKS)? as u16,
        };
        for _ in 0..ranges {
            let (start, end) = (take(w.seq)?, take(w.seq)?);
            if !ack.sack.push_truncated(start, end) {
                return Err(PciError::Reserved);
            }
        }
        control.ack = Some(ack);
    }
    if parts & PART_WINDOW != 0 {
        control.window = Some(Window {
            left: take(w.seq)?,
            right: take(w.seq)?,
            my_left: take(w.seq)?,
            my_right: take(w.seq)?,
            rate: take(w.rate)? as u32,
            frame: take(w.frame)? as u32,
        });
    }
    let length = control_bytes(w, &control).map_err(|_| PciError::Widths)?;
    if header.pdu_bytes != header.header_bytes + length {
        return Err(PciError::Length);
    }
    Ok(control)
}

#[inline(always)]
pub(super) fn mark(prefix: &mut [u8], hop_limit: u8, ecn: bool) {
    if let Some(prefix) = prefix.get_mut(..MARK_BYTES) {
        prefix[HOP_LIMIT_AT] = hop_limit;
        if ecn {
            prefix[FLAGS_AT] |= FLAG_ECN;
        }
    }
}
