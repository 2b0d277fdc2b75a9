//! Parses the grammar: terms joined by `and`, `or` and `not`.

use crate::condition::{Conditions, Id};
use crate::error::FilterError;
use crate::names::{Protocol, constant, is_keyword};
use crate::qualifiers::Qualifiers;
use crate::reader::{Parser, symbol_of};
use crate::relation::continues_relation;
use crate::token::{Token, TokenKind};

/// Parses a text; returns `None` as its condition if it is empty.
pub(crate) fn parse(
    tokens: &[Token<'_>],
    end: usize,
) -> Result<(Conditions, Option<Id>), FilterError> {
    let mut parser = Parser::new(tokens, end);
    let root = match tokens {
        [] => None,
        _ => Some(parser.expression(None)?.0),
    };
    if parser.next < tokens.len() {
        return Err(parser.unexpected("and, or, or the end of the filter"));
    }
    Ok((parser.conditions, root))
}

impl Parser<'_> {
    /// Parses terms joined by `and` and `or`, from left to right. The qualifiers of one term apply
    /// to following terms that have none: `port 80 or 443`.
    fn expression(
        &mut self,
        inherited: Option<Qualifiers>,
    ) -> Result<(Id, Option<Qualifiers>), FilterError> {
        let (mut all, mut qualifiers) = self.term(inherited)?;
        while let Some(is_and) = self.joint() {
            self.next += 1;
            let (term, own) = self.term(qualifiers)?;
            qualifiers = own;
            all = if is_and {
                self.conditions.and(all, term)
            } else {
                self.conditions.or(all, term)
            };
        }
        Ok((all, qualifiers))
    }

    fn term(
        &mut self,
        inherited: Option<Qualifiers>,
    ) -> Result<(Id, Option<Qualifiers>), FilterError> {
        if self.is_operand_ahead() && !self.is_relation_ahead() {
            return match inherited {
                Some(qualifiers) => Ok((self.operand_list(qualifiers)?, inherited)),
                None => Err(self.unexpected("a word such as host, net, port, tcp or ip")),
            };
        }
        if self.takes_not() {
            self.enter()?;
            let (term, qualifiers) = self.term(inherited)?;
            self.depth -= 1;
            return Ok((self.conditions.not(term), qualifiers));
        }
        if self.is_relation_ahead() {
            return Ok((self.relation()?, None));
        }
        if self.takes("(") {
            self.enter()?;
            let (all, _) = self.expression(inherited)?;
            self.depth -= 1;
            self.expect(")", "and, or, or )")?;
            return Ok((all, inherited));
        }
        self.primitive()
    }

    /// Whether an address, a number or a name comes next, perhaps behind `not` and parentheses,
    /// that is not part of a relation.
    fn is_operand_ahead(&self) -> bool {
        let mut rest = self.tokens[self.next..].iter().map(|token| &token.kind);
        let first = rest.find(|kind| {
            let skipped = [
                TokenKind::Symbol("("),
                TokenKind::Symbol("!"),
                TokenKind::Word("not"),
            ];
            !skipped.contains(kind)
        });
        match first {
            Some(TokenKind::Word(word)) => !is_keyword(word),
            Some(TokenKind::Number(_)) => {
                let behind = rest.find(|kind| **kind != TokenKind::Symbol(")"));
                !symbol_of(behind).is_some_and(continues_relation)
            }
            Some(TokenKind::Symbol(_)) | None => false,
            Some(_) => true,
        }
    }

    /// Whether a relation comes next. Its left operand may be in parentheses.
    fn is_relation_ahead(&self) -> bool {
        let behind = |at: usize| {
            let symbol = symbol_of(self.tokens.get(at).map(|token| &token.kind));
            symbol.is_some_and(continues_relation)
        };
        match self.peek() {
            Some(TokenKind::Number(_)) => behind(self.next + 1),
            Some(TokenKind::Symbol("-")) => true,
            Some(TokenKind::Word("len" | "length")) => true,
            Some(TokenKind::Word(word)) if Protocol::named(word).is_some() => {
                let next = self.tokens.get(self.next + 1).map(|token| &token.kind);
                symbol_of(next) == Some("[")
            }
            Some(TokenKind::Word(word)) => constant(word).is_some(),
            Some(TokenKind::Symbol("(")) => {
                self.closing().is_some_and(|closing| behind(closing + 1))
            }
            _ => false,
        }
    }

    /// Index of the token that closes the parenthesis that comes next.
    fn closing(&self) -> Option<usize> {
        let mut depth = 0;
        for (at, token) in self.tokens.iter().enumerate().skip(self.next) {
            match token.kind {
                TokenKind::Symbol("(") => depth += 1,
                TokenKind::Symbol(")") => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }
}
