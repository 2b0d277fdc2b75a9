//! Reads GML: keys with numbers, texts, and lists in brackets (M. Himsolt, *GML: A portable Graph
//! File Format*). Uses labels, speeds of links and coordinates of nodes as the Internet Topology
//! Zoo writes them, and impairments of links as Shadow does; ignores other keys.
//!
//! ```text
//! graph [ node [ id 0 label "New York" ] node [ id 1 ] edge [ source 0 target 1 ] ]
//! ```

use std::collections::BTreeMap;

use carina_vnet::document::Kind;

use super::draft::{Draft, beginning};
use super::graphml::{edge, wrong};
use super::{Imported, Source};
use crate::error::ImportError;

pub(super) fn read(source: Source<'_>) -> Result<Imported, ImportError> {
    let root = List::read(source)?;
    let mut draft = Draft::new(source, Kind::Namespace);
    let mut graphs = root.lists("graph");
    let Some(graph) = graphs.next() else {
        return Err(wrong(source, 1, "there is no list `graph [ … ]`"));
    };
    for other in graphs {
        draft.note(other.line, "a second graph", "a document has one network");
    }
    if let Some(name) = graph.text("Network").or(graph.text("label")) {
        draft.name(name);
    }
    let mut names = BTreeMap::new();
    for node in graph.lists("node") {
        let Some(id) = node.text("id") else {
            draft.note(node.line, "a node without id", "a node has a name");
            continue;
        };
        let label = node.text("label").filter(|label| !label.trim().is_empty());
        let name = draft.labelled(label.unwrap_or(id), id, node.line);
        let graphics = node.lists("graphics").next();
        let datum = |key: &str| node.text(key).or_else(|| graphics?.text(key));
        draft.place(&name, datum, node.line);
        names.insert(id, name);
    }
    for list in graph.lists("edge") {
        let ends = ["source", "target"].map(|key| names.get(list.text(key)?));
        edge(&mut draft, ends, |name| list.text(name), list.line);
    }
    draft.finish()
}

/// Keys with values, in the order of the file.
#[derive(Debug, Default)]
struct List {
    /// Line at which the list begins, from 1.
    line: usize,
    entries: Vec<(String, Value)>,
}

#[derive(Debug)]
enum Value {
    /// A number or a string.
    Text(String),
    List(List),
}

impl List {
    fn read(source: Source<'_>) -> Result<List, ImportError> {
        if source.text.len() > TEXT_MAX {
            return Err(wrong(source, 1, &format!("more than {TEXT_MAX} bytes")));
        }
        let mut tokens = Tokens {
            rest: source.text,
            line: 1,
        };
        let mut current = List::default();
        // The lists around the current one, each with the key of the list inside.
        let mut outer: Vec<(String, List)> = Vec::new();
        loop {
            let token = tokens.next();
            let refused = |what: &str| wrong(source, tokens.line, what);
            match token.map_err(refused)? {
                None if outer.is_empty() => return Ok(current),
                None => return Err(refused("a `[` without its `]`")),
                Some(Token::Close) => {
                    let enclosing = outer.pop();
                    let (key, mut list) =
                        enclosing.ok_or_else(|| refused("a `]` without its `[`"))?;
                    list.entries.push((key, Value::List(current)));
                    current = list;
                }
                Some(Token::Word(key)) => {
                    let value = tokens.next();
                    let refused = |what: &str| wrong(source, tokens.line, what);
                    let text = match value.map_err(refused)? {
                        Some(Token::Word(word)) => word.to_owned(),
                        Some(Token::Text(text)) => text,
                        Some(Token::Open) if outer.len() < DEPTH_MAX => {
                            let inner = List {
                                line: tokens.line,
                                entries: Vec::new(),
                            };
                            outer.push((key.to_owned(), std::mem::replace(&mut current, inner)));
                            continue;
                        }
                        Some(Token::Open) => {
                            return Err(refused(&format!("lists nest deeper than {DEPTH_MAX}")));
                        }
                        Some(Token::Close) | None => {
                            let what = format!("the key {:?} has no value", beginning(key));
                            return Err(refused(&what));
                        }
                    };
                    current.entries.push((key.to_owned(), Value::Text(text)));
                }
                Some(Token::Open | Token::Text(_)) => return Err(refused("a key is expected")),
            }
        }
    }

    fn lists<'a>(&'a self, key: &'static str) -> impl Iterator<Item = &'a List> {
        let of_key = self.entries.iter().filter(move |(name, _)| name == key);
        of_key.filter_map(|(_, value)| match value {
            Value::List(list) => Some(list),
            Value::Text(_) => None,
        })
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.entries.iter().find_map(|(name, value)| match value {
            Value::Text(text) if name == key => Some(text.as_str()),
            _ => None,
        })
    }
}

enum Token<'a> {
    Open,
    Close,
    /// A key or a number.
    Word(&'a str),
    /// A string in quotes.
    Text(String),
}

struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    /// The next token; `None` at the end of the text.
    fn next(&mut self) -> Result<Option<Token<'a>>, &'static str> {
        loop {
            let spaces = self.rest.len() - self.rest.trim_start().len();
            self.pass(spaces);
            // A line that begins with `#` is a comment.
            if !self.rest.starts_with('#') {
                break;
            }
            self.pass(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        let token = match first {
            '[' => (Token::Open, 1),
            ']' => (Token::Close, 1),
            '"' => {
                let end = self.rest[1..].find('"').ok_or("a text without its end")?;
                let text = unescaped(&self.rest[1..=end]);
                (Token::Text(text), end + 2)
            }
            _ => {
                let is_end = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | '"');
                let end = self.rest.find(is_end).unwrap_or(self.rest.len());
                (Token::Word(&self.rest[..end]), end)
            }
        };
        self.pass(token.1);
        Ok(Some(token.0))
    }

    fn pass(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        self.line += passed.matches('\n').count();
        self.rest = rest;
    }
}

/// Replaces entities such as `&quot;` and `&#38;` by their characters.
fn unescaped(text: &str) -> String {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        whole.push_str(before);
        let known = after.split_once(';').and_then(|(name, behind)| {
            let c = match name {
                "quot" => '"',
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "apos" => '\'',
                _ => char::from_u32(name.strip_prefix('#')?.parse().ok()?)?,
            };
            Some((c, behind))
        });
        match known {
            Some((c, behind)) => {
                whole.push(c);
                rest = behind;
            }
            None => {
                whole.push('&');
                rest = after;
            }
        }
    }
    whole.push_str(rest);
    whole
}

/// Longest text, in bytes.
const TEXT_MAX: usize = 16 << 20;
/// Largest nesting depth of lists.
const DEPTH_MAX: usize = 32;
