//! Parser for a table in Lua's syntax: `return { { port_id = "a", vlan = 5 }, }`.
//!
//! A configuration of snabbnfv is one expression of table constructors, strings, numbers, `true`,
//! `false` and `nil`, with comments. The parser executes nothing. It refuses variables, calls and
//! operators, and names their line. (Lua 5.1 reference manual, §2.1, §2.5.7; also the escapes
//! `\x`, `\z` and `\u` of LuaJIT)

use std::fmt;

mod scanner;

use self::scanner::{Scanner, Token};

/// Length of the longest text that is parsed, in bytes.
pub const TEXT_MAX: usize = 4 << 20;

/// Deepest nesting of tables.
pub const DEPTH_MAX: usize = 16;

/// A value, and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Number of the line on which the value begins, from 1.
    pub line: usize,
    /// The value without its position.
    pub value: Value,
}

/// A value of Lua.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `nil`.
    Nil,
    /// `true`, `false`.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// A table: its fields, in the order of the text.
    Table(Vec<Field>),
}

/// A field of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The field's key. Fields without a key are numbered from 1.
    pub key: Key,
    /// The field's value.
    pub node: Node,
}

/// The key of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    /// A string, as in `name = …` or `["name"] = …`.
    Name(String),
    /// A number, as in `[5] = …`; or the position, from 1, of a field without a key.
    Number(f64),
    /// A boolean, as in `[true] = …`.
    Boolean(bool),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Name(name) => write!(f, "{name}"),
            Key::Number(number) => write!(f, "[{number}]"),
            Key::Boolean(value) => write!(f, "[{value}]"),
        }
    }
}

impl Value {
    /// The type of the value, for error messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Nil => "nil",
            Value::Boolean(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a string",
            Value::Table(_) => "a table",
        }
    }
}

/// Why a text is not a valid table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LuaError {
    /// Number of the line with the fault, from 1.
    pub line: usize,
    /// Why the text on that line is not part of a valid table.
    pub reason: LuaReason,
}

/// A fault in the text of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LuaReason {
    /// An unexpected word.
    #[error("found {found}, expected {wanted}")]
    Unexpected {
        /// The word that was found.
        found: String,
        /// The text that would be valid at this place.
        wanted: &'static str,
    },
    /// A part of Lua that the parser does not support.
    #[error(
        "{found}: the file may contain only table constructors, strings, numbers, true, false and \
         nil; it is not executed"
    )]
    Program {
        /// The word that was found.
        found: String,
    },
    /// A string is not closed.
    #[error("this string is not closed")]
    OpenString,
    /// A comment is not closed.
    #[error("this comment is not closed")]
    OpenComment,
    /// A string has an escape that Lua does not know.
    #[error("{0} is not an escape sequence; valid ones are \\n, \\\\, \\\", \\065, \\x41")]
    Escape(String),
    /// The bytes of a string are not UTF-8.
    #[error("this string is not UTF-8")]
    Utf8,
    /// A number is malformed.
    #[error("{0} is not a number")]
    Number(String),
    /// A table has the same key twice.
    #[error("this table has {0} twice")]
    Twice(String),
    /// Tables are nested too deep.
    #[error("tables are nested deeper than {DEPTH_MAX} levels")]
    Depth,
    /// The text is too long; holds its length in bytes.
    #[error("the file has {0} bytes: must be at most {TEXT_MAX}")]
    Long(usize),
}

/// Parses a value, with or without `return` in front.
///
/// # Errors
/// The text is not a valid value; the error gives the line.
pub fn parse(text: &str) -> Result<Node, LuaError> {
    if text.len() > TEXT_MAX {
        return Err(LuaError {
            line: 1,
            reason: LuaReason::Long(text.len()),
        });
    }
    let mut parser = Parser {
        scanner: Scanner::new(text),
        depth: 0,
    };
    let mut first = parser.next()?;
    if first.1 == Token::Name("return".to_owned()) {
        first = parser.next()?;
    }
    let node = parser.value(first)?;
    let mut behind = parser.next()?;
    if behind.1 == Token::Sign(';') {
        behind = parser.next()?;
    }
    match behind.1 {
        Token::End => Ok(node),
        found => Err(unexpected(behind.0, &found, "the end of the file")),
    }
}

