//! Dissects PDUs of a normal DIF: PCI and user data (`docs/explanation/pci.md`).

use carina_wire::dif::{
    Ack, Address, Control, Decoded, Dialect, NEIGHBOUR_CHECK_BYTES, PCI_BYTES_MAX, Pci, PciError,
    PduType, RelayHeader, Window, without_neighbour_check,
};
use serde_json::json;

use super::layer::{Layer, cut_short, show_bytes};
use super::{Settings, delimiting, sdu};

/// Adds the layers of a PDU. The capture may hold only the first of its `original` bytes.
pub(super) fn dissect(layers: &mut Vec<Layer>, settings: &Settings, pdu: &[u8], original: usize) {
    let is_cut = pdu.len() < original;
    // Only the complete header tells whether the PDU has the default widths, and it must not be
    // read with other widths.
    if is_cut && settings.syntax.peek(pdu) == Err(PciError::Short) {
        return layers.push(beginning(settings, pdu, original));
    }
    let here = &for_pdu(*settings, pdu);
    match here.syntax.decode(pdu, original) {
        Ok(header) => known(layers, here, pdu, original, &header),
        Err(PciError::Short) if is_cut => layers.push(beginning(settings, pdu, original)),
        Err(error) => {
            let mut layer = Layer::new("pdu", format!("malformed: {error}"));
            layer.field("bytes", original);
            layer.field("content", show_bytes(pdu));
            layers.push(layer);
        }
    }
}

/// The layer of a PDU whose header the capture cut short.
fn beginning(settings: &Settings, pdu: &[u8], original: usize) -> Layer {
    // A field is certain when it reads the same whatever bytes may have followed.
    let followed_by = |byte: u8| {
        let mut whole = pdu.to_vec();
        whole.resize(pdu.len().max(PCI_BYTES_MAX), byte);
        for_pdu(*settings, &whole).syntax.peek(&whole).ok()
    };
    let mut layer = Layer::new("pdu", String::new());
    if let (Some(one), Some(other)) = (followed_by(0), followed_by(0xff)) {
        if one.kind == other.kind {
            layer.summary += word(one.kind);
            layer.field("type", word(one.kind));
        }
        if (one.src, one.dst) == (other.src, other.dst) {
            layer.summary += &format!(" {} > {}", one.src, end_word(one.dst));
        }
        let mut field = |name, of: fn(&RelayHeader) -> u64| {
            if of(&one) == of(&other) {
                layer.field(name, of(&one));
            }
        };
        field("dst", |route| route.dst.0);
        field("src", |route| route.src.0);
        field("dst_cep", |route| route.dst_cep.0.into());
        field("src_cep", |route| route.src_cep.0.into());
        field("qos", |route| route.qos.0.into());
        field("hop_limit", |route| route.hop_limit.into());
        field("pdu_bytes", |route| route.pdu_bytes as u64);
    }
    if !layer.summary.is_empty() {
        layer.summary += ", ";
    }
    layer.summary += &cut_short(pdu.len(), original);
    layer.field("content", show_bytes(pdu));
    layer
}

/// Adds the layers of an SDU that may be a PDU of a higher DIF or data of an application.
pub(super) fn guess(layers: &mut Vec<Layer>, settings: &Settings, sdu: &[u8], original: usize) {
    let settings = &for_pdu(*settings, sdu);
    match settings.syntax.decode(sdu, original) {
        Ok(header) if is_to_the_end(&header, sdu) => {
            known(layers, settings, sdu, original, &header)
        }
        _ => sdu::content(layers, sdu, original),
    }
}

/// The settings for one PDU. PDUs between neighbours, which have hop limit 0, have the default
/// widths and delimiting in every DIF.
fn for_pdu(settings: Settings, pdu: &[u8]) -> Settings {
    if settings.syntax.dialect != Dialect::Native {
        return settings;
    }
    match settings.syntax.peek(pdu) {
        Ok(route) if route.hop_limit != 0 => settings,
        _ => Settings::default(),
    }
}

