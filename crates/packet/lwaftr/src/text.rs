//! Parser of the text form of YANG data in `snabb-softwire` files: `keyword value;` and `keyword {
//! ... }`. (Quoting and comments: RFC 7950 §6.1)

use std::borrow::Cow;
use std::str::FromStr;

/// Reads statements one by one, and keeps none: a file can have millions.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    /// Number of open blocks.
    depth: u32,
}

/// One statement, without the contents of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// The line on which the statement begins, from 1.
    pub line: u32,
    /// The statement's first word.
    pub keyword: &'a str,
    /// The value behind the keyword; `None` if a block follows instead.
    pub value: Option<Cow<'a, str>>,
}

/// A fault in a file, and its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ReadError {
    /// Number of the line with the fault, from 1.
    pub line: u32,
    /// The fault on the line.
    pub fault: Fault,
}

/// A fault in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file ends within a statement.
    #[error("the file ends where {0} is expected")]
    End(&'static str),
    /// An unexpected character.
    #[error("found {found:?} where {expected} is expected")]
    Character {
        /// The character that the text has at this place.
        found: char,
        /// The text that would be valid at this place.
        expected: &'static str,
    },
    /// Blocks are nested deeper than any model has it.
    #[error("blocks are nested deeper than {DEPTH_MAX} levels")]
    Depth,
    /// A closing brace without an opening one.
    #[error("this }} closes no block")]
    Closed,
    /// The container has no member with this keyword.
    #[error("{container} cannot contain {keyword:?}; it can contain {known}")]
    Unknown {
        /// Name of the container that has the unknown keyword.
        container: &'static str,
        /// The unknown keyword.
        keyword: String,
        /// The keywords that the container knows.
        known: &'static str,
    },
    /// The value is not valid for its keyword.
    #[error("{keyword} is {value:?}: {expected} is expected")]
    Value {
        /// The keyword whose value is not valid.
        keyword: String,
        /// The value that is not valid.
        value: String,
        /// The text that would be valid at this place.
        expected: &'static str,
    },
    /// A block stands where a value is expected.
    #[error("{0} has a block: a value and a semicolon are expected")]
    Block(String),
    /// A value stands where a block is expected.
    #[error("{0} has a value: a block in braces is expected")]
    Leaf(String),
    /// A member occurs twice.
    #[error("{0} occurs twice")]
    Twice(String),
    /// A mandatory member is missing.
    #[error("{container} lacks {missing}")]
    Missing {
        /// Name of the container that lacks the member.
        container: &'static str,
        /// The missing member.
        missing: &'static str,
    },
    /// Statements that are each valid contradict one another, or their values are out of range.
    #[error("{0}")]
    Model(String),
}

impl Fault {
    /// Makes this fault an error at a line.
    #[must_use]
    pub fn at(self, line: u32) -> ReadError {
        ReadError { line, fault: self }
    }
}

/// Largest number of blocks that may be nested.
const DEPTH_MAX: u32 = 16;

impl<'a> Reader<'a> {
    /// Makes a reader at the beginning of a text.
    #[must_use]
    pub fn new(text: &'a str) -> Reader<'a> {
        Reader {
            text,
            at: 0,
            line: 1,
            depth: 0,
        }
    }

    /// The line that the reader has reached, from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Reads the next statement of the open block. If the statement has a block, the next call
    /// returns the first statement inside. `None` at the end of the open block, whose brace is then
    /// consumed, and at the end of the file.
    ///
    /// # Errors
    /// The text is not well formed.
    pub fn statement(&mut self) -> Result<Option<Statement<'a>>, ReadError> {
        self.skip_space()?;
        match self.peek() {
            None if self.depth == 0 => return Ok(None),
            None => return Err(self.end("a closing brace")),
            Some(b'}') if self.depth == 0 => return Err(Fault::Closed.at(self.line)),
            Some(b'}') => {
                self.at += 1;
                self.depth -= 1;
                return Ok(None);
            }
            Some(_) => {}
        }
        let line = self.line;
        let keyword = self.word()?;
        self.skip_space()?;
        let value = match self.peek() {
            None => return Err(self.end("a value or a block")),
            Some(b'{') => {
                if self.depth == DEPTH_MAX {
                    return Err(Fault::Depth.at(self.line));
                }
                self.at += 1;
                self.depth += 1;
                None
            }
            Some(b';') => {
                self.at += 1;
                Some(Cow::Borrowed(""))
            }
            Some(_) => Some(self.value()?),
        };
        Ok(Some(Statement {
            line,
            keyword,
            value,
        }))
    }

