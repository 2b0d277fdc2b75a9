//! The state of the parser: remaining tokens, layout of headers, and the conditions so far.

use crate::condition::Conditions;
use crate::error::FilterError;
use crate::layout::Layout;
use crate::names::instead_of;
use crate::token::{Token, TokenKind};

/// Deepest nesting of parentheses, `not` and operators.
const DEPTH_MAX: usize = 64;

/// Parses tokens into conditions.
pub(crate) struct Parser<'a> {
    pub(crate) tokens: &'a [Token<'a>],
    /// Length of the text, in bytes.
    end: usize,
    pub(crate) next: usize,
    pub(crate) depth: usize,
    pub(crate) layout: Layout,
    pub(crate) conditions: Conditions,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(tokens: &'a [Token<'a>], end: usize) -> Parser<'a> {
        Parser {
            tokens,
            end,
            next: 0,
            depth: 0,
            layout: Layout::ETHERNET,
            conditions: Conditions::default(),
        }
    }

    pub(crate) fn peek(&self) -> Option<&'a TokenKind<'a>> {
        self.tokens.get(self.next).map(|token| &token.kind)
    }

    pub(crate) fn symbol(&self) -> Option<&'a str> {
        symbol_of(self.peek())
    }

    pub(crate) fn word(&self) -> Option<&'a str> {
        match self.peek() {
            Some(TokenKind::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Consumes the next token if it is this symbol.
    pub(crate) fn takes(&mut self, symbol: &str) -> bool {
        let is_next = self.symbol() == Some(symbol);
        self.next += usize::from(is_next);
        is_next
    }

    /// Consumes the next token if it is this word.
    pub(crate) fn takes_word(&mut self, word: &str) -> bool {
        let is_next = self.word() == Some(word);
        self.next += usize::from(is_next);
        is_next
    }

    pub(crate) fn expect(&mut self, symbol: &str, wanted: &'static str) -> Result<(), FilterError> {
        if self.takes(symbol) {
            Ok(())
        } else {
            Err(self.unexpected(wanted))
        }
    }

    /// Position of the next token in the text, from 1.
    pub(crate) fn place(&self) -> usize {
        self.tokens
            .get(self.next)
            .map_or(self.end, |token| token.at)
            + 1
    }

    /// Position of the previous token in the text, from 1.
    pub(crate) fn place_before(&self) -> usize {
        self.tokens
            .get(self.next.wrapping_sub(1))
            .map_or(0, |token| token.at)
            + 1
    }

    pub(crate) fn unexpected(&self, wanted: &'static str) -> FilterError {
        if let Some(word) = self.word()
            && let Some(instead) = instead_of(word)
        {
            let (at, word) = (self.place(), word.to_owned());
            return FilterError::NotImplemented { at, word, instead };
        }
        let found = match self.tokens.get(self.next) {
            Some(token) => token.text.to_owned(),
            None => "the end of the filter".to_owned(),
        };
        FilterError::Unexpected {
            at: self.place(),
            found,
            wanted,
        }
    }

    pub(crate) fn wrong<T>(&self, at: usize, reason: String) -> Result<T, FilterError> {
        Err(FilterError::Meaning { at, reason })
    }

    /// Enters one level of nesting; the caller decreases `depth` again.
    pub(crate) fn enter(&mut self) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(FilterError::Depth {
                at: self.place(),
                max: DEPTH_MAX,
            });
        }
        Ok(())
    }

    /// Whether the next word is `and` (`true`) or `or` (`false`); `None` if it is neither.
    pub(crate) fn joint(&self) -> Option<bool> {
        match (self.word(), self.symbol()) {
            (Some("and"), _) | (_, Some("&&")) => Some(true),
            (Some("or"), _) | (_, Some("||")) => Some(false),
            _ => None,
        }
    }

    pub(crate) fn takes_not(&mut self) -> bool {
        self.takes_word("not") || self.takes("!")
    }
}

pub(crate) fn symbol_of<'a>(kind: Option<&TokenKind<'a>>) -> Option<&'a str> {
    match kind {
        Some(TokenKind::Symbol(symbol)) => Some(symbol),
        _ => None,
    }
}
