//! Packet filters, and frames that they judge.

use carina_filter::Filter;

/// See [`reads_filter`].
pub fn filter(data: &[u8]) {
    reads_filter(data);
}

/// The first line is a filter, the rest a frame. True when it compiles; then it ends for the frame
/// and for its beginnings, and its opposite does not accept what it accepts.
pub fn reads_filter(data: &[u8]) -> bool {
    let end = data.iter().position(|byte| *byte == b'\n');
    let (text, frame) = data.split_at(end.unwrap_or(data.len()));
    let frame = frame.get(1..).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let filter = match Filter::compile(text) {
        Ok(filter) => filter,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    assert!(filter.program().instructions() > 0);
    let opposite = Filter::compile(&format!("not ({text})"));
    for length in (0..=frame.len()).rev().take(LENGTHS) {
        let accepts = filter.matches(&frame[..length]);
        if let Ok(opposite) = &opposite {
            assert!(!(accepts && opposite.matches(&frame[..length])), "{text}");
        }
    }
    true
}

/// Lengths at which a frame is judged.
const LENGTHS: usize = 80;