    /// Skips the rest of the open block.
    ///
    /// # Errors
    /// As for [`Reader::statement`].
    pub fn skip_block(&mut self) -> Result<(), ReadError> {
        let outside = self.depth.saturating_sub(1);
        while self.depth > outside {
            self.statement()?;
        }
        Ok(())
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn end(&self, expected: &'static str) -> ReadError {
        Fault::End(expected).at(self.line)
    }

    fn skip_space(&mut self) -> Result<(), ReadError> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at..).unwrap_or_default() {
                [b'\n', ..] => {
                    self.line += 1;
                    self.at += 1;
                }
                [b' ' | b'\t' | b'\r', ..] => self.at += 1,
                [b'/', b'/', rest @ ..] => {
                    let length = rest.iter().position(|byte| *byte == b'\n');
                    self.at += 2 + length.unwrap_or(rest.len());
                }
                [b'/', b'*', rest @ ..] => {
                    let Some(length) = rest.windows(2).position(|end| end == b"*/") else {
                        return Err(self.end("the end of a comment, */,"));
                    };
                    let lines = rest[..length].iter().filter(|byte| **byte == b'\n');
                    self.line += lines.count() as u32;
                    self.at += length + 4;
                }
                _ => return Ok(()),
            }
        }
    }

    fn word(&mut self) -> Result<&'a str, ReadError> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
        let length = rest.bytes().take_while(is_part).count();
        if length == 0 {
            let found = rest.chars().next().unwrap_or_default();
            return Err(Fault::Character {
                found,
                expected: "a keyword",
            }
            .at(self.line));
        }
        self.at += length;
        Ok(&rest[..length])
    }

    /// Reads a value and its semicolon.
    fn value(&mut self) -> Result<Cow<'a, str>, ReadError> {
        let mut value = self.string()?;
        loop {
            self.skip_space()?;
            match self.peek() {
                Some(b';') => {
                    self.at += 1;
                    return Ok(value);
                }
                Some(b'+') => {
                    self.at += 1;
                    self.skip_space()?;
                    let next = self.string()?;
                    value.to_mut().push_str(&next);
                }
                None => return Err(self.end("a semicolon")),
                Some(_) => {
                    let found = self.text[self.at..].chars().next().unwrap_or_default();
                    return Err(Fault::Character {
                        found,
                        expected: "a semicolon",
                    }
                    .at(self.line));
                }
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, ReadError> {
        match self.peek() {
            None => Err(self.end("a value")),
            Some(quote @ (b'"' | b'\'')) => self.quoted(quote),
            Some(_) => {
                let rest = &self.text[self.at..];
                let is_end = |byte: u8| b" \t\r\n;{}\"'".contains(&byte);
                let length = rest.bytes().position(is_end).unwrap_or(rest.len());
                if length == 0 {
                    let found = rest.chars().next().unwrap_or_default();
                    return Err(Fault::Character {
                        found,
                        expected: "a value",
                    }
                    .at(self.line));
                }
                self.at += length;
                Ok(Cow::Borrowed(&rest[..length]))
            }
        }
    }

    fn quoted(&mut self, quote: u8) -> Result<Cow<'a, str>, ReadError> {
        self.at += 1;
        let rest = &self.text[self.at..];
        let mut made: Option<String> = None;
        let mut bytes = rest.bytes().enumerate();
        let mut kept = 0;
        while let Some((at, byte)) = bytes.next() {
            if byte == quote {
                self.at += at + 1;
                return Ok(match made {
                    None => Cow::Borrowed(&rest[..at]),
                    Some(text) => Cow::Owned(text + &rest[kept..at]),
                });
            }
            self.line += u32::from(byte == b'\n');
            if byte == b'\\' && quote == b'"' {
                let escaped = match bytes.next() {
                    Some((_, b'n')) => '\n',
                    Some((_, b't')) => '\t',
                    Some((_, other @ (b'"' | b'\\'))) => char::from(other),
                    Some(_) => {
                        let found = rest[at + 1..].chars().next().unwrap_or_default();
                        let expected = "n, t, \" or \\ after \\";
                        return Err(Fault::Character { found, expected }.at(self.line));
                    }
                    None => break,
                };
                let text = made.get_or_insert_default();
                text.push_str(&rest[kept..at]);
                text.push(escaped);
                kept = at + 2;
            }
        }
        Err(self.end("the end of a quoted value"))
    }
}