struct Parser<'a> {
    scanner: Scanner<'a>,
    depth: usize,
}

fn unexpected(line: usize, found: &Token, wanted: &'static str) -> LuaError {
    let reason = match found {
        Token::Name(_) | Token::Operator(_) | Token::Sign('(' | ')') => LuaReason::Program {
            found: found.to_string(),
        },
        _ => LuaReason::Unexpected {
            found: found.to_string(),
            wanted,
        },
    };
    LuaError { line, reason }
}

impl Parser<'_> {
    fn next(&mut self) -> Result<(usize, Token), LuaError> {
        self.scanner.next()
    }

    fn value(&mut self, (line, token): (usize, Token)) -> Result<Node, LuaError> {
        let value = match token {
            Token::Text(text) => Value::Text(text),
            Token::Number(number) => Value::Number(number),
            Token::Name(name) if name == "true" => Value::Boolean(true),
            Token::Name(name) if name == "false" => Value::Boolean(false),
            Token::Name(name) if name == "nil" => Value::Nil,
            Token::Operator("-") => match self.next()? {
                (_, Token::Number(number)) => Value::Number(-number),
                (line, found) => return Err(unexpected(line, &found, "a number")),
            },
            Token::Sign('{') => self.table(line)?,
            found => return Err(unexpected(line, &found, "a value")),
        };
        Ok(Node { line, value })
    }

    /// Parses the fields of a table, up to and including its closing brace.
    fn table(&mut self, line: usize) -> Result<Value, LuaError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let reason = LuaReason::Depth;
            return Err(LuaError { line, reason });
        }
        let (mut fields, mut numbered) = (Vec::new(), 0);
        let mut names = std::collections::BTreeSet::new();
        let mut token = self.next()?;
        while token.1 != Token::Sign('}') {
            let line = token.0;
            let (key, node) = self.field(token, &mut numbered)?;
            if !names.insert(key.to_string()) {
                let reason = LuaReason::Twice(key.to_string());
                return Err(LuaError { line, reason });
            }
            fields.push(Field { key, node });
            token = self.next()?;
            match token.1 {
                Token::Sign(',' | ';') => token = self.next()?,
                Token::Sign('}') => {}
                found => return Err(unexpected(token.0, &found, "a comma or }")),
            }
        }
        self.depth -= 1;
        Ok(Value::Table(fields))
    }

    fn field(
        &mut self,
        (line, token): (usize, Token),
        numbered: &mut u32,
    ) -> Result<(Key, Node), LuaError> {
        let key = match token {
            Token::Name(name) if !is_value(&name) => Key::Name(name),
            Token::Sign('[') => {
                let token = self.next()?;
                let key = self.key(token)?;
                match self.next()? {
                    (_, Token::Sign(']')) => key,
                    (line, found) => return Err(unexpected(line, &found, "]")),
                }
            }
            token => {
                *numbered += 1;
                let key = Key::Number(f64::from(*numbered));
                return Ok((key, self.value((line, token))?));
            }
        };
        match self.next()? {
            (_, Token::Sign('=')) => {}
            // A name without `=` is a variable.
            (line, _) if matches!(key, Key::Name(_)) => {
                let reason = LuaReason::Program {
                    found: key.to_string(),
                };
                return Err(LuaError { line, reason });
            }
            (line, found) => return Err(unexpected(line, &found, "=")),
        }
        let token = self.next()?;
        Ok((key, self.value(token)?))
    }

    fn key(&mut self, token: (usize, Token)) -> Result<Key, LuaError> {
        let line = token.0;
        let node = self.value(token)?;
        let kind = node.value.kind();
        match node.value {
            Value::Text(text) => Ok(Key::Name(text)),
            Value::Number(number) => Ok(Key::Number(number)),
            Value::Boolean(value) => Ok(Key::Boolean(value)),
            Value::Nil | Value::Table(_) => Err(LuaError {
                line,
                reason: LuaReason::Unexpected {
                    found: kind.to_owned(),
                    wanted: "the name of a field",
                },
            }),
        }
    }
}

fn is_value(name: &str) -> bool {
    matches!(name, "true" | "false" | "nil")
}

#[cfg(test)]
mod tests;
