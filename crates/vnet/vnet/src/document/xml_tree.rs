//! Parses XML into a tree of elements with attributes. The XML form of a document needs no more.
//! [`parse_foreign`] reads XML of other programs, where elements may also contain text.

use std::fmt::Display;
use std::str::FromStr;

use carina_text::line_counter::LineCounter;
use carina_text::spelling::nearest;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};

use super::fault::DocumentError;
use super::limits::{DEPTH_MAX, TEXT_MAX};

/// Attributes that are read per element; no element of the XML form has as many.
const ATTRIBUTES_MAX: usize = 32;

/// An element of a parsed XML text, with its attributes and children.
#[derive(Debug)]
pub struct Element {
    pub(super) name: String,
    /// Line at which the element begins, from 1.
    pub line: usize,
    attributes: Vec<(String, String)>,
    /// The child elements.
    pub children: Vec<Element>,
    /// The text inside the element; only [`parse_foreign`] accepts text.
    pub content: String,
}

/// Parses XML of another program and returns its root element. Text and processing instructions are
/// accepted.
///
/// # Errors
/// The text is too long, is not XML, nests too deeply, or declares entities.
pub fn parse_foreign(text: &str) -> Result<Element, DocumentError> {
    if text.len() > TEXT_MAX {
        return Err(wrong(1, format!("more than {TEXT_MAX} bytes")));
    }
    parse_as(text, true)
}

/// Parses XML of the document form and returns its root element.
///
/// # Errors
/// The text is not XML, nests too deeply, or contains what the form does not allow: text between
/// elements, a document type, entities, or processing instructions.
pub(super) fn parse(text: &str) -> Result<Element, DocumentError> {
    parse_as(text, false)
}

fn parse_as(text: &str, is_foreign: bool) -> Result<Element, DocumentError> {
    let mut reader = Reader::from_str(text);
    let mut counter = LineCounter::new(text);
    let mut line_at =
        |position: u64| counter.line_at(usize::try_from(position).unwrap_or(usize::MAX));
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    loop {
        let line = line_at(reader.buffer_position());
        let event = match reader.read_event() {
            Ok(event) => event,
            Err(error) => {
                let line = line_at(reader.error_position());
                return Err(wrong(line, error));
            }
        };
        let whole = match event {
            Event::Start(start) => {
                if open.len() == DEPTH_MAX {
                    let message = format!("elements nest deeper than {DEPTH_MAX}");
                    return Err(wrong(line, message));
                }
                open.push(element(&start, line)?);
                continue;
            }
            Event::Empty(start) => element(&start, line)?,
            Event::End(_) => open
                .pop()
                .ok_or_else(|| wrong(line, "an end tag without a start tag"))?,
            Event::Text(text) if text.trim_ascii().is_empty() => continue,
            Event::PI(_) if is_foreign => continue,
            Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) if is_foreign => {
                let more = content(&event).ok_or_else(|| wrong(line, "an entity"))?;
                if let Some(open) = open.last_mut() {
                    open.content.push_str(more);
                }
                continue;
            }
            Event::Comment(_) | Event::Decl(_) => continue,
            Event::Eof => break,
            Event::DocType(_) => {
                return Err(wrong(line, "a document type; leave <!DOCTYPE …> out"));
            }
            Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) => {
                return Err(wrong(
                    line,
                    "text between elements; write values as attributes",
                ));
            }
            Event::PI(_) => return Err(wrong(line, "a processing instruction; leave it out")),
        };
        match open.last_mut() {
            Some(parent) => parent.children.push(whole),
            None if root.is_none() => root = Some(whole),
            None => return Err(wrong(whole.line, "a second root element; one is possible")),
        }
    }
    let end = line_at(u64::MAX);
    if let Some(element) = open.last() {
        let message = format!("<{}> of line {} is not closed", element.name, element.line);
        return Err(wrong(end, message));
    }
    root.ok_or_else(|| {
        wrong(
            end,
            "the text has no XML element; a document begins with <vnet name=\"…\">",
        )
    })
}

/// The text of an event; `None` for an entity that XML does not predefine.
fn content<'a>(event: &'a Event<'a>) -> Option<&'a str> {
    match event {
        Event::Text(text) => Some(text),
        Event::CData(text) => Some(text),
        Event::GeneralRef(name) => match &**name {
            "amp" => Some("&"),
            "lt" => Some("<"),
            "gt" => Some(">"),
            "quot" => Some("\""),
            "apos" => Some("'"),
            // A name does not need a character that is written by its number; `-` replaces it.
            number if number.starts_with('#') => Some("-"),
            _ => None,
        },
        _ => None,
    }
}