impl Statement<'_> {
    /// Parses the value as a `T`; `expected` describes `T` in the error.
    ///
    /// # Errors
    /// The value is invalid, or the statement has a block.
    pub fn parse<T: FromStr>(&self, expected: &'static str) -> Result<T, ReadError> {
        self.parse_where(expected, |_| true)
    }

    /// Parses the value as a `T` for which `is_valid` holds; `expected` describes it in the error.
    ///
    /// # Errors
    /// The value is invalid, or the statement has a block.
    pub fn parse_where<T: FromStr>(
        &self,
        expected: &'static str,
        is_valid: impl FnOnce(&T) -> bool,
    ) -> Result<T, ReadError> {
        let text = self.text()?;
        let parsed = text.parse().ok().filter(is_valid);
        parsed.ok_or_else(|| {
            Fault::Value {
                keyword: self.keyword.to_owned(),
                value: text.chars().take(VALUE_SHOWN).collect(),
                expected,
            }
            .at(self.line)
        })
    }

    /// The value as text.
    ///
    /// # Errors
    /// The statement has a block.
    pub fn text(&self) -> Result<&str, ReadError> {
        match &self.value {
            Some(value) => Ok(value),
            None => Err(Fault::Block(self.keyword.to_owned()).at(self.line)),
        }
    }

    /// Checks that the statement has a block.
    ///
    /// # Errors
    /// The statement has a value.
    pub fn expect_block(&self) -> Result<(), ReadError> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(Fault::Leaf(self.keyword.to_owned()).at(self.line)),
        }
    }

    /// The error for a keyword that `container` does not know; `known` lists those that it knows.
    #[must_use]
    pub fn unknown(&self, container: &'static str, known: &'static str) -> ReadError {
        Fault::Unknown {
            container,
            keyword: self.keyword.to_owned(),
            known,
        }
        .at(self.line)
    }
}

/// Stores the value of a statement in `place`, which must still be empty.
///
/// # Errors
/// The place has a value already, or `value` is an error.
pub fn set<T>(
    place: &mut Option<T>,
    statement: &Statement<'_>,
    value: Result<T, ReadError>,
) -> Result<(), ReadError> {
    if place.is_some() {
        return Err(Fault::Twice(statement.keyword.to_owned()).at(statement.line));
    }
    *place = Some(value?);
    Ok(())
}

/// Number of characters of a wrong value that an error shows.
const VALUE_SHOWN: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<String>, ReadError> {
        let mut reader = Reader::new(text);
        let mut found = Vec::new();
        while reader.at < text.len() {
            match reader.statement()? {
                None => found.push("}".to_owned()),
                Some(Statement {
                    line,
                    keyword,
                    value: Some(value),
                }) => found.push(format!("{line} {keyword}={value}")),
                Some(Statement { line, keyword, .. }) => found.push(format!("{line} {keyword}{{")),
            }
        }
        Ok(found)
    }

    #[test]
    fn statements_blocks_comments_and_quotes_are_read() {
        let text = "a 1; // one\nb { c \"x \\\"y\\\"\\n\" + 'z\\';/* two\nlines */ d e.f:g/8;}\nh;";
        let expected = [
            "1 a=1",
            "2 b{",
            "2 c=x \"y\"\nz\\",
            "3 d=e.f:g/8",
            "}",
            "4 h=",
        ];
        assert_eq!(all(text).unwrap(), expected);
    }

    #[test]
    fn faults_have_their_line() {
        for (text, line, fault) in [
            ("a {\n b 1;\n", 3, "the file ends where a closing brace"),
            ("a 1\n", 2, "the file ends where a semicolon"),
            ("a 1;\n}", 2, "closes no block"),
            ("a\n{ ; }", 2, "found ';' where a keyword"),
            ("a \"x\ny", 2, "the end of a quoted value"),
            ("a \"\\x\";", 1, "found 'x' where"),
            ("/* a", 1, "the end of a comment"),
            ("a b c;", 1, "found 'c' where a semicolon"),
            ("a }", 1, "found '}' where a value"),
        ] {
            let error = all(text).unwrap_err();
            assert!(error.to_string().contains(fault), "{text:?}: {error}");
            assert_eq!(error.line, line, "{text:?}");
        }
        let deep = "a {".repeat(17);
        assert_eq!(all(&deep).unwrap_err().fault, Fault::Depth);
    }

    #[test]
    fn block_that_is_passed_over_is_read_to_its_end() {
        let mut reader = Reader::new("a { b { c 1; } d 2; } e 3;");
        reader.statement().unwrap();
        reader.skip_block().unwrap();
        assert_eq!(reader.statement().unwrap().unwrap().keyword, "e");
    }
}
