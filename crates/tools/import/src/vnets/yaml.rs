//! Reads YAML 1.2 as a tree of values with lines, with the parser of `saphyr-parser`.
//!
//! Every scalar stays a text, whose meaning its reader decides. An alias becomes a copy of its
//! anchor's value, and `<<` merges mappings as in YAML 1.1. Tags are ignored. Keys that are not
//! scalars, and a second document, are refused with their line. Depth and number of values are
//! limited; values that aliases copy count too.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use crate::error::YamlError;

/// A YAML value with the line at which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Yaml {
    /// Line, counted from 1.
    pub line: usize,
    /// The value that begins at that line.
    pub value: Value,
}

/// The content of a YAML value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value, `~` or `null`.
    Nothing,
    /// A scalar.
    Text(String),
    /// Keys with values, in the order of the file.
    Map(Vec<(String, Yaml)>),
    /// A list.
    List(Vec<Yaml>),
}

impl Yaml {
    /// Reads a text that contains one document.
    ///
    /// # Errors
    /// The text is not YAML, has a second document, or exceeds a limit.
    pub fn read(text: &str) -> Result<Yaml, YamlError> {
        if text.len() > TEXT_MAX {
            return Err(YamlError::new(1, format!("more than {TEXT_MAX} bytes")));
        }
        let mut builder = Builder::default();
        for event in Parser::new_from_str(text).keep_tags(false) {
            let (event, span) = event.map_err(|error| not_yaml(&error))?;
            builder.take(event, span)?;
        }
        Ok(builder.document.unwrap_or(Yaml {
            line: 1,
            value: Value::Nothing,
        }))
    }

    /// The value of a key; `None` if the value is not a mapping or lacks the key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Yaml> {
        let found = self.entries().iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    /// The keys with their values; empty if the value is not a mapping.
    #[must_use]
    pub fn entries(&self) -> &[(String, Yaml)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items; empty if the value is not a list.
    #[must_use]
    pub fn items(&self) -> &[Yaml] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text, if the value is a scalar.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Number of values in it, itself included.
    fn count(&self) -> usize {
        let inner: usize = match &self.value {
            Value::Nothing | Value::Text(_) => 0,
            Value::Map(entries) => entries.iter().map(|(_, value)| value.count()).sum(),
            Value::List(items) => items.iter().map(Yaml::count).sum(),
        };
        inner + 1
    }
}

/// A collection whose end has not been read yet.
struct Open {
    line: usize,
    /// The parser's number of the collection's anchor; 0 if it has none.
    anchor: usize,
    content: Content,
}

enum Content {
    Map {
        entries: Vec<(String, Yaml)>,
        keys: HashSet<String>,
        /// The key whose value comes next.
        key: Option<String>,
        /// The values of `<<` keys, whose entries are merged into this mapping.
        merged: Vec<Yaml>,
    },
    List(Vec<Yaml>),
}

/// Builds the tree from the parser's events.
#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Yaml>,
    /// Number of values so far, including those that aliases copied.
    count: usize,
    document: Option<Yaml>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let line = span.start.line();
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_nothing = style == ScalarStyle::Plain
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let is_key = self.awaits_key();
                let value = if is_nothing && !is_key {
                    Value::Nothing
                } else {
                    Value::Text(text.into_owned())
                };
                self.put(Yaml { line, value }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.begin(line, anchor, Content::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                let content = Content::Map {
                    entries: Vec::new(),
                    keys: HashSet::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.begin(line, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                // An alias within the value of its own anchor comes before that value is complete.
                let value = self.anchors.get(&anchor).cloned();
                let value = value.ok_or_else(|| {
                    YamlError::new(line, "an alias within the value of its own anchor")
                })?;
                self.put(value, 0)
            }
            Event::DocumentStart(_) if self.document.is_some() => {
                Err(YamlError::new(line, "a second document; one is read"))
            }
            _ => Ok(()),
        }
    }

    fn awaits_key(&self) -> bool {
        let content = self.open.last().map(|open| &open.content);
        matches!(content, Some(Content::Map { key: None, .. }))
    }

    fn begin(&mut self, line: usize, anchor: usize, content: Content) -> Result<(), YamlError> {
        if self.open.len() == DEPTH_MAX {
            let what = format!("values nest deeper than {DEPTH_MAX}");
            return Err(YamlError::new(line, what));
        }
        if self.awaits_key() {
            return Err(YamlError::new(line, "a key that is a list or a mapping"));
        }
        self.open.push(Open {
            line,
            anchor,
            content,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), YamlError> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Map {
                mut entries,
                mut keys,
                merged,
                ..
            } => {
                merge(&mut entries, &mut keys, merged);
                Value::Map(entries)
            }
        };
        let line = open.line;
        self.put(Yaml { line, value }, open.anchor)
    }

    /// Adds a complete value to the open collection, or makes it the document.
    fn put(&mut self, yaml: Yaml, anchor: usize) -> Result<(), YamlError> {
        let line = yaml.line;
        // The values of a collection have been counted one by one; those of an alias are new.
        self.count += match anchor {
            0 => yaml.count(),
            _ => 1,
        };
        if self.count > VALUES_MAX {
            return Err(YamlError::new(
                line,
                format!("more than {VALUES_MAX} values"),
            ));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, yaml.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.document = Some(yaml);
            return Ok(());
        };
        match &mut open.content {
            Content::List(items) => items.push(yaml),
            Content::Map {
                entries,
                keys,
                key,
                merged,
            } => match key.take() {
                Some(name) if name == MERGE => merged.push(yaml),
                Some(name) => entries.push((name, yaml)),
                None => {
                    let Value::Text(name) = yaml.value else {
                        return Err(YamlError::new(line, "a key that is a list or a mapping"));
                    };
                    if !keys.insert(name.clone()) {
                        return Err(YamlError::new(line, format!("{name:?} stands twice")));
                    }
                    *key = Some(name);
                }
            },
        }
        Ok(())
    }
}

/// Adds the entries of merged mappings whose keys are missing. Of several mappings the earlier one
/// wins.
fn merge(entries: &mut Vec<(String, Yaml)>, keys: &mut HashSet<String>, merged: Vec<Yaml>) {
    let mappings = merged.into_iter().flat_map(|yaml| match yaml.value {
        Value::List(items) => items,
        _ => vec![yaml],
    });
    for mapping in mappings {
        let Value::Map(others) = mapping.value else {
            continue;
        };
        for (key, value) in others {
            if keys.insert(key.clone()) {
                entries.push((key, value));
            }
        }
    }
}

fn not_yaml(error: &ScanError) -> YamlError {
    YamlError::new(error.marker().line().max(1), error.info())
}

/// Key of merged mappings (YAML 1.1, "Merge Key Language-Independent Type").
const MERGE: &str = "<<";
/// Longest text, in bytes.
const TEXT_MAX: usize = 4 << 20;
/// Largest nesting depth of values.
const DEPTH_MAX: usize = 32;
/// Largest number of values in a document.
const VALUES_MAX: usize = 500_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(yaml: &Yaml) -> String {
        match &yaml.value {
            Value::Nothing => "~".to_owned(),
            Value::Text(text) => format!("{text:?}"),
            Value::Map(entries) => {
                let all = entries
                    .iter()
                    .map(|(key, value)| format!("{key}: {}", words(value)));
                format!("{{{}}}", all.collect::<Vec<_>>().join(", "))
            }
            Value::List(items) => {
                let all: Vec<String> = items.iter().map(words).collect();
                format!("[{}]", all.join(", "))
            }
        }
    }

