//! Parses relations, such as `ip[2:2] - 20 > 64`.

use crate::condition::{Id, LENGTH, Node};
use crate::error::FilterError;
use crate::names::{Protocol, constant};
use crate::program::{Compare, Field, Operator, REGISTERS, Size, Step};
use crate::reader::Parser;
use crate::token::TokenKind;

/// The result of the steps so far.
struct Operand {
    register: u8,
    /// The value, if it is a constant; the last step is then this constant.
    constant: Option<u32>,
    /// The condition that must hold before the operand's fields are loaded.
    guard: Option<Id>,
}

/// The operators and their precedence. In libpcap's grammar `^` and `%` have no precedence: their
/// right operand is everything that follows.
const OPERATORS: [(&str, Operator, u8); 10] = [
    ("|", Operator::Or, 1),
    ("&", Operator::And, 2),
    ("<<", Operator::ShiftLeft, 3),
    (">>", Operator::ShiftRight, 3),
    ("+", Operator::Add, 4),
    ("-", Operator::Subtract, 4),
    ("*", Operator::Multiply, 5),
    ("/", Operator::Divide, 5),
    ("^", Operator::Xor, TAKES_ALL),
    ("%", Operator::Modulo, TAKES_ALL),
];

const TAKES_ALL: u8 = 6;

/// The comparison that a symbol stands for, and whether its outcome is negated.
fn comparison(symbol: &str) -> Option<(Compare, bool)> {
    Some(match symbol {
        "=" | "==" => (Compare::Equal, false),
        "!=" => (Compare::Equal, true),
        ">" => (Compare::Greater, false),
        "<=" => (Compare::Greater, true),
        ">=" => (Compare::GreaterOrEqual, false),
        "<" => (Compare::GreaterOrEqual, true),
        _ => return None,
    })
}

/// Whether a symbol can follow an operand of a relation.
pub(crate) fn continues_relation(symbol: &str) -> bool {
    comparison(symbol).is_some() || OPERATORS.iter().any(|(name, ..)| *name == symbol)
}

