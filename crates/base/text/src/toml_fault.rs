//! Errors of TOML in words for the author of a file: the line, the key, the value, and what would
//! be right.

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use crate::line_counter::line_of;

/// An error in a TOML text, described for the author of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TomlFault {
    /// Number of the faulty line, from 1.
    pub line: usize,
    /// What is wrong on the line, and what would be right.
    pub text: String,
}

impl TomlFault {
    /// Describes an error of parsing `text`, for example
    /// `vlan = "5": must be a whole number from 0 to 65535, without quotes`.
    #[must_use]
    pub fn of(text: &str, error: &Error) -> TomlFault {
        let span = error.span().unwrap_or(0..0);
        let found = text.get(span.clone()).unwrap_or_default();
        let root = DeTable::parse_recoverable(text).0;
        let key = key_at(root.get_ref(), span.start);
        TomlFault {
            line: line_of(text, span.start),
            text: words(error.message(), key.as_deref(), Some(found)),
        }
    }
}

/// Describes an error of reading a table that has no position in a text. Returns the keys that lead
/// to the value, and the description.
#[must_use]
pub fn words_of(error: &Error) -> (Vec<String>, String) {
    let shown = error.to_string();
    let behind = shown.trim_end().rsplit_once("\nin `");
    let path = behind.map_or("", |(_, path)| path.trim_end_matches('`'));
    let keys: Vec<String> = if path.is_empty() {
        Vec::new()
    } else {
        path.split('.').map(str::to_owned).collect()
    };
    let key = (!path.is_empty()).then_some(path);
    let text = words(error.message(), key, None);
    (keys, text)
}

/// Rewrites a message of `serde` without names of Rust types, for a value whose key is not known.
#[must_use]
pub fn plain(message: &str) -> String {
    words(message, None, None)
}

/// Returns the line, from 1, of the value that `keys` lead to in a text. If a key is missing,
/// returns the line of the table in which it should be.
#[must_use]
pub fn line_of_keys(text: &str, keys: &[&str]) -> usize {
    let root = DeTable::parse_recoverable(text).0;
    let (mut table, mut at) = (root.get_ref(), 0);
    for key in keys {
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref() == key) else {
            break;
        };
        at = name.span().start;
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    line_of(text, at)
}

/// The innermost key whose value contains the byte offset.
fn key_at(table: &DeTable<'_>, byte: usize) -> Option<String> {
    let (key, value) = (table.iter()).find(|(_, value)| holds(value, byte))?;
    let inner = key_within(value.get_ref(), byte);
    Some(inner.unwrap_or_else(|| key.get_ref().to_string()))
}

fn key_within(value: &DeValue<'_>, byte: usize) -> Option<String> {
    match value {
        DeValue::Table(table) => key_at(table, byte),
        DeValue::Array(items) => {
            let item = items.iter().find(|item| holds(item, byte))?;
            key_within(item.get_ref(), byte)
        }
        _ => None,
    }
}

/// Whether a value contains the byte offset. The span of a table `[a]` is only its header, so the
/// values in it are searched too.
fn holds(value: &Spanned<DeValue<'_>>, byte: usize) -> bool {
    let is_in = match value.get_ref() {
        DeValue::Table(table) => table.iter().any(|(_, value)| holds(value, byte)),
        DeValue::Array(items) => items.iter().any(|item| holds(item, byte)),
        _ => false,
    };
    is_in || value.span().contains(&byte)
}

fn words(message: &str, key: Option<&str>, found: Option<&str>) -> String {
    let wrong = ["invalid type: ", "invalid value: ", "invalid length "];
    let rest = wrong.iter().find_map(|begin| message.strip_prefix(begin));
    let text = match rest.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((shown, expected)) => {
            let is_text = shown.starts_with("string ");
            let wanted = wanted(expected, is_text);
            if let Some(key) = key
                && expected == "a sequence"
                && found.is_some_and(|found| found == format!("[{key}]"))
            {
                return format!("[{key}]: must be [[{key}]], one for each item of the list");
            }
            return match (key, found.filter(|found| !found.is_empty())) {
                (Some(key), _) if is_secret(key) => format!("{key}: must be {wanted}"),
                (Some(key), Some(found)) => format!("{key} = {}: must be {wanted}", cut(found)),
                (Some(key), None) => format!("{key} = {}: must be {wanted}", bare(shown)),
                (None, _) => format!("{}: must be {wanted}", bare(shown)),
            };
        }
        None => message,
    };
    // Messages that already have clear words from the parser or a type.
    let names_its_key = ["unknown field", "missing field", "duplicate"];
    match key {
        Some(key) if !names_its_key.iter().any(|begin| text.starts_with(begin)) => {
            format!("{key}: {text}")
        }
        _ => text.to_owned(),
    }
}

/// Formats a value as in a file, from the form in which `serde` shows it.
fn bare(shown: &str) -> String {
    match shown.split_once('`') {
        Some((_, value)) => value.trim_end_matches('`').to_owned(),
        None => cut(shown.strip_prefix("string ").unwrap_or(shown)),
    }
}

/// The first line of a value, shortened.
fn cut(found: &str) -> String {
    let line = found.lines().next().unwrap_or_default();
    let end = line.floor_char_boundary(SHOWN_BYTES);
    if end < found.len() {
        format!("{} …", &line[..end])
    } else {
        line.to_owned()
    }
}

/// Whether the key's value is secret and must not appear in a log.
fn is_secret(key: &str) -> bool {
    let secret = ["key", "salt", "password", "secret", "token"];
    secret.iter().any(|word| key.contains(word))
}

