//! Dissects user-data fields: whole SDUs, several SDUs in one field, fragments. The format is drawn
//! in `crates/rina/efcp/src/delimiting`.

use super::layer::{Layer, cut_short, show_bytes};
use super::sdu;

const FIRST: u8 = 0x20;
const LAST: u8 = 0x10;

/// Adds the layers of a user-data field. The capture may hold only the first of its `original`
/// bytes.
pub(super) fn dissect(layers: &mut Vec<Layer>, udf: &[u8], original: usize) {
    let Some((&first, rest)) = udf.split_first() else {
        return layers.push(without_header(udf, original));
    };
    let behind = original - 1;
    let fragment = match first >> 6 {
        0 if first == 0 => {
            let mut layer = Layer::new("delimiting", "whole");
            layer.field("kind", "whole");
            layers.push(layer);
            return sdu::content(layers, rest, behind);
        }
        1 if first & 0x3f == 0 => return several(layers, rest),
        2 => ordered(first, rest, behind),
        3 if first & 0x0f == 0 => scattered(first, rest, behind),
        _ => Some(malformed(udf)),
    };
    layers.push(fragment.unwrap_or_else(|| without_header(udf, original)));
}

/// The layer of a field that ends within its header. If fewer than `original` bytes are here, the
/// capture cut it short; otherwise the sender did.
fn without_header(udf: &[u8], original: usize) -> Layer {
    if udf.len() < original {
        Layer::new("delimiting", cut_short(udf.len(), original))
    } else {
        malformed(udf)
    }
}

fn malformed(udf: &[u8]) -> Layer {
    let mut layer = Layer::new("delimiting", "malformed");
    layer.field("content", show_bytes(udf));
    layer
}

fn several(layers: &mut Vec<Layer>, mut rest: &[u8]) {
    let mut sdus = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length));
        let sdu = &behind[..length.min(behind.len())];
        sdus.push((sdu, length));
        rest = &behind[sdu.len()..];
    }
    let lengths: Vec<usize> = sdus.iter().map(|(_, length)| *length).collect();
    let mut layer = Layer::new("delimiting", format!("{} SDUs", sdus.len()));
    layer.field("kind", "several");
    layer.field("sdu_bytes", lengths);
    layers.push(layer);
    for (sdu, length) in sdus {
        sdu::content(layers, sdu, length);
    }
}

/// The layer of a fragment that is sent in order; `None` when its header is incomplete.
fn ordered(first: u8, rest: &[u8], original: usize) -> Option<Layer> {
    let (low, bytes) = rest.split_first()?;
    let index = u16::from_be_bytes([first & 0x0f, *low]);
    let mut layer = Layer::new(
        "delimiting",
        format!("fragment {index}{}, {} bytes", ends(first), original - 1),
    );
    layer.field("kind", "fragment");
    layer.field("index", index);
    place(&mut layer, first, bytes);
    Some(layer)
}

/// The layer of a fragment that may be sent in any order; `None` when its header is incomplete.
fn scattered(first: u8, rest: &[u8], original: usize) -> Option<Layer> {
    let (&[s0, s1, s2, s3, o0, o1, o2, o3], bytes) = rest.split_first_chunk()?;
    let sdu = u32::from_be_bytes([s0, s1, s2, s3]);
    let offset = u32::from_be_bytes([o0, o1, o2, o3]);
    let length = original - 8;
    let mut layer = Layer::new(
        "delimiting",
        format!(
            "fragment of SDU {sdu} at {offset}{}, {length} bytes",
            ends(first)
        ),
    );
    layer.field("kind", "scattered_fragment");
    layer.field("sdu", sdu);
    layer.field("offset", offset);
    place(&mut layer, first, bytes);
    Some(layer)
}

fn ends(first: u8) -> &'static str {
    match (first & FIRST != 0, first & LAST != 0) {
        (true, true) => " first and last",
        (true, false) => " first",
        (false, true) => " last",
        (false, false) => "",
    }
}

fn place(layer: &mut Layer, first: u8, bytes: &[u8]) {
    layer.field("is_first", first & FIRST != 0);
    layer.field("is_last", first & LAST != 0);
    layer.field("content", show_bytes(bytes));
}
