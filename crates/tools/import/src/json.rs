//! Parses JSON with the line of each value, and with comments, which configurations of IRATI
//! contain. RFC 8259; `docs/reference/dependencies.md` says why no library is used.

use crate::error::JsonError;

/// A value and its line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub line: usize,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// `null`, `true`, `false` or a number, as written.
    Plain(String),
    Text(String),
    List(Vec<Node>),
    /// Keys with their lines and values.
    Table(Vec<(String, usize, Node)>),
}

/// Parses a text.
///
/// # Errors
/// What is wrong, with the line.
pub(super) fn parse(text: &str) -> Result<Node, JsonError> {
    let mut reader = Reader {
        rest: text,
        line: 1,
        depth: 0,
    };
    let node = reader.value()?;
    reader.skip();
    if reader.rest.is_empty() {
        Ok(node)
    } else {
        Err(reader.wrong("the end of the file is expected"))
    }
}

impl Node {
    /// The value of a key; `None` if the value is not a table or lacks the key.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.fields()
            .iter()
            .find(|(name, ..)| name == key)
            .map(|(.., node)| node)
    }

    /// Keys, their lines and values; empty if the value is not a table.
    pub(crate) fn fields(&self) -> &[(String, usize, Node)] {
        match &self.kind {
            Kind::Table(fields) => fields,
            _ => &[],
        }
    }

    /// Items; empty if the value is not a list.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a string or of a plain value, as written; `None` for lists and tables.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Plain(text) | Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text of the value of a key.
    pub(crate) fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    /// The value of a key as a number, which may be in quotes.
    pub(crate) fn number_of(&self, key: &str) -> Option<u64> {
        self.text_of(key)?.parse().ok()
    }

    /// The value of a key as a boolean, which may be in quotes.
    pub(crate) fn flag_of(&self, key: &str) -> Option<bool> {
        self.text_of(key)?.parse().ok()
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    depth: usize,
}

impl Reader<'_> {
    fn wrong(&self, expected: &'static str) -> JsonError {
        JsonError {
            line: self.line,
            expected,
            found: self.rest.chars().take(12).collect(),
        }
    }

    /// Skips white space and comments.
    fn skip(&mut self) {
        loop {
            let trimmed = self.rest.trim_start();
            let skipped = self.rest.len() - trimmed.len();
            self.pass(skipped);
            let comment = match self.rest.get(..2) {
                Some("//") => self.rest.find('\n').unwrap_or(self.rest.len()),
                Some("/*") => self.rest.find("*/").map_or(self.rest.len(), |at| at + 2),
                _ => return,
            };
            self.pass(comment);
        }
    }

    fn pass(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        self.line += passed.matches('\n').count();
        self.rest = rest;
    }

    fn eat(&mut self, what: char) -> bool {
        self.skip();
        let is_next = self.rest.starts_with(what);
        if is_next {
            self.pass(what.len_utf8());
        }
        is_next
    }

    fn value(&mut self) -> Result<Node, JsonError> {
        self.skip();
        let line = self.line;
        if self.depth >= DEPTH_MAX {
            return Err(self.wrong("the values are nested too deeply"));
        }
        self.depth += 1;
        let kind = if self.eat('{') {
            self.table()?
        } else if self.eat('[') {
            self.list()?
        } else if self.rest.starts_with('"') {
            Kind::Text(self.string()?)
        } else {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
            let end = self.rest.find(|c| !is_plain(c)).unwrap_or(self.rest.len());
            if end == 0 {
                return Err(self.wrong("a value is expected"));
            }
            let word = self.rest[..end].to_owned();
            self.pass(end);
            Kind::Plain(word)
        };
        self.depth -= 1;
        Ok(Node { line, kind })
    }

    fn table(&mut self) -> Result<Kind, JsonError> {
        let mut fields = Vec::new();
        loop {
            if self.eat('}') {
                return Ok(Kind::Table(fields));
            }
            if !fields.is_empty() && !self.eat(',') {
                return Err(self.wrong("`,` or `}` is expected"));
            }
            self.skip();
            let line = self.line;
            let key = self.string()?;
            if !self.eat(':') {
                return Err(self.wrong("`:` is expected"));
            }
            let value = self.value()?;
            fields.push((key, line, value));
        }
    }

    fn list(&mut self) -> Result<Kind, JsonError> {
        let mut items = Vec::new();
        loop {
            if self.eat(']') {
                return Ok(Kind::List(items));
            }
            if !items.is_empty() && !self.eat(',') {
                return Err(self.wrong("`,` or `]` is expected"));
            }
            items.push(self.value()?);
        }
    }

    fn string(&mut self) -> Result<String, JsonError> {
        if !self.rest.starts_with('"') {
            return Err(self.wrong("a string in quotes is expected"));
        }
        let mut is_escaped = false;
        let end = self.rest[1..].find(|c: char| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let Some(end) = end else {
            return Err(self.wrong("a string is not closed"));
        };
        let quoted = &self.rest[..end + 2];
        let text = serde_json::from_str(quoted);
        let text = text.map_err(|_| self.wrong("a string is expected"))?;
        self.pass(end + 2);
        Ok(text)
    }
}

/// Largest nesting depth of tables and lists.
const DEPTH_MAX: usize = 64;