/// The error `message` at `line`.
pub(super) fn wrong(line: usize, message: impl Display) -> DocumentError {
    let message = message.to_string();
    DocumentError::Text { line, message }
}

fn element(start: &BytesStart<'_>, line: usize) -> Result<Element, DocumentError> {
    let name = start.name().0.to_owned();
    let mut attributes: Vec<(String, String)> = Vec::new();
    // The library compares each attribute with all before it; here their number is bounded first.
    for attribute in start.attributes().with_checks(false) {
        let attribute = attribute.map_err(|error| wrong(line, error))?;
        let key = attribute.key.0;
        if attributes.iter().any(|(before, _)| before == key) {
            return Err(wrong(line, format!("<{name}> has `{key}` twice")));
        }
        if attributes.len() == ATTRIBUTES_MAX {
            let message = format!("<{name}> has more than {ATTRIBUTES_MAX} attributes");
            return Err(wrong(line, message));
        }
        let value = attribute.normalized_value(quick_xml::XmlVersion::Explicit1_0);
        let value = value.map_err(|error| wrong(line, error))?;
        attributes.push((key.to_owned(), value.into_owned()));
    }
    Ok(Element {
        name,
        line,
        attributes,
        children: Vec::new(),
        content: String::new(),
    })
}

impl Element {
    /// Refuses attributes other than `keys`, and child elements other than `elements`.
    pub(super) fn has_only(&self, keys: &[&str], elements: &[&str]) -> Result<(), DocumentError> {
        for (key, _) in &self.attributes {
            self.known(key, "an attribute", keys, self.line)?;
        }
        for child in &self.children {
            self.known(&child.name, "an element", elements, child.line)?;
        }
        Ok(())
    }

    fn known(
        &self,
        word: &str,
        what: &str,
        among: &[&str],
        line: usize,
    ) -> Result<(), DocumentError> {
        if among.contains(&word) {
            return Ok(());
        }
        let right = match (nearest(word, among.iter().copied()), among) {
            (Some(near), _) => format!("is `{near}` meant?"),
            (None, []) => "it has none".to_owned(),
            (None, among) => format!("it has {}", among.join(", ")),
        };
        let message = format!("`{word}` is not {what} of <{}>; {right}", self.name);
        Err(wrong(line, message))
    }

    /// The element's name without its namespace prefix.
    #[must_use]
    pub fn local_name(&self) -> &str {
        let name = self.name.as_str();
        name.split_once(':').map_or(name, |(_, name)| name)
    }

    /// The value of an attribute; `None` if the element does not have it.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        let attribute = self.attributes.iter().find(|(name, _)| name == key);
        attribute.map(|(_, value)| value.as_str())
    }

    /// The value of a required attribute.
    pub(super) fn need(&self, key: &str) -> Result<&str, DocumentError> {
        let message = || format!("<{}> needs the attribute `{key}`", self.name);
        self.text(key).ok_or_else(|| wrong(self.line, message()))
    }

    /// The words of an attribute that is a list; none if the element does not have it.
    pub(super) fn words(&self, key: &str) -> Vec<String> {
        let words = self.text(key).into_iter().flat_map(str::split_whitespace);
        words.map(str::to_owned).collect()
    }

    /// Parses the value of an optional attribute.
    pub(super) fn read<T: FromStr>(&self, key: &str) -> Result<Option<T>, DocumentError>
    where
        T::Err: Display,
    {
        let read = |text: &str| {
            let value = text.trim_ascii().parse();
            value.map_err(|error: T::Err| {
                let error = error.to_string();
                // The errors of the standard library's numbers do not name the value.
                if error.contains(text) {
                    wrong(self.line, format!("{key}: {error}"))
                } else {
                    wrong(self.line, format!("{key}: {text:?}: {error}"))
                }
            })
        };
        self.text(key).map(read).transpose()
    }

    /// Parses the value of a required attribute.
    pub(super) fn need_read<T: FromStr>(&self, key: &str) -> Result<T, DocumentError>
    where
        T::Err: Display,
    {
        let missing = || format!("<{}> needs the attribute `{key}`", self.name);
        self.read(key)?.ok_or_else(|| wrong(self.line, missing()))
    }

    /// Parses an optional attribute whose value is a keyword.
    pub(super) fn word<'a, T: Deserialize<'a>>(
        &'a self,
        key: &str,
    ) -> Result<Option<T>, DocumentError> {
        let read = |text: &'a str| {
            let word: StrDeserializer<'a, WordError> = text.into_deserializer();
            let value = T::deserialize(word);
            value.map_err(|error| wrong(self.line, format!("{key}: {error}")))
        };
        self.text(key).map(read).transpose()
    }
}
