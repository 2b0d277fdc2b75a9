//! YAML, as far as files of networks have it: mappings and lists in blocks and in brackets, plain
//! and quoted scalars, texts after `|` and `>`, comments. (YAML 1.2.2)
//!
//! Anchors, aliases, tags, keys that are no scalars and further documents are refused with their
//! line. Every scalar is a text: what it means is for who reads it.

mod flow;

use std::collections::BTreeSet;

use self::flow::flow;
use crate::error::YamlError;

/// A value and the line at which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Yaml {
    /// From 1.
    pub line: usize,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing stands there.
    Nothing,
    /// A text.
    Text(String),
    /// Keys with values, in their order.
    Map(Vec<(String, Yaml)>),
    /// A list.
    List(Vec<Yaml>),
}

impl Yaml {
    /// Reads the one document of a text.
    ///
    /// # Errors
    /// The text is not YAML, or of what is not read here.
    pub fn read(text: &str) -> Result<Yaml, YamlError> {
        if text.len() > TEXT_MAX {
            return Err(YamlError::new(1, format!("more than {TEXT_MAX} bytes")));
        }
        let mut lines = lines(text)?;
        lines.reverse();
        let mut reader = Reader { lines };
        let whole = reader.node(0)?;
        match reader.lines.last() {
            None => Ok(whole),
            Some(left) => Err(YamlError::new(
                left.number,
                "less indented than what it follows",
            )),
        }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Yaml> {
        let found = self.entries().iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    /// The keys with their values; none if it is no mapping.
    #[must_use]
    pub fn entries(&self) -> &[(String, Yaml)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items; none if it is no list.
    #[must_use]
    pub fn items(&self) -> &[Yaml] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A line that says something.
#[derive(Clone, Debug)]
struct Line<'a> {
    number: usize,
    indent: usize,
    text: &'a str,
    /// With its comment, as texts in blocks have it.
    whole: &'a str,
}

struct Reader<'a> {
    /// The next one is the last.
    lines: Vec<Line<'a>>,
}

fn lines(text: &str) -> Result<Vec<Line<'_>>, YamlError> {
    let mut found = Vec::new();
    for (index, whole) in text.lines().enumerate() {
        let number = index + 1;
        let text = whole.trim_start_matches(' ');
        let indent = whole.len() - text.len();
        let text = without_comment(text).trim_end();
        if text == "---" && found.is_empty() {
            continue;
        }
        if text == "---" || text == "..." {
            return Err(YamlError::new(number, "a second document"));
        }
        if text.starts_with('\t') {
            return Err(YamlError::new(number, "a tab that indents; use spaces"));
        }
        if !text.is_empty() {
            found.push(Line {
                number,
                indent,
                text,
                whole,
            });
        }
    }
    Ok(found)
}

/// A line without its comment: from a `#` that stands first, or after a space, outside of quotes.
fn without_comment(text: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '#') if before.is_whitespace() => return &text[..at],
            (None, '"' | '\'') if !before.is_alphanumeric() => quote = Some(c),
            (Some(open), _) if c == open && before != '\\' => quote = None,
            _ => {}
        }
        before = c;
    }
    text
}

impl<'a> Reader<'a> {
    /// The node whose first line is the next one.
    fn node(&mut self, depth: usize) -> Result<Yaml, YamlError> {
        let Some(line) = self.lines.last().cloned() else {
            let value = Value::Nothing;
            return Ok(Yaml { line: 1, value });
        };
        if depth > DEPTH_MAX {
            let what = format!("values nest deeper than {DEPTH_MAX}");
            return Err(YamlError::new(line.number, what));
        }
        let value = if is_item(line.text) {
            self.list(line.indent, depth)?
        } else if split_key(line.text, line.number)?.is_some() {
            self.map(line.indent, depth)?
        } else {
            self.lines.pop();
            self.scalar(&line, line.text, depth)?
        };
        let line = line.number;
        Ok(Yaml { line, value })
    }

