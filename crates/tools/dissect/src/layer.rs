//! One protocol's part of a packet, as text or JSON.

use serde_json::{Map, Value};

/// One protocol's part of a packet.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Name of the protocol.
    pub name: &'static str,
    /// One-line summary of the most important fields.
    pub summary: String,
    /// All fields, in the order of the packet.
    pub fields: Vec<(&'static str, Value)>,
}

impl Layer {
    /// A layer without fields. Names in packets are not trusted: control characters in `summary`,
    /// which could move a terminal's cursor, are replaced by escapes.
    pub fn new(name: &'static str, summary: impl Into<String>) -> Layer {
        Layer {
            name,
            summary: printable(summary.into()),
            fields: Vec::new(),
        }
    }

    /// Adds a field with its name and value.
    pub fn field(&mut self, name: &'static str, value: impl Into<Value>) {
        self.fields.push((name, value.into()));
    }

    /// Adds a field with a text, unless the text is empty.
    pub fn text(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.field(name, value);
        }
    }

    /// The layer as JSON.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("layer".to_owned(), self.name.into());
        object.insert("summary".to_owned(), self.summary.as_str().into());
        for (name, value) in &self.fields {
            object.insert((*name).to_owned(), value.clone());
        }
        Value::Object(object)
    }

    /// The layer as lines: the summary, then a line for each field.
    pub fn to_lines(&self) -> Vec<String> {
        let mut lines = vec![format!("  {}: {}", self.name, self.summary)];
        for (name, value) in &self.fields {
            let text = match value {
                Value::String(text) => printable(text.clone()),
                other => other.to_string(),
            };
            lines.push(format!("    {name:<18} {text}"));
        }
        lines
    }
}

/// Replaces the control characters of a text by escapes.
pub(crate) fn printable(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    shown
}

/// The text for data of which the capture kept only the first bytes.
pub(crate) fn cut_short(kept: usize, original: usize) -> String {
    format!("cut short by the capture ({kept} of {original} bytes)")
}

/// Formats bytes for people: hexadecimal digits up to a limit, and the text if all bytes are text.
pub(crate) fn show_bytes(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let hex: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    let more = if bytes.len() > SHOWN_BYTES { " .." } else { "" };
    let is_text = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    match std::str::from_utf8(bytes) {
        Ok(text) if is_text(text) && bytes.len() <= SHOWN_BYTES => {
            format!("{} ({text:?})", hex.join(" "))
        }
        _ => format!("{}{more}", hex.join(" ")),
    }
}

/// Largest number of bytes of unknown content that are shown.
const SHOWN_BYTES: usize = 32;