    fn read(text: &str) -> Result<String, String> {
        let yaml = Yaml::read(text).map_err(|error| error.to_string())?;
        Ok(words(&yaml))
    }

    #[test]
    fn blocks_and_brackets_say_the_same() {
        let blocks = "---
a: # first
  b: 1
  'c d': \"x # y\"
l:
- one
- k: v
  m: [p, q]
-
  - z
";
        assert_eq!(
            read(blocks).unwrap(),
            "{a: {b: \"1\", c d: \"x # y\"}, l: [\"one\", {k: \"v\", m: [\"p\", \"q\"]}, [\"z\"]]}"
        );
        let flow = "{a: {b: 1, 'c d': \"x # y\"},\n l: [one, {k: v, m: [p, q]}, [z]]}\n";
        assert_eq!(read(flow), read(blocks));
        assert_eq!(read("a:\nb: ~\n").unwrap(), "{a: ~, b: ~}");
        assert_eq!(
            read("a: |\n  x: 1\n  y\nb: c:d\n").unwrap(),
            "{a: \"x: 1\\ny\\n\", b: \"c:d\"}"
        );
        assert_eq!(read("").unwrap(), "~");
    }

    #[test]
    fn texts_are_items_of_lists() {
        let text = "exec:\n  - >\n    ip link\n    up\n  - |\n    a: b\n    # c\n  - d\n";
        assert_eq!(
            read(text).unwrap(),
            "{exec: [\"ip link up\\n\", \"a: b\\n# c\\n\", \"d\"]}"
        );
    }

    #[test]
    fn aliases_are_copies_and_mappings_are_merged() {
        let text = "base: &b {image: x, kind: linux}\nnode:\n  <<: *b\n  kind: bridge\nother: *b\n";
        assert_eq!(
            read(text).unwrap(),
            "{base: {image: \"x\", kind: \"linux\"}, \
             node: {kind: \"bridge\", image: \"x\"}, \
             other: {image: \"x\", kind: \"linux\"}}"
        );
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..10 {
            let items = vec![format!("*a{}", n - 1); 10].join(", ");
            bomb.push_str(&format!("a{n}: &a{n} [{items}]\n"));
        }
        assert!(read(&bomb).unwrap_err().contains("more than 500000 values"));
    }

    #[test]
    fn what_is_not_read_is_refused_with_its_line() {
        for (text, what) in [
            ("b: *a", "line 1"),
            ("a: &x [*x]", "line 1: an alias within"),
            ("a: 1\na: 2", "line 2: \"a\" stands twice"),
            ("[a]: 1", "line 1: a key"),
            ("a: [1, 2", "line 2: while parsing a flow sequence"),
            ("a: 1\n---\nb: 2", "line 2: a second document"),
            ("a: 1\n  b: 2", "line 2"),
            ("a: \"x", "line 1"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(what), "{text:?}: {error}");
        }
        let deep = "[".repeat(1000);
        assert!(read(&deep).is_err());
        let deep: String = (0..100).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        assert!(read(&deep).unwrap_err().contains("deeper than 32"));
    }
}
