//! Splits a filter into tokens.

use std::net::Ipv6Addr;

use crate::error::FilterError;

/// A token, and its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind<'a>,
    /// Offset in the text in bytes, from 0.
    pub(crate) at: usize,
    pub(crate) text: &'a str,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind<'a> {
    Number(u32),
    /// Two to four decimal parts joined by dots. `value` has them in its low bytes.
    Ip4 {
        value: u32,
        parts: u32,
    },
    Ip6(u128),
    Mac([u8; 6]),
    /// A keyword or a name.
    Word(&'a str),
    /// A name behind a backslash, which is not a keyword.
    Escaped(&'a str),
    Symbol(&'static str),
}

/// Symbols, ordered so that longer ones are tried before their beginnings.
const SYMBOLS: [&str; 23] = [
    "&&", "||", "<<", ">>", "<=", ">=", "!=", "==", "(", ")", "[", "]", "!", "&", "|", "^", "+",
    "-", "*", "/", "%", "<", ">",
];

/// Splits a text into tokens.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let token = token(text, at, first)?;
        at += token.text.len();
        tokens.push(token);
    }
    Ok(tokens)
}

fn token(text: &str, at: usize, first: char) -> Result<Token<'_>, FilterError> {
    let rest = &text[at..];
    if let Some(name) = rest.strip_prefix('\\') {
        let name = word(name);
        if !name.is_empty() {
            let kind = TokenKind::Escaped(name);
            let text = &rest[..name.len() + 1];
            return Ok(Token { kind, at, text });
        }
    }
    if first.is_ascii_hexdigit() || first == ':' {
        let run = run(rest, |byte| {
            byte.is_ascii_hexdigit() || b":.".contains(&byte)
        });
        // A dot or colon can follow an address only as part of it.
        if let Ok(address) = run.parse::<Ipv6Addr>() {
            let kind = TokenKind::Ip6(address.to_bits());
            return Ok(Token {
                kind,
                at,
                text: run,
            });
        }
        if let Some(mac) = mac_of(run.split(':')) {
            let kind = TokenKind::Mac(mac);
            return Ok(Token {
                kind,
                at,
                text: run,
            });
        }
    }
    let name = word(rest);
    if !name.is_empty() {
        let kind = classify(name, at)?;
        return Ok(Token {
            kind,
            at,
            text: name,
        });
    }
    for symbol in SYMBOLS.into_iter().chain(["=", ":"]) {
        if rest.starts_with(symbol) {
            let (kind, text) = (TokenKind::Symbol(symbol), symbol);
            return Ok(Token { kind, at, text });
        }
    }
    Err(FilterError::Character {
        at: at + 1,
        found: first,
    })
}

fn run(text: &str, is_part: impl Fn(u8) -> bool) -> &str {
    let end = text.bytes().position(|byte| !is_part(byte));
    &text[..end.unwrap_or(text.len())]
}

/// The word at the beginning of `text`: letters, digits, `-`, `_` and `.`. It begins with a letter
/// or digit, and does not end with `-` or `_`.
fn word(text: &str) -> &str {
    if !text.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return "";
    }
    let word = run(text, |byte| {
        byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
    });
    word.trim_end_matches(['-', '_'])
}

fn classify(text: &str, at: usize) -> Result<TokenKind<'_>, FilterError> {
    if text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(TokenKind::Mac(mac_of_digits(text)));
    }
    if is_number(text) {
        let number = number(text).ok_or_else(|| FilterError::Number {
            at: at + 1,
            text: text.to_owned(),
        });
        return number.map(TokenKind::Number);
    }
    let parts: Vec<&str> = text.split('.').collect();
    let mac = mac_of(text.split('-')).or_else(|| mac_of(text.split('.')));
    if let Some(mac) = mac {
        return Ok(TokenKind::Mac(mac));
    }
    if parts.len() == 3 && parts.iter().all(|part| is_hex(part, 4)) {
        return Ok(TokenKind::Mac(mac_of_digits(&parts.concat())));
    }
    if (2..=4).contains(&parts.len()) && parts.iter().all(|part| is_number(part)) {
        let mut value = 0;
        for part in &parts {
            let wrong = || FilterError::Address {
                at: at + 1,
                text: text.to_owned(),
            };
            value = value << 8 | u32::from(part.parse::<u8>().map_err(|_| wrong())?);
        }
        let parts = parts.len() as u32;
        return Ok(TokenKind::Ip4 { value, parts });
    }
    Ok(TokenKind::Word(text))
}

fn is_number(text: &str) -> bool {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn number(text: &str) -> Option<u32> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u32::from_str_radix(digits, 16).ok();
    }
    let radix = if text.starts_with('0') { 8 } else { 10 };
    u32::from_str_radix(text, radix).ok()
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Parses a MAC address of six parts, each with one or two digits.
fn mac_of<'a>(parts: impl Iterator<Item = &'a str>) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut count = 0;
    for part in parts {
        if !is_hex(part, 1) && !is_hex(part, 2) {
            return None;
        }
        *mac.get_mut(count)? = u8::from_str_radix(part, 16).ok()?;
        count += 1;
    }
    (count == 6).then_some(mac)
}

/// Parses a MAC address of twelve digits.
fn mac_of_digits(digits: &str) -> [u8; 6] {
    let mut mac = [0; 6];
    for (byte, pair) in mac.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).unwrap_or(0) as u8;
        *byte = digit(0) << 4 | digit(1);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind<'_>> {
        tokens(text)
            .unwrap()
            .into_iter()
            .map(|token| token.kind)
            .collect()
    }

    #[test]
    fn numbers_and_addresses_differ_by_their_form() {
        let mac = TokenKind::Mac([1, 2, 3, 4, 5, 6]);
        for text in [
            "1:2:3:4:5:6",
            "01-02-03-04-05-06",
            "0102.0304.0506",
            "010203040506",
        ] {
            assert_eq!(kinds(text), std::slice::from_ref(&mac), "{text}");
        }
        let (value, parts) = (0x0a01, 2);
        assert_eq!(kinds("10.1"), [TokenKind::Ip4 { value, parts }]);
        assert_eq!(
            kinds("0x10 010"),
            [TokenKind::Number(16), TokenKind::Number(8)]
        );
        assert_eq!(kinds("fd00::1"), [TokenKind::Ip6(0xfd << 120 | 1)]);
        let range = [
            TokenKind::Number(2),
            TokenKind::Symbol(":"),
            TokenKind::Number(4),
        ];
        assert_eq!(kinds("2:4"), range);
        assert_eq!(kinds("80-90"), [TokenKind::Word("80-90")]);
    }

    #[test]
    fn wrong_words_are_refused_with_their_place() {
        assert_eq!(
            tokens("tcp # x").unwrap_err().to_string(),
            "character 5: '#' has no meaning in a filter"
        );
        assert!(tokens("port 08").is_err() && tokens("len > 4294967296").is_err());
        assert!(tokens("host 10.0.0.256").is_err());
    }
}
