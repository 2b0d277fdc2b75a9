//! Tables as Lua writes them: `return { { port_id = "a", vlan = 5 }, }`.
//!
//! This is what snabbnfv's configuration consists of: one expression of table constructors,
//! strings, numbers, `true`, `false` and `nil`, with comments. Nothing is executed: a name where a
//! value should be, a call, an operator is refused, with its place. (Lua 5.1 reference manual,
//! §2.1, §2.5.7; the escapes `\x`, `\z` and `\u` of LuaJIT too)

use std::fmt;

mod scanner;

use self::scanner::{Scanner, Token};

/// The longest text that is read, in bytes.
pub const TEXT_MAX: usize = 4 << 20;

/// How deep tables may stand in each other.
pub const DEPTH_MAX: usize = 16;

/// A value, and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The line.
    pub line: usize,
    /// The value.
    pub value: Value,
}

/// A value.
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
    /// What it is called; fields without a name are numbered from 1.
    pub key: Key,
    /// What it is.
    pub node: Node,
}

/// What a field is called.
#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    /// `name = …` or `["name"] = …`.
    Name(String),
    /// `[5] = …`, or its place among the fields without a name.
    Number(f64),
    /// `[true] = …`.
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
    /// What kind of value it is, for errors.
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

/// Why text is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct LuaError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub reason: LuaReason,
}

/// What is wrong with the text of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LuaReason {
    /// Something else should be there.
    #[error("{found} where {wanted} would be right")]
    Unexpected {
        /// What is there.
        found: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// A part of Lua that is not read.
    #[error(
        "{found}: only table constructors, strings, numbers, true, false and nil are read; nothing \
         is executed"
    )]
    Program {
        /// What is there.
        found: String,
    },
    /// A string without end.
    #[error("this string has no end")]
    OpenString,
    /// A comment without end.
    #[error("this comment has no end")]
    OpenComment,
    /// An escape that Lua does not have.
    #[error("{0}: not an escape of a string; \\n, \\\\, \\\", \\065, \\x41 are")]
    Escape(String),
    /// Bytes that are no text.
    #[error("this string is not UTF-8")]
    Utf8,
    /// Digits that are no number.
    #[error("{0}: not a number")]
    Number(String),
    /// A field that is there twice.
    #[error("{0} is in this table twice")]
    Twice(String),
    /// Tables in tables.
    #[error("tables are nested more than {DEPTH_MAX} deep")]
    Depth,
    /// Too much.
    #[error("the text has {0} bytes: at most {TEXT_MAX} are read")]
    Long(usize),
}

/// Reads `return` and a value; `return` may be left out.
///
/// # Errors
/// The text is something else; the error says where.
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

    /// The fields of a table and the brace that ends it.
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
            // A name alone is a variable.
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
