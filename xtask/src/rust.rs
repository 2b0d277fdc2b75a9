//! The tokens of a Rust file, as far as the chores need them.

/// One token. Literals, comments and lifetimes are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// An identifier or a keyword.
    Word(&'a str),
    /// `::`
    Path,
    /// Any other character.
    Punct(char),
}

/// The tokens of a file, each with the number of its line.
pub(crate) fn tokens(text: &str) -> Vec<(Token<'_>, usize)> {
    let mut lexer = Lexer { text, at: 0 };
    let (mut tokens, mut line, mut counted) = (Vec::new(), 1, 0);
    while let Some((token, begin)) = lexer.next() {
        line += text[counted..begin].matches('\n').count();
        counted = begin;
        tokens.push((token, line));
    }
    tokens
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    /// The next token and where it begins.
    fn next(&mut self) -> Option<(Token<'a>, usize)> {
        loop {
            let rest = &self.text[self.at..];
            let first = rest.chars().next()?;
            let begin = self.at;
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                self.at += block_comment(rest);
            } else if let Some(length) = text_literal(rest) {
                self.at += length;
            } else if first == '\'' {
                self.at += after_quote(rest);
            } else if rest.starts_with("::") {
                self.at += 2;
                return Some((Token::Path, begin));
            } else if is_word(first) {
                let rest = rest.strip_prefix("r#").unwrap_or(rest);
                let begin = self.text.len() - rest.len();
                let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                self.at = begin + length;
                if !first.is_ascii_digit() {
                    return Some((Token::Word(&rest[..length]), begin));
                }
            } else {
                self.at += first.len_utf8();
                if !first.is_whitespace() {
                    return Some((Token::Punct(first), begin));
                }
            }
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of a comment that may hold others.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of the text literal that `rest` begins with.
fn text_literal(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r"]
        .into_iter()
        .find(|prefix| {
            let after = rest.strip_prefix(prefix).unwrap_or_default();
            let hashes = if prefix.ends_with('r') {
                after.trim_start_matches('#')
            } else {
                after
            };
            hashes.starts_with('"')
        })
        .unwrap_or_default();
    let after = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = after.len() - after.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let body = prefix.len() + hashes + 1;
        return Some(
            rest[body..]
                .find(&end)
                .map_or(rest.len(), |at| body + at + end.len()),
        );
    }
    let body = after.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = body.find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    Some(end.map_or(rest.len(), |at| prefix.len() + 1 + at + 1))
}

/// The length of a character literal, or of a lifetime's quote.
fn after_quote(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let at = at + escaped.len_utf8();
            at + rest[at..].find('\'').map_or(0, |end| end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_left_out() {
        let text = "a /* b /* c */ d */ \"e\\\" f\" r#\"g\" h\"# 'i' '\\'' &'j k // l\n1u8 b'm' n";
        let words: Vec<_> = tokens(text)
            .into_iter()
            .filter_map(|(token, line)| match token {
                Token::Word(word) => Some((word, line)),
                _ => None,
            })
            .collect();
        assert_eq!(words, [("a", 1), ("j", 1), ("k", 1), ("b", 2), ("n", 2)]);
    }

    #[test]
    fn paths_and_marks_are_tokens() {
        let found: Vec<_> = tokens("a::r#type{}")
            .into_iter()
            .map(|(token, _)| token)
            .collect();
        assert_eq!(
            found,
            [
                Token::Word("a"),
                Token::Path,
                Token::Word("type"),
                Token::Punct('{'),
                Token::Punct('}')
            ]
        );
    }
}
