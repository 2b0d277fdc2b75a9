//! Splits Lua text into tokens.

use std::fmt;

use super::{LuaError, LuaReason};

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Text(String),
    Number(f64),
    /// One of `{ } [ ] ( ) , ; =`.
    Sign(char),
    /// An operator, which only programs have; `-` is also allowed in front of a number.
    Operator(&'static str),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(name) => write!(f, "{name}"),
            Token::Text(text) => {
                let start: String = text.chars().take(SHOWN).collect();
                write!(f, "the string {start:?}")
            }
            Token::Number(number) => write!(f, "the number {number}"),
            Token::Sign(sign) => write!(f, "{sign}"),
            Token::Operator(sign) => write!(f, "{sign}"),
            Token::End => f.write_str("the end of the file"),
        }
    }
}

pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Scanner<'a> {
        let mut scanner = Scanner {
            text,
            at: 0,
            line: 1,
        };
        // A Lua file may begin with a `#!` line.
        if text.starts_with('#') {
            scanner.skip_line();
        }
        scanner
    }

    /// The next token and its line.
    pub(super) fn next(&mut self) -> Result<(usize, Token), LuaError> {
        self.skip_space()?;
        let line = self.line;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok((line, Token::End));
        };
        let token = match first {
            'a'..='z' | 'A'..='Z' | '_' => {
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                Token::Name(self.take_while(is_word).to_owned())
            }
            '0'..='9' => self.number()?,
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number()?,
            '"' | '\'' => self.quoted(first)?,
            '[' if level(rest).is_some() => Token::Text(self.long(LuaReason::OpenString)?),
            '{' | '}' | '[' | ']' | '(' | ')' | ',' | ';' => {
                self.step(1);
                Token::Sign(first)
            }
            '=' if !rest.starts_with("==") => {
                self.step(1);
                Token::Sign(first)
            }
            _ => match OPERATORS.iter().find(|known| rest.starts_with(**known)) {
                Some(known) => {
                    self.step(known.len());
                    Token::Operator(known)
                }
                None => {
                    let found = format!("{first:?}");
                    let wanted = "a value";
                    return Err(self.error(LuaReason::Unexpected { found, wanted }));
                }
            },
        };
        Ok((line, token))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, reason: LuaReason) -> LuaError {
        LuaError {
            line: self.line,
            reason,
        }
    }

    /// Advances by this many bytes, and counts the lines in them.
    fn step(&mut self, bytes: usize) {
        let passed = &self.text.as_bytes()[self.at..self.at + bytes];
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.at += bytes;
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.step(end);
        &rest[..end]
    }

    fn skip_line(&mut self) {
        self.take_while(|c| c != '\n');
    }

    fn skip_space(&mut self) -> Result<(), LuaError> {
        loop {
            self.take_while(|c| c.is_ascii_whitespace() || c == '\u{b}');
            if !self.rest().starts_with("--") {
                return Ok(());
            }
            self.step(2);
            match level(self.rest()) {
                Some(_) => drop(self.long(LuaReason::OpenComment)?),
                None => self.skip_line(),
            }
        }
    }

    /// Reads a long string, `[[ … ]]` or `[=[ … ]=]`. A line end directly behind the opening
    /// bracket is not part of it.
    fn long(&mut self, without_end: LuaReason) -> Result<String, LuaError> {
        let rest = self.rest();
        let level = level(rest).unwrap_or(0);
        let start = level + 2;
        let close = format!("]{}]", "=".repeat(level));
        let Some(length) = rest[start..].find(&close) else {
            return Err(self.error(without_end));
        };
        self.step(start + length + close.len());
        let inner = &rest[start..start + length];
        let inner = inner.strip_prefix('\r').unwrap_or(inner);
        Ok(inner.strip_prefix('\n').unwrap_or(inner).to_owned())
    }

    fn quoted(&mut self, quote: char) -> Result<Token, LuaError> {
        let mut bytes = Vec::new();
        let open = self.error(LuaReason::OpenString);
        self.step(1);
        loop {
            let rest = self.rest();
            let Some(next) = rest.chars().next() else {
                return Err(open);
            };
            match next {
                _ if next == quote => {
                    self.step(1);
                    break;
                }
                '\n' | '\r' => return Err(open),
                '\\' => self.escape(&mut bytes)?,
                _ => {
                    let length = next.len_utf8();
                    bytes.extend_from_slice(&rest.as_bytes()[..length]);
                    self.step(length);
                }
            }
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Token::Text(text)),
            Err(_) => Err(self.error(LuaReason::Utf8)),
        }
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), LuaError> {
        let rest = self.rest();
        let letter = rest[1..].chars().next();
        let shown = || LuaReason::Escape(rest.chars().take(4).collect());
        let simple = match letter {
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('r') => b'\r',
            Some('a') => 7,
            Some('b') => 8,
            Some('f') => 12,
            Some('v') => 11,
            Some(sign @ ('\\' | '"' | '\'' | '\n')) => sign as u8,
            Some('0'..='9') => {
                let digits: String = rest[1..].chars().take(3).collect();
                let end = digits.find(|c: char| !c.is_ascii_digit());
                let digits = &digits[..end.unwrap_or(digits.len())];
                let byte = digits.parse().map_err(|_| self.error(shown()))?;
                bytes.push(byte);
                self.step(1 + digits.len());
                return Ok(());
            }
            Some('x') => {
                let digits = rest.get(2..4).filter(|digits| is_hex(digits));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(byte.ok_or_else(|| self.error(shown()))?);
                self.step(4);
                return Ok(());
            }
            Some('u') => {
                let digits = rest[2..].strip_prefix('{');
                let digits = digits.and_then(|digits| digits.split_once('}'));
                let digits = digits.map(|(digits, _)| digits).filter(|text| is_hex(text));
                let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                let letter = code.and_then(char::from_u32);
                let letter = letter.ok_or_else(|| self.error(shown()))?;
                bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                self.step(4 + digits.map_or(0, str::len));
                return Ok(());
            }
            Some('z') => {
                self.step(2);
                self.take_while(|c| c.is_ascii_whitespace());
                return Ok(());
            }
            _ => return Err(self.error(shown())),
        };
        bytes.push(simple);
        self.step(2);
        Ok(())
    }

    /// Reads a number: decimal with fraction and exponent, or a hexadecimal integer.
    fn number(&mut self) -> Result<Token, LuaError> {
        let rest = self.rest();
        let mut end = 0;
        let mut before = '0';
        for c in rest.chars() {
            let is_sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
            let is_hexadecimal = rest.starts_with("0x") || rest.starts_with("0X");
            if !(c.is_ascii_alphanumeric() || c == '.' || is_sign && !is_hexadecimal) {
                break;
            }
            (end, before) = (end + 1, c);
        }
        let text = &rest[..end];
        let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) if is_hex(digits) => {
                u64::from_str_radix(digits, 16).ok().map(|n| n as f64)
            }
            Some(_) => None,
            // `inf` and `nan` begin with a letter, so they are read as names.
            None => text.parse::<f64>().ok().filter(|number| number.is_finite()),
        };
        let number = number.ok_or_else(|| self.error(LuaReason::Number(text.to_owned())))?;
        self.step(end);
        Ok(Token::Number(number))
    }
}

/// The level of a long bracket: the number of `=` between two `[`.
fn level(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let signs = inner.len() - inner.trim_start_matches('=').len();
    inner[signs..].starts_with('[').then_some(signs)
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// Operators, ordered so that longer ones are tried before their beginnings.
const OPERATORS: [&str; 19] = [
    "...", "..", "==", "~=", "<=", ">=", "+", "-", "*", "/", "%", "^", "#", "<", ">", ":", ".",
    "&", "|",
];

/// Number of characters of a string that an error shows.
const SHOWN: usize = 20;