    fn list(&mut self, indent: usize, depth: usize) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        while let Some(line) = self.lines.last().cloned() {
            if line.indent != indent || !is_item(line.text) {
                break;
            }
            self.lines.pop();
            let rest = line.text[1..].trim_start();
            if rest.is_empty() {
                items.push(self.below(&line, indent, depth)?);
                continue;
            }
            // What follows the dash is a line of its own, further in.
            let indent = line.indent + line.text.len() - rest.len();
            self.lines.push(Line {
                indent,
                text: rest,
                ..line
            });
            items.push(self.node(depth + 1)?);
        }
        self.deeper(indent)?;
        Ok(Value::List(items))
    }

    fn map(&mut self, indent: usize, depth: usize) -> Result<Value, YamlError> {
        let mut entries: Vec<(String, Yaml)> = Vec::new();
        let mut known = BTreeSet::new();
        while let Some(line) = self.lines.last().cloned() {
            if line.indent != indent || is_item(line.text) {
                break;
            }
            let Some((key, rest)) = split_key(line.text, line.number)? else {
                return Err(YamlError::new(line.number, "a key with `:` is expected"));
            };
            self.lines.pop();
            if !known.insert(key.clone()) {
                return Err(YamlError::new(line.number, format!("{key:?} stands twice")));
            }
            let value = match rest {
                "" => self.below(&line, indent, depth)?,
                rest => Yaml {
                    line: line.number,
                    value: self.scalar(&line, rest, depth)?,
                },
            };
            entries.push((key, value));
        }
        self.deeper(indent)?;
        Ok(Value::Map(entries))
    }

    /// What stands below a key or dash without a value: further in, or a list as far in as its key.
    fn below(&mut self, line: &Line<'_>, indent: usize, depth: usize) -> Result<Yaml, YamlError> {
        let is_below = self.lines.last().is_some_and(|next| {
            let is_list = is_item(next.text) && !is_item(line.text);
            next.indent > indent || (next.indent == indent && is_list)
        });
        match is_below {
            true => self.node(depth + 1),
            false => Ok(Yaml {
                line: line.number,
                value: Value::Nothing,
            }),
        }
    }

    fn deeper(&self, indent: usize) -> Result<(), YamlError> {
        match self.lines.last() {
            Some(next) if next.indent > indent => {
                Err(YamlError::new(next.number, "indented without a reason"))
            }
            _ => Ok(()),
        }
    }

    /// A value that begins on a line.
    fn scalar(&mut self, line: &Line<'_>, text: &str, depth: usize) -> Result<Value, YamlError> {
        match text.chars().next() {
            Some('|' | '>') => Ok(self.text_block(line.indent)),
            Some('[' | '{') => {
                let mut all = text.to_owned();
                let mut brackets = flow::Brackets::default();
                brackets.pass(text);
                while !brackets.are_closed() {
                    let Some(next) = self.lines.pop() else { break };
                    brackets.pass(next.text);
                    all.push(' ');
                    all.push_str(next.text);
                }
                flow(&all, line.number, depth)
            }
            Some('&' | '*' | '!' | '%' | '@' | '`') => {
                let what = format!("{text:?}: anchors, aliases and tags are not read");
                Err(YamlError::new(line.number, what))
            }
            _ => flow::word(text, line.number),
        }
    }

    /// The lines further in than the key, as they are. Comments and empty lines are lost.
    fn text_block(&mut self, indent: usize) -> Value {
        let mut text = String::new();
        while let Some(line) = self.lines.pop_if(|next| next.indent > indent) {
            text.push_str(line.whole.trim());
            text.push('\n');
        }
        Value::Text(text)
    }
}

fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// The key of a line and what follows it; nothing if it has none.
fn split_key(text: &str, line: usize) -> Result<Option<(String, &str)>, YamlError> {
    if text.starts_with(['[', '{']) {
        return Ok(None);
    }
    let end = match text.chars().next() {
        Some(quote @ ('"' | '\'')) => match text[1..].find(quote) {
            Some(at) => at + 2,
            None => return Err(YamlError::new(line, "a quote without its end")),
        },
        _ => 0,
    };
    let is_colon = |(at, _): &(usize, &str)| {
        let behind = &text[end + at + 1..];
        behind.is_empty() || behind.starts_with(' ')
    };
    let Some((at, _)) = text[end..].match_indices(':').find(is_colon) else {
        return Ok(None);
    };
    let key = text[..end + at].trim_end();
    if end > 0 && key.len() != end {
        return Ok(None);
    }
    let Value::Text(key) = flow::word(key, line)? else {
        return Err(YamlError::new(line, "a key is expected"));
    };
    Ok(Some((key, text[end + at + 1..].trim_start())))
}

/// The longest text, in bytes.
const TEXT_MAX: usize = 4 << 20;
/// How deep values nest.
pub(crate) const DEPTH_MAX: usize = 32;

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
                    .map(|(key, it)| format!("{key}: {}", words(it)));
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
    }

    #[test]
    fn what_is_not_read_is_refused_with_its_line() {
        for (text, what) in [
            ("a: &b 1", "line 1: \"&b 1\": anchors"),
            ("a: 1\nb: *a", "line 2"),
            ("a: 1\na: 2", "line 2: \"a\" stands twice"),
            ("a:\n\tb: 1", "line 2: a tab"),
            ("a: [1, 2", "line 1: a bracket"),
            ("a: 1\n---\nb: 2", "line 2: a second document"),
            ("a: 1\n  b: 2", "line 2: indented"),
            ("a: \"x", "line 1: a quote"),
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