/// The settings, in the dialect of which the SDU is a PDU; `None` if it is not a PDU. Tries the
/// dialects in order, and takes the first whose layout accounts for every byte.
pub(super) fn dialect_of(settings: &Settings, sdu: &[u8], original: usize) -> Option<Settings> {
    // A short PDU of the native dialect differs from one of IRATI only in the position of its type.
    Dialect::ALL.into_iter().find_map(|dialect| {
        let settings = settings.in_dialect(dialect);
        let header = for_pdu(settings, sdu).syntax.decode(sdu, original).ok()?;
        (is_known_kind(&header) && is_to_the_end(&header, sdu)).then_some(settings)
    })
}

/// Whether the header's numbers fit its type. Used to recognise a dialect, because member addresses
/// and connection ids are rarely 0.
fn is_known_kind(header: &Decoded) -> bool {
    let pci = &header.pci;
    match pci.kind {
        PduType::Management => pci.dst_cep.0 == 0 && pci.src_cep.0 == 0,
        _ => pci.src.0 != 0 || pci.dst.0 != 0,
    }
}

/// Whether the PDU extends to the end of the SDU, except for the padding of a short frame.
fn is_to_the_end(header: &Decoded, sdu: &[u8]) -> bool {
    let rest = sdu.get(header.pdu_bytes..).unwrap_or_default();
    rest.len() < SHORTEST_FRAME && rest.iter().all(|byte| *byte == 0)
}

/// Payload of the shortest Ethernet frame, in bytes.
const SHORTEST_FRAME: usize = 46;

fn known(
    layers: &mut Vec<Layer>,
    settings: &Settings,
    pdu: &[u8],
    original: usize,
    header: &Decoded,
) {
    let pci = &header.pci;
    let check = Check::of(settings.syntax.dialect, header, pdu);
    let user_end = header.pdu_bytes - check.map_or(0, |_| NEIGHBOUR_CHECK_BYTES);
    let user_bytes = user_end - header.header_bytes;
    let end = header.pdu_bytes.min(pdu.len());
    let user = &pdu[header.header_bytes.min(end)..user_end.min(end)];
    let mut layer = Layer::new("pdu", String::new());
    describe(&mut layer, header);
    match pci.kind {
        PduType::Data => {
            layer.summary = format!(
                "data {}:{} > {}:{} cube {} seq {}{}, {user_bytes} bytes",
                pci.src,
                pci.src_cep,
                pci.dst,
                pci.dst_cep,
                pci.qos,
                pci.seq,
                marks(pci)
            );
            layer.field("seq", pci.seq);
            layer.field("user_bytes", user_bytes);
        }
        PduType::Management => {
            let to = end_word(pci.dst);
            layer.summary = format!("management {} > {to}, {user_bytes} bytes", pci.src);
            layer.field("user_bytes", user_bytes);
            if let Some(check) = check {
                layer.field("check", check.word());
            }
            if check == Some(Check::Wrong) {
                layer.summary += ", wrong check";
            }
        }
        PduType::Control | PduType::Rendezvous => {
            let gist = settings.syntax.decode_control(&pdu[..end], header);
            let gist = match gist {
                Ok(control) => control_fields(&mut layer, &control),
                Err(PciError::Short) if end < header.pdu_bytes => cut_short(end, header.pdu_bytes),
                Err(error) => format!("malformed: {error}"),
            };
            layer.summary = format!(
                "{} {}:{} > {}:{}{} {gist}",
                word(pci.kind),
                pci.src,
                pci.src_cep,
                pci.dst,
                pci.dst_cep,
                marks(pci)
            );
        }
    }
    if original > header.pdu_bytes {
        layer.field("padding_bytes", original - header.pdu_bytes);
    }
    layers.push(layer);
    match pci.kind {
        PduType::Data if settings.is_delimited => {
            delimiting::dissect(layers, user, user_bytes);
        }
        PduType::Data | PduType::Management => sdu::content(layers, user, user_bytes),
        PduType::Control | PduType::Rendezvous => {}
    }
}