/// Rewrites what `serde` expected without names of Rust types.
fn wanted(expected: &str, is_text: bool) -> String {
    let whole = |min: &str, max: u64| format!("a whole number from {min} to {max}");
    let number = match expected {
        "u8" => whole("0", u8::MAX.into()),
        "u16" => whole("0", u16::MAX.into()),
        "u32" => whole("0", u32::MAX.into()),
        "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "i8" => whole("-128", i8::MAX as u64),
        "i16" => whole("-32768", i16::MAX as u64),
        "i32" => whole("-2147483648", i32::MAX as u64),
        "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" | "bool" => "true or false".to_owned(),
        _ => {
            return match expected {
                "a string" | "string" | "a borrowed string" | "path string" | "str" => {
                    "text in quotes".to_owned()
                }
                "a map" => "a table".to_owned(),
                "a sequence" => "a list in [ ]".to_owned(),
                _ if expected.starts_with("struct ") => "a table".to_owned(),
                _ => match expected.strip_prefix("an array of length ") {
                    Some(count) => format!("a list of {count} in [ ]"),
                    None => expected.to_owned(),
                },
            };
        }
    };
    if is_text {
        format!("{number}, without quotes")
    } else {
        number
    }
}

/// Largest number of bytes of a value that an error shows.
const SHOWN_BYTES: usize = 40;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it is read matters")]
    struct File {
        vlan: Option<u16>,
        rate: Option<f64>,
        name: Option<String>,
        is_on: Option<bool>,
        list: Option<Vec<u8>>,
        address: Option<Ipv4Addr>,
        inner: Option<Inner>,
        port: Option<Vec<Inner>>,
        ends: Option<[u8; 2]>,
        auth_key: Option<u32>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it is read matters")]
    struct Inner {
        size: i32,
    }

    fn fault(text: &str) -> (usize, String) {
        let error = toml::from_str::<File>(text).expect_err(text);
        let fault = TomlFault::of(text, &error);
        (fault.line, fault.text)
    }

    #[test]
    fn errors_name_key_value_line_and_remedy() {
        for (text, line, message) in [
            (
                "\nvlan = \"5\"",
                2,
                "vlan = \"5\": must be a whole number from 0 to 65535, without quotes",
            ),
            (
                "vlan = 70000",
                1,
                "vlan = 70000: must be a whole number from 0 to 65535",
            ),
            (
                "vlan = 1.5",
                1,
                "vlan = 1.5: must be a whole number from 0 to 65535",
            ),
            (
                "rate = \"100\"",
                1,
                "rate = \"100\": must be a number, without quotes",
            ),
            ("name = 5", 1, "name = 5: must be text in quotes"),
            (
                "is_on = \"yes\"",
                1,
                "is_on = \"yes\": must be true or false, without quotes",
            ),
            (
                "list = [1,\n 300]",
                2,
                "list = 300: must be a whole number from 0 to 255",
            ),
            ("list = 5", 1, "list = 5: must be a list in [ ]"),
            (
                "[inner]\n\nsize = true",
                3,
                "size = true: must be a whole number from -2147483648 to 2147483647",
            ),
            ("inner = 5", 1, "inner = 5: must be a table"),
            (
                "[port]\nsize = 1",
                1,
                "[port]: must be [[port]], one for each item of the list",
            ),
            ("ends = 5", 1, "ends = 5: must be a list of 2 in [ ]"),
            (
                "[[port]]\nsize = 1\n[[port]]\nsize = \"x\"",
                4,
                "size = \"x\": must be a whole number from -2147483648 to 2147483647, without quotes",
            ),
        ] {
            assert_eq!(fault(text), (line, message.to_owned()), "{text}");
        }
    }

    #[test]
    fn messages_that_are_plain_stay_and_keys_are_not_shown() {
        let (line, message) = fault("vlans = 5");
        assert!(
            line == 1 && message.starts_with("unknown field `vlans`"),
            "{message}"
        );
        let (_, message) = fault("address = \"1.2.3\"");
        assert!(message.starts_with("address: invalid IPv4"), "{message}");
        let (_, message) = fault("auth_key = \"abc\"");
        assert!(
            !message.contains("abc") && message.contains("auth_key"),
            "{message}"
        );
        let (line, message) = fault("vlan = 5\nx");
        assert!(line == 2 && !message.is_empty(), "{message}");
    }

    #[test]
    fn messages_of_other_readers_have_no_types() {
        let message = plain("invalid type: string \"5\", expected u16");
        assert_eq!(
            message,
            "\"5\": must be a whole number from 0 to 65535, without quotes"
        );
        assert_eq!(
            plain("invalid type: null, expected struct Node"),
            "null: must be a table"
        );
        assert_eq!(plain("trailing comma"), "trailing comma");
    }

    #[test]
    fn tables_without_text_have_keys_in_their_errors() {
        let table: toml::Table = toml::from_str("[inner]\nsize = \"5\"").unwrap();
        let error = table.try_into::<File>().unwrap_err();
        let (keys, message) = words_of(&error);
        assert_eq!(keys, ["inner", "size"]);
        assert!(
            message.starts_with("inner.size = \"5\": must be a whole"),
            "{message}"
        );
        let text = "[a]\nx = 1\n[b]\n\ny = { z = 1 }";
        let line = |keys: &[&str]| line_of_keys(text, keys);
        assert_eq!(
            [line(&["b", "y"]), line(&["b", "q"]), line(&["c"])],
            [5, 3, 1]
        );
    }
}
