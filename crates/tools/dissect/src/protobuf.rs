//! Describes protobuf messages. With a known schema the fields have names; otherwise they have
//! numbers, and their kinds are guessed from the values.

use super::schema::{Field, Kind};

/// The fields of a message with this schema, such as `{address: 3, lower_difs: "blue"}`. A field
/// that the schema lacks is shown by its number. `None` when the bytes are not such a message.
pub(super) fn describe_as(schema: &[Field], bytes: &[u8]) -> Option<String> {
    message(bytes, DEPTH_MAX, schema)
}

/// The fields of a message, such as `{1: 3, 2: "blue", 4: {1: 2}}`; `None` when the bytes are
/// not a message.
pub(super) fn describe(bytes: &[u8]) -> Option<String> {
    message(bytes, DEPTH_MAX, &[])
}

/// Largest depth of nested messages that are described.
const DEPTH_MAX: usize = 8;

/// The bytes of the field number `wanted` of a message.
pub(super) fn bytes_of(mut rest: &[u8], wanted: u64) -> Option<Vec<u8>> {
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        match key & 7 {
            0 => drop(varint(&mut rest)?),
            1 => drop(chunk::<8>(&mut rest)?),
            5 => drop(chunk::<4>(&mut rest)?),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (bytes, behind) = rest.split_at_checked(length)?;
                if key >> 3 == wanted {
                    return Some(bytes.to_vec());
                }
                rest = behind;
            }
            _ => return None,
        }
    }
    None
}

fn message(mut rest: &[u8], depth: usize, schema: &[Field]) -> Option<String> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let (number, wire) = (key >> 3, key & 7);
        if number == 0 || number > FIELD_MAX {
            return None;
        }
        let known = schema.iter().find(|field| field.number == number);
        let kind = known.map(|field| field.kind);
        let value = match wire {
            0 => whole(varint(&mut rest)?, kind),
            1 => {
                let bits = u64::from_le_bytes(chunk(&mut rest)?);
                match kind {
                    Some(Kind::Fraction) => f64::from_bits(bits).to_string(),
                    _ => bits.to_string(),
                }
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (bytes, behind) = rest.split_at_checked(length)?;
                rest = behind;
                known_bytes(bytes, depth, kind)?
            }
            5 => u32::from_le_bytes(chunk(&mut rest)?).to_string(),
            _ => return None,
        };
        let name = known.map_or_else(|| number.to_string(), |field| field.name.to_owned());
        fields.push(format!("{name}: {value}"));
    }
    Some(format!("{{{}}}", fields.join(", ")))
}

fn whole(value: u64, kind: Option<Kind>) -> String {
    match kind {
        Some(Kind::Flag) if value <= 1 => (value == 1).to_string(),
        Some(Kind::Signed) => value.cast_signed().to_string(),
        _ => value.to_string(),
    }
}

/// Describes the bytes of a field. If `kind` is `None`, the kind is guessed.
fn known_bytes(bytes: &[u8], depth: usize, kind: Option<Kind>) -> Option<String> {
    match (kind, depth.checked_sub(1)) {
        (Some(Kind::Message(schema)), Some(depth)) => message(bytes, depth, schema),
        (Some(Kind::Bytes), _) => Some(hex(bytes)),
        // Several numbers packed into one field.
        (Some(Kind::Number), _) => {
            let (mut rest, mut numbers) = (bytes, Vec::new());
            while !rest.is_empty() {
                numbers.push(varint(&mut rest)?.to_string());
            }
            Some(format!("[{}]", numbers.join(", ")))
        }
        _ => Some(delimited(bytes, depth)),
    }
}

/// Describes bytes as text, a nested message, or bytes, in this order, because short texts often
/// look like messages.
fn delimited(bytes: &[u8], depth: usize) -> String {
    let is_text = |text: &&str| !text.chars().any(char::is_control);
    if let Some(text) = std::str::from_utf8(bytes).ok().filter(is_text) {
        return format!("{text:?}");
    }
    let inner = depth.checked_sub(1);
    let inner = inner.and_then(|depth| message(bytes, depth, &[]));
    inner.unwrap_or_else(|| hex(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn chunk<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*bytes)
}

/// Largest field number in protobuf.
const FIELD_MAX: u64 = (1 << 29) - 1;