/// Result of the check at the end of a management PDU between neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Right,
    Wrong,
    /// The capture ends before the checksum.
    Unknown,
}

impl Check {
    /// The check of a PDU; `None` when PDUs of this kind have none, or when the PDU is too short
    /// for one.
    fn of(dialect: Dialect, header: &Decoded, pdu: &[u8]) -> Option<Check> {
        let is_between_neighbours = dialect == Dialect::Native
            && header.pci.kind == PduType::Management
            && header.hop_limit == 0;
        if !is_between_neighbours || header.pdu_bytes < header.header_bytes + NEIGHBOUR_CHECK_BYTES
        {
            return None;
        }
        Some(match pdu.get(..header.pdu_bytes) {
            None => Check::Unknown,
            Some(whole) if without_neighbour_check(whole).is_some() => Check::Right,
            Some(_) => Check::Wrong,
        })
    }

    fn word(self) -> &'static str {
        match self {
            Check::Right => "right",
            Check::Wrong => "wrong",
            Check::Unknown => "unknown",
        }
    }
}

fn describe(layer: &mut Layer, header: &Decoded) {
    let Pci {
        kind,
        dst,
        src,
        qos,
        dst_cep,
        src_cep,
        drf,
        ecn,
        ..
    } = header.pci;
    layer.field("type", word(kind));
    layer.field("src", src.0);
    layer.field("dst", dst.0);
    layer.field("src_cep", src_cep.0);
    layer.field("dst_cep", dst_cep.0);
    layer.field("qos", qos.0);
    layer.field("hop_limit", header.hop_limit);
    layer.field("drf", drf);
    layer.field("ecn", ecn);
    layer.field("pdu_bytes", header.pdu_bytes);
}

fn word(kind: PduType) -> &'static str {
    match kind {
        PduType::Data => "data",
        PduType::Management => "management",
        PduType::Control => "control",
        PduType::Rendezvous => "rendezvous",
    }
}

/// Text for the destination of a management PDU: `neighbour` for address 0, else the address.
fn end_word(dst: Address) -> String {
    match dst.0 {
        0 => "neighbour".to_owned(),
        address => address.to_string(),
    }
}

fn marks(pci: &Pci) -> String {
    let drf = if pci.drf { " DRF" } else { "" };
    let ecn = if pci.ecn { " ECN" } else { "" };
    format!("{drf}{ecn}")
}

/// Adds the fields of a control PDU to the layer. Returns a summary.
fn control_fields(layer: &mut Layer, control: &Control) -> String {
    let mut summary = format!("#{}", control.seq);
    layer.field("ctrl_seq", control.seq);
    layer.field("last_ctrl_seq", control.last_seq);
    if let Some(ack) = &control.ack {
        let Ack {
            next,
            sack,
            cause,
            delay_us,
            ecn_marks,
        } = ack;
        summary += &format!(" ack {next}");
        for (start, end) in sack.as_slice() {
            summary += &format!(" +{start}..{end}");
        }
        layer.field(
            "ack",
            json!({
                "next": next, "cause": cause, "delay_us": delay_us, "ecn_marks": ecn_marks,
                "received": sack.as_slice(),
            }),
        );
    }
    if let Some(window) = &control.window {
        let Window {
            left,
            right,
            my_left,
            my_right,
            rate,
            frame,
        } = window;
        summary += &format!(" window {left}..{right}");
        if *rate != 0 {
            summary += &format!(" rate {rate} in {frame} ms");
        }
        layer.field(
            "window",
            json!({
                "left": left, "right": right, "my_left": my_left, "my_right": my_right,
                "rate": rate, "frame_ms": frame,
            }),
        );
    }
    summary
}
