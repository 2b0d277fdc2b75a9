//! A line of a topology file as words with their places, and the values that words stand for.

use super::topology::{At, Wrong};

/// A word and where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The word, without its quotes.
    pub text: String,
    /// Where it begins.
    pub at: At,
}

impl Word {
    /// What is wrong with this word.
    pub fn wrong(&self, what: impl Into<String>) -> Wrong {
        wrong(self.at, what)
    }

    /// The key and the value of `KEY=VALUE`.
    pub fn pair(&self) -> Option<(&str, Word)> {
        let (key, value) = self.text.split_once('=')?;
        let at = At {
            column: self.at.column + key.chars().count() + 1,
            ..self.at
        };
        let text = value.to_owned();
        Some((key, Word { text, at }))
    }

    /// A number.
    ///
    /// # Errors
    /// It is none, or out of range.
    pub fn number(&self, what: &str, least: u64, most: u64) -> Result<u64, Wrong> {
        match self.text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(self.wrong(format!(
                "{what} is `{}`; a number from {least} to {most} is right",
                self.text
            ))),
        }
    }

    /// A rate in bits per second: `100Mbps` as rlite has it, `10mbit` as `tc` has it; 0 for none.
    ///
    /// # Errors
    /// It is none.
    pub fn rate(&self) -> Result<u64, Wrong> {
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
            _ => Err(self.wrong(format!(
                "`{}` is no rate; for example 100Mbps, 1Gbps, or 0Mbps for no limit",
                self.text
            ))),
        }
    }

    /// A time in milliseconds; `bare` is the unit of a number without one.
    ///
    /// # Errors
    /// It is none.
    pub fn milliseconds(&self, bare: &str) -> Result<f64, Wrong> {
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
            _ => Err(self.wrong(format!(
                "`{text}` is no time up to an hour; for example 10ms, 250us or 1.5s"
            ))),
        }
    }

    /// A share from 0 to 1, written as percent.
    ///
    /// # Errors
    /// It is none.
    pub fn percent(&self) -> Result<f64, Wrong> {
        let number = self.text.strip_suffix('%').and_then(|n| n.parse().ok());
        match number {
            Some(number) if (0.0..=100.0).contains(&number) => Ok(number / 100.0),
            _ => Err(self.wrong(format!(
                "`{}` is no share; 0% to 100% is right, for example 0.5%",
                self.text
            ))),
        }
    }

    /// A name of a system, link or DIF.
    ///
    /// # Errors
    /// It is none.
    pub fn name(&self, what: &str) -> Result<String, Wrong> {
        // Files of a system are called by its name, a dot and what they are.
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
        Err(self.wrong(format!(
            "`{}` is no name of a {what}: 1 to {NAME_MAX} letters, digits, {dot}`_` and `-` are \
             possible, the first a letter, a digit or `_`",
            self.text
        )))
    }
}

/// What is wrong at a place.
pub fn wrong(at: At, what: impl Into<String>) -> Wrong {
    Wrong {
        file: None,
        at,
        what: what.into(),
    }
}

/// Splits a line into words. Double quotes hold a word together; `#` at the start of a word begins
/// a comment.
///
/// # Errors
/// A quote is not closed.
pub fn split(line: usize, text: &str) -> Result<Vec<Word>, Wrong> {
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
        let at = At {
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
            return Err(wrong(At { line, column }, "this quote is not closed"));
        }
        words.push(Word { text: word, at });
    }
    Ok(words)
}

/// The entry of a list that a word was probably meant to be.
pub fn nearest<'a>(word: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let closest = among
        .into_iter()
        .map(|known| (distance(word, known), known));
    let (far, known) = closest.min_by_key(|(far, _)| *far)?;
    (far <= 1 + word.chars().count() / 4).then_some(known)
}

/// Letters to insert, delete or replace to make one word the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Names become parts of names of IPCPs, which have 64 bytes at most.
const NAME_MAX: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Word {
        let at = At { line: 1, column: 1 };
        let text = text.to_owned();
        Word { text, at }
    }

    #[test]
    fn words_have_places_and_quotes_hold_them_together() {
        let words = split(3, "  netem ab \"delay 10ms\" k=\"v w\" # gone").unwrap();
        let texts: Vec<&str> = words.iter().map(|w| w.text.as_str()).collect();
        assert_eq!(texts, ["netem", "ab", "delay 10ms", "k=v w"]);
        assert_eq!(
            words[2].at,
            At {
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
        assert!(word("fast").rate().unwrap_err().what.contains("100Mbps"));
        assert_eq!(word("1.5s").milliseconds("us").unwrap(), 1500.0);
        assert_eq!(word("20").milliseconds("us").unwrap(), 0.02);
        assert!(word("-1ms").milliseconds("ms").is_err());
        assert_eq!(word("50%").percent().unwrap(), 0.5);
        assert!(word("101%").percent().is_err() && word("1").percent().is_err());
        assert!(word("a/b").name("link").is_err() && word("").name("link").is_err());
    }

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
        assert_eq!(nearest("sytem", ["system", "eth"]), Some("system"));
        assert_eq!(nearest("frobnicate", ["system", "eth"]), None);
    }
}
