//! Protobuf of an unknown schema: field numbers and what their values look like.

/// The fields of a message, such as `{1: 3, 2: "blue", 4: {1: 2}}`; `None` when the bytes are none.
pub(super) fn describe(bytes: &[u8]) -> Option<String> {
    message(bytes, DEPTH_MAX)
}

/// Nesting that is followed.
const DEPTH_MAX: usize = 6;

fn message(mut rest: &[u8], depth: usize) -> Option<String> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let (field, kind) = (key >> 3, key & 7);
        if field == 0 || field > FIELD_MAX {
            return None;
        }
        let value = match kind {
            0 => varint(&mut rest)?.to_string(),
            1 => u64::from_le_bytes(chunk(&mut rest)?).to_string(),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (bytes, behind) = rest.split_at_checked(length)?;
                rest = behind;
                delimited(bytes, depth)
            }
            5 => u32::from_le_bytes(chunk(&mut rest)?).to_string(),
            _ => return None,
        };
        fields.push(format!("{field}: {value}"));
    }
    Some(format!("{{{}}}", fields.join(", ")))
}

/// Text, a message within, or bytes: in this order, for short texts often look like messages.
fn delimited(bytes: &[u8], depth: usize) -> String {
    let is_text = |text: &&str| !text.chars().any(char::is_control);
    if let Some(text) = std::str::from_utf8(bytes).ok().filter(is_text) {
        return format!("{text:?}");
    }
    let inner = depth.checked_sub(1).and_then(|depth| message(bytes, depth));
    inner.unwrap_or_else(|| {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        hex.concat()
    })
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

/// The largest field number that protobuf has.
const FIELD_MAX: u64 = (1 << 29) - 1;
