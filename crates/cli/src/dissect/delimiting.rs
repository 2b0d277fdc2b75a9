//! User-data fields: whole SDUs, several in one, fragments. The format is drawn in
//! `crates/efcp/src/delimiting`.

use super::layer::{Layer, show_bytes};
use super::pdu;

const FIRST: u8 = 0x20;
const LAST: u8 = 0x10;

/// Adds the layers of a user-data field of `original` bytes of which the first are here.
pub(super) fn dissect(layers: &mut Vec<Layer>, udf: &[u8], original: usize) {
    let Some((first, rest)) = udf.split_first() else {
        return layers.push(Layer::new("delimiting", "malformed: no header"));
    };
    let original = original - 1;
    match first >> 6 {
        0 if *first == 0 => {
            let mut layer = Layer::new("delimiting", "whole");
            layer.field("kind", "whole");
            layers.push(layer);
            pdu::content(layers, rest, original);
        }
        1 if first & 0x3f == 0 => several(layers, rest),
        2 => ordered(layers, *first, rest, original),
        3 if first & 0x0f == 0 => scattered(layers, *first, rest, original),
        _ => malformed(layers, udf),
    }
}

fn malformed(layers: &mut Vec<Layer>, udf: &[u8]) {
    let mut layer = Layer::new("delimiting", "malformed");
    layer.field("content", show_bytes(udf));
    layers.push(layer);
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
        pdu::content(layers, sdu, length);
    }
}

fn ordered(layers: &mut Vec<Layer>, first: u8, rest: &[u8], original: usize) {
    let Some((low, bytes)) = rest.split_first() else {
        return malformed(layers, &[first]);
    };
    let index = u16::from_be_bytes([first & 0x0f, *low]);
    let mut layer = Layer::new(
        "delimiting",
        format!("fragment {index}{}, {} bytes", ends(first), original - 1),
    );
    layer.field("kind", "fragment");
    layer.field("index", index);
    place(&mut layer, first, bytes);
    layers.push(layer);
}

fn scattered(layers: &mut Vec<Layer>, first: u8, rest: &[u8], original: usize) {
    let Some((&[s0, s1, s2, s3, o0, o1, o2, o3], bytes)) = rest.split_first_chunk() else {
        return malformed(layers, &[first]);
    };
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
    layers.push(layer);
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
