//! Reads and writes a document in TOML.

use std::collections::BTreeMap;
use std::fmt::Write;

use carina_text::line_counter::LineCounter;
use carina_text::toml::{inline, quoted};
use carina_text::toml_fault::TomlFault;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use toml::Spanned;

use super::Document;
use super::fault::{DocumentError, Lines, Place};
use crate::whole::Whole;

/// The parts of a document, parsed only to learn the lines where they begin.
#[derive(Deserialize)]
struct Parts {
    vnet: Option<Spanned<IgnoredAny>>,
    defaults: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    node: BTreeMap<Spanned<String>, IgnoredAny>,
    #[serde(default)]
    link: Vec<Spanned<IgnoredAny>>,
    #[serde(default)]
    access: BTreeMap<Spanned<String>, IgnoredAny>,
    #[serde(default)]
    test: Vec<Spanned<IgnoredAny>>,
}

pub(super) fn read(text: &str) -> Result<(Document, Lines), DocumentError> {
    let whole = toml::Deserializer::parse(text).map(Whole);
    let document = whole.and_then(Document::deserialize);
    let document = document.map_err(|error| fault(text, &error))?;
    let parts = toml::from_str(text).map_err(|error| fault(text, &error))?;
    Ok((document, lines(text, &parts)))
}

fn fault(text: &str, error: &toml::de::Error) -> DocumentError {
    let TomlFault {
        line,
        text: message,
    } = TomlFault::of(text, error);
    DocumentError::Text { line, message }
}

fn lines(text: &str, parts: &Parts) -> Lines {
    let mut places: Vec<(usize, Place)> = Vec::new();
    let tables = [
        (Place::Header, &parts.vnet),
        (Place::Defaults, &parts.defaults),
    ];
    for (place, table) in tables {
        places.extend(table.as_ref().map(|table| (table.span().start, place)));
    }
    let named = |name: &Spanned<String>| (name.span().start, name.get_ref().clone());
    let nodes = parts.node.keys().map(named);
    places.extend(nodes.map(|(at, name)| (at, Place::Node(name))));
    let access = parts.access.keys().map(named);
    places.extend(access.map(|(at, name)| (at, Place::Access(name))));
    for (number, link) in parts.link.iter().enumerate() {
        places.push((link.span().start, Place::Link(number)));
    }
    for (number, test) in parts.test.iter().enumerate() {
        places.push((test.span().start, Place::Test(number)));
    }
    places.sort();
    let mut counter = LineCounter::new(text);
    let count = |(at, place): (usize, Place)| (place, counter.line_at(at));
    places.into_iter().map(count).collect()
}

pub(super) fn write(document: &Document) -> String {
    let value = serde_json::to_value(document).expect("a document has text keys only");
    let mut text = String::new();
    for (key, named) in [("vnet", false), ("defaults", false), ("node", true)] {
        tables(&mut text, key, &value[key], named);
    }
    lists(&mut text, "link", &value["link"]);
    tables(&mut text, "access", &value["access"], true);
    lists(&mut text, "test", &value["test"]);
    text
}

/// Writes a table `[key]`, or with `named` a table `[key.NAME]` for each entry of `value`.
fn tables(text: &mut String, key: &str, value: &Value, named: bool) {
    let Value::Object(fields) = value else {
        return;
    };
    if named {
        for (name, table) in fields {
            let bare = |c: char| c.is_ascii_alphanumeric() || c == '-';
            let name = if name.chars().all(bare) && !name.is_empty() {
                name.clone()
            } else {
                quoted(name)
            };
            table_of(text, &format!("[{key}.{name}]"), table);
        }
    } else {
        table_of(text, &format!("[{key}]"), value);
    }
}

fn lists(text: &mut String, key: &str, value: &Value) {
    for table in value.as_array().into_iter().flatten() {
        table_of(text, &format!("[[{key}]]"), table);
    }
}

fn table_of(text: &mut String, head: &str, table: &Value) {
    let gap = if text.is_empty() { "" } else { "\n" };
    writeln!(text, "{gap}{head}").expect("a string grows");
    for (key, value) in table.as_object().into_iter().flatten() {
        writeln!(text, "{key} = {}", inline(value)).expect("a string grows");
    }
}
