//! Tokens of a line of a topology file, and the values in them.

use std::fmt;

use super::{Position, TopologyError};

/// A token and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// The text, without its quotes.
    pub(crate) text: String,
    /// Position of its first character.
    pub(crate) at: Position,
}

impl Token {
    /// An error at this token.
    pub(crate) fn error(&self, message: impl fmt::Display) -> TopologyError {
        error_at(self.at, message)
    }

    /// The key and the value of `KEY=VALUE`.
    pub(crate) fn pair(&self) -> Option<(&str, Token)> {
        let (key, value) = self.text.split_once('=')?;
        let at = Position {
            column: self.at.column + key.chars().count() + 1,
            ..self.at
        };
        let text = value.to_owned();
        Some((key, Token { text, at }))
    }

    /// Parses a number.
    ///
    /// # Errors
    /// The text is not a number, or is not within `min..=max`.
    pub(crate) fn number(&self, what: &str, min: u64, max: u64) -> Result<u64, TopologyError> {
        match self.text.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(self.error(format!(
                "{what} is `{}`; must be a number from {min} to {max}",
                self.text
            ))),
        }
    }

    /// Parses a rate in bits per second: `100Mbps` as in rlite, or `10mbit` as in `tc`. 0 means no
    /// limit.
    ///
    /// # Errors
    /// The text is not a rate.
    pub(crate) fn rate(&self) -> Result<u64, TopologyError> {
        let text = self.text.to_ascii_lowercase();
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &text[..text.len() - unit.len()];
        let scale = match unit {
            "bps" | "bit" => Some(1.0),
            "kbps" | "kbit" => Some(1e3),
            "mbps" | "mbit" => Some(1e6),
            "gbps" | "gbit" => Some(1e9),
            _ => None,
        };
        match (number.parse::<f64>(), scale) {
            (Ok(number), Some(scale)) if number * scale <= 1e12 => Ok((number * scale) as u64),
            _ => Err(self.error(format!(
                "`{}` is not a rate; write for example 100Mbps, 1Gbps, or 0Mbps for no limit",
                self.text
            ))),
        }
    }

    /// Parses a time in milliseconds. `bare` is the unit of a number that has none.
    ///
    /// # Errors
    /// The text is not a time.
    pub(crate) fn milliseconds(&self, bare: &str) -> Result<f64, TopologyError> {
        let text = &self.text;
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &text[..text.len() - unit.len()];
        let unit = if unit.is_empty() { bare } else { unit };
        let scale = match unit {
            "us" | "usec" | "usecs" => Some(1e-3),
            "ms" | "msec" | "msecs" => Some(1.0),
            "s" | "sec" | "secs" => Some(1e3),
            _ => None,
        };
        match (number.parse::<f64>(), scale) {
            (Ok(number), Some(scale)) if number * scale <= 3.6e6 => Ok(number * scale),
            _ => Err(self.error(format!(
                "`{text}` is not a time of up to an hour; write for example 10ms, 250us or 1.5s"
            ))),
        }
    }

    /// Parses a percentage to a share from 0 to 1.
    ///
    /// # Errors
    /// The text is not a percentage.
    pub(crate) fn percent(&self) -> Result<f64, TopologyError> {
        let number = self.text.strip_suffix('%').and_then(|n| n.parse().ok());
        match number {
            Some(number) if (0.0..=100.0).contains(&number) => Ok(number / 100.0),
            _ => Err(self.error(format!(
                "`{}` is not a share; write 0% to 100%, for example 0.5%",
                self.text
            ))),
        }
    }

    /// Parses the name of a system, link or DIF.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub(crate) fn name(&self, what: &str) -> Result<String, TopologyError> {
        // The files of a system are named after it, with an extension, so its name must not contain
        // a dot.
        let is_system = matches!(what, "system" | "VM");
        let plain =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || c == '.' && !is_system;
        let dot = if is_system { "" } else { "`.`, " };
        let starts = self.text.chars().next();
        let is_name = starts.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
            && self.text.chars().all(plain)
            && self.text.len() <= NAME_MAX;
        if is_name {
            return Ok(self.text.clone());
        }
        Err(self.error(format!(
            "`{}` is not the name of a {what}: give 1 to {NAME_MAX} letters, digits, {dot}`_` and \
             `-`, the first a letter, a digit or `_`",
            self.text
        )))
    }
}

/// An error at a position.
pub(crate) fn error_at(at: Position, message: impl fmt::Display) -> TopologyError {
    TopologyError {
        file: None,
        at,
        message: message.to_string(),
    }
}

/// Splits a line into tokens. Double quotes keep a token together. A `#` at the start of a token
/// begins a comment.
///
/// # Errors
/// A quote is not closed.
pub(crate) fn split(line: usize, text: &str) -> Result<Vec<Token>, TopologyError> {
    let mut words = Vec::new();
    let mut chars = text.chars().enumerate().peekable();
    while let Some(&(index, first)) = chars.peek() {
        if first.is_whitespace() {
            chars.next();
            continue;
        }
        if first == '#' {
            break;
        }
        let at = Position {
            line,
            column: index + 1,
        };
        let mut word = String::new();
        let mut quoted = None;
        while let Some(&(index, c)) = chars.peek() {
            match c {
                '"' => {
                    quoted = if quoted.is_some() {
                        None
                    } else {
                        Some(index + 1)
                    }
                }
                c if c.is_whitespace() && quoted.is_none() => break,
                c => word.push(c),
            }
            chars.next();
        }
        if let Some(column) = quoted {
            return Err(error_at(
                Position { line, column },
                "this quote is not closed",
            ));
        }
        words.push(Token { text: word, at });
    }
    Ok(words)
}

/// Longest name: names become parts of IPCP names, which have at most 64 bytes.
const NAME_MAX: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Token {
        let at = Position { line: 1, column: 1 };
        let text = text.to_owned();
        Token { text, at }
    }

    #[test]
    fn tokens_have_positions_and_quotes_hold_them_together() {
        let words = split(3, "  netem ab \"delay 10ms\" k=\"v w\" # gone").unwrap();
        let texts: Vec<&str> = words.iter().map(|w| w.text.as_str()).collect();
        assert_eq!(texts, ["netem", "ab", "delay 10ms", "k=v w"]);
        assert_eq!(
            words[2].at,
            Position {
                line: 3,
                column: 12
            }
        );
        assert_eq!(words[3].pair().unwrap().1.text, "v w");
        assert_eq!(split(1, "a \"b").unwrap_err().at.column, 3);
    }

    #[test]
    fn values_have_units() {
        assert_eq!(word("100Mbps").rate().unwrap(), 100_000_000);
        assert_eq!(word("0Mbps").rate().unwrap(), 0);
        assert_eq!(word("2.5gbit").rate().unwrap(), 2_500_000_000);
        assert!(word("fast").rate().unwrap_err().message.contains("100Mbps"));
        assert_eq!(word("1.5s").milliseconds("us").unwrap(), 1500.0);
        assert_eq!(word("20").milliseconds("us").unwrap(), 0.02);
        assert!(word("-1ms").milliseconds("ms").is_err());
        assert_eq!(word("50%").percent().unwrap(), 0.5);
        assert!(word("101%").percent().is_err() && word("1").percent().is_err());
        assert!(word("a/b").name("link").is_err() && word("").name("link").is_err());
    }
}