impl Parser<'_> {
    /// Parses a relation.
    pub(crate) fn relation(&mut self) -> Result<Id, FilterError> {
        let mut steps = Vec::new();
        let left = self.arithmetic(0, 0, &mut steps)?;
        let symbol = self.symbol().and_then(comparison);
        let Some((compare, is_reversed)) = symbol else {
            return Err(self.unexpected("one of + - * / % & | ^ << >> = != < <= > >="));
        };
        self.next += 1;
        let right = self.arithmetic(1, 0, &mut steps)?;
        let relation = match steps[..] {
            [Step::Load { field, .. }, Step::Constant { value, .. }] => {
                self.conditions.test(field, u32::MAX, compare, value)
            }
            [
                Step::Load { field, .. },
                Step::Constant { value: mask, .. },
                Step::Apply {
                    operator: Operator::And,
                    ..
                },
                Step::Constant { value, .. },
            ] => self.conditions.test(field, mask, compare, value),
            _ => {
                let (left, right) = (left.register, right.register);
                self.conditions.add(Node::Relation {
                    steps,
                    compare,
                    left,
                    right,
                })
            }
        };
        let relation = if is_reversed {
            self.conditions.not(relation)
        } else {
            relation
        };
        let guard = match (left.guard, right.guard) {
            (Some(left), Some(right)) => Some(self.conditions.and(left, right)),
            (left, right) => left.or(right),
        };
        Ok(match guard {
            Some(guard) => self.conditions.and(guard, relation),
            None => relation,
        })
    }

    /// Parses operands joined by operators of at least the precedence `binding`, and computes the
    /// result in `register`.
    fn arithmetic(
        &mut self,
        register: u8,
        binding: u8,
        steps: &mut Vec<Step>,
    ) -> Result<Operand, FilterError> {
        if usize::from(register) >= REGISTERS {
            return Err(FilterError::Depth {
                at: self.place(),
                max: REGISTERS,
            });
        }
        let mut left = self.operand(register, steps)?;
        while let Some(symbol) = self.symbol()
            && let Some((_, operator, strength)) =
                OPERATORS.iter().find(|(name, ..)| *name == symbol)
        {
            let behind = match *strength {
                TAKES_ALL => 0,
                strength if strength >= binding => strength + 1,
                _ => break,
            };
            self.next += 1;
            let place = self.place();
            self.enter()?;
            let right = self.arithmetic(register + 1, behind, steps)?;
            self.depth -= 1;
            left = apply(*operator, left, &right, place, steps)?;
        }
        Ok(left)
    }

    fn operand(&mut self, register: u8, steps: &mut Vec<Step>) -> Result<Operand, FilterError> {
        let number = match self.peek() {
            Some(TokenKind::Number(number)) => Some(*number),
            Some(TokenKind::Word(word)) => constant(word),
            _ => None,
        };
        let to = register;
        if let Some(value) = number {
            self.next += 1;
            steps.push(Step::Constant { to, value });
            return Ok(Operand {
                register,
                constant: Some(value),
                guard: None,
            });
        }
        if self.takes("(") {
            self.enter()?;
            let inner = self.arithmetic(register, 0, steps)?;
            self.depth -= 1;
            self.expect(")", "an operator or )")?;
            return Ok(inner);
        }
        if self.takes("-") {
            self.enter()?;
            let mut inner = self.arithmetic(register, TAKES_ALL, steps)?;
            self.depth -= 1;
            inner.constant = inner.constant.map(u32::wrapping_neg);
            match inner.constant {
                Some(value) => {
                    steps.pop();
                    steps.push(Step::Constant { to, value });
                }
                None => steps.push(Step::Negate { register }),
            }
            return Ok(inner);
        }
        if self.takes_word("len") || self.takes_word("length") {
            steps.push(Step::Load { to, field: LENGTH });
            return Ok(Operand {
                register,
                constant: None,
                guard: None,
            });
        }
        match self.word().and_then(Protocol::named) {
            Some(protocol) => {
                self.next += 1;
                self.bytes_of(protocol, register, steps)
            }
            None => Err(self.unexpected("a number, len, or a protocol with [")),
        }
    }

    /// Parses `[index]` or `[index:size]` behind a protocol.
    fn bytes_of(
        &mut self,
        protocol: Protocol,
        register: u8,
        steps: &mut Vec<Step>,
    ) -> Result<Operand, FilterError> {
        let place = self.place_before();
        self.expect("[", "[")?;
        self.enter()?;
        let index = self.arithmetic(register, 0, steps)?;
        self.depth -= 1;
        let mut size = Size::Byte;
        if self.takes(":") {
            size = match self.peek() {
                Some(TokenKind::Number(1)) => Size::Byte,
                Some(TokenKind::Number(2)) => Size::Half,
                Some(TokenKind::Number(4)) => Size::Word,
                _ => return Err(self.unexpected("1, 2 or 4 bytes")),
            };
            self.next += 1;
        }
        self.expect("]", "an operator, :SIZE or ]")?;
        let (field, own) = self.bytes_at(protocol, size, index.guard, place)?;
        // A larger index is added at run time, where it wraps as in libpcap.
        match index.constant.filter(|index| *index <= 0xffff) {
            Some(index) => {
                steps.pop();
                let field = Field {
                    offset: field.offset + index,
                    ..field
                };
                steps.push(Step::Load {
                    to: register,
                    field,
                });
            }
            None => steps.push(Step::LoadAt { register, field }),
        }
        Ok(Operand {
            register,
            constant: None,
            guard: own,
        })
    }

    /// Where the bytes of a protocol begin, and the condition that must hold before they are
    /// loaded. `index` is the condition of the index expression.
    fn bytes_at(
        &mut self,
        protocol: Protocol,
        size: Size,
        index: Option<Id>,
        place: usize,
    ) -> Result<(Field, Option<Id>), FilterError> {
        let layout = self.layout;
        let both = |parser: &mut Parser<'_>, first: Option<Id>, second: Id| match first {
            Some(first) => parser.conditions.and(first, second),
            None => second,
        };
        Ok(match protocol {
            Protocol::Link => (
                Field {
                    offset: 0,
                    behind: None,
                    size,
                },
                index,
            ),
            Protocol::Ip | Protocol::Ip6 | Protocol::Arp | Protocol::Rarp => {
                let own = self.protocol_alone(protocol, place)?;
                (layout.network(0, size), Some(both(self, index, own)))
            }
            Protocol::Icmp6 => {
                let own = self.ether_type(0x86dd);
                let guard = both(self, index, own);
                let next = layout.network(6, Size::Byte);
                let next = self.conditions.equal(next, 58);
                (
                    layout.transport6(0, size),
                    Some(self.conditions.and(guard, next)),
                )
            }
            Protocol::Ah | Protocol::Esp => {
                let reason = format!("{}[…] is not possible; write ip[…]", protocol.name());
                return Err(FilterError::Meaning { at: place, reason });
            }
            _ => {
                let ip = self.ether_type(0x0800);
                let own = self.protocol_alone(protocol, place)?;
                let whole = self.not_behind_fragment();
                let own = self.conditions.and(own, whole);
                let own = both(self, index, own);
                (
                    layout.transport4(0, size),
                    Some(self.conditions.and(ip, own)),
                )
            }
        })
    }
}

/// Applies an operator to two operands; the right one is in the register after the left one's.
fn apply(
    operator: Operator,
    left: Operand,
    right: &Operand,
    place: usize,
    steps: &mut Vec<Step>,
) -> Result<Operand, FilterError> {
    let refused = |reason: &str| {
        let reason = reason.to_owned();
        Err(FilterError::Meaning { at: place, reason })
    };
    match (operator, right.constant) {
        (Operator::Divide | Operator::Modulo, Some(0)) => {
            return refused("division by zero; the divisor must be 1 or more");
        }
        (Operator::ShiftLeft | Operator::ShiftRight, Some(32..)) => {
            return refused("a shift must be by 0 to 31 bits");
        }
        _ => {}
    }
    let (to, with) = (left.register, right.register);
    let constant = left.constant.zip(right.constant);
    let constant = constant.and_then(|(left, right)| operator.apply(left, right));
    match constant {
        Some(value) => {
            steps.truncate(steps.len().saturating_sub(2));
            steps.push(Step::Constant { to, value });
        }
        None => steps.push(Step::Apply { operator, to, with }),
    }
    Ok(Operand { constant, ..left })
}
