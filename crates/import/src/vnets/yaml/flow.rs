//! Values in brackets, and scalars.

use super::{DEPTH_MAX, Value, Yaml};
use crate::error::YamlError;

/// How many brackets are open at the end of what has passed.
#[derive(Debug, Default)]
pub struct Brackets {
    depth: usize,
    quote: Option<char>,
}

impl Brackets {
    /// Takes the next part of the text.
    pub fn pass(&mut self, text: &str) {
        for c in text.chars() {
            match (self.quote, c) {
                (None, '[' | '{') => self.depth += 1,
                (None, ']' | '}') => self.depth = self.depth.saturating_sub(1),
                (None, '"' | '\'') => self.quote = Some(c),
                (Some(open), _) if c == open => self.quote = None,
                _ => {}
            }
        }
    }

    /// Whether none is open.
    pub fn are_closed(&self) -> bool {
        self.depth == 0
    }
}

/// A value in brackets, all of the text.
pub fn flow(text: &str, line: usize, depth: usize) -> Result<Value, YamlError> {
    let mut rest = text;
    let value = value(&mut rest, line, depth)?;
    match rest.trim() {
        "" => Ok(value),
        more => Err(YamlError::new(line, format!("{more:?} behind a bracket"))),
    }
}

fn value(rest: &mut &str, line: usize, depth: usize) -> Result<Value, YamlError> {
    if depth > DEPTH_MAX {
        let what = format!("values nest deeper than {DEPTH_MAX}");
        return Err(YamlError::new(line, what));
    }
    *rest = rest.trim_start();
    match rest.chars().next() {
        Some('[') => list(rest, line, depth),
        Some('{') => map(rest, line, depth),
        _ => {
            let end = end_of_word(rest, ",]}");
            let (text, behind) = rest.split_at(end);
            *rest = behind;
            word(text.trim(), line)
        }
    }
}

fn list(rest: &mut &str, line: usize, depth: usize) -> Result<Value, YamlError> {
    *rest = &rest[1..];
    let mut items = Vec::new();
    loop {
        *rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix(']') {
            *rest = behind;
            return Ok(Value::List(items));
        }
        let value = value(rest, line, depth + 1)?;
        items.push(Yaml { line, value });
        comma(rest, ']', line)?;
    }
}

fn map(rest: &mut &str, line: usize, depth: usize) -> Result<Value, YamlError> {
    *rest = &rest[1..];
    let mut entries = Vec::new();
    loop {
        *rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix('}') {
            *rest = behind;
            return Ok(Value::Map(entries));
        }
        let end = end_of_word(rest, ",:]}");
        let (key, behind) = rest.split_at(end);
        let (Value::Text(key), Some(behind)) = (word(key.trim(), line)?, behind.strip_prefix(':'))
        else {
            return Err(YamlError::new(line, "in braces stands KEY: VALUE"));
        };
        *rest = behind;
        let value = value(rest, line, depth + 1)?;
        entries.push((key, Yaml { line, value }));
        comma(rest, '}', line)?;
    }
}

/// What stands between two values: a comma, or the bracket that closes.
fn comma(rest: &mut &str, close: char, line: usize) -> Result<(), YamlError> {
    *rest = rest.trim_start();
    match rest.strip_prefix(',') {
        Some(behind) => *rest = behind,
        None if rest.starts_with(close) => {}
        None => return Err(YamlError::new(line, "a bracket without its end")),
    }
    Ok(())
}

/// Where a scalar in brackets ends.
fn end_of_word(text: &str, ends: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        // A colon ends a key only before a space: `a:eth0` is a scalar.
        let is_end = match c {
            ':' => text[at + 1..].starts_with(' ') || text.starts_with(['"', '\'']),
            _ => true,
        };
        match quote {
            None if matches!(c, '"' | '\'') && at == 0 => quote = Some(c),
            None if is_end && ends.contains(c) => return at,
            Some(open) if c == open => quote = None,
            _ => {}
        }
    }
    text.len()
}

/// A scalar: quoted, or as it is.
pub fn word(text: &str, line: usize) -> Result<Value, YamlError> {
    let unclosed = || YamlError::new(line, "a quote without its end");
    match text.chars().next() {
        None => Ok(Value::Nothing),
        Some('\'') => {
            let inner = text[1..].strip_suffix('\'').ok_or_else(unclosed)?;
            Ok(Value::Text(inner.replace("''", "'")))
        }
        Some('"') => {
            let inner = text[1..].strip_suffix('"').ok_or_else(unclosed)?;
            Ok(Value::Text(unescaped(inner)))
        }
        _ if matches!(text, "~" | "null") => Ok(Value::Nothing),
        _ => Ok(Value::Text(text.to_owned())),
    }
}

fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(other) => other,
                None => '\\',
            },
            c => c,
        });
    }
    plain
}
